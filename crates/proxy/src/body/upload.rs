//! Uploads: sends a request's body beside the other steps of the exchange.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Poll, ready};
use std::time::Instant;

use http1::Framing;

use crate::body::ends::{End, Ends, Side};
use crate::body::filters::{Filter, Filters};
use crate::body::omitted_fields::OmittedFields;
use crate::body::pump::Stop;
use crate::context::client::Client;
use crate::context::exchange::{ExchangeContext, RoutedRequest};
use crate::context::exchange_slot::Request;
use crate::context::failure::Failure;
use crate::shaping::Pace;
use crate::upstream::ServerConnection;
use telemetry::message;
use transport::buffer::Buffer;
use transport::cold::cold;
use transport::deadline::{Deadline, Ticks};

/// The upload of a request's body, while the response may already arrive.
pub(crate) struct Upload {
    state: Cell<UploadState>,
    /// `None` where the whole body left with the head.
    rest: Option<Box<Rest>>,
}

/// What the sending of a body takes that goes on.
struct Rest {
    /// Its waits are not those of the response.
    deadline: Deadline,
    pace: Pace,
    /// The tick at which either direction last moved.
    activity: Cell<u32>,
    /// When it had been sent, if it was before the server answered.
    ended_at: Cell<Option<Instant>>,
    /// Whether the client has sent all of it.
    is_kept: bool,
}

/// Up to which point an upload goes on beside another step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// Up to the final head. A client that stops sending while its server waits fails the exchange.
    Head,
    /// Up to the end of the response. RFC 9110 §10.1.1: a client that has the final status need not send its body, and
    /// one that receives its response may pause; neither is a reason to cut the response.
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UploadState {
    /// The client may wait for 100 (Continue) (RFC 9110 §10.1.1), and no byte of the body has come.
    Held,
    Under,
    Done,
    /// The server accepts no more of the body; its response may still come.
    Refused,
}

impl Rest {
    fn new(deadline: Deadline, pace: Pace, is_kept: bool) -> Self {
        Self { deadline, pace, activity: Cell::new(0), ended_at: Cell::new(None), is_kept }
    }
}

impl Upload {
    /// An upload that is done.
    pub(crate) fn done() -> Self {
        Self { state: Cell::new(UploadState::Done), rest: None }
    }

    /// An upload with bytes to send. `is_held` means that the client may wait for 100 (Continue).
    pub(crate) fn going_on(deadline: Deadline, pace: Pace, is_held: bool) -> Self {
        let state = if is_held { UploadState::Held } else { UploadState::Under };
        Self { state: Cell::new(state), rest: Some(Box::new(Rest::new(deadline, pace, false))) }
    }

    /// An upload of a body that is kept as a whole.
    pub(crate) fn of_kept(deadline: Deadline, pace: Pace) -> Self {
        let rest = Rest::new(deadline, pace, true);
        Self { state: Cell::new(UploadState::Under), rest: Some(Box::new(rest)) }
    }

    /// Whether nothing more of it comes from the client, so that what follows is the next request.
    pub(crate) fn has_left_client(&self) -> bool {
        self.is_done() || self.rest.as_ref().is_some_and(|rest| rest.is_kept)
    }

    /// The tick at which either direction last moved; `None` if the body left with its head.
    pub(crate) fn activity(&self) -> Option<&Cell<u32>> {
        self.rest.as_ref().map(|rest| &rest.activity)
    }

    /// Whether the whole body has been sent.
    pub(crate) fn is_done(&self) -> bool {
        self.state.get() == UploadState::Done
    }

    /// Since when only the server's response is awaited, in an attempt that began at `begun`: time for the body is the
    /// client's. `None` while a part of the body is still to be sent.
    pub(crate) fn waits_for_server_since(&self, begun: Instant) -> Option<Instant> {
        match &self.rest {
            None => Some(begun),
            Some(rest) => rest.ended_at.get().map(|ended_at| ended_at.max(begun)),
        }
    }

    pub(crate) fn is_under_way(&self) -> bool {
        self.state.get() == UploadState::Under
    }

    /// Whether anything of it may still come.
    fn is_open(&self) -> bool {
        matches!(self.state.get(), UploadState::Held | UploadState::Under)
    }

    /// Starts the upload: the client sends its body, or should do so now.
    pub(crate) fn begin(&self) {
        if self.state.get() == UploadState::Held {
            self.state.set(UploadState::Under);
        }
    }

    /// Waits until the client is asked for its body, or sends it all the same.
    async fn begun(&self, client: &Client, buffer: &mut Buffer) {
        poll_fn(|context| {
            if self.state.get() != UploadState::Held {
                return Poll::Ready(());
            }
            let socket = &client.socket;
            if socket.frames_itself() {
                return socket.poll_readable(context).map(drop);
            }
            // What is wrong is told by the next read as well.
            let read = ready!(socket.poll_read(context, buffer.spare()));
            buffer.advance(read.unwrap_or(0));
            Poll::Ready(())
        })
        .await;
        self.begin();
    }

    /// Runs `main` to its end, and the upload beside it. Takes the future by reference, since a moved future occupies
    /// its memory twice.
    pub(crate) async fn beside<T>(
        &self,
        ctx: &ExchangeContext<'_>,
        routed: &RoutedRequest,
        connection: &ServerConnection,
        request: &mut Request,
        until: Until,
        mut main: Pin<&mut impl Future<Output = Result<T, Failure>>>,
    ) -> Result<T, Failure> {
        let (true, Some(rest)) = (self.is_open(), &self.rest) else { return main.await };
        let ExchangeContext { worker, client, .. } = *ctx;
        // In a box, or each request without a body would have room for it twice.
        let mut upload = Box::pin(async {
            let ends = Ends {
                worker,
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
                paced: Some(Side::Source),
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
                // It has just been asked for: from now on it is waited for.
                context.waker().wake_by_ref();
            }
            polled
        })
        .await
    }
}

/// Begins the body of a request, in the framing in which it comes.
pub(crate) fn begin(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    request: &mut Request,
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
        // Requests of gRPC have none, and servers refuse them.
        Framing::Chunked if is_web => Some(Filter::NoTrailers),
        Framing::Chunked => OmittedFields::in_requests(ctx, routed).map(Filter::OmitTrailers),
        Framing::None | Framing::Length(_) | Framing::UntilClose => None,
    };
    if let Some(filter) = trailers {
        let mut filters = Filters::default();
        filters.push(filter);
        request.body.filter(filters);
    }
}

pub(crate) fn outcome(result: Result<(), Stop>, until: Until) -> Result<UploadState, Failure> {
    match result {
        Ok(()) => Ok(UploadState::Done),
        Err(Stop::Sink(End::Gone | End::TooSlow)) => Ok(UploadState::Refused),
        // What it says may be whole all the same.
        Err(Stop::Sink(End::Stalled)) if until == Until::End => Ok(UploadState::Refused),
        Err(Stop::Sink(End::Stalled)) => Err(Failure::UpstreamTimeout),
        Err(Stop::Source(End::Gone)) => Err(Failure::ClientGone),
        Err(Stop::Source(End::Stalled)) => Err(Failure::ClientBodyTimeout),
        Err(Stop::Source(End::TooSlow)) => Err(Failure::ClientTooSlow),
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
