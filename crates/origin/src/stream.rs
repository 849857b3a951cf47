//! A request over HTTP/2 or HTTP/3, behind one interface. The methods are documented in `http2::Stream`.

use ::h2::Reason;
use bytes::Bytes;

use crate::connection::Stop;
use crate::head::OriginHead;
use crate::http2::{BodyPiece, Farewell};
use crate::request::RequestRefusal;
use crate::{http2, http3};

pub(crate) enum OriginStream {
    Http2(http2::OriginH2Stream),
    Http3(http3::OriginH3Stream),
}

impl OriginStream {
    pub(crate) async fn receive(&mut self) -> Result<BodyPiece, Stop> {
        match self {
            Self::Http2(stream) => stream.receive().await,
            Self::Http3(stream) => stream.receive().await,
        }
    }

    pub(crate) async fn interim(&mut self, head: &OriginHead) -> Result<(), Stop> {
        match self {
            Self::Http2(stream) => stream.interim(head),
            Self::Http3(stream) => stream.interim(head).await,
        }
    }

    pub(crate) fn begin(&mut self, head: &OriginHead, date: &[u8]) {
        match self {
            Self::Http2(stream) => stream.begin(head, date),
            Self::Http3(stream) => stream.begin(head, date),
        }
    }

    pub(crate) async fn send_head(&mut self) -> Result<(), Stop> {
        match self {
            Self::Http2(stream) => stream.send_head(false),
            Self::Http3(stream) => stream.send_head().await,
        }
    }

    pub(crate) async fn send(&mut self, bytes: Bytes) -> Result<(), Stop> {
        match self {
            Self::Http2(stream) => stream.send(bytes).await,
            Self::Http3(stream) => stream.send(bytes).await,
        }
    }

    pub(crate) async fn finish(&mut self, trailers: &[(&str, &[u8])]) -> Result<(), Stop> {
        match self {
            Self::Http2(stream) => stream.finish(trailers),
            Self::Http3(stream) => stream.finish(trailers).await,
        }
    }

    pub(crate) async fn end(&mut self) {
        match self {
            Self::Http2(stream) => stream.end(),
            Self::Http3(stream) => stream.end().await,
        }
    }

    pub(crate) fn reset(&mut self, reason: Reason) {
        match self {
            Self::Http2(stream) => stream.reset(reason),
            Self::Http3(stream) => stream.reset(match reason {
                Reason::REFUSED_STREAM => lab_http3::LabH3Code::REQUEST_REJECTED,
                _ => lab_http3::LabH3Code::INTERNAL_ERROR,
            }),
        }
    }

    pub(crate) async fn refuse(&mut self, refusal: RequestRefusal) {
        match self {
            Self::Http2(stream) => stream.refuse(refusal).await,
            Self::Http3(stream) => stream.refuse(refusal).await,
        }
    }

    pub(crate) async fn wait_for_reset(&mut self) -> Result<(), Stop> {
        match self {
            Self::Http2(stream) => stream.wait_for_reset().await,
            Self::Http3(stream) => stream.wait_for_reset().await,
        }
    }

    pub(crate) fn say_farewell(&self, farewell: Farewell) {
        match self {
            Self::Http2(stream) => stream.say_farewell(farewell),
            Self::Http3(stream) => stream.say_farewell(farewell),
        }
    }
}
