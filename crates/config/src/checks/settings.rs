//! Checks settings that a program made or changed, by the rules of files that such a change can break.
//!
//! Ranges of values are not checked: they are those of the kinds of options, and a program reads its values with these.

use std::collections::{BTreeSet, HashSet};

use ::route::Split;
use mistake::{LineMap, Mistake};
use shape::{ConnectionFault, Fault};

use crate::checks::{twice, zones};
use crate::option::host::ListenAddress;
use crate::option::server::{Scheme, socket_path};
use crate::option::shared::Shared;
use crate::tables::fault::FaultRule;
use crate::tables::listen::{Listener, Passthrough};
use crate::tables::names::speaks_no_http;
use crate::tables::route::{Route, relations as route_relations};
use crate::tables::settings::Settings;
use crate::tables::upstream::{Protocol, Upstream, relations as upstream_relations};

/// The file name in mistakes of settings that are in no file.
const CHANGED: &str = "the changed configuration";

/// The routes and upstreams that a check looks at, by their places. All other tables are a part of each check.
pub(crate) struct Part {
    routes: Vec<usize>,
    upstreams: BTreeSet<usize>,
    /// Whether names, conditions or listeners may have changed, which all others depend on.
    is_whole: bool,
}

impl Part {
    /// All of the settings.
    pub(crate) fn whole(settings: &Settings) -> Self {
        let upstreams = (0..settings.upstreams.len()).collect();
        Self { routes: (0..settings.routes.len()).collect(), upstreams, is_whole: true }
    }

    /// Returns the routes and upstreams that differ; `None` if nothing differs.
    pub(crate) fn changed(before: &Settings, after: &Settings) -> Option<Self> {
        let routes = differing(&before.routes, &after.routes, |before, after| {
            (&before.name, &before.rules) == (&after.name, &after.rules) && zones::are_alike(before, after)
        });
        let upstreams = differing(&before.upstreams, &after.upstreams, |before, after| {
            is_for_same_routes(before) == is_for_same_routes(after)
        });
        let (Some(routes), Some(upstreams)) = (routes, upstreams) else {
            return Some(Self::whole(after));
        };
        if routes.is_empty() && upstreams.is_empty() && before == after {
            return None;
        }
        if is_around(before) != is_around(after) {
            return Some(Self::whole(after));
        }
        Some(Self { routes, upstreams: upstreams.into_iter().collect(), is_whole: false })
    }

    /// Adds a message for each rule that the settings break.
    pub(crate) fn check(&self, settings: &Settings) -> Vec<Mistake> {
        let mut broken = Broken(Vec::new());
        let leads_nowhere = self.dangling(settings, &mut broken);
        if !leads_nowhere {
            check_addresses(settings, &mut broken);
            for route in &self.routes {
                check_route(&settings.routes[*route], settings, &mut broken);
            }
            // A store names the instances of a cache. At first there may be none.
            let peers = settings.peers();
            for upstream in self.upstreams.iter().filter(|upstream| Some(**upstream) != peers) {
                check_upstream(&settings.upstreams[*upstream], &mut broken);
            }
            if self.is_whole {
                check_whole(settings, &mut broken);
            }
        }
        broken.0
    }

    /// Indices that lead nowhere. Returns whether there are some.
    fn dangling(&self, settings: &Settings, broken: &mut Broken) -> bool {
        let known = |index: &usize| *index < settings.upstreams.len();
        let heard = |index: &usize| *index < settings.listeners.len();
        for route in self.routes.iter().map(|place| &settings.routes[*place]) {
            let leads_nowhere = !route.upstreams().all(|index| known(&index));
            if leads_nowhere || !route.rules.iter().flat_map(|rule| &rule.listeners).all(heard) {
                broken.add(format!("route {:?}: its upstream or listener does not exist", route.name), "");
            }
        }
        for listener in &settings.listeners {
            if !listener.passes_on_to().all(|index| known(&index)) {
                broken.add(format!("listener {:?}: its upstream does not exist", listener.name), "");
            }
        }
        !broken.0.is_empty()
    }
}

/// The messages for rules that are broken.
struct Broken(Vec<Mistake>);

impl Broken {
    fn add(&mut self, message: impl Into<String>, expected: &str) {
        let mistake = LineMap::new("", CHANGED).mistake(&(0..0), message);
        self.0.push(if expected.is_empty() { mistake } else { mistake.expecting(expected) });
    }
}

/// Returns the places where two lists of one length differ. `None` if an item differs in more than `is_by_itself` permits.
fn differing<T: PartialEq>(
    before: &[Shared<T>],
    after: &[Shared<T>],
    is_by_itself: impl Fn(&T, &T) -> bool,
) -> Option<Vec<usize>> {
    let mut places = Vec::new();
    for (place, (before, after)) in before.iter().zip(after).enumerate() {
        // Equal ones are one.
        if !before.is_one_with(after) {
            if !is_by_itself(before, after) {
                return None;
            }
            places.push(place);
        }
    }
    (before.len() == after.len()).then_some(places)
}

/// Returns the properties of an upstream that routes to it depend on.
fn is_for_same_routes(upstream: &Upstream) -> (&str, Protocol, [bool; 2]) {
    let has = |scheme| upstream.servers.iter().any(|server| server.scheme == scheme);
    (&upstream.name, upstream.protocol, [has(Scheme::Tcp), has(Scheme::Https)])
}

/// Returns the properties of the other tables that routes and upstreams depend on.
fn is_around(settings: &Settings) -> impl PartialEq {
    let Settings { faults, cache, redis, acme, listeners, .. } = settings;
    let listeners = listeners.iter().map(|listener| {
        let Listener { name, address, passthrough, tls, http3, tcp, .. } = listener;
        (name.clone(), address.clone(), passthrough.clone(), tls.clone(), *http3, tcp.clone())
    });
    (faults.clone(), cache.clone(), redis.clone(), acme.clone(), listeners.collect::<Vec<_>>())
}

fn check_addresses(settings: &Settings, broken: &mut Broken) {
    if settings.listeners.is_empty() {
        broken.add("there is no listener", "at least one [[listen]]");
    }
    let own =
        [("metrics", settings.metrics), ("dashboard", settings.dashboard.as_ref().map(|it| it.address))];
    let own = own.map(|(option, address)| Some((ListenAddress::Tcp(address?), option)));
    let own: Vec<_> = own.into_iter().flatten().collect();
    let all = own.iter().map(|(address, option)| (address, *option));
    let all: Vec<_> =
        all.chain(settings.listeners.iter().map(|listener| (&listener.address, "address"))).collect();
    for twice in twice::addresses(&all) {
        broken.add(twice.message, "an address for each");
    }
    let sockets = all.into_iter().filter_map(|(address, option)| match address {
        ListenAddress::Unix(path) => Some((path, option)),
        ListenAddress::Tcp(_) | ListenAddress::Any(_) => None,
    });
    for (path, option) in sockets.chain(settings.admin.iter().map(|path| (path, "admin"))) {
        // Other paths are relative to the working directory.
        let absolute = std::path::Path::new("/").join(path);
        if let Err(fault) = socket_path(&absolute.display().to_string()) {
            broken.add(format!("{option}: {fault}"), "a shorter path");
        }
    }
}

/// Checks a route, without the rules that it matches by.
fn check_route(route: &Route, settings: &Settings, broken: &mut Broken) {
    let upstream = |index: usize| {
        let Upstream { name, protocol, .. } = &*settings.upstreams[index];
        (name.as_str(), *protocol)
    };
    let relations = route_relations::Relations::new(route, settings.cache.is_some(), upstream);
    for (_, message, expected) in relations.broken() {
        broken.add(format!("route {:?}: {message}", route.name), &expected);
    }
    for index in route.upstreams() {
        let upstream = &settings.upstreams[index];
        if upstream.servers.iter().any(|server| server.scheme == Scheme::Tcp) {
            let (message, expected) = speaks_no_http("upstream", &upstream.name);
            broken.add(format!("route {:?}: {message}", route.name), expected);
        }
    }
}

fn check_upstream(upstream: &Upstream, broken: &mut Broken) {
    let name = &upstream.name;
    if upstream.servers.is_empty() {
        broken.add(format!("upstream {name:?}: servers: this is empty"), "at least one server");
    }
    for rule in upstream_relations::Relations::from_upstream(upstream).broken() {
        broken.add(format!("upstream {name:?}: {}", rule.message), &rule.expected);
    }
}

/// Checks what all routes and listeners together obey.
fn check_whole(settings: &Settings, broken: &mut Broken) {
    if settings.routes.is_empty() && settings.listeners.iter().any(|listener| listener.tcp.is_none()) {
        broken.add("there is no route", "at least one [[route]]");
    }
    check_names(settings.routes.iter().map(|route| route.name.as_str()), "route", broken);
    check_names(settings.upstreams.iter().map(|upstream| upstream.name.as_str()), "upstream", broken);
    check_names(settings.listeners.iter().map(|listener| listener.name.as_str()), "listener", broken);
    for twice in twice::rules(settings.rules()) {
        broken.add(twice.message, "another host, path or condition");
    }
    let routes = settings.routes.iter().map(|route| &**route).enumerate();
    for disagreement in zones::disagreements(routes) {
        broken.add(disagreement.message, "equal values, or another zone or file");
    }
    for listener in &settings.listeners {
        check_listener(listener, settings, broken);
    }
    for fault in &settings.faults.rules {
        check_fault(fault, settings, broken);
    }
}

fn check_names<'s>(names: impl Iterator<Item = &'s str>, what: &str, broken: &mut Broken) {
    let mut seen = HashSet::new();
    for name in names.filter(|name| !seen.insert(*name)) {
        broken.add(format!("name: the {what} {name:?} appears twice"), "a name for each");
    }
}

fn check_listener(listener: &Listener, settings: &Settings, broken: &mut Broken) {
    let Listener { name, address, tcp, passthrough, tls, http3, datagram_rates, .. } = listener;
    let mut refuse = |is_broken: bool, message: &str, expected: &str| {
        if is_broken {
            broken.add(format!("listener {name:?}: {message}"), expected);
        }
    };
    let is_http3 = |index: usize| settings.upstreams[index].protocol == Protocol::Http3;
    let carries = |is_one: &dyn Fn(usize) -> bool| {
        tcp.iter().flat_map(Split::shares).any(|(upstream, _)| is_one(upstream))
    };
    refuse(carries(&is_http3), "tcp: an upstream with protocol = \"h3\" cannot carry TCP", "");
    let is_fastcgi = |index: usize| settings.upstreams[index].protocol == Protocol::Fastcgi;
    refuse(carries(&is_fastcgi), "tcp: an upstream with fcgi:// servers gets requests, not bytes", "");
    let has_https =
        |index: usize| settings.upstreams[index].servers.iter().any(|it| it.scheme == Scheme::Https);
    let is_in_tls = passthrough.iter().flat_map(Passthrough::upstreams).any(has_https);
    refuse(is_in_tls, "passthrough: https servers: TLS would be wrapped in TLS", "tcp:// servers");
    let has_rates = datagram_rates.down.is_some() || datagram_rates.up.is_some();
    refuse(has_rates && !http3, "datagram_rate needs http3", "http3 = true");
    refuse(*http3 && tls.is_none(), "http3 needs tls: QUIC is always encrypted", "tls");
    refuse(*http3 && tcp.is_some(), "http3 cannot be combined with tcp", "one of them");
    refuse(*http3 && address.tcp().is_none(), "http3 cannot use a Unix socket", "an address with a port");
    refuse(
        listener.connections_per_client.is_some()
            && address.tcp().is_none()
            && listener.proxy_protocol.is_empty(),
        "connections_per_client: the clients of a Unix socket have no addresses",
        "proxy_protocol as well, or an address with a port",
    );
    refuse(
        listener.redirect_to_https && tls.is_some(),
        "redirect_to_https cannot be combined with tls: it would redirect in a loop",
        "it on a listener without tls",
    );
}

fn check_fault(rule: &FaultRule, settings: &Settings, broken: &mut Broken) {
    for name in &rule.routes {
        match settings.routes.iter().find(|route| route.name == *name) {
            None => broken.add(format!("fault {:?}: no route is named {name:?}", rule.name), "a route"),
            Some(route) if rule.fault == Fault::NoTrailers && route.action.upstreams().next().is_none() => {
                let message = format!(
                    "fault {:?}: route {name:?} is answered without a server, so it never has trailers",
                    rule.name
                );
                broken.add(message, "a route with an upstream, or another fault");
            }
            Some(_) => {}
        }
    }
    let is_of_tls = rule.fault == Fault::Connection(ConnectionFault::BadHandshake);
    if !is_of_tls && !rule.fault.is_of_datagrams() {
        return;
    }
    let what = if is_of_tls { "tls" } else { "http3" };
    let has = |listener: &Listener| if is_of_tls { listener.tls.is_some() } else { listener.http3 };
    let mut named = rule.rules.iter().flat_map(|rule| &rule.listeners).peekable();
    let is_met = match named.peek() {
        None => settings.listeners.iter().any(has),
        Some(_) => named.all(|index| settings.listeners.get(*index).is_some_and(has)),
    };
    if !is_met {
        broken.add(format!("fault {:?}: its listeners have no {what}", rule.name), "other listeners");
    }
}
