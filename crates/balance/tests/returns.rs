//! A server that was down is asked again within two intervals of its checks, whenever between two checks it returned.

use std::sync::Arc;
use std::time::Duration;

use balance::{
    Ask, Cause, CheckSettings, Fleet, Health, Member, Pick, Picker, ServerHealth, ServerId, Settings, State,
    Time, Verdict,
};

/// What an HTTP check takes on a local network.
const CHECK: Duration = Duration::from_millis(1);
/// Requests that come one after the other, a millisecond apart.
const REQUEST: Duration = Duration::from_millis(1);

/// Two servers, of which the second is down.
fn fleet() -> Arc<Fleet> {
    let changes = Arc::default();
    let member = |id| Member::new(ServerId::from_u64(id), 1, &ServerHealth::new(&changes));
    let settings = Settings { slow_start: Duration::from_secs(10), ..Settings::default() };
    let fleet = Fleet::new(balance::DEFAULT, (0..2).map(member).collect(), settings);
    fleet.members()[1].health.stop(Cause::Check);
    Arc::new(fleet)
}

/// How long after its return a server gets a request: it returned so long after a check of it began, which failed.
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
    assert_eq!(verdict, Some(Verdict::Up));
    let mut now = began + CHECK;
    server.restore(Cause::Check, now);
    assert_eq!(server.state(), State::Up);
    let mut picker = Picker::new(Arc::clone(&fleet), 0);
    while picker.pick(&Ask { now, random, key: None, tried: &[] }) != Pick::Server(1) {
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
