//! Wakes periodic tasks together, such as checks of files and memory: an idle proxy wakes once a second instead of
//! once for each of them.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

thread_local! {
    static START: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Waits until the next multiple of a period since the first call on this thread: at most one period.
pub(crate) async fn tick(period: Duration) {
    let now = Instant::now();
    let start = START.get().unwrap_or(now);
    START.set(Some(start));
    tokio::time::sleep_until(now + until_next(now - start, period)).await;
}

/// The time until the next multiple of a nonzero period.
fn until_next(elapsed: Duration, period: Duration) -> Duration {
    let into = elapsed.as_nanos() % period.as_nanos().max(1);
    period.saturating_sub(Duration::from_nanos_u128(into))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_multiples_of_their_period() {
        let ms = Duration::from_millis;
        for (elapsed, period, expected) in [
            (ms(0), ms(1000), ms(1000)),
            (ms(1), ms(1000), ms(999)),
            (ms(999), ms(1000), ms(1)),
            (ms(1000), ms(1000), ms(1000)),
            (ms(61_250), ms(100), ms(50)),
            (ms(61_250), ms(10_000), ms(8_750)),
        ] {
            assert_eq!(until_next(elapsed, period), expected, "{elapsed:?} {period:?}");
            assert_eq!((elapsed + expected).as_nanos() % period.as_nanos(), 0, "the test's own figures");
        }
    }
}
