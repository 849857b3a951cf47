//! A request over HTTP/2 or HTTP/3, as an exchange uses either.

use ::h2::Reason;
use bytes::Bytes;

use crate::connection::Stop;
use crate::head::Head;
use crate::http2::{Farewell, Piece};
use crate::request::Refusal;
use crate::{http2, http3};

/// A request and its response.
pub(crate) enum Stream {
    Http2(http2::Stream),
    Http3(http3::Stream),
}

impl Stream {
    /// Waits for the next piece of the request body.
    pub(crate) async fn receive(&mut self) -> Result<Piece, Stop> {
        match self {
            Self::Http2(stream) => stream.receive().await,
            Self::Http3(stream) => stream.receive().await,
        }
    }

    /// Sends a 1xx response.
    pub(crate) async fn interim(&mut self, head: &Head) -> Result<(), Stop> {
        match self {
            Self::Http2(stream) => stream.interim(head),
            Self::Http3(stream) => stream.interim(head).await,
        }
    }

    /// Begins the response. The head is sent with the first piece, or alone.
    pub(crate) fn begin(&mut self, head: &Head, date: &[u8]) {
        match self {
            Self::Http2(stream) => stream.begin(head, date),
            Self::Http3(stream) => stream.begin(head, date),
        }
    }

    /// Sends the head, if it is not sent yet.
    pub(crate) async fn send_head(&mut self) -> Result<(), Stop> {
        match self {
            Self::Http2(stream) => stream.send_head(false),
            Self::Http3(stream) => stream.send_head().await,
        }
    }

    /// Sends a piece of the body, as fast as the client's flow control allows.
    pub(crate) async fn send(&mut self, bytes: Bytes) -> Result<(), Stop> {
        match self {
            Self::Http2(stream) => stream.send(bytes).await,
            Self::Http3(stream) => stream.send(bytes).await,
        }
    }

    /// Ends the response, with these trailers if there are any.
    pub(crate) async fn finish(&mut self, trailers: &[(&str, &[u8])]) -> Result<(), Stop> {
        match self {
            Self::Http2(stream) => stream.finish(trailers),
            Self::Http3(stream) => stream.finish(trailers).await,
        }
    }

    /// Ends the response after the bytes sent so far, if it has not ended.
    pub(crate) async fn end(&mut self) {
        match self {
            Self::Http2(stream) => stream.end(),
            Self::Http3(stream) => stream.end().await,
        }
    }

    /// Resets the stream, in both directions.
    pub(crate) fn reset(&mut self, reason: Reason) {
        match self {
            Self::Http2(stream) => stream.reset(reason),
            Self::Http3(stream) => stream.reset(match reason {
                Reason::REFUSED_STREAM => h3::Code::REQUEST_REJECTED,
                _ => h3::Code::INTERNAL_ERROR,
            }),
        }
    }

    /// Rejects the request: sends an error response with the reason.
    pub(crate) async fn refuse(&mut self, refusal: Refusal) {
        match self {
            Self::Http2(stream) => stream.refuse(refusal).await,
            Self::Http3(stream) => stream.refuse(refusal).await,
        }
    }

    /// Waits until the client resets the stream, or the connection ends.
    pub(crate) async fn wait_for_reset(&mut self) -> Result<(), Stop> {
        match self {
            Self::Http2(stream) => stream.wait_for_reset().await,
            Self::Http3(stream) => stream.wait_for_reset().await,
        }
    }

    /// Requests that the whole connection ends.
    pub(crate) fn say_farewell(&self, farewell: Farewell) {
        match self {
            Self::Http2(stream) => stream.say_farewell(farewell),
            Self::Http3(stream) => stream.say_farewell(farewell),
        }
    }
}
