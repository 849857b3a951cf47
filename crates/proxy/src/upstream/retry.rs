//! Decides whether a failed request is retried: only if that is safe, within the configured time and number, and within
//! the budget, so that retries do not multiply an outage.

use std::time::Instant;

use balance::{Room, Time};
use config::Retry;
use http1::Method;

use crate::context::failure::Failure;
use crate::context::worker::Worker;
use crate::upstream::Upstream;
use crate::upstream::choose::Choice;

/// The maximum number of attempts for one request, whatever is configured.
pub(crate) const ATTEMPTS_MAX: usize = 16;

/// The progress of an attempt, which decides whether a retry is safe.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Progress {
    /// The connection was closed, perhaps before the server saw the request: it was a pooled connection, or the server
    /// says so.
    pub(crate) is_stale: bool,
    /// The server may have seen a part of the request.
    pub(crate) has_sent: bool,
    /// The server has sent a response that the client may have seen.
    pub(crate) has_answered: bool,
    /// The server says that it has not processed the request (RFC 9113 §8.7).
    pub(crate) is_untouched: bool,
    /// When the response began, if anybody needs the time.
    pub(crate) first_byte_at: Option<Instant>,
    /// The status of a gRPC call, if it was looked for and is known.
    pub(crate) call: Option<grpc::Status>,
}

/// How an attempt failed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Setback {
    /// The attempt failed.
    Failed(Failure, Progress),
    /// The response has a status that is configured for retries.
    Status,
    /// The gRPC call has ended with one.
    Call,
}

/// Whether and where a request is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// On a new connection to any server: only the pooled connection was at fault.
    Afresh,
    /// On another server.
    Elsewhere,
    /// The request is not retried.
    GiveUp,
}

/// The attempts of one request.
pub(crate) struct Attempts<'a> {
    worker: &'a Worker,
    upstream: &'a Upstream,
    rules: &'a Retry,
    method: Method,
    began: Time,
    count: usize,
    is_afresh: bool,
}

impl<'a> Attempts<'a> {
    /// Starts the first attempt of a request.
    pub(crate) fn new(worker: &'a Worker, upstream: &'a Upstream, rules: &'a Retry, method: Method) -> Self {
        let began = worker.coarse_time();
        Self { worker, upstream, rules, method, began, count: 1, is_afresh: false }
    }

    /// Makes this attempt the last one, except for a pooled connection that was closed.
    pub(crate) fn make_last(&mut self) {
        self.count = ATTEMPTS_MAX;
    }

    /// Starts the first attempt to connect for layer 4: no server has seen a byte of the client's.
    pub(crate) fn of_connection(worker: &'a Worker, upstream: &'a Upstream) -> Self {
        Self::new(worker, upstream, &upstream.plan.config.retry, Method::Get)
    }

    /// Whether a pooled HTTP/1 connection may be used.
    pub(crate) fn may_reuse(&self) -> bool {
        !self.is_afresh
    }

    /// Whether a response with this status, of HTTP or of a gRPC call, is retried if possible.
    pub(crate) fn repeats(&self, status: u16, call: Option<grpc::Status>) -> Option<Setback> {
        let on = &self.rules.on;
        if !on.status.is_empty() && on.status.contains(status) {
            return Some(Setback::Status);
        }
        call.filter(|call| on.grpc.contains(*call)).map(|_| Setback::Call)
    }

    /// Whether the statuses of gRPC calls matter for retries, as long as there may be one.
    pub(crate) fn repeats_calls(&self) -> bool {
        !self.rules.on.grpc.is_empty() && self.may_go_on()
    }

    /// Whether the number of attempts permits another one.
    fn may_go_on(&self) -> bool {
        self.count < (self.rules.attempts as usize).min(ATTEMPTS_MAX)
    }

    /// Decides what follows a failed attempt. `is_whole` tells whether the bytes read from the request are all still
    /// there.
    pub(crate) fn after(&mut self, setback: Setback, is_whole: bool) -> Verdict {
        if !is_whole || !self.is_safe(setback) {
            return Verdict::GiveUp;
        }
        if self.may_reuse() && is_stale_connection(setback) {
            // It costs the server nothing that it would not have had to do anyway.
            self.is_afresh = true;
            return Verdict::Afresh;
        }
        let now = self.worker.coarse_time();
        let is_asked_for = match setback {
            Setback::Failed(failure, progress) => self.asks_for(failure, progress),
            Setback::Status | Setback::Call => true,
        };
        if !is_asked_for || !self.may_go_on() || now.since(self.began) > self.rules.within {
            return Verdict::GiveUp;
        }
        if !self.upstream.budget.borrow_mut().retry(now, &self.upstream.plan.reserve) {
            self.worker.counters.upstream_retries_denied.increment();
            return Verdict::GiveUp;
        }
        self.count += 1;
        self.is_afresh = false;
        Verdict::Elsewhere
    }

    /// RFC 9110 §9.2.2: repeated is only what no server saw anything of, or what may be done twice.
    fn is_safe(&self, setback: Setback) -> bool {
        let may_be_done_twice = self.method.is_idempotent() || self.rules.non_idempotent;
        match setback {
            Setback::Status => may_be_done_twice,
            // Every call is a POST, which says nothing: who names a status of gRPC says that its calls may be repeated.
            Setback::Call => true,
            Setback::Failed(failure, progress) => {
                let was_unseen = match failure {
                    Failure::UpstreamRefused
                    | Failure::UpstreamConnectTimeout
                    | Failure::UpstreamHandshake
                    | Failure::UpstreamUnknown
                    | Failure::UpstreamFull => true,
                    _ => !progress.has_sent || progress.is_untouched,
                };
                !progress.has_answered && (was_unseen || may_be_done_twice)
            }
        }
    }

    fn asks_for(&self, failure: Failure, progress: Progress) -> bool {
        let on = &self.rules.on;
        match failure {
            Failure::UpstreamRefused
            | Failure::UpstreamConnectTimeout
            | Failure::UpstreamHandshake
            | Failure::UpstreamUnknown
            | Failure::UpstreamFull => on.connect,
            // RFC 9113 §8.7: a stream that was refused is no more than a connection that was.
            Failure::UpstreamReset | Failure::UpstreamClosed if progress.is_untouched => {
                on.connect || on.reset
            }
            Failure::UpstreamReset | Failure::UpstreamClosed | Failure::UpstreamTruncated => on.reset,
            Failure::UpstreamTimeout => on.timeout,
            _ => false,
        }
    }
}

/// Whether nothing was wrong but that a server closed a connection. Of one that resets streams, and so keeps its connection,
/// something is: its requests are repeated as others are, within the budget, and open no further connections.
fn is_stale_connection(setback: Setback) -> bool {
    matches!(setback, Setback::Failed(Failure::UpstreamReset | Failure::UpstreamClosed, progress) if progress.is_stale)
}

/// Excludes the failed server from further attempts, unless there is no other.
#[cold]
pub(crate) fn leave_aside(
    (upstream, choice): (&Upstream, &Choice<'_>),
    tried: &mut Vec<usize>,
    index: usize,
    (failure, progress): (Failure, Progress),
) {
    // RFC 9113 §8.7: a server that refused a stream may take the next one.
    if progress.is_untouched && !upstream.has_another(index, tried) {
        return;
    }
    tried.push(index);
    // A handshake that failed would fail again.
    if failure != Failure::UpstreamHandshake && !choice.has_untried(tried, Room::OrNot) {
        // There is no other, or all have failed: one that is started anew is there again in a moment.
        tried.clear();
    }
}

impl Setback {
    /// Whether the failure says something about the server, rather than about a stale pooled connection.
    pub(crate) fn blames_server(self) -> bool {
        !is_stale_connection(self)
    }
}
