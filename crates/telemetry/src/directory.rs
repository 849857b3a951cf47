//! Assigns names to places in the workers' counters. A route, listener, upstream or server keeps its place over
//! reloads, so its counters continue. When no plan in use has a name any more, its place may be reused, starting at
//! zero.
//!
//! In each plan, at most the first `NAMED_MAX` names of each kind have a place; the others are summed up.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use crate::counters::Merge;
use crate::series::{
    ListenerCell, PLACES, RouteCell, SeriesIndex, SeriesReader, ServerCell, Slab, UpstreamCell,
};

/// The maximum number of routes (and of listeners, upstreams, servers) counted by name; others are counted as
/// `(other)`.
pub const NAMED_MAX: usize = 1000;

const _: () = assert!(2 * NAMED_MAX + SeriesIndex::FIRST.0 as usize <= PLACES, "two plans have room");

/// The names of a plan, in the plan's order.
#[derive(Debug, Clone, Default)]
pub struct PlanNames {
    pub routes: Vec<Arc<str>>,
    /// `None` for listeners that are not counted by name.
    pub listeners: Vec<Option<Arc<str>>>,
    /// Names of upstreams, each with the names of its servers.
    pub upstreams: Vec<(Arc<str>, Vec<Arc<str>>)>,
}

/// The places of a plan's names in the counters. The plan owns this: dropping it frees the places.
#[derive(Debug)]
pub struct CounterPlaces {
    routes: Box<[SeriesIndex]>,
    listeners: Box<[SeriesIndex]>,
    upstreams: Box<[UpstreamPlaces]>,
}

#[derive(Debug)]
struct UpstreamPlaces {
    own: SeriesIndex,
    servers: Box<[SeriesIndex]>,
}

impl CounterPlaces {
    /// The place of a route, by its index in the plan; `None` is for requests without a route.
    #[inline]
    #[must_use]
    pub fn route(&self, route: Option<usize>) -> SeriesIndex {
        route.map_or(SeriesIndex::NONE, |route| self.routes[route])
    }

    /// The place of a listener, by its index in the plan; `None` is for a listener that was removed.
    #[must_use]
    pub fn listener(&self, listener: Option<usize>) -> SeriesIndex {
        listener.map_or(SeriesIndex::NONE, |listener| self.listeners[listener])
    }

    /// The place of an upstream, by its index in the plan.
    #[inline]
    #[must_use]
    pub fn upstream(&self, upstream: usize) -> SeriesIndex {
        self.upstreams[upstream].own
    }

    /// The place of a server, by the index of its upstream in the plan and its own index in the upstream.
    #[inline]
    #[must_use]
    pub fn server(&self, upstream: usize, server: usize) -> SeriesIndex {
        self.upstreams[upstream].servers[server]
    }
}

/// Its upstream's name, then its own.
pub type ServerName = (Arc<str>, Arc<str>);

/// The assignment of names to places, and the counters of all workers.
pub struct Directory {
    workers: Vec<SeriesReader>,
    in_use: Vec<Weak<CounterPlaces>>,
    routes: Ledger<Arc<str>, RouteCell>,
    listeners: Ledger<Arc<str>, ListenerCell>,
    upstreams: Ledger<Arc<str>, UpstreamCell>,
    servers: Ledger<ServerName, ServerCell>,
}

/// The totals over all workers by name, sorted.
pub struct Totals {
    pub routes: Vec<(Arc<str>, RouteCell)>,
    /// Only listeners that are counted by name.
    pub listeners: Vec<(Arc<str>, ListenerCell)>,
    pub upstreams: Vec<(Arc<str>, UpstreamCell)>,
    pub servers: Vec<(ServerName, ServerCell)>,
}

impl Totals {
    /// The names for requests without a route, for routes beyond `NAMED_MAX`, and for requests of other instances.
    pub const REST: [&'static str; 3] = ["(none)", "(other)", "(cache-peers)"];
}

impl Directory {
    #[must_use]
    pub fn new(workers: Vec<SeriesReader>) -> Self {
        Self {
            workers,
            in_use: Vec::new(),
            routes: Ledger::default(),
            listeners: Ledger::default(),
            upstreams: Ledger::default(),
            servers: Ledger::default(),
        }
    }

    /// Assigns places to a new plan's names. Names of plans in use keep their places.
    pub fn places(&mut self, names: &PlanNames) -> Arc<CounterPlaces> {
        self.forget();
        let workers = &self.workers;
        let routes = &mut self.routes;
        let mut room = NAMED_MAX;
        let routes = names
            .routes
            .iter()
            .map(|name| routes.place(name.clone(), &mut room, workers, |worker| &worker.cells.routes));
        let routes = routes.collect();
        let listeners = &mut self.listeners;
        let mut room = NAMED_MAX;
        let mut listener = |name: &Arc<str>| {
            listeners.place(name.clone(), &mut room, workers, |worker| &worker.cells.listeners)
        };
        let listeners =
            names.listeners.iter().map(|name| name.as_ref().map_or(SeriesIndex::NONE, &mut listener));
        let listeners = listeners.collect();
        let (mut room, mut server_room) = (NAMED_MAX, NAMED_MAX);
        let mut upstreams = Vec::with_capacity(names.upstreams.len());
        for (name, servers) in &names.upstreams {
            let own =
                self.upstreams.place(name.clone(), &mut room, workers, |worker| &worker.cells.upstreams);
            let servers = servers.iter().map(|server| {
                let name = (name.clone(), server.clone());
                self.servers.place(name, &mut server_room, workers, |worker| &worker.cells.servers)
            });
            upstreams.push(UpstreamPlaces { own, servers: servers.collect() });
        }
        let places = Arc::new(CounterPlaces { routes, listeners, upstreams: upstreams.into() });
        self.in_use.push(Arc::downgrade(&places));
        places
    }

    /// The totals over all workers, for the names of all plans in use.
    #[must_use]
    pub fn totals(&mut self) -> Totals {
        self.forget();
        let other: Arc<str> = "(other)".into();
        let mut totals = Totals {
            routes: self.routes.totals(&self.workers, |worker| &worker.cells.routes),
            listeners: self.listeners.totals(&self.workers, |worker| &worker.cells.listeners),
            upstreams: self.upstreams.totals(&self.workers, |worker| &worker.cells.upstreams),
            servers: self.servers.totals(&self.workers, |worker| &worker.cells.servers),
        };
        let none = sum(&self.workers, SeriesIndex::NONE, |worker| &worker.cells.routes);
        totals.routes.push((Totals::REST[0].into(), none));
        let peers = sum(&self.workers, SeriesIndex::PEERS, |worker| &worker.cells.routes);
        if peers.requests.values().iter().any(|count| *count > 0) {
            totals.routes.push((Totals::REST[2].into(), peers));
        }
        if self.routes.is_beyond {
            let rest = sum(&self.workers, SeriesIndex::OTHER, |worker| &worker.cells.routes);
            totals.routes.push((other.clone(), rest));
        }
        for (place, name, is_there) in
            [(SeriesIndex::NONE, "(none)", true), (SeriesIndex::OTHER, "(other)", self.listeners.is_beyond)]
        {
            let rest = sum(&self.workers, place, |worker| &worker.cells.listeners);
            if is_there && rest.connections.value() > 0 {
                totals.listeners.push((name.into(), rest));
            }
        }
        if self.upstreams.is_beyond {
            let rest = sum(&self.workers, SeriesIndex::OTHER, |worker| &worker.cells.upstreams);
            totals.upstreams.push((other.clone(), rest));
        }
        if self.servers.is_beyond {
            let rest = sum(&self.workers, SeriesIndex::OTHER, |worker| &worker.cells.servers);
            totals.servers.push(((other.clone(), other), rest));
        }
        totals
    }

    /// Frees the names that no plan in use has.
    fn forget(&mut self) {
        let before = self.in_use.len();
        self.in_use.retain(|places| places.strong_count() > 0);
        if self.in_use.len() == before {
            return;
        }
        let plans: Vec<Arc<CounterPlaces>> = self.in_use.iter().filter_map(Weak::upgrade).collect();
        let mut held = [[false; PLACES]; 4];
        for CounterPlaces { routes, listeners, upstreams } in plans.iter().map(AsRef::as_ref) {
            for place in routes {
                held[0][usize::from(place.0)] = true;
            }
            for place in listeners {
                held[3][usize::from(place.0)] = true;
            }
            for UpstreamPlaces { own, servers } in upstreams {
                held[1][usize::from(own.0)] = true;
                for place in servers {
                    held[2][usize::from(place.0)] = true;
                }
            }
        }
        self.routes.forget(&held[0]);
        self.upstreams.forget(&held[1]);
        self.servers.forget(&held[2]);
        self.listeners.forget(&held[3]);
    }
}

/// The names of one kind.
struct Ledger<N, C> {
    places: HashMap<N, SeriesIndex>,
    /// The counts at a place before its current name got it. Empty for the first name.
    before: HashMap<SeriesIndex, C>,
    free: Vec<SeriesIndex>,
    /// The lowest place that never had a name.
    fresh: SeriesIndex,
    /// Whether anything was counted as `(other)`.
    is_beyond: bool,
}

impl<N, C> Default for Ledger<N, C> {
    fn default() -> Self {
        Self {
            places: HashMap::new(),
            before: HashMap::new(),
            free: Vec::new(),
            fresh: SeriesIndex::FIRST,
            is_beyond: false,
        }
    }
}

impl<N: Eq + Hash + Ord + Clone, C: Merge + Default> Ledger<N, C> {
    /// The place of `name`, within the `room` that its plan has left.
    fn place(
        &mut self,
        name: N,
        room: &mut usize,
        workers: &[SeriesReader],
        slab: impl Fn(&SeriesReader) -> &Slab<C>,
    ) -> SeriesIndex {
        if *room == 0 {
            self.is_beyond = true;
            return SeriesIndex::OTHER;
        }
        *room -= 1;
        if let Some(place) = self.places.get(&name) {
            return *place;
        }
        let place = match self.free.pop() {
            Some(place) => {
                self.before.insert(place, sum(workers, place, slab));
                place
            }
            None if usize::from(self.fresh.0) < PLACES => {
                let place = self.fresh;
                self.fresh = SeriesIndex(place.0 + 1);
                place
            }
            // The plans in use need more places than exist.
            None => {
                self.is_beyond = true;
                return SeriesIndex::OTHER;
            }
        };
        self.places.insert(name, place);
        place
    }

    fn forget(&mut self, held: &[bool; PLACES]) {
        let free = &mut self.free;
        self.places.retain(|_, place| {
            let is_held = held[usize::from(place.0)];
            if !is_held {
                free.push(*place);
            }
            is_held
        });
    }

    fn totals<'w>(
        &self,
        workers: &'w [SeriesReader],
        slab: impl Fn(&'w SeriesReader) -> &'w Slab<C>,
    ) -> Vec<(N, C)>
    where
        C: 'w,
    {
        let mut totals: Vec<(N, C)> = Vec::with_capacity(self.places.len());
        for (name, place) in &self.places {
            let total = sum(workers, *place, &slab);
            if let Some(before) = self.before.get(place) {
                total.take_off(before);
            }
            totals.push((name.clone(), total));
        }
        totals.sort_by(|(one, _), (other, _)| one.cmp(other));
        totals
    }
}

/// The sum over all workers' cells at a place.
fn sum<'w, C: Merge + Default + 'w>(
    workers: &'w [SeriesReader],
    place: SeriesIndex,
    slab: impl Fn(&'w SeriesReader) -> &'w Slab<C>,
) -> C {
    let sum = C::default();
    for cell in workers.iter().filter_map(|worker| slab(worker).look(place)) {
        sum.add_all(cell);
    }
    sum
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::series::Series;

    /// Routes with these names, each to an upstream of the same name with two servers.
    fn names(routes: &[&str]) -> PlanNames {
        let name = |text: &str| -> Arc<str> { text.into() };
        PlanNames {
            routes: routes.iter().map(|route| name(route)).collect(),
            listeners: Vec::new(),
            upstreams: routes.iter().map(|route| (name(route), vec![name("a:1"), name("b:1")])).collect(),
        }
    }

    /// Requests with status 200 by route, without routes that have none.
    fn counted(directory: &mut Directory) -> Vec<(String, u64)> {
        let routes = directory.totals().routes;
        let counts = routes.iter().map(|(name, cell)| (name.to_string(), cell.requests.values()[2]));
        counts.filter(|(name, count)| name != "(none)" || *count > 0).collect()
    }

    fn expected(counts: &[(&str, u64)]) -> Vec<(String, u64)> {
        counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn totals_are_sums_over_all_workers() {
        let workers = [Series::new(), Series::new()];
        let mut directory = Directory::new(workers.iter().map(Series::reader).collect());
        let places = directory.places(&names(&["/b", "/a"]));
        std::thread::scope(|scope| {
            for worker in workers {
                scope.spawn(|| {
                    let worker = worker;
                    for _ in 0..1000 {
                        let cell = worker.route(places.route(Some(1)));
                        cell.requests.count(200);
                        cell.duration.observe(Duration::from_millis(3));
                        worker.server(places.server(0, 1)).connections_busy.increment();
                        worker.upstream(places.upstream(0)).retries.count(5);
                    }
                    worker.route(places.route(None)).requests.count(200);
                });
            }
        });
        assert_eq!(counted(&mut directory), expected(&[("/a", 2000), ("/b", 0), ("(none)", 2)]));
        let totals = directory.totals();
        let duration = &totals.routes[0].1.duration;
        assert_eq!(
            (duration.buckets().iter().sum(), duration.sum()),
            (2000, Duration::from_millis(3) * 2000)
        );
        let busy: Vec<_> = totals
            .servers
            .iter()
            .map(|((upstream, server), cell)| (&**upstream, &**server, cell.connections_busy.value()))
            .collect();
        assert_eq!(busy, [("/a", "a:1", 0), ("/a", "b:1", 0), ("/b", "a:1", 0), ("/b", "b:1", 2000)]);
        assert_eq!((&*totals.upstreams[1].0, totals.upstreams[1].1.retries.values()[5]), ("/b", 2000));
    }

    #[test]
    fn a_name_that_stays_goes_on_and_one_that_comes_begins_at_zero() {
        let worker = Series::new();
        let mut directory = Directory::new(vec![worker.reader()]);
        let count =
            |places: &CounterPlaces, route| worker.route(places.route(Some(route))).requests.count(200);

        let first = directory.places(&names(&["/goes", "/stays"]));
        count(&first, 0);
        count(&first, 1);
        let second = directory.places(&names(&["/stays", "/comes"]));
        count(&second, 0);
        // A request of the previous plan is still in progress.
        count(&first, 0);
        assert_eq!(counted(&mut directory), expected(&[("/comes", 0), ("/goes", 2), ("/stays", 2)]));

        drop(first);
        assert_eq!(counted(&mut directory), expected(&[("/comes", 0), ("/stays", 2)]));
        let third = directory.places(&names(&["/stays", "/comes", "/new"]));
        drop(second);
        for route in 0..3 {
            count(&third, route);
        }
        assert_eq!(counted(&mut directory), expected(&[("/comes", 1), ("/new", 1), ("/stays", 3)]));
    }

    #[test]
    fn gauges_do_not_begin_below_zero_at_a_place_that_had_another_name() {
        let worker = Series::new();
        let mut directory = Directory::new(vec![worker.reader()]);
        let first = directory.places(&names(&["/goes"]));
        worker.server(first.server(0, 0)).connections_busy.set(7);
        drop(first);
        let second = directory.places(&names(&["/comes"]));
        worker.server(second.server(0, 0)).connections_busy.set(2);
        worker.server(second.server(0, 1)).connections_busy.set(2);
        let busy: Vec<_> =
            directory.totals().servers.iter().map(|(_, cell)| cell.connections_busy.value()).collect();
        assert_eq!(busy, [2, 2]);
    }

    #[test]
    fn names_beyond_the_limit_are_counted_together() {
        let worker = Series::new();
        let mut directory = Directory::new(vec![worker.reader()]);
        let many = |prefix: &str| PlanNames {
            routes: (0..NAMED_MAX + 10).map(|number| format!("/{prefix}{number}").into()).collect(),
            ..PlanNames::default()
        };
        let mut plans = Vec::new();
        // Three plans with no name in common: the third finds no free place while the others are in use.
        for (prefix, others) in [("a", 10), ("b", 20), ("c", NAMED_MAX as u64 - 16)] {
            let places = directory.places(&many(prefix));
            for route in 0..NAMED_MAX + 10 {
                worker.route(places.route(Some(route))).requests.count(200);
            }
            plans.push(places);
            let counted = counted(&mut directory);
            assert!(counted.len() < PLACES, "{}", counted.len());
            let of_others = counted.iter().find(|(name, _)| name == "(other)").map(|(_, count)| *count);
            assert!(of_others.is_some_and(|count| count >= others), "{prefix}: {of_others:?}");
            assert_eq!(counted.iter().map(|(_, count)| count).sum::<u64>(), 1010 * plans.len() as u64);
        }
        plans.clear();
        let places = directory.places(&many("d"));
        assert_ne!(places.route(Some(NAMED_MAX - 1)), SeriesIndex::OTHER);
        assert_eq!(places.route(Some(NAMED_MAX)), SeriesIndex::OTHER);
    }
}
