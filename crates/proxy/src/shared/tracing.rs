//! Sampling of traces, and the channel of spans to the collector.

use std::cell::Cell;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use config::FollowCallers;
use telemetry::{B3Form, Caller, Spans, Trace};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::failure::Failure;

/// Requests whose spans wait for the control thread, over all workers; further ones are dropped and counted.
const WAITING_MAX: usize = 4096;
/// The part of a trace ID that sampling uses, which is always random (W3C Trace Context level 2).
const RANDOM_BITS: u32 = 56;

/// The traces of a plan. Plans with equal settings share it.
pub struct Tracing {
    pub settings: config::Tracing,
    /// Traces with a random part below this are recorded.
    threshold: u64,
    ended: Sender<Spans>,
    waiting: Mutex<Option<Receiver<Spans>>>,
}

impl Tracing {
    pub(crate) fn new(settings: &config::Tracing) -> Self {
        let (ended, waiting) = channel(WAITING_MAX);
        let share = u128::from(settings.sample.millionths());
        // At most 2^56, because a share is at most a million millionths.
        let threshold = ((share << RANDOM_BITS) / 1_000_000) as u64;
        Self { settings: settings.clone(), threshold, ended, waiting: Mutex::new(Some(waiting)) }
    }

    /// Returns the receiver of spans, on the first call only. It ends with the last plan with these settings.
    pub fn take_spans(&self) -> Option<Receiver<Spans>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The form of B3 fields.
    pub(crate) fn b3(&self) -> B3Form {
        match self.settings.b3 {
            config::B3::Off => B3Form::Off,
            config::B3::Single => B3Form::Single,
            config::B3::Multi => B3Form::Multi,
        }
    }

    pub(crate) fn is_sampled(&self, caller: Option<&Caller>, follows: bool, trace_id: u128) -> bool {
        let decided = caller.and_then(|caller| caller.is_sampled).filter(|_| follows);
        // The random part of the ID decides, so that all proxies with the same share decide alike.
        decided.unwrap_or((trace_id as u64 & ((1 << RANDOM_BITS) - 1)) < self.threshold)
    }

    /// Whether the end of a request may cause the recording of its trace.
    pub(crate) fn looks_at_ends(&self) -> bool {
        self.settings.errors || self.settings.slow.is_some()
    }

    /// Whether the trace of a finished request is recorded.
    #[inline]
    pub(crate) fn is_recorded(&self, trace: &Trace, ended: &TracedEnd) -> bool {
        let is_error = ended.failure.is_some() || ended.status >= 500;
        trace.is_sampled
            || (self.settings.errors && is_error)
            || self.settings.slow.is_some_and(|slow| ended.duration >= slow)
    }

    /// Passes spans to the control thread. Returns whether there was room.
    pub(crate) fn hand_over(&self, spans: Spans) -> bool {
        self.ended.try_send(spans).is_ok()
    }
}

/// Whether a caller's sampling decision is followed.
pub(crate) fn follows(whom: FollowCallers, is_trusted: bool) -> bool {
    match whom {
        FollowCallers::Trusted => is_trusted,
        FollowCallers::All => true,
        FollowCallers::Nobody => false,
    }
}

/// The result of a request, for the decision about its trace.
pub(crate) struct TracedEnd {
    pub(crate) status: u16,
    pub(crate) failure: Option<Failure>,
    pub(crate) duration: Duration,
}

/// A worker's random numbers for IDs: those of the thread need a look-up each time.
pub(crate) struct Ids(Cell<u64>);

impl Ids {
    pub(crate) fn new() -> Self {
        Self(Cell::new(fastrand::u64(..)))
    }

    #[inline]
    pub(crate) fn next(&self) -> u64 {
        let mut random = fastrand::Rng::with_seed(self.0.get());
        let next = random.u64(..);
        self.0.set(random.get_seed());
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracing(millionths: u32, follow: FollowCallers) -> Tracing {
        let mut settings = config::Tracing {
            collector: config::KeyUrl {
                server: "http://127.0.0.1:4318".parse().unwrap(),
                path: "/v1/traces".to_owned(),
            },
            ca: None,
            authorization_file: None,
            service: "vanward".to_owned(),
            sample: shape::Millionths::WHOLE,
            follow,
            slow: Some(Duration::from_secs(1)),
            errors: true,
            b3: config::B3::Off,
        };
        settings.sample = shape::Millionths::of_millionths(millionths).unwrap();
        Tracing::new(&settings)
    }

    fn caller(is_sampled: bool) -> Caller {
        let value = format!("00-{:032x}-{:016x}-0{}", 7, 9, u8::from(is_sampled));
        Caller::read([(&b"traceparent"[..], value.as_bytes())].into_iter(), B3Form::Off).unwrap()
    }

    #[test]
    fn the_trace_id_decides_by_the_share() {
        for (millionths, below, above) in [(0, None, Some(0)), (1_000_000, Some((1 << 56) - 1), None)] {
            let tracing = tracing(millionths, FollowCallers::Nobody);
            assert!(below.is_none_or(|id| tracing.is_sampled(None, false, id)), "{millionths}");
            assert!(above.is_none_or(|id| !tracing.is_sampled(None, false, id)), "{millionths}");
        }
        let half = tracing(500_000, FollowCallers::Nobody);
        assert!(half.is_sampled(None, false, (1 << 55) - 1) && !half.is_sampled(None, false, 1 << 55));
        // Bits that need not be random do not decide.
        assert!(half.is_sampled(None, false, (0xff << 56) | 1 | (1 << 100)));
    }

    #[test]
    fn a_caller_decides_where_it_is_followed() {
        for (follow, is_trusted, follows) in [
            (FollowCallers::Trusted, false, false),
            (FollowCallers::Trusted, true, true),
            (FollowCallers::All, false, true),
            (FollowCallers::Nobody, true, false),
        ] {
            for is_sampled in [false, true] {
                for (share, own) in [(0, false), (1_000_000, true)] {
                    let expected = if follows { is_sampled } else { own };
                    let is_followed = super::follows(follow, is_trusted);
                    let outcome =
                        tracing(share, follow).is_sampled(Some(&caller(is_sampled)), is_followed, 7);
                    assert_eq!(outcome, expected, "{follow:?} {is_trusted} {is_sampled} {share}");
                }
            }
        }
    }

    #[test]
    fn errors_and_slow_requests_are_recorded_though_they_were_not_chosen() {
        let tracing = tracing(0, FollowCallers::Nobody);
        let trace = |is_sampled| Trace::new(None, 1, 1, is_sampled);
        for (is_sampled, status, failure, milliseconds, expected) in [
            (false, 200, None, 999, false),
            (false, 200, None, 1000, true),
            (true, 200, None, 0, true),
            (false, 499, None, 0, false),
            (false, 500, None, 0, true),
            (false, 0, Some(Failure::ClientGone), 0, true),
        ] {
            let ended = TracedEnd { status, failure, duration: Duration::from_millis(milliseconds) };
            assert_eq!(tracing.is_recorded(&trace(is_sampled), &ended), expected, "{status} {milliseconds}");
        }
    }

    #[test]
    fn spans_that_nobody_takes_do_not_pile_up() {
        let tracing = tracing(0, FollowCallers::Nobody);
        let handed = (0..WAITING_MAX + 10).filter(|_| tracing.hand_over(Spans::default())).count();
        assert_eq!(handed, WAITING_MAX);
        let _spans = tracing.take_spans().expect("the first that asks");
        assert!(tracing.take_spans().is_none() && !tracing.hand_over(Spans::default()));
    }
}
