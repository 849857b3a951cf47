//! Decides when to order a certificate, from which authority, and how long to wait after a failure. Pure: the
//! caller supplies times in seconds since 1970.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) from: i64,
    pub(crate) until: i64,
}

/// An authority's renewal window (RFC 9773 §4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RenewalWindow {
    pub(crate) start: i64,
    pub(crate) end: i64,
}

/// A fraction in 0..1 that differs between certificates and survives restarts. It spreads renewals over their windows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread(f64);

/// Shorter lifetimes use half for renewals, others a third: of six days, two are too few for an authority's outage.
const SHORT_LIVED: i64 = 10 * DAY;
const DAY: i64 = 24 * 3600;

impl Spread {
    pub(crate) fn from_name(name: &str, serial: &str) -> Self {
        // FNV-1a, because the hash must stay the same; its upper bits are mixed best.
        let bytes = name.bytes().chain([0]).chain(serial.bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self((mixed >> 11) as f64 / (1_u64 << 53) as f64)
    }

    fn of_span(self, seconds: i64) -> i64 {
        (self.0 * seconds as f64) as i64
    }
}

/// Returns when to renew: within the authority's window if there is one, else after two thirds of the lifetime, or
/// half of a short one. There is always time for another attempt after a failure.
pub(crate) fn renewal_at(validity: Validity, window: Option<RenewalWindow>, spread: Spread) -> i64 {
    let Validity { from, until } = validity;
    let lifetime = (until - from).max(0);
    // RFC 9773 §4.2: a window that does not end after its start is invalid.
    let at = match window.filter(|window| window.end > window.start) {
        Some(RenewalWindow { start, end }) => start + spread.of_span(end - start),
        None => {
            let share = if lifetime < SHORT_LIVED { lifetime / 2 } else { lifetime / 3 * 2 };
            from + share - spread.of_span(lifetime / 20)
        }
    };
    at.min(until - lifetime / 10)
}

/// How long a window is valid: the authority's value (RFC 9773 §4.3.2), within bounds.
pub(crate) fn window_good_for(said: i64) -> i64 {
    said.clamp(10 * 60, DAY)
}

/// Whether a window with this end is valid now. A clock that was set back cannot extend it beyond its longest validity.
pub(crate) fn is_window_good(good_until: i64, now: i64) -> bool {
    (now..=now + window_good_for(i64::MAX)).contains(&good_until)
}

/// After this number of failures in a row, the fallback authority is used, too.
const FALLBACK_AFTER: u32 = 3;
/// After the first failure; each further one triples it. Authorities allow five failures of a name in an hour.
const BACK_OFF: i64 = 60;
const BACK_OFF_MAX: i64 = 6 * 3600;
const RETRY_AFTER_MAX: i64 = 7 * DAY;

/// The failures in a row of a name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Failures {
    count: u32,
    last_at: i64,
    /// End of the Retry-After of each authority: the first, the fallback.
    blocked_until: [i64; 2],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attempt {
    /// 0 is the first authority, 1 the fallback.
    pub(crate) authority: usize,
    /// Index of the challenge in the order of preference, modulo their number.
    pub(crate) challenge: usize,
}

impl Failures {
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    pub(crate) fn failed(&mut self, attempt: Attempt, now: i64, retry_after: Option<i64>) {
        self.count = self.count.saturating_add(1);
        self.last_at = now;
        let wait = retry_after.unwrap_or(0).clamp(0, RETRY_AFTER_MAX);
        if let Some(blocked) = self.blocked_until.get_mut(attempt.authority) {
            *blocked = now + wait;
        }
    }

    /// Returns the next attempt and its earliest time. `authorities` is 1, or 2 with a fallback.
    pub(crate) fn next(&self, authorities: usize, spread: Spread, now: i64) -> (i64, Attempt) {
        let wanted = if authorities > 1 && self.count >= FALLBACK_AFTER {
            (self.count - FALLBACK_AFTER + 1) as usize % 2
        } else {
            0
        };
        // After a clock was set back, the wait is not longer than usual.
        let blocked = |authority: usize| {
            let until = self.blocked_until[authority.min(1)];
            let wait = (until - self.last_at).max(0);
            until.min(now + wait)
        };
        let other = 1 - wanted;
        let authority =
            if authorities > 1 && blocked(wanted) > now && blocked(other) <= now { other } else { wanted };
        let attempt = Attempt { authority, challenge: self.count as usize };
        if self.count == 0 {
            return (now, attempt);
        }
        let back_off = BACK_OFF.saturating_mul(3_i64.saturating_pow(self.count - 1)).min(BACK_OFF_MAX);
        // Up to a tenth more or less, so that a hundred names are not ordered at once.
        let back_off = back_off - back_off / 10 + spread.of_span(back_off / 5);
        let at = (self.last_at + back_off).min(now + back_off);
        (at.max(blocked(authority)), attempt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600;
    const START: Spread = Spread(0.0);
    const END: Spread = Spread(0.999_999);

    fn valid_for(days: i64) -> Validity {
        Validity { from: 1_000_000, until: 1_000_000 + days * DAY }
    }

    #[test]
    fn renewals_come_at_a_share_of_the_lifetime_or_in_the_window() {
        let window =
            |start: i64, end: i64| Some(RenewalWindow { start: 1_000_000 + start, end: 1_000_000 + end });
        for (days, window, spread, expected) in [
            (90, None, START, 60 * DAY),
            (90, None, END, 60 * DAY - 90 * DAY / 20),
            (47, None, START, 47 * DAY / 3 * 2),
            (6, None, START, 3 * DAY),
            (90, window(50 * DAY, 52 * DAY), START, 50 * DAY),
            (90, window(50 * DAY, 52 * DAY), Spread(0.5), 51 * DAY),
            // A window in the past: the authority wants it replaced now.
            (90, window(-2 * DAY, -DAY), START, -2 * DAY),
            // Windows that are invalid, or too late.
            (90, window(50 * DAY, 50 * DAY), START, 60 * DAY),
            (90, window(52 * DAY, 50 * DAY), START, 60 * DAY),
            (90, window(100 * DAY, 110 * DAY), START, 81 * DAY),
            (0, None, START, 0),
        ] {
            let at = renewal_at(valid_for(days), window, spread) - 1_000_000;
            assert!((at - expected).abs() <= 2, "{days} {window:?} {spread:?}: {at}, not {expected}");
        }
    }

    #[test]
    fn any_certificate_is_renewed_within_its_lifetime() {
        proptest::proptest!(|(from in 0..4_000_000_000_i64, lifetime in 600..400 * DAY, share in 0.0..1.0_f64)| {
            let validity = Validity { from, until: from + lifetime };
            let at = renewal_at(validity, None, Spread(share));
            proptest::prop_assert!(at > from && at < validity.until - lifetime / 10);
        });
        proptest::proptest!(|(start in 0..4_000_000_000_i64, length in 1..30 * DAY, share in 0.0..1.0_f64)| {
            let window = RenewalWindow { start, end: start + length };
            let validity = Validity { from: 0, until: 8_000_000_000 };
            let at = renewal_at(validity, Some(window), Spread(share));
            proptest::prop_assert!(at >= window.start && at < window.end);
        });
    }

    #[test]
    fn a_hundred_names_are_not_renewed_in_step() {
        let mut times: Vec<i64> = (0..100)
            .map(|index| Spread::from_name(&format!("host-{index}.example"), "01"))
            .map(|spread| renewal_at(valid_for(90), None, spread))
            .collect();
        times.sort_unstable();
        let (first, last) = (times[0], times[99]);
        assert!(last - first > 4 * DAY, "over {} hours", (last - first) / HOUR);
        let crowd = times.windows(10).map(|ten| ten[9] - ten[0]).min();
        assert!(crowd > Some(HOUR), "ten within {crowd:?} seconds");
        assert_eq!(Spread::from_name("a", "1"), Spread::from_name("a", "1"));
        assert_ne!(Spread::from_name("a", "1"), Spread::from_name("a", "2"));
    }

    #[test]
    fn failures_are_waited_out_longer_and_longer() {
        let mut failures = Failures::default();
        let mut now = 0;
        let mut waits = Vec::new();
        for _ in 0..8 {
            let (at, attempt) = failures.next(1, Spread(0.5), now);
            waits.push(at - now);
            now = at;
            failures.failed(attempt, now, None);
        }
        assert_eq!(waits, [0, 60, 180, 540, 1620, 4860, 14_580, 21_600]);
    }

    #[test]
    fn retry_after_is_respected_by_authority() {
        let now = 1_000_000;
        let first = Attempt { authority: 0, challenge: 0 };
        let mut failures = Failures::default();
        failures.failed(first, now, Some(2 * HOUR));
        assert_eq!(
            failures.next(1, Spread(0.5), now),
            (now + 2 * HOUR, Attempt { authority: 0, challenge: 1 })
        );
        // A fallback does not wait for the first authority's Retry-After.
        assert_eq!(failures.next(2, Spread(0.5), now), (now + 60, Attempt { authority: 1, challenge: 1 }));
        // Shorter than the backoff, negative or absurd.
        for (retry_after, expected) in [(1, 60), (-5, 60), (i64::MAX, 7 * DAY)] {
            let mut failures = Failures::default();
            failures.failed(first, now, Some(retry_after));
            assert_eq!(failures.next(1, Spread(0.5), now).0, now + expected, "{retry_after}");
        }
    }

    #[test]
    fn the_fallback_takes_turns_after_the_third_failure() {
        let mut failures = Failures::default();
        let mut asked = Vec::new();
        let mut now = 0;
        for _ in 0..7 {
            let (at, attempt) = failures.next(2, Spread(0.5), now);
            asked.push(attempt.authority);
            now = at;
            failures.failed(attempt, now, None);
        }
        assert_eq!(asked, [0, 0, 0, 1, 0, 1, 0]);
    }

    /// An authority's outage of a day: it gets few attempts, and the certificate is renewed well before it expires.
    #[test]
    fn a_day_without_the_authority_costs_nothing() {
        for (days, attempts_max) in [(90, 11), (6, 11)] {
            let validity = valid_for(days);
            let spread = Spread(0.5);
            let due = renewal_at(validity, None, spread);
            let (down_from, down_until) = (due - HOUR, due - HOUR + DAY);
            let mut failures = Failures::default();
            let (mut now, mut attempts) = (due, 0);
            let renewed_at = loop {
                let (at, attempt) = failures.next(1, spread, now);
                now = at.max(now);
                if !(down_from..down_until).contains(&now) {
                    break now;
                }
                attempts += 1;
                failures.failed(attempt, now, None);
            };
            assert!((6..=attempts_max).contains(&attempts), "{attempts}");
            assert!(renewed_at - down_until <= BACK_OFF_MAX * 11 / 10);
            assert!(
                validity.until - renewed_at > DAY,
                "{days} days: {} h are left",
                (validity.until - renewed_at) / HOUR
            );
        }
    }

    #[test]
    fn a_clock_that_jumps_delays_no_renewal_for_years() {
        let now = 2_000_000_000;
        let mut failures = Failures::default();
        failures.failed(Attempt { authority: 0, challenge: 0 }, now, Some(HOUR));
        for (jump, latest) in [(-20 * 365 * DAY, HOUR), (-10, HOUR), (0, HOUR), (20 * 365 * DAY, 0)] {
            let there = now + jump;
            let (at, _) = failures.next(1, Spread(0.5), there);
            assert!((at - there) <= latest, "after {jump}: {}", at - there);
            assert!(jump > 0 || at - there >= 60, "after {jump}: {}", at - there);
        }
        // A certificate that starts in the future is not renewed for that reason.
        assert!(renewal_at(valid_for(90), None, START) > 0);
    }

    #[test]
    fn an_answer_about_a_window_is_good_for_minutes_to_a_day() {
        for (said, expected) in [(0, 600), (-1, 600), (21_600, 21_600), (i64::MAX, DAY)] {
            assert_eq!(window_good_for(said), expected);
        }
        let now = 1_000_000;
        for (jump, is_good) in [(0, true), (3600, true), (3601, false), (-3600, true), (-365 * DAY, false)] {
            assert_eq!(is_window_good(now + 3600, now + jump), is_good, "a clock that jumps by {jump} s");
        }
    }
}
