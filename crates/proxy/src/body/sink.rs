//! The writer of bodies that the proxy has itself: from the cache, from a fill with several readers, and its own answers.
//!
//! A body that still comes from a server is written by the pump ([`super::pump`]), which moves it past the memory of the
//! process where it can; both write what the [`ResponsePlan`] says, through its filters.

use std::cell::Cell;

use http1::{Framing, chunk_prefix};

use crate::body::response_plan::ResponsePlan;
use crate::body::send::Delivery;
use crate::context::exchange::{ExchangeContext, RoutedRequest};
use crate::context::exchange_state::ExchangeState;
use crate::context::failure::Failure;
use crate::shaping::{Direction, Pace};
use transport::tcp::Follows;

/// A part of a body up to this length is copied, so that its chunk leaves in one write.
const COPIED_BYTES_MAX: usize = 32 << 10;

/// The way of one response to its client.
pub(crate) struct BodySink<'a> {
    delivery: Delivery<'a>,
    /// How fast it may leave; an answer of the proxy's own leaves at once.
    pace: Option<(&'a RoutedRequest, Pace)>,
    plan: ResponsePlan,
    /// So much more of the body is sent; `u64::MAX` is all of it.
    left: Cell<u64>,
    is_cut: Cell<bool>,
    /// Bytes of the body that have left.
    sent_bytes: Cell<u64>,
}

impl<'a> BodySink<'a> {
    /// For a response whose head is written as the plan says, and which the filters of the plan may change. It leaves no
    /// faster than bodies may pass.
    pub(crate) fn paced(
        ctx: &'a ExchangeContext<'a>,
        routed: &'a RoutedRequest,
        plan: ResponsePlan,
        head: &mut Vec<u8>,
        state: &mut ExchangeState<'_>,
    ) -> Self {
        let pace = Pace::new(Direction::Down, ctx.worker);
        let delivery = Delivery::of(ctx, routed);
        Self { delivery, pace: Some((routed, pace)), ..Self::unpaced(ctx, plan, head, state) }
    }

    /// The same for what leaves at once, whatever bodies may.
    pub(crate) fn unpaced(
        ctx: &'a ExchangeContext<'a>,
        mut plan: ResponsePlan,
        head: &mut Vec<u8>,
        state: &mut ExchangeState<'_>,
    ) -> Self {
        if !plan.filters.is_empty() {
            plan.filters.change_head(head, &mut plan.framing, ctx.client.socket.frames_itself());
        }
        state.record.head_leaves(head);
        let left = Cell::new(plan.filters.cut_after().unwrap_or(u64::MAX));
        let delivery = Delivery::new(ctx, state.route());
        Self { delivery, pace: None, plan, left, is_cut: Cell::default(), sent_bytes: Cell::default() }
    }

    /// What was decided about the response.
    pub(crate) fn plan(&self) -> &ResponsePlan {
        &self.plan
    }

    /// Bytes of the body that have left; of a piece whose sending failed, none are counted where the response is paced.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_bytes.get()
    }

    /// Comes before all else is sent: what of the head is to leave by itself is taken out of it.
    pub(crate) async fn begin(&self, head: &mut Vec<u8>) -> Result<(), Failure> {
        if self.plan.filters.is_empty() {
            Ok(())
        } else {
            self.plan.filters.begin(&self.delivery, head).await
        }
    }

    /// So much is sent of the body's next piece.
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

    /// Sends a head, which is not counted, and what of the body is there. Where the body is cut, all that is said of the rest
    /// follows, and the response has failed.
    pub(crate) async fn send(&self, head: &[u8], body: &[u8], follows: Follows) -> Result<(), Failure> {
        let follows = if self.is_cut.get() { Follows::Nothing } else { follows };
        match &self.pace {
            Some((routed, pace)) => {
                self.delivery.send_paced(routed, pace, (head, body), follows).await?;
                self.sent_bytes.set(self.sent_bytes.get() + body.len() as u64);
            }
            None => {
                let mut sent = 0;
                let outcome = self.delivery.send_both((head, body), follows, &mut sent).await;
                self.sent_bytes.set(self.sent_bytes.get() + sent.saturating_sub(head.len()) as u64);
                outcome?;
            }
        }
        if self.is_cut.get() { self.break_off().await } else { Ok(()) }
    }

    /// Sends what is in `out` and a part of the body behind it, framed as the plan says. What is in `out` then has to leave
    /// before a wait: a client may not look at a chunk before it has its end. `is_last` is of a body whose length the head
    /// tells.
    pub(crate) async fn send_part(
        &self,
        out: &mut Vec<u8>,
        part: &[u8],
        is_last: bool,
    ) -> Result<(), Failure> {
        let part = &part[..self.takes(part.len())];
        let follows = if is_last { self.plan.at_end() } else { Follows::Nothing };
        if !self.plan.is_chunked(self.delivery.ctx) || part.is_empty() {
            self.send(out, part, follows).await?;
            out.clear();
            return Ok(());
        }
        push_chunk_size(out, part.len());
        if part.len() <= COPIED_BYTES_MAX {
            out.extend_from_slice(part);
            out.extend_from_slice(b"\r\n");
            self.send(out, b"", follows).await?;
            self.sent_bytes.set(self.sent_bytes.get() + part.len() as u64);
            out.clear();
        } else {
            self.send(out, part, follows).await?;
            out.clear();
            out.extend_from_slice(b"\r\n");
        }
        Ok(())
    }

    /// Ends a body whose length the head does not tell: sends what is in `out`, the last part, and the trailers, which are
    /// lines.
    pub(crate) async fn end(&self, out: &mut Vec<u8>, part: &[u8], trailers: &[u8]) -> Result<(), Failure> {
        if self.plan.is_chunked(self.delivery.ctx) {
            let part = &part[..self.takes(part.len())];
            if !part.is_empty() {
                push_chunk_size(out, part.len());
                out.extend_from_slice(part);
                out.extend_from_slice(b"\r\n");
            }
            for text in [b"0\r\n".as_slice(), trailers, b"\r\n"] {
                out.extend_from_slice(text);
            }
            self.send(out, b"", self.plan.at_end()).await?;
            self.sent_bytes.set(self.sent_bytes.get() + part.len() as u64);
            return Ok(());
        }
        let part = &part[..self.takes(part.len())];
        let follows = if trailers.is_empty() { self.plan.at_end() } else { Follows::More };
        self.send(out, part, follows).await?;
        self.delivery.ctx.client.socket.end(trailers).map_err(|_| Failure::ClientGone)
    }

    async fn break_off(&self) -> Result<(), Failure> {
        self.plan.filters.break_off(&self.delivery).await?;
        let socket = &self.delivery.ctx.client.socket;
        if self.plan.framing == Framing::UntilClose || socket.frames_itself() {
            socket.reset_on_drop();
        }
        Err(Failure::FaultInjected)
    }
}

/// Appends the size of a chunk (RFC 9112 §7.1).
fn push_chunk_size(out: &mut Vec<u8>, size: usize) {
    let (text, start) = chunk_prefix(size);
    out.extend_from_slice(&text[start..]);
}
