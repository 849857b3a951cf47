//! A server that was down gets requests again within two check intervals, whenever it returned between two checks.

use std::sync::Arc;
use std::time::Duration;

use balance::{
    CheckSettings, CheckTurn, Fleet, FleetMember, FleetSettings, Health, HealthState, IneligibleCause, Pick,
    PickInput, Picker, ServerHealth, ServerId, Time,
};

/// Duration of an HTTP check on a local network.
const CHECK: Duration = Duration::from_millis(1);
/// Interval of requests.
const REQUEST: Duration = Duration::from_millis(1);

/// Two servers, of which the second is down.
fn fleet() -> Arc<Fleet> {
    let changes = Arc::default();
    let member = |id| FleetMember::new(ServerId::from_u64(id), 1, &ServerHealth::new(&changes));
    let settings = FleetSettings { slow_start: Duration::from_secs(10), ..FleetSettings::default() };
    let fleet = Fleet::new(balance::DEFAULT, (0..2).map(member).collect(), settings);
    fleet.members()[1].health.stop(IneligibleCause::Check);
    Arc::new(fleet)
}

/// How long after its return a server gets a request. It returns `returned` after the start of a check that failed.
fn back_after(returned: Duration, settings: &CheckSettings, random: u64) -> Duration {
    let fleet = fleet();
    let server = &fleet.members()[1].health;
    let returned = Time::START + returned;
    let (mut health, mut verdict) = (Health::Down { successes: 0 }, None);
    let mut began = Time::START;
    for check in 1.. {
        began = health.due(settings, began, random.wrapping_add(check));
        (health, verdict) = health.checked(began >= returned, settings);
        if verdict.is_some() {
            break;
        }
    }
    assert_eq!(verdict, Some(CheckTurn::Up));
    let mut now = began + CHECK;
    server.restore(IneligibleCause::Check, now);
    assert_eq!(server.state(), HealthState::Up);
    let mut picker = Picker::new(Arc::clone(&fleet), 0);
    while picker.pick(&PickInput { now, random, key: None, tried: &[] }) != Pick::Server(1) {
        now = now + REQUEST;
    }
    now.since(returned)
}

#[test]
fn a_server_that_returns_is_asked_within_two_intervals() {
    let usual = CheckSettings::default();
    let seldom = Duration::from_secs(30);
    for settings in [
        usual,
        CheckSettings { jitter_percent: 0, ..usual },
        CheckSettings { interval: seldom, interval_in_doubt: seldom / 2, ..usual },
        CheckSettings { rise: 1, ..usual },
        CheckSettings { interval_in_doubt: usual.interval, rise: 1, ..usual },
    ] {
        for random in 0..200 {
            let returned = settings.interval_in_doubt * (random as u32 % 20) / 20;
            let back = back_after(returned, &settings, random);
            assert!(back <= 2 * settings.interval, "{back:?} after {returned:?}, {settings:?}");
        }
    }
}
