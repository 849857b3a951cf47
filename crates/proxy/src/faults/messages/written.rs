//! Injects faults into responses that are written here as text: those of the cache, and our own. Their heads are written as
//! if nothing were wrong, and altered before they leave; their bodies come in pieces, of which so much is sent.

use std::cell::Cell;

use http1::{Framing, Version};
use shape::Fault;

use super::{Outline, alter_head, begun, broken_off, ends_connection, exchange, fits};
use crate::context::exchange::ExchangeContext;
use crate::context::exchange_state::ExchangeState;
use crate::context::failure::Failure;

/// A fault of a response that is about to leave.
pub(crate) struct Injection {
    fault: Fault,
    framing: Framing,
    /// So much more of the body is sent; `u64::MAX` is all of it.
    left: Cell<u64>,
    is_cut: Cell<bool>,
}

impl Injection {
    /// The fault that was drawn for a request, into a response whose head is written as far as its empty line. `None` where
    /// it does not fit, and nothing is altered.
    pub(crate) fn of(
        ctx: &ExchangeContext<'_>,
        version: Version,
        framing: Framing,
        head: &mut Vec<u8>,
        state: &mut ExchangeState<'_>,
    ) -> Option<Self> {
        let drawn = state.fault()?;
        let is_framed = ctx.client.socket.frames_itself();
        // Trailers are not stored, and none are ours.
        let outline =
            Outline { version, status: state.status(), framing, may_have_trailers: false, is_framed };
        if !fits(&drawn.fault, outline) {
            return None;
        }
        state.injected();
        let mut line = Vec::new();
        drawn.push_line(&mut line);
        exchange(head, &[], &line);
        if ends_connection(&drawn.fault) {
            exchange(head, &[b"connection"], b"Connection: close\r\n");
        }
        alter_head(&drawn.fault, head, framing, is_framed);
        let left = match drawn.fault {
            Fault::Cut { bytes } => bytes,
            Fault::BadChunk => 0,
            _ => u64::MAX,
        };
        Some(Self { fault: drawn.fault.clone(), framing, left: Cell::new(left), is_cut: Cell::default() })
    }

    /// Whether the connection ends behind the response.
    pub(crate) fn ends_connection(&self) -> bool {
        ends_connection(&self.fault)
    }

    /// Comes before all else is sent. What of the head has left by then is taken out of it.
    pub(crate) async fn begin(&self, ctx: &ExchangeContext<'_>, head: &mut Vec<u8>) -> Result<(), Failure> {
        begun(&self.fault, ctx, head).await
    }

    /// So much is sent of the next piece of the body.
    pub(crate) fn takes(&self, len: usize) -> usize {
        let left = self.left.get();
        if len as u64 <= left {
            // A body that is as long as what is sent of it is whole.
            self.left.set(if left == u64::MAX { left } else { left - len as u64 });
            return len;
        }
        self.is_cut.set(true);
        self.left.set(0);
        left as usize
    }

    /// Whether something of the body was held back: then nothing more is sent of it.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut.get()
    }

    /// Breaks the response off where it is cut, and says what that is called.
    pub(crate) async fn break_off(&self, ctx: &ExchangeContext<'_>) -> Failure {
        if let Err(failure) = broken_off(&self.fault, ctx).await {
            return failure;
        }
        let socket = &ctx.client.socket;
        if self.framing == Framing::UntilClose || socket.frames_itself() {
            socket.reset_on_drop();
        }
        Failure::FaultInjected
    }
}
