//! Least connections: the server with the least requests in progress for its weight, over all workers. Ties take turns
//! by weight.
//!
//! Reads one pair of cache lines per server. To limit that, only a random sample of very many servers is compared.

use crate::hash::{below, mix};
use crate::picker::Candidates;
use crate::policy::draw::Urn;
use crate::policy::load::{NOT_ALLOWED, ServerLoad, count};
use crate::policy::two_choices::of_drawn;

/// The most servers that are all compared.
// Each server compared is a pair of cache lines that other workers write.
const EXACT_MAX: usize = 64;
/// The sample size for more servers, in addition to the remembered one: see `two_choices`.
const DRAWN: usize = 16;

#[derive(Debug, Clone)]
pub(crate) struct LeastConnections {
    are_equal: bool,
    /// If all weights are equal, the turn in which each server was last picked, by place.
    picked_in: Vec<u32>,
    turn: u32,
    /// The credit of each server, by place: as in `round_robin`, with each server as a class. The sum is 0.
    credits: Vec<i64>,
    /// The load of each server when it was last read, by place.
    loads: Vec<ServerLoad>,
    /// Draws the sample, if there are more than `EXACT_MAX` servers.
    urn: Urn,
    /// The place of the least busy server of the last sample.
    remembered: Option<usize>,
    seed: u64,
}

impl LeastConnections {
    pub(crate) fn new(servers: usize, seed: u64) -> Self {
        let exact = servers.min(EXACT_MAX);
        Self {
            are_equal: false,
            picked_in: Vec::with_capacity(exact),
            turn: 0,
            credits: Vec::with_capacity(exact),
            loads: Vec::with_capacity(exact),
            urn: Urn::among(servers),
            remembered: None,
            seed,
        }
    }

    pub(crate) fn arrange(&mut self, weights: &[u32]) {
        // Places change their meaning with the view.
        self.remembered = None;
        if weights.len() > EXACT_MAX {
            self.urn.arrange(weights);
            return;
        }
        self.credits.clear();
        self.credits.resize(weights.len(), 0);
        // Workers start with different servers.
        self.seed = mix(self.seed);
        self.are_equal = weights.windows(2).all(|pair| pair[0] == pair[1]);
        // The usual configuration: turns are one number each, and no weights have to be multiplied.
        if self.are_equal {
            self.turn = weights.len() as u32;
            self.picked_in.clear();
            self.picked_in.extend(0..self.turn);
            self.picked_in.rotate_left(below(self.seed, weights.len() as u64) as usize);
            return;
        }
        let servers = || (0..).zip(weights).map(|(place, &weight)| (place, u64::from(weight)));
        for _ in 0..below(self.seed, 2 * weights.len() as u64) {
            take_turn(&mut self.credits, servers());
        }
    }

    /// Picks a server. Candidates have less load for their weight than the best one would have with this request, and
    /// take turns. So the least busy of equal servers always comes next, while an idle light server beside a heavy one
    /// gets no more than its share.
    #[inline]
    pub(crate) fn pick(&mut self, candidates: &Candidates<'_>) -> Option<usize> {
        if candidates.len() > EXACT_MAX {
            return self.pick_among_drawn(candidates);
        }
        if self.are_equal {
            return self.pick_equal(candidates);
        }
        self.loads.clear();
        self.loads.extend((0..candidates.len()).map(|place| ServerLoad::new(candidates, place)));
        let allowed = || self.loads.iter().filter(|load| load.is_allowed());
        let best = allowed().map(|load| load.with_one()).reduce(ServerLoad::or_less)?;
        // Only these gain credit: a busy server must not save up turns for later.
        let in_question = allowed().filter(|load| load.is_less_than(best));
        take_turn(&mut self.credits, in_question.map(|load| (load.place, load.weight())))
    }

    /// The least busy server; of several, the one whose last turn is longest ago.
    #[inline]
    fn pick_equal(&mut self, candidates: &Candidates<'_>) -> Option<usize> {
        let key = |(place, &picked_in)| (count(candidates, place), picked_in, place);
        let least = self.picked_in.iter().enumerate().map(key).min()?;
        let (count, _, place) = least;
        // `NOT_ALLOWED` exceeds every count, so the least one is it only if no server is allowed.
        if count >= NOT_ALLOWED {
            return None;
        }
        // Wraps after four billion turns, which changes the order once.
        self.turn = self.turn.wrapping_add(1);
        self.picked_in[place] = self.turn;
        Some(place)
    }

    fn pick_among_drawn(&mut self, candidates: &Candidates<'_>) -> Option<usize> {
        let mut random = candidates.ask.random;
        let first = self.urn.draw_allowed(random, |place| candidates.allows(place))?;
        // Filled with the first draw, so that slots of servers that are not allowed change nothing.
        let mut loads = [ServerLoad::new(candidates, first); DRAWN];
        let (drawn, remembered) = loads.split_at_mut(DRAWN - 1);
        for slot in &mut drawn[1..] {
            random = mix(random);
            let load = ServerLoad::new(candidates, self.urn.draw(random));
            if load.is_allowed() {
                *slot = load;
            }
        }
        if let Some(place) = self.remembered {
            let load = ServerLoad::new(candidates, place);
            if load.is_allowed() {
                remembered[0] = load;
            }
        }
        self.remembered = loads.into_iter().reduce(ServerLoad::or_less).map(|load| load.place);
        of_drawn(&loads)
    }
}

/// Credits each of these servers with its weight, and lets the one with the highest credit pay for the turn.
#[inline]
fn take_turn(credits: &mut [i64], servers: impl Iterator<Item = (usize, u64)>) -> Option<usize> {
    let (mut total, mut most, mut picked) = (0, i64::MIN, None);
    for (place, weight) in servers {
        let credit = &mut credits[place];
        total += weight as i64;
        *credit += weight as i64;
        if *credit > most {
            (most, picked) = (*credit, Some(place));
        }
    }
    credits[picked?] -= total;
    picked
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::fleet::{Fleet, FleetMember, FleetSettings};
    use crate::hash::{ServerId, mix};
    use crate::health::{InFlight, ServerHealth};
    use crate::picker::{Pick, PickInput, Picker};
    use crate::policy::policy;
    use crate::time::Time;

    fn fleet(weights: &[u32]) -> Arc<Fleet> {
        let changes = Arc::default();
        let member =
            |(id, &weight)| FleetMember::new(ServerId::from_u64(id), weight, &ServerHealth::new(&changes));
        let row = policy("least-connections").expect("a policy");
        Arc::new(Fleet::new(row, (0..).zip(weights).map(member).collect(), FleetSettings::default()))
    }

    fn picked(picker: &mut Picker, turn: u64) -> usize {
        match picker.pick(&PickInput { now: Time::START, random: mix(turn), key: None, tried: &[] }) {
            Pick::Server(server) => server,
            other => panic!("{other:?}"),
        }
    }

    /// Begins `count` requests that do not end. Returns the requests in progress per server.
    fn filled(weights: &[u32], count: u64) -> Vec<u32> {
        let fleet = fleet(weights);
        let mut picker = Picker::new(Arc::clone(&fleet), 0);
        let begin = |turn| fleet.begin(picked(&mut picker, turn)).expect("no limit");
        let _under_way: Vec<InFlight> = (0..count).map(begin).collect();
        fleet.members().iter().map(|member| member.health.in_flight()).collect()
    }

    #[test]
    fn requests_in_progress_follow_the_weights() {
        for (weights, count, expected) in [
            (&[1, 1, 1, 1][..], 8, &[2, 2, 2, 2][..]),
            (&[1, 2, 3], 60, &[10, 20, 30]),
            (&[10, 1], 11, &[10, 1]),
            (&[1000, 999, 1], 2000, &[1000, 999, 1]),
            (&[7], 3, &[3]),
        ] {
            assert_eq!(filled(weights, count), expected, "{weights:?}");
        }
        assert!(filled(&[1; 1000], 3000).iter().all(|load| (1..=5).contains(load)), "a part is looked at");
    }

    #[test]
    fn requests_one_after_the_other_are_shared_by_weight() {
        let fleet = fleet(&[5, 1]);
        let mut picker = Picker::new(Arc::clone(&fleet), 0);
        for other_under_way in [None, fleet.begin(0)] {
            let mut counts = [0; 2];
            for turn in 0..600 {
                counts[picked(&mut picker, turn)] += 1;
            }
            assert_eq!(counts, [500, 100], "{other_under_way:?}");
        }
    }

    #[test]
    fn the_least_busy_server_gets_the_next_request_of_any_worker() {
        let fleet = fleet(&[1, 1, 1]);
        let mut workers = [Picker::new(Arc::clone(&fleet), 1), Picker::new(Arc::clone(&fleet), 2)];
        let mut under_way: Vec<_> = [0, 0, 1, 2, 2].iter().map(|&server| fleet.begin(server)).collect();
        for (turn, expected) in [1, 0, 1, 2].into_iter().enumerate() {
            if turn == 1 {
                under_way.push(fleet.begin(2));
            }
            let server = picked(&mut workers[turn % 2], turn as u64);
            if turn < 1 {
                assert_eq!(server, expected);
            }
            under_way.push(fleet.begin(server));
        }
        let loads: Vec<u32> = fleet.members().iter().map(|member| member.health.in_flight()).collect();
        assert_eq!(loads.iter().max(), loads.iter().min().map(|least| least + 1).as_ref(), "{loads:?}");
    }
}
