//! The state of one exchange: what its steps decide by while it runs. The record beside it only takes notes.

use std::rc::Rc;

use crate::context::exchange::ExchangeContext;
use crate::context::exchange_slot::Memory;
use crate::context::failure::Failure;
use crate::context::record::Record;
use crate::faults::Drawn;

/// How much of a response has left for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Nothing, or whole interim responses: a failure can still be answered.
    Nothing,
    /// A part of an interim response: whatever is sent now belongs to that.
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
    /// Bytes of the response's body that have left.
    pub(crate) body_bytes_sent: u64,
    /// Index of the route that the request takes, once that is known.
    route: Option<usize>,
    /// The user whose password was right, by number.
    user: Option<usize>,
    /// When a request over a limit may come again, in seconds; 0 is not told.
    pub(crate) retry_after_seconds: u64,
    /// The fault that was drawn for the request; whether it is injected may depend on the response.
    drawn: Option<Rc<Drawn>>,
    pub(crate) record: Record<'a>,
}

impl<'a> ExchangeState<'a> {
    /// Of a request of a client.
    pub(crate) fn new(ctx: &'a ExchangeContext<'a>) -> Self {
        Self::with(Record::new(ctx))
    }

    /// Of a request of the proxy's own: no client waits for it, and it is not logged.
    pub(crate) fn detached(ctx: &'a ExchangeContext<'a>) -> Self {
        Self::with(Record::detached(ctx))
    }

    fn with(record: Record<'a>) -> Self {
        Self {
            sent: Sent::Nothing,
            body_bytes_sent: 0,
            route: None,
            user: None,
            retry_after_seconds: 0,
            drawn: None,
            record,
        }
    }

    /// Index of the route that the request takes, once that is known.
    pub(crate) fn route(&self) -> Option<usize> {
        self.route
    }

    /// The request takes this route.
    pub(crate) fn takes_route(&mut self, route: usize) {
        self.route = Some(route);
        self.record.route = Some(route);
    }

    /// The user whose password was right, by number.
    pub(crate) fn user(&self) -> Option<usize> {
        self.user
    }

    /// The password of this user was right.
    pub(crate) fn knows_user(&mut self, user: Option<usize>) {
        self.user = user;
        self.record.user = user;
    }

    /// The head of a response with this status leaves.
    pub(crate) fn answers(&mut self, status: u16) {
        self.sent = Sent::Head { status };
        self.record.status = status;
    }

    /// The status that the client is told; 0 while no head has left.
    pub(crate) fn status(&self) -> u16 {
        match self.sent {
            Sent::Nothing | Sent::Interim => 0,
            Sent::Head { status } => status,
        }
    }

    /// Nothing of the head has left after all: a failure is answered in its place.
    #[cold]
    pub(crate) fn answers_nothing(&mut self) {
        self.sent = Sent::Nothing;
        self.record.status = 0;
    }

    /// The exchange came to nothing, or not to a whole response.
    #[cold]
    pub(crate) fn failed(&mut self, ctx: &ExchangeContext<'_>, failure: Failure) {
        self.record.failure = Some(failure);
        if failure == Failure::ClientStalled {
            // What the client has not taken would stay in the kernel for as long as the client answers.
            ctx.client.socket.reset_on_drop();
        }
    }

    /// A fault was drawn for the request.
    pub(crate) fn drawn(&mut self, drawn: Rc<Drawn>) {
        self.drawn = Some(drawn);
    }

    /// Whether a fault was drawn.
    #[inline]
    pub(crate) fn has_fault(&self) -> bool {
        self.drawn.is_some()
    }

    /// The fault that was drawn.
    pub(crate) fn fault(&self) -> Option<Rc<Drawn>> {
        self.drawn.clone()
    }

    /// The fault that was drawn is injected. It is counted once, whatever else answers the request in the end.
    pub(crate) fn injected(&mut self) {
        if let Some(drawn) = &self.drawn
            && self.record.injected(&drawn.told())
        {
            drawn.count();
        }
    }

    /// The one exit of every exchange: counts and logs it.
    pub(crate) fn finish(&mut self, memory: &Memory) {
        self.record.body_bytes_sent = self.body_bytes_sent;
        self.record.finish(memory);
    }
}
