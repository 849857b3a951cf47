//! Sends a response to its client, within the limits of its route: the client's time-out, and its minimum rate.
//!
//! What the pump moves obeys them as well ([`super::ends`]); everything else that a client is sent goes through here.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};

use crate::context::exchange::{ExchangeContext, RoutedRequest};
use crate::context::failure::Failure;
use crate::context::minimum_rate::{MinimumRate, Progress, TooSlow};
use crate::shaping::Pace;
use transport::cold::poll_once;
use transport::deadline::Ticks;
use transport::tcp::Follows;

/// The way of one response to its client, and how fast the client takes it.
pub(crate) struct Delivery<'a> {
    pub(crate) ctx: &'a ExchangeContext<'a>,
    /// The route, if the request has one by now.
    route: Option<usize>,
    progress: Cell<Progress>,
}

impl<'a> Delivery<'a> {
    /// The way of the response to a request that may have a route.
    #[inline]
    pub(crate) fn new(ctx: &'a ExchangeContext<'a>, route: Option<usize>) -> Self {
        Self { ctx, route, progress: Cell::default() }
    }

    /// The way of the response to a routed request.
    #[inline]
    pub(crate) fn of(ctx: &'a ExchangeContext<'a>, routed: &RoutedRequest) -> Self {
        Self::new(ctx, Some(routed.route))
    }

    /// Sends bytes.
    pub(crate) async fn send(&self, bytes: &[u8], follows: Follows) -> Result<(), Failure> {
        self.send_both((bytes, b""), follows, &mut 0).await
    }

    /// Sends a head with its body without copying, no faster than the body's pace permits.
    pub(crate) async fn send_paced(
        &self,
        routed: &RoutedRequest,
        pace: &Pace,
        (mut head, mut body): (&[u8], &[u8]),
        follows: Follows,
    ) -> Result<(), Failure> {
        pace.pass(head.len());
        while !head.is_empty() || !body.is_empty() {
            let (place, wanted) = (routed.place(self.ctx), head.len() + body.len());
            let allowed = poll_fn(|context| pace.poll_allowance(context, &place, wanted)).await;
            // What is allowed is the head at least.
            let (part, rest) = body.split_at(allowed - head.len());
            let follows = if rest.is_empty() { follows } else { Follows::Nothing };
            self.send_both((head, part), follows, &mut 0).await?;
            pace.sent(allowed);
            (head, body) = (b"", rest);
        }
        Ok(())
    }

    /// Sends a head with its body without copying, as fast as the client reads. Adds the bytes sent to `sent`, also if it
    /// fails.
    pub(crate) async fn send_both(
        &self,
        (mut head, mut body): (&[u8], &[u8]),
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

    /// Runs a write to the client within its limits. The rate is that of all writes so far.
    pub(crate) async fn write(
        &self,
        mut write: impl FnMut(&mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Result<usize, Failure> {
        if let Some(written) = poll_once(&mut write) {
            let count = written.map_err(|_| Failure::ClientGone)?;
            let mut progress = self.progress.get();
            progress.moved += count as u64;
            self.progress.set(progress);
            return Ok(count);
        }
        // What is held over the wait is in every exchange's memory.
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

    /// How long may be waited before it is looked again: until the end of the window, or of the wait.
    fn slice(&self, waited: u32) -> Ticks {
        let (limit, rate) = self.limits();
        let left = Ticks(limit.0.saturating_sub(waited));
        rate.map_or(left, |rate| left.min(rate.left(&self.progress.get())))
    }

    /// Counts what was taken after a wait, and whether that is enough.
    fn judge(&self, waited: u32, count: usize) -> Result<(), Failure> {
        let mut progress = self.progress.get();
        progress.moved += count as u64;
        progress.waited_ticks += waited;
        let judged = self.limits().1.map_or(Ok(()), |rate| rate.judge(&mut progress));
        self.progress.set(progress);
        judged.map_err(|TooSlow| Failure::ClientStalled)
    }

    /// The client's time-out and its minimum rate: those of the route, if it has its own.
    fn limits(&self) -> (Ticks, Option<MinimumRate>) {
        let snapshot = self.ctx.snapshot;
        let policies = self.route.and_then(|route| snapshot.plan.routes[route].policies.as_deref());
        let ticks = policies.and_then(|policies| policies.ticks.as_ref()).unwrap_or(&snapshot.ticks);
        let limits = policies.and_then(|policies| policies.client_limits.as_ref());
        (ticks.client_write, limits.unwrap_or(&snapshot.client_limits).minimum_rate)
    }
}
