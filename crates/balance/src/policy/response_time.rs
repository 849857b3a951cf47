//! Two random choices by weight and one remembered server, of which the one likely to respond first is taken. It is
//! estimated as response time times requests in progress, over all workers, relative to weight.
//!
//! Like Finagle's "p2c peak EWMA". See `two_choices` for the remembered server, and `latency` for response times.

use crate::picker::Candidates;
use crate::policy::draw::Urn;

/// The assumed response time of an unknown server that has a request in progress. Its first request is sent as if it
/// were quick; a crowd waits until it has responded.
const UNKNOWN_MICROS: f32 = 1e6;

/// The ratio below which a server counts as quicker. Choices between similar servers are left to chance, so that noise
/// does not send every request of a quiet hour to one of them.
const CLEARLY: f32 = 0.875;

#[derive(Debug, Clone)]
pub(crate) struct ResponseTime {
    urn: Urn,
    /// The place of the quickest server of the last pick.
    remembered: Option<usize>,
}

impl ResponseTime {
    pub(crate) fn new(servers: usize) -> Self {
        Self { urn: Urn::among(servers), remembered: None }
    }

    pub(crate) fn arrange(&mut self, weights: &[u32]) {
        self.urn.arrange(weights);
        self.remembered = None;
    }

    #[inline]
    pub(crate) fn pick(&mut self, candidates: &Candidates<'_>) -> Option<usize> {
        let (first, second) = self.urn.draw_two(candidates)?;
        // A lone server needs no estimate.
        if first == second {
            return Some(first);
        }
        let remembered = self.remembered.filter(|&place| candidates.allows(place)).unwrap_or(second);
        let (mut quickest, mut micros) = (first, cost(candidates, first));
        for place in [second, remembered] {
            let other_micros = cost(candidates, place);
            // In the order of the draws, which follow the weights: a near tie goes to the first one.
            if other_micros < micros * CLEARLY {
                (quickest, micros) = (place, other_micros);
            }
        }
        self.remembered = Some(quickest);
        Some(quickest)
    }
}

fn cost(candidates: &Candidates<'_>, place: usize) -> f32 {
    let health = candidates.health(place);
    let known = health.latency.micros(candidates.ask.now, candidates.fleet.settings.latency_memory);
    let load = health.in_flight();
    let micros = match (known, load) {
        // An unknown, idle server is tried first: without a request its time would stay unknown.
        (0.0, 0) => 0.0,
        (0.0, _) => UNKNOWN_MICROS,
        (known, _) => known,
    };
    // With this request: otherwise all idle servers would cost nothing, however slow they are.
    micros * (load as f32 + 1.0) / candidates.weight(place) as f32
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use crate::fleet::{Fleet, FleetMember, FleetSettings};
    use crate::hash::{ServerId, mix};
    use crate::health::{IneligibleCause, RequestOutcome, ServerHealth};
    use crate::picker::{Pick, PickInput, Picker};
    use crate::policy::policy;
    use crate::time::Time;

    #[test]
    fn the_quicker_server_is_asked_and_the_slower_one_again_when_that_is_long_ago() {
        let changes = Arc::default();
        let member = |id| FleetMember::new(ServerId::from_u64(id), 1, &ServerHealth::new(&changes));
        let row = policy("response-time").expect("a policy");
        let fleet = Arc::new(Fleet::new(row, (0..2).map(member).collect(), FleetSettings::default()));
        let mut picker = Picker::new(Arc::clone(&fleet), 0);
        let mut counts = |from: u64, millis: [u64; 2]| {
            let mut counts = [0; 2];
            for turn in from..from + 1000 {
                let now = Time::from_millis(turn);
                let ask = PickInput { now, random: mix(turn), key: None, tried: &[] };
                let Pick::Server(server) = picker.pick(&ask) else { panic!("no server") };
                counts[server] += 1;
                fleet.end(server, RequestOutcome::Answered(Some(Duration::from_millis(millis[server]))), now);
            }
            counts
        };
        let first = counts(0, [2, 40]);
        assert!(first[0] >= 998, "{first:?}");
        let later = counts(60_000, [2, 2]);
        assert!(later[1] > 300, "forgotten after a minute: {later:?}");
    }

    #[test]
    fn a_server_that_comes_back_is_not_sent_a_crowd_before_it_has_answered() {
        let changes = Arc::default();
        let member = |id| FleetMember::new(ServerId::from_u64(id), 1, &ServerHealth::new(&changes));
        let row = policy("response-time").expect("a policy");
        let fleet = Arc::new(Fleet::new(row, (0..3).map(member).collect(), FleetSettings::default()));
        let mut picker = Picker::new(Arc::clone(&fleet), 0);
        let at = Time::from_millis;
        let answered = RequestOutcome::Answered(Some(Duration::from_millis(2)));
        for server in 0..3 {
            fleet.end(server, answered, at(0));
        }
        fleet.members()[2].health.stop(IneligibleCause::Check);
        // Two memories later.
        for server in 0..2 {
            fleet.end(server, answered, at(20_000));
        }
        fleet.members()[2].health.restore(IneligibleCause::Check, at(20_000));
        let mut under_way = Vec::new();
        let mut crowd = 0;
        for turn in 0..300 {
            let ask = PickInput { now: at(20_001), random: mix(turn), key: None, tried: &[] };
            let Pick::Server(server) = picker.pick(&ask) else { panic!("no server") };
            under_way.push(fleet.begin(server));
            crowd += u32::from(server == 2);
        }
        assert!((1..=2).contains(&crowd), "{crowd} of 300");
    }
}
