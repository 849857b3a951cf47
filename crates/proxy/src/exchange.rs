//! The state of one exchange, by which its steps decide. The record in it only takes notes.

use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;

use jwt::Refusal;

use crate::context::exchange_slot::SlotMemory;
use crate::context::routed::{ExchangeContext, RoutedRequest};
use crate::failure::{Failure, FailureFacts};
use crate::faults::DrawnFault;
use crate::record::ExchangeRecord;
use crate::shared::route_files::RouteFiles;
use crate::shared::waits::ExchangeWaits;
use transport::endpoint::MessageEndpoint;

/// Everything that the steps of an exchange share after admission, passed along as a single reference.
pub(crate) struct Exchange<'x, 's> {
    pub(crate) ctx: &'x ExchangeContext<'x>,
    pub(crate) routed: &'x RoutedRequest,
    pub(crate) memory: &'x mut SlotMemory,
    pub(crate) state: &'x mut ExchangeState<'s>,
}

/// How much of a response was sent to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SentProgress {
    /// Nothing, or complete interim responses: a failure can still be answered.
    Nothing,
    /// A part of an interim response, so no other response can be sent.
    Interim,
    /// The head of the final response, or a part of it.
    Head { status: u16 },
}

/// Returns the failure for a client that is gone. A client whose stream was reset for its own error has not left.
#[cold]
fn gone(socket: &MessageEndpoint) -> Failure {
    match (socket.wrong().filter(|wrong| wrong.is_of_stream), socket) {
        (None, _) => Failure::ClientGone,
        (Some(wrong), _) if wrong.is_too_large => Failure::HeadTooLarge,
        (Some(_), MessageEndpoint::Http3(_)) => Failure::Http3Malformed,
        (
            Some(_),
            MessageEndpoint::Stream(_)
            | MessageEndpoint::Connection(_)
            | MessageEndpoint::Fastcgi(_)
            | MessageEndpoint::Detached,
        ) => Failure::Http2Malformed,
    }
}

pub(crate) struct ExchangeState<'a> {
    pub(crate) sent: SentProgress,
    pub(crate) body_bytes_sent: u64,
    route: Option<usize>,
    /// Index of the user whose password was right.
    user: Option<usize>,
    /// Seconds for Retry-After until a rate-limited client may try again; 0 omits the field.
    pub(crate) retry_after_seconds: u64,
    /// The status for a denied request.
    pub(crate) denied_status: u16,
    /// Why the token was refused, for WWW-Authenticate.
    pub(crate) refusal: Option<Refusal>,
    /// The fault that was drawn for the request. Whether it is injected may depend on the response.
    drawn: Option<Rc<DrawnFault>>,
    /// The file that the server has named in place of a body. `NoFile` is then no failure.
    pub(crate) ordered: Option<Box<FileOrder>>,
    /// The rate that the server has set for the body of its response.
    pub(crate) rate_bytes_per_second: Option<NonZeroU64>,
    pub(crate) record: ExchangeRecord<'a>,
}

/// A file that a server has named in place of a body.
pub(crate) struct FileOrder {
    /// `None` if it is in no folder that the route names.
    pub(crate) files: Option<Arc<RouteFiles>>,
    /// The path below the folder, percent-encoded.
    pub(crate) path: Vec<u8>,
    /// Fields of the server's response, as lines.
    pub(crate) lines: Vec<u8>,
    /// Whether the client's request has been read completely.
    pub(crate) has_whole_request: bool,
    /// The field, for the log.
    pub(crate) named: String,
}

impl<'a> ExchangeState<'a> {
    /// Creates the state of a client's request.
    pub(crate) fn new(ctx: &'a ExchangeContext<'a>, waits: &'a ExchangeWaits, is_traced: bool) -> Self {
        Self::with(ExchangeRecord::new(ctx, waits, is_traced))
    }

    /// Creates the state of a subrequest: no client waits for it, and it is not logged.
    pub(crate) fn detached(ctx: &'a ExchangeContext<'a>, is_traced: bool) -> Self {
        Self::with(ExchangeRecord::detached(ctx, is_traced))
    }

    fn with(record: ExchangeRecord<'a>) -> Self {
        Self {
            sent: SentProgress::Nothing,
            body_bytes_sent: 0,
            route: None,
            user: None,
            retry_after_seconds: 0,
            denied_status: Failure::Denied.facts().status,
            refusal: None,
            drawn: None,
            ordered: None,
            rate_bytes_per_second: None,
            record,
        }
    }

    pub(crate) fn route(&self) -> Option<usize> {
        self.route
    }

    pub(crate) fn takes_route(&mut self, route: usize) {
        self.route = Some(route);
        self.record.takes_route(route);
    }

    /// Index of the authenticated user.
    pub(crate) fn user(&self) -> Option<usize> {
        self.user
    }

    pub(crate) fn knows_user(&mut self, user: Option<usize>) {
        self.user = user;
        self.record.user = user;
    }

    /// Returns the table's row of a failure, with the status that the route sets.
    pub(crate) fn facts(&self, failure: Failure) -> FailureFacts {
        let facts = failure.facts();
        if failure == Failure::Denied { FailureFacts { status: self.denied_status, ..facts } } else { facts }
    }

    /// Notes why the request's token was refused.
    #[cold]
    pub(crate) fn refuses_token(&mut self, refusal: Refusal) {
        self.refusal = Some(refusal);
        self.record.detail = Some(refusal.reason().into());
    }

    /// Notes why the request's bot signature was refused.
    #[cold]
    pub(crate) fn refuses_bot(&mut self, reason: &str) {
        self.record.detail = Some(reason.into());
    }

    /// Notes why a limit on requests under way refuses the request. Its client may try again in a second.
    #[cold]
    pub(crate) fn is_limited(&mut self, reason: String) {
        self.retry_after_seconds = 1;
        self.record.detail = Some(reason.into());
    }

    /// Notes that the head of a final response is about to be sent.
    pub(crate) fn answers(&mut self, status: u16) {
        self.sent = SentProgress::Head { status };
        self.record.status = status;
    }

    /// The status sent to the client; 0 before its head.
    pub(crate) fn status(&self) -> u16 {
        match self.sent {
            SentProgress::Nothing | SentProgress::Interim => 0,
            SentProgress::Head { status } => status,
        }
    }

    /// Notes that no byte of the head was sent after all, so that a failure can be answered.
    #[cold]
    pub(crate) fn answers_nothing(&mut self) {
        self.sent = SentProgress::Nothing;
        self.record.status = 0;
    }

    /// Records why the exchange failed.
    #[cold]
    pub(crate) fn failed(&mut self, ctx: &ExchangeContext<'_>, failure: Failure) {
        // The socket knows whether the client has left, or its stream was reset for its own error.
        let failure = if failure == Failure::ClientGone { gone(&ctx.client.socket) } else { failure };
        self.record.failure = Some(failure);
        if failure == Failure::FaultInjected {
            self.injected();
        }
        let is_cut = failure == Failure::RequestTimeout && matches!(self.sent, SentProgress::Head { .. });
        if failure == Failure::ClientStalled || is_cut {
            // Otherwise the unsent data would stay in the kernel as long as the client acknowledges.
            ctx.client.socket.reset_on_drop();
        }
    }

    pub(crate) fn drawn(&mut self, drawn: Rc<DrawnFault>) {
        self.drawn = Some(drawn);
    }

    #[inline]
    pub(crate) fn has_fault(&self) -> bool {
        self.drawn.is_some()
    }

    pub(crate) fn fault(&self) -> Option<Rc<DrawnFault>> {
        self.drawn.clone()
    }

    /// Notes that the fault was injected. It counts once, even if another response replaces the first.
    pub(crate) fn injected(&mut self) {
        if let Some(drawn) = &self.drawn
            && self.record.injected(&drawn.told())
        {
            drawn.count();
        }
    }

    /// Counts and logs the exchange. Called once, at the end of every exchange.
    pub(crate) fn finish(&mut self, memory: &SlotMemory) {
        self.record.body_bytes_sent = self.body_bytes_sent;
        self.record.finish(memory);
    }
}
