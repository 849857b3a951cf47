//! A pick, the end of a request, a session, and a change of servers do not allocate in the steady state.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use balance::{
    BreakerSettings, Changes, EjectionSettings, Fleet, FleetMember, FleetSettings, HashSecret,
    IneligibleCause, Pick, PickInput, Picker, Queue, RequestOutcome, RetryBudget, RetryReserve,
    RetrySettings, ServerHealth, ServerId, Sessions, Shed, ShedSettings, Time, Work,
};

fn allocations(work: impl FnOnce()) -> u64 {
    allocation_counter::measure(work).count_total
}

#[test]
fn a_request_allocates_nothing_under_any_policy() {
    for row in &balance::POLICIES {
        for servers in [1, 16, 200] {
            let changes: Arc<Changes> = Arc::default();
            let member = |id| FleetMember {
                in_flight_max: NonZeroU32::new(100),
                ..FleetMember::new(ServerId::from_u64(id), 1 + id as u32 % 3, &ServerHealth::new(&changes))
            };
            let settings = FleetSettings {
                slow_start: Duration::from_secs(1),
                breaker: Some(BreakerSettings::default()),
                ejection: Some(EjectionSettings::default()),
                ..FleetSettings::default()
            };
            let fleet = Arc::new(Fleet::new(row, (0..servers).map(member).collect(), settings));
            let mut picker = Picker::new(Arc::clone(&fleet), 1);
            let count = allocations(|| {
                for turn in 0..2000u64 {
                    let now = Time::from_millis(turn);
                    let random = turn.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    let tried = [(turn % 5) as usize];
                    let tried = if turn % 3 == 0 { &tried[..] } else { &[] };
                    let ask = PickInput { now, random, key: Some(random), tried };
                    let Pick::Server(server) = picker.pick(&ask) else { continue };
                    let Some(_in_flight) = fleet.begin(server) else { continue };
                    let failed = turn % 400 < 20;
                    let answered = RequestOutcome::Answered(Some(Duration::from_millis(1)));
                    fleet.end(server, if failed { RequestOutcome::Failed } else { answered }, now);
                    let health = &fleet.members()[(turn % servers) as usize].health;
                    match turn % 100 {
                        50 => health.stop(IneligibleCause::Check),
                        60 => health.restore(IneligibleCause::Check, now),
                        _ => false,
                    };
                }
            });
            assert_eq!(count, 0, "{} with {servers} servers", row.name);
        }
    }
}

#[test]
fn a_table_that_is_full_allocates_nothing_more() {
    let sessions = Sessions::new(2000, Duration::from_secs(60), HashSecret::new(3));
    let bind = |from: u64| {
        for number in from..from + 20_000 {
            let key = sessions.key(&number.to_be_bytes());
            sessions.bind(key, ServerId::from_u64(number), Time::START);
            sessions.find(key, Time::START);
        }
    };
    bind(0);
    assert_eq!(allocations(|| bind(20_000)), 0);
}

#[test]
fn waiting_shedding_and_retrying_allocate_nothing() {
    let mut queue = Queue::new(64);
    let mut shed = Shed::new(ShedSettings::default(), Time::START);
    let mut budget = RetryBudget::new(RetrySettings::default());
    let reserve = RetryReserve::default();
    let mut work = |from: u64| {
        for turn in from..from + 5000 {
            let now = Time::from_millis(turn);
            if queue.join(turn, now).is_err() {
                while queue.take_next_since(now).is_some() {}
            }
            if shed.admit() {
                shed.end(Work::Done(Some(Duration::from_millis(turn % 7))), now);
            }
            budget.request(now);
            budget.retry(now, &reserve);
        }
    };
    work(0);
    assert_eq!(allocations(|| work(5000)), 0);
}
