//! Healthy servers with varying response times: none of them is ejected.

use std::sync::Arc;
use std::time::Duration;

use balance::{
    Changes, EjectionSettings, Ejector, Fleet, FleetMember, FleetSettings, RequestOutcome, ServerHealth,
    ServerId, Time,
};

const SERVERS: u64 = 8;
const INTERVALS: u32 = 2_000;
/// The fewest requests that are compared: with few requests, chance has the largest influence.
const REQUESTS_PER_INTERVAL: u32 = 20;
/// With this spread, every fortieth response takes more than seven times the median.
const SIGMA: f64 = 1.0;

/// A number of the standard normal distribution (Box and Muller's transform).
fn normal(random: &mut fastrand::Rng) -> f64 {
    (-2.0 * (1.0 - random.f64()).ln()).sqrt() * (std::f64::consts::TAU * random.f64()).cos()
}

#[test]
fn a_heavy_tail_ejects_no_server() {
    for median_micros in [100.0, 500.0, 2_000.0, 20_000.0] {
        let changes: Arc<Changes> = Arc::default();
        let member = |id| FleetMember::new(ServerId::from_u64(id), 1, &ServerHealth::new(&changes));
        let settings =
            FleetSettings { ejection: Some(EjectionSettings::default()), ..FleetSettings::default() };
        let policy = balance::policy("round-robin").expect("a policy");
        let fleet = Fleet::new(policy, (0..SERVERS).map(member).collect(), settings);
        let (mut ejector, mut random) = (Ejector::default(), fastrand::Rng::with_seed(11));
        for interval in 1..=INTERVALS {
            let now = Time::START + interval * Duration::from_secs(1);
            for server in 0..SERVERS as usize {
                for _ in 0..REQUESTS_PER_INTERVAL {
                    let micros = median_micros * (SIGMA * normal(&mut random)).exp();
                    fleet.end(
                        server,
                        RequestOutcome::Answered(Some(Duration::from_micros(micros as u64))),
                        now,
                    );
                }
            }
            assert_eq!(ejector.judge(&fleet, now), [], "{median_micros} us, interval {interval}");
        }
    }
}
