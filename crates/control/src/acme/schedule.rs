//! When a certificate is asked for, of which authority, and how long a failure is waited out. Pure: times are seconds
//! since 1970, given by the caller.

/// When a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) from: i64,
    pub(crate) until: i64,
}

/// When an authority suggests to renew (RFC 9773 §4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) start: i64,
    pub(crate) end: i64,
}

/// A share from 0 to below 1 that differs between certificates, and is the same after a restart: where in its time each
/// one is renewed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread(f64);

/// Below this lifetime half of it is for renewals, else a third: six days need more than two for an authority's bad day.
const SHORT_LIVED: i64 = 10 * DAY;
const DAY: i64 = 24 * 3600;

impl Spread {
    /// The share of a certificate, by its name and serial number.
    pub(crate) fn of(name: &str, serial: &str) -> Self {
        // FNV-1a: any hash that is the same tomorrow; its upper bits are the well mixed ones.
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

/// When to renew: within the authority's window if there is one, else after two thirds of the lifetime, or half of a
/// short one. Never so late that one failure would be the last.
pub(crate) fn renewal_at(validity: Validity, window: Option<Window>, spread: Spread) -> i64 {
    let Validity { from, until } = validity;
    let lifetime = (until - from).max(0);
    // RFC 9773 §4.2: a window whose end is not behind its start is none.
    let at = match window.filter(|window| window.end > window.start) {
        Some(Window { start, end }) => start + spread.of_span(end - start),
        None => {
            let share = if lifetime < SHORT_LIVED { lifetime / 2 } else { lifetime / 3 * 2 };
            from + share - spread.of_span(lifetime / 20)
        }
    };
    at.min(until - lifetime / 10)
}

/// How long the answer about a window is good: what the authority says (RFC 9773 §4.3.2), within bounds.
pub(crate) fn window_good_for(said: i64) -> i64 {
    said.clamp(10 * 60, DAY)
}

/// Whether an answer that is good until then is good now. A clock that was set back makes none good for longer than any
/// answer is.
pub(crate) fn is_window_good(good_until: i64, now: i64) -> bool {
    (now..=now + window_good_for(i64::MAX)).contains(&good_until)
}

/// After how many failures in a row the other authority is asked, too.
const FALLBACK_AFTER: u32 = 3;
/// After the first failure, then three times that, and so on. Authorities allow five failures of a name in an hour.
const BACK_OFF: i64 = 60;
const BACK_OFF_MAX: i64 = 6 * 3600;
/// The longest that an authority may ask to wait.
const RETRY_AFTER_MAX: i64 = 7 * DAY;

/// The failures in a row of a name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Failures {
    count: u32,
    last_at: i64,
    /// Until when each authority asks not to be asked: the first, the fallback.
    blocked_until: [i64; 2],
}

/// What an attempt asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attempt {
    /// 0 is the first authority, 1 the fallback.
    pub(crate) authority: usize,
    /// The place of the challenge in the order of preference, to be taken modulo their number.
    pub(crate) challenge: usize,
}

impl Failures {
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Notes a failure, and how long its authority asked to wait.
    pub(crate) fn failed(&mut self, attempt: Attempt, now: i64, retry_after: Option<i64>) {
        self.count = self.count.saturating_add(1);
        self.last_at = now;
        let wait = retry_after.unwrap_or(0).clamp(0, RETRY_AFTER_MAX);
        if let Some(blocked) = self.blocked_until.get_mut(attempt.authority) {
            *blocked = now + wait;
        }
    }

    /// The next attempt, and when it may be made. `authorities` is their number: one, or two with a fallback.
    pub(crate) fn next(&self, authorities: usize, spread: Spread, now: i64) -> (i64, Attempt) {
        let wanted = if authorities > 1 && self.count >= FALLBACK_AFTER {
            (self.count - FALLBACK_AFTER + 1) as usize % 2
        } else {
            0
        };
        // A clock that was set back does not make anybody wait longer than the wait itself.
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
        // A tenth of it more or less, so that a hundred names do not come at once.
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
        let window = |start: i64, end: i64| Some(Window { start: 1_000_000 + start, end: 1_000_000 + end });
        for (days, window, spread, expected) in [
            (90, None, START, 60 * DAY),
            (90, None, END, 60 * DAY - 90 * DAY / 20),
            (47, None, START, 47 * DAY / 3 * 2),
            (6, None, START, 3 * DAY),
            (90, window(50 * DAY, 52 * DAY), START, 50 * DAY),
            (90, window(50 * DAY, 52 * DAY), Spread(0.5), 51 * DAY),
            // A window in the past: the authority wants it replaced now.
            (90, window(-2 * DAY, -DAY), START, -2 * DAY),
            // Windows that are none, or too late.
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
            let window = Window { start, end: start + length };
            let validity = Validity { from: 0, until: 8_000_000_000 };
            let at = renewal_at(validity, Some(window), Spread(share));
            proptest::prop_assert!(at >= window.start && at < window.end);
        });
    }

    #[test]
    fn a_hundred_names_are_not_renewed_in_step() {
        let mut times: Vec<i64> = (0..100)
            .map(|index| Spread::of(&format!("host-{index}.example"), "01"))
            .map(|spread| renewal_at(valid_for(90), None, spread))
            .collect();
        times.sort_unstable();
        let (first, last) = (times[0], times[99]);
        assert!(last - first > 4 * DAY, "over {} hours", (last - first) / HOUR);
        let crowd = times.windows(10).map(|ten| ten[9] - ten[0]).min();
        assert!(crowd > Some(HOUR), "ten within {crowd:?} seconds");
        assert_eq!(Spread::of("a", "1"), Spread::of("a", "1"));
        assert_ne!(Spread::of("a", "1"), Spread::of("a", "2"));
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
        // A fallback does not wait for what the first has asked.
        assert_eq!(failures.next(2, Spread(0.5), now), (now + 60, Attempt { authority: 1, challenge: 1 }));
        // Shorter than the back-off, negative or absurd.
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

    /// An authority is down for a day: it is not hammered, and the certificate is renewed well before it ends.
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
    fn a_clock_that_jumps_makes_nobody_wait_for_years() {
        let now = 2_000_000_000;
        let mut failures = Failures::default();
        failures.failed(Attempt { authority: 0, challenge: 0 }, now, Some(HOUR));
        for (jump, latest) in [(-20 * 365 * DAY, HOUR), (-10, HOUR), (0, HOUR), (20 * 365 * DAY, 0)] {
            let there = now + jump;
            let (at, _) = failures.next(1, Spread(0.5), there);
            assert!((at - there) <= latest, "after {jump}: {}", at - there);
            assert!(jump > 0 || at - there >= 60, "after {jump}: {}", at - there);
        }
        // A certificate of the future is not renewed because of that.
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
