//! The writer of bodies that are in memory: from the cache, from a fill with several readers, and of the proxy's own
//! responses.
//!
//! The pump ([`crate::body::pump`]) writes bodies that still arrive from a server, and bypasses user space where it
//! can. Both follow the [`ResponsePlan`] and its filters.

use std::cell::Cell;

use http1::{BodyFraming, chunk_prefix};

use crate::context::routed::{ExchangeContext, RoutedRequest};
use crate::exchange::ExchangeState;
use crate::failure::Failure;
use crate::outgoing::response_plan::ResponsePlan;
use crate::outgoing::send::Delivery;
use crate::shaping::Pace;
use transport::tcp::Follows;

/// Up to this length, a part of a body is copied, so that its chunk leaves in one write.
const COPIED_BYTES_MAX: usize = 32 << 10;

/// The writer of one response's body.
pub(crate) struct BodySink<'a> {
    delivery: Delivery<'a>,
    /// The pace; `None` for responses of the proxy, which are sent at once.
    pace: Option<(&'a RoutedRequest, Pace)>,
    plan: ResponsePlan,
    /// Bytes of the body that are still sent before a cut; `u64::MAX` means all.
    left: Cell<u64>,
    is_cut: Cell<bool>,
    /// Whether a byte of the response may have been sent.
    has_begun: Cell<bool>,
    /// Bytes of the body that were sent.
    sent_bytes: Cell<u64>,
}

impl<'a> BodySink<'a> {
    /// Creates the writer of a response that obeys the configured rates. Its head is written according to the plan, and
    /// the plan's filters may change it.
    pub(crate) fn paced(
        ctx: &'a ExchangeContext<'a>,
        routed: &'a RoutedRequest,
        plan: ResponsePlan,
        head: &mut Vec<u8>,
        state: &mut ExchangeState<'_>,
    ) -> Self {
        let pace = Pace::of_response(&ctx.worker.shaper, state.rate_bytes_per_second);
        let delivery = Delivery::from_ctx(ctx, routed);
        let sink = Self { delivery, pace: Some((routed, pace)), ..Self::unpaced(ctx, plan, head, state) };
        sink.plan.check_end(ctx, routed, head);
        sink
    }

    /// Creates the writer of a response that ignores configured rates.
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
        let (is_cut, has_begun, sent_bytes) = Default::default();
        Self { delivery, pace: None, plan, left, is_cut, has_begun, sent_bytes }
    }

    pub(crate) fn plan(&self) -> &ResponsePlan {
        &self.plan
    }

    /// Bytes of the body that were sent. If a piece of a paced response fails, none of it is counted.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_bytes.get()
    }

    /// Whether a byte of the response may have been sent. Before that, a failure can be answered with an error
    /// response.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun.get()
    }

    /// Applies filters before the first write. Removes the part of the head that is sent separately.
    pub(crate) async fn begin(&self, head: &mut Vec<u8>) -> Result<(), Failure> {
        if self.plan.filters.is_empty() {
            Ok(())
        } else {
            self.has_begun.set(self.plan.filters.act_first());
            self.delivery.begin(&self.plan.filters, head).await
        }
    }

    /// Returns how many bytes of the body's next piece are sent before a cut.
    pub(crate) fn takes(&self, len: usize) -> usize {
        let left = self.left.get();
        if len as u64 <= left {
            // A body that ends exactly at the cut is complete.
            self.left.set(if left == u64::MAX { left } else { left - len as u64 });
            return len;
        }
        self.is_cut.set(true);
        self.left.set(0);
        left as usize
    }

    /// Sends a head, which is not counted, and a piece of the body. At a cut, sends the filters' ending and returns an
    /// error.
    pub(crate) async fn send(&self, head: &[u8], body: &[u8], follows: Follows) -> Result<(), Failure> {
        // A cut body does not end here: only the filters' ending may follow.
        let follows = if self.is_cut.get() { Follows::Nothing } else { follows };
        self.has_begun.set(true);
        match &self.pace {
            Some((routed, pace)) => {
                self.delivery.send_paced(routed, pace, head, body, follows).await?;
                self.sent_bytes.set(self.sent_bytes.get() + body.len() as u64);
            }
            None => {
                let mut sent = 0;
                let outcome = self.delivery.send_both(head, body, follows, &mut sent).await;
                self.sent_bytes.set(self.sent_bytes.get() + sent.saturating_sub(head.len()) as u64);
                outcome?;
            }
        }
        if self.is_cut.get() { self.break_off().await } else { Ok(()) }
    }

    /// Sends `out` and a part of the body behind it, framed according to the plan. `out` must leave before a wait,
    /// because a client may ignore a chunk until it is complete. `is_last` concerns a body whose length the head
    /// states.
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
            // The chunk's end leaves with the next part, or before the next wait.
            out.extend_from_slice(b"\r\n");
        }
        Ok(())
    }

    /// Ends a body whose length the head does not state: sends `out`, the last part, and the trailers, which are lines.
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

    /// Sends the filters' ending of a body that is cut.
    async fn break_off(&self) -> Result<(), Failure> {
        self.delivery.break_off(&self.plan.filters).await?;
        let socket = &self.delivery.ctx.client.socket;
        // With chunks or a length the client sees the cut. Any other body needs a reset.
        if self.plan.framing == BodyFraming::UntilClose || socket.frames_itself() {
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
