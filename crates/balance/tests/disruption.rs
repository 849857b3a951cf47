//! How many keys move when servers go, stop, fill up and come back.

use std::sync::Arc;
use std::time::Duration;

use balance::{
    Changes, Fleet, FleetMember, FleetSettings, HashSecret, IneligibleCause, Pick, PickInput, Picker,
    ServerHealth, ServerId, Time,
};

const KEYS: u64 = 20_000;

/// Servers of these numbers and this weight, with the same IDs each time.
fn picker(policy: &str, servers: impl Iterator<Item = u32>, settings: FleetSettings) -> Picker {
    let changes: Arc<Changes> = Arc::default();
    let id = |server| ServerId::from_name(&format!("http://10.0.{}.{}:8080", server / 256, server % 256));
    let member = |server: u32| FleetMember::new(id(server), 1, &ServerHealth::new(&changes));
    let members = servers.map(member).collect();
    Picker::new(Arc::new(Fleet::new(balance::policy(policy).expect("a policy"), members, settings)), 1)
}

/// The ID of the server of each key.
fn owners(picker: &mut Picker, now: Time) -> Vec<ServerId> {
    let key = |number: u64| HashSecret::default().hash(&number.to_be_bytes());
    (0..KEYS)
        .map(|number| {
            let ask = PickInput { now, random: number, key: Some(key(number)), tried: &[] };
            let Pick::Server(server) = picker.pick(&ask) else { panic!("no server") };
            picker.fleet().members()[server].id
        })
        .collect()
}

fn moved(before: &[ServerId], after: &[ServerId]) -> f64 {
    before.iter().zip(after).filter(|(before, after)| before != after).count() as f64 / before.len() as f64
}

#[test]
fn a_server_that_leaves_the_configuration_moves_few_keys_besides_its_own() {
    for policy in ["client-address", "consistent-hash"] {
        for servers in [2, 3, 8, 20, 100] {
            let before = owners(&mut picker(policy, 0..servers, FleetSettings::default()), Time::START);
            for gone in [0, servers / 2, servers - 1] {
                let left = (0..servers).filter(|server| *server != gone);
                let after = owners(&mut picker(policy, left, FleetSettings::default()), Time::START);
                let (moved, allowed) = (moved(&before, &after), 1.0 / f64::from(servers) + 0.02);
                assert!(moved <= allowed, "{policy}, {servers} servers: {moved} moved, {allowed} allowed");
            }
        }
    }
}

#[test]
fn a_server_that_stops_moves_its_own_keys_alone_and_gets_them_back() {
    for policy in ["client-address", "consistent-hash"] {
        let mut picker = picker(policy, 0..8, FleetSettings::default());
        let before = owners(&mut picker, Time::START);
        let fleet = Arc::clone(picker.fleet());
        let (stopped, other) = (&fleet.members()[3], &fleet.members()[4]);
        for cause in [IneligibleCause::Check, IneligibleCause::Drain] {
            stopped.health.stop(cause);
            let after = owners(&mut picker, Time::START);
            assert!(
                before.iter().zip(&after).all(|(before, after)| before == after || *before == stopped.id)
            );
            assert!(!after.contains(&stopped.id));
            let gained = after.iter().filter(|id| **id == other.id).count() as f64 / KEYS as f64;
            assert!((gained - 1.0 / 7.0).abs() < 0.01, "its keys spread: {gained}");
            stopped.health.restore(cause, Time::START);
            assert_eq!(owners(&mut picker, Time::START), before);
        }
    }
}

#[test]
fn a_server_that_starts_slowly_gets_its_keys_back_little_by_little() {
    let settings = FleetSettings { slow_start: Duration::from_secs(10), ..FleetSettings::default() };
    let mut picker = picker("consistent-hash", 0..4, settings);
    let before = owners(&mut picker, Time::START);
    let fleet = Arc::clone(picker.fleet());
    let returned = &fleet.members()[0];
    let whole = before.iter().filter(|id| **id == returned.id).count() as f64;
    returned.health.stop(IneligibleCause::Check);
    returned.health.restore(IneligibleCause::Check, Time::START);
    let mut had = Vec::new();
    for second in 0..=10 {
        let after = owners(&mut picker, Time::from_millis(1000 * second));
        let has: Vec<bool> = after.iter().map(|id| *id == returned.id).collect();
        assert!(had.iter().zip(&has).all(|(had, has)| has >= had), "a key that has returned stays");
        assert!(before.iter().zip(&after).all(|(before, after)| before == after || *before == returned.id));
        let share = has.iter().filter(|has| **has).count() as f64 / whole;
        let due = 0.1 + 0.09 * second as f64;
        assert!((share - due).abs() < 0.05, "after {second} s: {share} of {due}");
        had = has;
    }
    assert_eq!(owners(&mut picker, Time::from_millis(10_000)), before);
}

#[test]
fn a_busy_server_sheds_keys_and_the_others_keep_theirs() {
    let mut picker = picker("consistent-hash", 0..8, FleetSettings::default());
    let before = owners(&mut picker, Time::START);
    let fleet = Arc::clone(picker.fleet());
    let busy = fleet.members()[5].id;
    let under_way: Vec<_> =
        (0..80).map(|request| fleet.begin(if request < 45 { 5 } else { request % 8 })).collect();
    let after = owners(&mut picker, Time::START);
    assert!(!after.contains(&busy));
    assert!(before.iter().zip(&after).all(|(before, after)| before == after || *before == busy));
    drop(under_way);
    assert_eq!(owners(&mut picker, Time::START), before);
}
