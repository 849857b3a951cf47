//! The state of one exchange, by which its steps decide. The record next to it only takes notes.

use std::rc::Rc;

use jwt::Refusal;

use crate::context::exchange::ExchangeContext;
use crate::context::exchange_slot::Memory;
use crate::context::failure::Failure;
use crate::context::record::Record;
use crate::context::waits::Waits;
use crate::faults::Drawn;

/// How much of a response has left for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// No byte, or whole interim responses: a failure can still be answered.
    Nothing,
    /// A part of an interim response, so no other response can be sent.
    Interim,
    /// The head of the final response, or a part of it.
    Head {
        /// The status that the client is told.
        status: u16,
    },
}

/// The state of one exchange.
pub(crate) struct ExchangeState<'a> {
    pub(crate) sent: Sent,
    /// The number of response body bytes that have left.
    pub(crate) body_bytes_sent: u64,
    /// Index of the route that the request takes, once that is known.
    route: Option<usize>,
    /// The user whose password was right, by number.
    user: Option<usize>,
    /// For Retry-After: the seconds until a rate-limited client may try again; 0 leaves the field out.
    pub(crate) retry_after_seconds: u64,
    /// For WWW-Authenticate: why the token was refused.
    pub(crate) refusal: Option<Refusal>,
    /// The fault that was drawn for the request; whether it is injected may depend on the response.
    drawn: Option<Rc<Drawn>>,
    pub(crate) record: Record<'a>,
}

impl<'a> ExchangeState<'a> {
    /// The state of a client's request, its waits, and whether its spans may be wanted.
    pub(crate) fn new(ctx: &'a ExchangeContext<'a>, waits: &'a Waits, is_traced: bool) -> Self {
        Self::with(Record::new(ctx, waits, is_traced))
    }

    /// The state of a request of the proxy's own: no client waits for it, and it is not logged.
    pub(crate) fn detached(ctx: &'a ExchangeContext<'a>, is_traced: bool) -> Self {
        Self::with(Record::detached(ctx, is_traced))
    }

    fn with(record: Record<'a>) -> Self {
        Self {
            sent: Sent::Nothing,
            body_bytes_sent: 0,
            route: None,
            user: None,
            retry_after_seconds: 0,
            refusal: None,
            drawn: None,
            record,
        }
    }

    /// The index of the route, if it is decided.
    pub(crate) fn route(&self) -> Option<usize> {
        self.route
    }

    /// Sets the route.
    pub(crate) fn takes_route(&mut self, route: usize) {
        self.route = Some(route);
        self.record.route = Some(route);
    }

    /// The index of the authenticated user.
    pub(crate) fn user(&self) -> Option<usize> {
        self.user
    }

    /// Sets the authenticated user.
    pub(crate) fn knows_user(&mut self, user: Option<usize>) {
        self.user = user;
        self.record.user = user;
    }

    /// Notes why the token of the request was refused.
    #[cold]
    pub(crate) fn refuses_token(&mut self, refusal: Refusal) {
        self.refusal = Some(refusal);
        self.record.detail = Some(refusal.reason().into());
    }

    /// Notes why the signature of the request was refused.
    #[cold]
    pub(crate) fn refuses_bot(&mut self, reason: &str) {
        self.record.detail = Some(reason.into());
    }

    /// Notes that the head of a response with this status is about to leave.
    pub(crate) fn answers(&mut self, status: u16) {
        self.sent = Sent::Head { status };
        self.record.status = status;
    }

    /// The status sent to the client; 0 while no head has left.
    pub(crate) fn status(&self) -> u16 {
        match self.sent {
            Sent::Nothing | Sent::Interim => 0,
            Sent::Head { status } => status,
        }
    }

    /// Notes that no byte of the head left after all: a failure can be answered instead.
    #[cold]
    pub(crate) fn answers_nothing(&mut self) {
        self.sent = Sent::Nothing;
        self.record.status = 0;
    }

    /// Records why the exchange failed.
    #[cold]
    pub(crate) fn failed(&mut self, ctx: &ExchangeContext<'_>, failure: Failure) {
        self.record.failure = Some(failure);
        if failure == Failure::ClientStalled {
            // What the client has not taken would stay in the kernel for as long as the client answers.
            ctx.client.socket.reset_on_drop();
        }
    }

    /// Sets the fault that was drawn for the request.
    pub(crate) fn drawn(&mut self, drawn: Rc<Drawn>) {
        self.drawn = Some(drawn);
    }

    /// Whether a fault was drawn for the request.
    #[inline]
    pub(crate) fn has_fault(&self) -> bool {
        self.drawn.is_some()
    }

    /// The fault that was drawn for the request.
    pub(crate) fn fault(&self) -> Option<Rc<Drawn>> {
        self.drawn.clone()
    }

    /// Notes that the fault was injected. It counts once, whatever answers the request in the end.
    pub(crate) fn injected(&mut self) {
        if let Some(drawn) = &self.drawn
            && self.record.injected(&drawn.told())
        {
            drawn.count();
        }
    }

    /// Counts and logs the exchange. Every exchange ends here.
    pub(crate) fn finish(&mut self, memory: &Memory) {
        self.record.body_bytes_sent = self.body_bytes_sent;
        self.record.finish(memory);
    }
}
