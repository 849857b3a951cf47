//! The sending of a request's body beside what follows of it.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Poll, ready};
use std::time::Instant;

use crate::body::pump::{End, Ends, Side, Stop};
use crate::context::client::Client;
use crate::context::exchange::{ExchangeContext, RoutedRequest};
use crate::context::exchange_slot::Request;
use crate::context::failure::Failure;
use crate::shaping::Pace;
use crate::upstream::ServerConnection;
use transport::buffer::Buffer;
use transport::deadline::{Deadline, Ticks};

/// The sending of a request's body beside the response.
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
}

/// How far an upload goes beside what follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// The final head is here. A client that keeps its server waiting holds up all of it.
    Head,
    /// The response has ended. RFC 9110 §10.1.1: a client that has a final status need not send its body, and one that
    /// has begun to get what it asks for may pause: neither is a reason to cut that.
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UploadState {
    /// The client may wait to be asked for it (RFC 9110 §10.1.1), and nothing has come.
    Held,
    Under,
    Done,
    /// The server takes no more of it; its response may still come.
    Refused,
}

impl Upload {
    /// Nothing remains of it.
    pub(crate) fn done() -> Self {
        Self { state: Cell::new(UploadState::Done), rest: None }
    }

    /// What is still to be sent of a body. `is_held` is one that the client may wait to be asked for.
    pub(crate) fn going_on(deadline: Deadline, pace: Pace, is_held: bool) -> Self {
        let state = if is_held { UploadState::Held } else { UploadState::Under };
        let rest = Rest { deadline, pace, activity: Cell::new(0), ended_at: Cell::new(None) };
        Self { state: Cell::new(state), rest: Some(Box::new(rest)) }
    }

    /// The tick at which either direction last moved, of a body that did not leave with its head.
    pub(crate) fn activity(&self) -> Option<&Cell<u32>> {
        self.rest.as_ref().map(|rest| &rest.activity)
    }

    /// Whether the whole body has been sent.
    pub(crate) fn is_done(&self) -> bool {
        self.state.get() == UploadState::Done
    }

    /// From when on the server alone is waited for, of a request that was begun then: a client takes its time for a body.
    /// `None` for as long as some of that is to come.
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

    /// The client begins with it, or should by now.
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

    /// Runs `main` to its end, and the body's pump beside it for as long as that lasts. It is lent, since a future that
    /// is given away takes its room twice.
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
        let ExchangeContext { worker, snapshot, client, .. } = *ctx;
        let ends = Ends {
            worker,
            minimum_rate: routed.client_limits(ctx).minimum_rate.filter(|_| until == Until::Head),
            source: &client.socket,
            sink: &connection.socket,
            deadline: &rest.deadline,
            source_limit: if until == Until::Head { routed.ticks(ctx).client_body } else { Ticks::FOREVER },
            sink_limit: snapshot.ticks.upstream_body,
            paced: Some(Side::Source),
            closes_sink: false,
            pace: &rest.pace,
            place: routed.place(ctx),
            activity: Some(&rest.activity),
            is_tunnel: false,
        };
        let mut upload = pin!(async {
            self.begun(client, &mut request.buffer).await;
            request.body.run(&ends, &mut request.buffer).await
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
        Err(Stop::TooLarge) => Err(Failure::BodyTooLarge),
        Err(Stop::Cut) => Err(Failure::FaultInjected),
    }
}
