//! Decides whether a failed request is retried: only if that is safe, within the configured time and number, and within
//! the budget, so that retries do not multiply an outage.

use std::time::Instant;

use balance::{Room, Time};
use config::Retry;
use http1::Method;

use crate::context::routed::{ExchangeContext, Purpose, RoutedRequest};
use crate::context::worker::Worker;
use crate::failure::{Cause, Failure};
use crate::forward::choose::Choice;
use crate::upstream::WorkerUpstream;

/// Upper limit for attempts of one request, whatever is configured.
pub(crate) const ATTEMPTS_MAX: usize = 16;

/// The progress of an attempt, which decides whether a retry is safe.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AttemptProgress {
    /// The connection was closed, perhaps before the server saw the request: it was pooled, or the server reports that.
    pub(crate) is_stale: bool,
    /// The server may have seen a part of the request.
    pub(crate) has_sent: bool,
    /// The attempt waits for the server, rather than for the client or a limit of ours.
    pub(crate) waits_for_server: bool,
    /// The server has sent a response that the client may have seen.
    pub(crate) has_answered: bool,
    /// The server reports that it has not processed the request (RFC 9113 §8.7).
    pub(crate) is_untouched: bool,
    /// When the response began, if the time is measured.
    pub(crate) first_byte_at: Option<Instant>,
    /// The status of a gRPC call, if it was awaited and is known.
    pub(crate) call: Option<grpc::CallStatus>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Setback {
    Failed(Failure, AttemptProgress),
    /// The response has a status that is configured for retries.
    Status,
    /// The gRPC call has ended with a status that is configured for retries.
    Call,
}

/// Whether and where a request is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryVerdict {
    /// On a new connection to any server: only the pooled connection was at fault.
    Afresh,
    /// On another server.
    Elsewhere,
    GiveUp,
}

pub(crate) struct Attempts<'a> {
    worker: &'a Worker,
    upstream: &'a WorkerUpstream,
    rules: &'a Retry,
    method: Method,
    began: Time,
    count: usize,
    is_afresh: bool,
}

/// Returns the retry rules of the request: its route's, else its upstream's.
pub(super) fn rules<'a>(
    ctx: &ExchangeContext<'a>,
    upstream: &'a WorkerUpstream,
    routed: &RoutedRequest,
) -> &'a Retry {
    let own = routed.policies(ctx).and_then(|policies| policies.settings.retry.as_deref());
    own.unwrap_or(&upstream.plan.config.retry)
}

impl<'a> Attempts<'a> {
    /// Begins the attempts of a request.
    pub(super) fn of_request(
        ctx: &ExchangeContext<'a>,
        upstream: &'a WorkerUpstream,
        routed: &RoutedRequest,
    ) -> Self {
        let mut attempts = Self::new(ctx.worker, upstream, rules(ctx, upstream, routed), routed.method);
        if routed.purpose == Purpose::Mirror {
            attempts.make_last();
        }
        attempts
    }

    pub(crate) fn new(
        worker: &'a Worker,
        upstream: &'a WorkerUpstream,
        rules: &'a Retry,
        method: Method,
    ) -> Self {
        let began = worker.coarse_time();
        Self { worker, upstream, rules, method, began, count: 1, is_afresh: false }
    }

    /// Makes this attempt the last one, except after a stale pooled connection.
    pub(crate) fn make_last(&mut self) {
        self.count = ATTEMPTS_MAX;
    }

    /// Starts the first attempt of a layer 4 connection: no server has received a byte from the client.
    pub(crate) fn of_connection(worker: &'a Worker, upstream: &'a WorkerUpstream) -> Self {
        Self::new(worker, upstream, &upstream.plan.config.retry, Method::Get)
    }

    /// Whether a pooled HTTP/1 connection may be used.
    pub(crate) fn may_reuse(&self) -> bool {
        !self.is_afresh
    }

    /// Returns the reason to retry after this status of a response or of its gRPC call; `None` if the status is final.
    pub(crate) fn repeats(&self, status: u16, call: Option<grpc::CallStatus>) -> Option<Setback> {
        let on = &self.rules.on;
        if !on.status.is_empty() && on.status.contains(status) {
            return Some(Setback::Status);
        }
        call.filter(|call| on.grpc.contains(*call)).map(|_| Setback::Call)
    }

    /// Whether gRPC statuses may still lead to a retry.
    pub(crate) fn repeats_calls(&self) -> bool {
        !self.rules.on.grpc.is_empty() && self.may_go_on()
    }

    fn may_go_on(&self) -> bool {
        self.count < (self.rules.attempts as usize).min(ATTEMPTS_MAX)
    }

    /// Decides what follows a failed attempt. `is_whole`: all bytes read from the request can be sent again.
    pub(crate) fn after(&mut self, setback: Setback, is_whole: bool) -> RetryVerdict {
        if !is_whole || !self.is_safe(setback) {
            return RetryVerdict::GiveUp;
        }
        if self.may_reuse() && is_stale_connection(setback) {
            // It costs the server nothing beyond the work of the first attempt.
            self.is_afresh = true;
            return RetryVerdict::Afresh;
        }
        let now = self.worker.coarse_time();
        let is_asked_for = match setback {
            Setback::Failed(failure, progress) => self.asks_for(failure, progress),
            Setback::Status | Setback::Call => true,
        };
        if !is_asked_for || !self.may_go_on() || now.since(self.began) > self.rules.within {
            return RetryVerdict::GiveUp;
        }
        if !self.upstream.budget.borrow_mut().retry(now, &self.upstream.plan.reserve) {
            self.worker.counters.upstream_retries_denied.increment();
            return RetryVerdict::GiveUp;
        }
        self.count += 1;
        // Pooled connections of the next server may be used again.
        self.is_afresh = false;
        RetryVerdict::Elsewhere
    }

    /// RFC 9110 §9.2.2: whether a retry is safe, because no server saw the request or it may be repeated.
    fn is_safe(&self, setback: Setback) -> bool {
        let may_be_done_twice = self.method.is_idempotent() || self.rules.non_idempotent;
        match setback {
            Setback::Status => may_be_done_twice,
            // gRPC uses POST for every call. Naming a gRPC status in `retry` declares that calls may be repeated.
            Setback::Call => true,
            Setback::Failed(failure, progress) => {
                let was_unseen = failure.is_of_connecting() || !progress.has_sent || progress.is_untouched;
                !progress.has_answered && (was_unseen || may_be_done_twice)
            }
        }
    }

    fn asks_for(&self, failure: Failure, progress: AttemptProgress) -> bool {
        let on = &self.rules.on;
        match failure.cause() {
            Cause::Unreachable | Cause::ConnectTimeout | Cause::Handshake | Cause::Full => on.connect,
            // RFC 9113 §8.7: a refused stream counts like a refused connection.
            Cause::Ended if progress.is_untouched => on.connect || on.reset,
            Cause::Ended | Cause::Truncated => on.reset,
            Cause::Timeout => on.timeout,
            Cause::Stalled | Cause::Queued | Cause::Load | Cause::Other => false,
        }
    }
}

/// Whether the only problem was a closed pooled connection. A server that resets streams keeps its connection, so it is
/// at fault: its requests are retried within the budget, without further connections.
fn is_stale_connection(setback: Setback) -> bool {
    matches!(setback, Setback::Failed(Failure::UpstreamReset | Failure::UpstreamClosed, progress) if progress.is_stale)
}

/// Excludes the failed server from further attempts, unless there is no other. The last attempt goes to the next
/// priority if this server could not be reached and another failed, too: more may be gone than there are attempts.
#[cold]
pub(crate) fn leave_aside(
    attempts: &Attempts<'_>,
    choice: &Choice<'_>,
    tried: &mut Vec<usize>,
    index: usize,
    failure: Failure,
    progress: AttemptProgress,
) {
    let upstream = attempts.upstream;
    // RFC 9113 §8.7: a server that refused a stream may accept the next one.
    if progress.is_untouched && !upstream.has_another(index, tried) {
        return;
    }
    tried.push(index);
    let is_last = tried.len() > 1 && !attempts.may_go_on();
    if is_last && failure.is_of_connecting() && upstream.has_backup(index, tried) {
        tried.extend(upstream.others_of_priority(index));
    }
    // Another handshake would fail again, and a port does not become free sooner.
    let is_final = failure.is_of_handshake() || failure == Failure::OutOfPorts;
    if !is_final && !choice.has_untried(tried, Room::OrNot) {
        // There is no other server, or all have failed: one that is restarting may be back in a moment.
        tried.clear();
    }
}

impl Setback {
    /// Whether the failure is the server's fault, rather than that of a stale pooled connection.
    pub(crate) fn blames_server(self) -> bool {
        !is_stale_connection(self)
    }
}
