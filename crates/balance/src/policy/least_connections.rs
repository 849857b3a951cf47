//! The server that has least under way for its weight, over all workers; where several do, each in turn by weight.
//!
//! What is under way is read from the shared standings, a pair of cache lines each. To bound that, among very many
//! servers a part of them is looked at, another one each time.

use crate::hash::below;
use crate::picker::Candidates;
use crate::policy::round_robin::Credits;

/// So many are looked at. That one of the 64 least busy of 1000 is missed costs nothing that could be measured.
const EXAMINED_MAX: usize = 64;

#[derive(Debug, Clone)]
pub(crate) struct LeastConnections {
    credits: Credits,
    /// What was under way with those that are looked at.
    loads: Vec<u64>,
    seed: u64,
}

impl LeastConnections {
    pub(crate) fn new(servers: usize, seed: u64) -> Self {
        Self { credits: Credits::among(servers), loads: Vec::with_capacity(EXAMINED_MAX.min(servers)), seed }
    }

    pub(crate) fn arrange(&mut self, weights: &[u32], are_others: bool) {
        self.credits.arrange(weights, are_others);
        if are_others {
            self.credits.skip(self.seed);
        }
    }

    /// A server is in question if it carries less for its weight now than the best one would with this request; among
    /// those, each in its turn. So equal servers get strictly the next request where they have least, while a light
    /// server that idles beside a heavy one gets its share and no more.
    #[inline]
    pub(crate) fn pick(&mut self, candidates: &Candidates<'_>) -> Option<usize> {
        let servers = candidates.len();
        let examined = servers.min(EXAMINED_MAX);
        let start =
            if servers > examined { below(candidates.ask.random, servers as u64) as usize } else { 0 };
        let place = |step: usize| if start + step < servers { start + step } else { start + step - servers };

        self.loads.clear();
        let mut best: Option<(u64, u64)> = None;
        for step in 0..examined {
            let place = place(step);
            if !candidates.allows(place) {
                self.loads.push(NOT_ALLOWED);
                continue;
            }
            let load = u64::from(candidates.standing(place).in_flight());
            self.loads.push(load);
            let with_this = (load + 1, u64::from(candidates.weight(place)));
            if best.is_none_or(|best| is_less(with_this, best)) {
                best = Some(with_this);
            }
        }
        let Some(best) = best else { return Self::any_other(candidates, start, examined) };
        let loads = &self.loads;
        let in_question = (0..examined).filter_map(|step| {
            let place = place(step);
            is_less((loads[step], u64::from(candidates.weight(place))), best).then_some(place)
        });
        self.credits.next(in_question)
    }

    /// Where none of those that were looked at is allowed: the first one that is.
    #[cold]
    fn any_other(candidates: &Candidates<'_>, start: usize, examined: usize) -> Option<usize> {
        let servers = candidates.len();
        (start + examined..start + servers).map(|step| step % servers).find(|&place| candidates.allows(place))
    }
}

/// More than any load.
const NOT_ALLOWED: u64 = u32::MAX as u64 + 1;

/// Whether a load for its weight is less than another: exact, as both products fit.
fn is_less((load, weight): (u64, u64), (other_load, other_weight): (u64, u64)) -> bool {
    load * other_weight < other_load * weight
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::fleet::{Fleet, Member, Settings};
    use crate::hash::{ServerId, mix};
    use crate::picker::{Ask, Pick, Picker};
    use crate::policy::policy;
    use crate::standing::{InFlight, Standing};
    use crate::time::Time;

    fn fleet(weights: &[u32]) -> Arc<Fleet> {
        let changes = Arc::default();
        let member = |(id, &weight)| Member::new(ServerId::from_u64(id), weight, &Standing::new(&changes));
        let row = policy("least-connections").expect("a policy");
        Arc::new(Fleet::new(row, (0..).zip(weights).map(member).collect(), Settings::default()))
    }

    fn picked(picker: &mut Picker, turn: u64) -> usize {
        match picker.pick(&Ask { now: Time::START, random: mix(turn), key: None, tried: &[] }) {
            Pick::Server(server) => server,
            other => panic!("{other:?}"),
        }
    }

    /// Begins `count` requests that do not end; what is under way with each server then.
    fn filled(weights: &[u32], count: u64) -> Vec<u32> {
        let fleet = fleet(weights);
        let mut picker = Picker::new(Arc::clone(&fleet), 0);
        let begin = |turn| fleet.begin(picked(&mut picker, turn)).expect("no limit");
        let _under_way: Vec<InFlight> = (0..count).map(begin).collect();
        fleet.members().iter().map(|member| member.standing.in_flight()).collect()
    }

    #[test]
    fn what_is_under_way_follows_the_weights() {
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
    fn the_least_busy_gets_the_next_whoever_sent_the_others() {
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
        let loads: Vec<u32> = fleet.members().iter().map(|member| member.standing.in_flight()).collect();
        assert_eq!(loads.iter().max(), loads.iter().min().map(|least| least + 1).as_ref(), "{loads:?}");
    }
}
