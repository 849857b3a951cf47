//! Sends a request's body beside the other steps of the exchange.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Poll, ready};
use std::time::Instant;

use http1::BodyFraming;

use crate::body::ends::{Ends, PumpEnd, PumpSide};
use crate::body::filters::{Filter, Filters};
use crate::body::omitted_fields::OmittedFields;
use crate::body::pump::Stop;
use crate::body::upload::{Until, Upload, UploadState};
use crate::context::client::FrontConnection;
use crate::context::exchange_slot::CurrentRequest;
use crate::context::routed::{ExchangeContext, RoutedRequest};
use crate::failure::Failure;
use crate::upstream::ServerConnection;
use telemetry::message;
use transport::buffer::Buffer;
use transport::cold::cold;
use transport::deadline::Ticks;

impl Upload {
    /// Waits until the server asks for the body (100), or the client sends it anyway.
    async fn begun(&self, client: &FrontConnection, buffer: &mut Buffer) {
        poll_fn(|context| {
            if self.state.get() != UploadState::Held {
                return Poll::Ready(());
            }
            let socket = &client.socket;
            if socket.frames_itself() {
                return socket.poll_readable(context).map(drop);
            }
            let read = ready!(socket.poll_read(context, buffer.spare()));
            buffer.advance(read.unwrap_or(0));
            Poll::Ready(())
        })
        .await;
        self.begin();
    }

    /// Runs `main` to its end, and the upload beside it. Takes the future by reference, because a moved future occupies
    /// its memory twice.
    pub(crate) async fn beside<T>(
        &self,
        ctx: &ExchangeContext<'_>,
        routed: &RoutedRequest,
        connection: &ServerConnection,
        request: &mut CurrentRequest,
        until: Until,
        mut main: Pin<&mut impl Future<Output = Result<T, Failure>>>,
    ) -> Result<T, Failure> {
        let (true, Some(rest)) = (self.is_open(), &self.rest) else { return main.await };
        let ExchangeContext { worker, client, .. } = *ctx;
        // Boxed, or each request without a body would reserve room for it twice.
        let mut upload = Box::pin(async {
            let ends = Ends {
                buffers: &worker.buffers,
                pipes: &worker.pipes,
                deadlines: &worker.deadlines,
                minimum_rate: routed.client_limits(ctx).minimum_rate.filter(|_| until == Until::Head),
                source: &client.socket,
                sink: &connection.socket,
                deadline: &rest.deadline,
                source_limit: if until == Until::Head {
                    routed.ticks(ctx).client_body
                } else {
                    Ticks::FOREVER
                },
                sink_limit: routed.ticks(ctx).upstream_send,
                paced: Some(PumpSide::Source),
                closes_sink: false,
                pace: &rest.pace,
                place: routed.place(ctx),
                activity: Some(&rest.activity),
                arrivals: None,
                is_tunnel: false,
            };
            self.begun(client, &mut request.buffer).await;
            match &mut request.replay {
                None => request.body.run(&ends, &mut request.buffer).await,
                Some(replay) => cold(|| replay.run(&ends)).await,
            }
        });
        poll_fn(|context| {
            let was_held = self.state.get() == UploadState::Held;
            // The upload comes first, so that the wait for the response notices its end at once.
            if self.is_open()
                && let Poll::Ready(result) = upload.as_mut().poll(context)
            {
                match outcome(result, until) {
                    Ok(state) => {
                        self.state.set(state);
                        rest.ended_at.set(Some(Instant::now()));
                    }
                    Err(failure) => return Poll::Ready(Err(failure)),
                }
            }
            let polled = main.as_mut().poll(context);
            if was_held && self.is_under_way() {
                // The server has just asked for the body: the upload must be polled again.
                context.waker().wake_by_ref();
            }
            polled
        })
        .await
    }
}

/// Begins to decode a request's body. Called before its first piece is framed.
pub(crate) fn begin(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    request: &mut CurrentRequest,
    is_chunked_out: bool,
) {
    let call = request.web.as_deref();
    let framing = call.map_or(routed.framing, |call| call.framing);
    let (is_web, is_text) = (call.is_some(), call.is_some_and(|call| call.is_text));
    request.body.begin(framing, is_chunked_out, routed.client_limits(ctx).body_bytes);
    if is_text {
        request.body.decode_text();
    }
    let trailers = match framing {
        // gRPC requests have no trailers, and servers reject them.
        BodyFraming::Chunked if is_web => Some(Filter::NoTrailers),
        BodyFraming::Chunked => {
            routed.policies(ctx).and_then(OmittedFields::in_requests).map(Filter::OmitTrailers)
        }
        BodyFraming::None | BodyFraming::Length(_) | BodyFraming::UntilClose => None,
    };
    if let Some(filter) = trailers {
        let mut filters = Filters::default();
        filters.push(filter);
        request.body.filter(filters);
    }
}

/// Maps the end of an upload's pump to the upload's state, or to a failure of the request.
pub(crate) fn outcome(result: Result<(), Stop>, until: Until) -> Result<UploadState, Failure> {
    match result {
        Ok(()) => Ok(UploadState::Done),
        Err(Stop::Sink(PumpEnd::Gone | PumpEnd::TooSlow)) => Ok(UploadState::Refused),
        // The server's response may be complete all the same.
        Err(Stop::Sink(PumpEnd::Stalled)) if until == Until::End => Ok(UploadState::Refused),
        Err(Stop::Sink(PumpEnd::Stalled)) => Err(Failure::UpstreamTimeout),
        Err(Stop::Source(PumpEnd::Gone)) => Err(Failure::ClientGone),
        Err(Stop::Source(PumpEnd::Stalled)) => Err(Failure::ClientBodyTimeout),
        Err(Stop::Source(PumpEnd::TooSlow)) => Err(Failure::ClientTooSlow),
        Err(Stop::Malformed(error)) => Err(error.into()),
        Err(Stop::BadText) => Err(Failure::BadText),
        Err(Stop::TooLarge) => Err(Failure::BodyTooLarge),
        Err(Stop::Cut) => Err(Failure::FaultInjected),
        Err(Stop::Unreadable(error)) => {
            message::error(&format!("a buffered request body cannot be read: {error}"));
            Err(Failure::RequestBufferFailed)
        }
    }
}
