//! Writes a response to its client, within the limits of its route: time-out and minimum rate.
//!
//! The pump enforces the same limits for the bytes that it moves ([`crate::body::ends`]). Everything else for a client
//! is sent here.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::body::filters::{Filter, Filters};
use crate::context::routed::{ExchangeContext, RoutedRequest};
use crate::failure::Failure;
use crate::shaping::Pace;
use crate::shared::minimum_rate::{MinimumRate, RateProgress, TooSlow};
use transport::cold::poll_once;
use transport::deadline::Ticks;
use transport::tcp::Follows;

/// Sent in place of a chunk's size (RFC 9112 §7.1).
const NO_CHUNK: &[u8] = b"this is no chunk\r\n";

/// The writer of one response, with the rate at which the client reads.
pub(crate) struct Delivery<'a> {
    pub(crate) ctx: &'a ExchangeContext<'a>,
    /// The route, if the request has one yet.
    route: Option<usize>,
    progress: Cell<RateProgress>,
}

impl<'a> Delivery<'a> {
    /// Creates the writer for a request that may have no route.
    #[inline]
    pub(crate) fn new(ctx: &'a ExchangeContext<'a>, route: Option<usize>) -> Self {
        Self { ctx, route, progress: Cell::default() }
    }

    /// Creates the writer for a routed request.
    #[inline]
    pub(crate) fn from_ctx(ctx: &'a ExchangeContext<'a>, routed: &RoutedRequest) -> Self {
        Self::new(ctx, Some(routed.route))
    }

    pub(crate) async fn send(&self, bytes: &[u8], follows: Follows) -> Result<(), Failure> {
        self.send_both(bytes, b"", follows, &mut 0).await
    }

    /// Sends a head with its body without copying, no faster than the body's pace permits.
    pub(crate) async fn send_paced(
        &self,
        routed: &RoutedRequest,
        pace: &Pace,
        mut head: &[u8],
        mut body: &[u8],
        follows: Follows,
    ) -> Result<(), Failure> {
        pace.pass(head.len());
        while !head.is_empty() || !body.is_empty() {
            let (place, wanted) = (routed.place(self.ctx), head.len() + body.len());
            let allowed = poll_fn(|context| pace.poll_allowance(context, &place, wanted)).await;
            // The allowance always covers the head.
            let (part, rest) = body.split_at(allowed - head.len());
            // The next piece waits for its allowance, so the kernel must not wait for it.
            let follows = if rest.is_empty() { follows } else { Follows::Nothing };
            self.send_both(head, part, follows, &mut 0).await?;
            pace.sent(allowed);
            (head, body) = (b"", rest);
        }
        Ok(())
    }

    /// Sends a head with its body without copying, as fast as the client reads. Adds the bytes sent to `sent`, also
    /// after an error.
    pub(crate) async fn send_both(
        &self,
        mut head: &[u8],
        mut body: &[u8],
        follows: Follows,
        sent: &mut usize,
    ) -> Result<(), Failure> {
        let socket = &self.ctx.client.socket;
        while !head.is_empty() || !body.is_empty() {
            let count = self.write(|context| socket.poll_write_both(context, head, body, follows)).await?;
            *sent += count;
            let of_head = count.min(head.len());
            head = &head[of_head..];
            body = &body[count - of_head..];
        }
        Ok(())
    }

    /// Applies filters that come before the first byte of a response. Removes from the head what has been sent.
    pub(crate) async fn begin(&self, filters: &Filters, head: &mut Vec<u8>) -> Result<(), Failure> {
        for filter in filters.all() {
            match filter {
                Filter::Drip { pause } => drip(self, head, *pause).await?,
                Filter::GoAway => self.ctx.client.socket.retire(),
                _ => {}
            }
        }
        Ok(())
    }

    /// Sends what a filter puts at the end of a broken body. A stream of HTTP/2 has no chunks, so it is reset instead.
    pub(crate) async fn break_off(&self, filters: &Filters) -> Result<(), Failure> {
        let is_bad = filters.all().iter().any(|filter| matches!(filter, Filter::BadChunk));
        if is_bad && !self.ctx.client.socket.frames_itself() {
            return self.send(NO_CHUNK, Follows::End).await;
        }
        Ok(())
    }

    /// Runs a write to the client within its limits. The rate covers all writes of the response so far.
    pub(crate) async fn write(
        &self,
        mut write: impl FnMut(&mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Result<usize, Failure> {
        // Tried first: most writes need neither a wait nor a clock.
        if let Some(written) = poll_once(&mut write) {
            let count = written.map_err(|_| Failure::ClientGone)?;
            let mut progress = self.progress.get();
            progress.moved += count as u64;
            self.progress.set(progress);
            return Ok(count);
        }
        // Values held across the wait take memory in every exchange, so there are few.
        let deadlines = &self.ctx.worker.deadlines;
        let began = deadlines.now();
        let mut judged = began;
        let mut write = pin!(poll_fn(write));
        loop {
            let outcome = self.ctx.client.deadline.within(self.slice(judged - began), write.as_mut()).await;
            let waited = deadlines.now() - judged;
            judged += waited;
            let written = outcome.ok().transpose().map_err(|_| Failure::ClientGone)?;
            self.judge(waited, written.unwrap_or(0))?;
            if let Some(count) = written {
                return Ok(count);
            }
            if judged - began >= self.limits().0.0 {
                return Err(Failure::ClientStalled);
            }
        }
    }

    /// Returns the time until the next check: the end of the rate's window, or of the time-out.
    fn slice(&self, waited: u32) -> Ticks {
        let (limit, rate) = self.limits();
        let left = Ticks(limit.0.saturating_sub(waited));
        rate.map_or(left, |rate| left.min(rate.left(&self.progress.get())))
    }

    /// Counts the bytes after a wait, and checks time-out and rate.
    fn judge(&self, waited: u32, count: usize) -> Result<(), Failure> {
        let mut progress = self.progress.get();
        progress.moved += count as u64;
        progress.waited_ticks += waited;
        let judged = self.limits().1.map_or(Ok(()), |rate| rate.judge(&mut progress));
        self.progress.set(progress);
        judged.map_err(|TooSlow| Failure::ClientStalled)
    }

    /// Returns time-out and minimum rate: the route's, if it has its own.
    fn limits(&self) -> (Ticks, Option<MinimumRate>) {
        let snapshot = self.ctx.snapshot;
        let policies = self.route.and_then(|route| snapshot.plan.routes[route].policies.as_deref());
        let ticks = policies.and_then(|policies| policies.ticks.as_deref()).unwrap_or(&snapshot.ticks);
        let limits = policies.and_then(|policies| policies.client_limits.as_deref());
        (ticks.client_write, limits.unwrap_or(&snapshot.client_limits).minimum_rate)
    }
}

/// Sends a head line by line. The head of a stream is sent as a whole, when its last line would be. Other frames may
/// not come between its frames (RFC 9113 §6.10), so all streams would wait.
async fn drip(delivery: &Delivery<'_>, head: &mut Vec<u8>, pause: Duration) -> Result<(), Failure> {
    let ctx = delivery.ctx;
    if ctx.client.socket.frames_itself() {
        let lines = head.iter().filter(|byte| **byte == b'\n').count() as u32;
        ctx.worker.alarms.sleep(pause.saturating_mul(lines)).await;
        return Ok(());
    }
    let mut rest = head.as_slice();
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        delivery.send(&rest[..=end], Follows::Nothing).await?;
        rest = &rest[end + 1..];
        ctx.worker.alarms.sleep(pause).await;
    }
    head.clear();
    Ok(())
}
