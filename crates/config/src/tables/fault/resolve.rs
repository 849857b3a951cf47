//! Checks relations between fault options, and converts parsed options to faults and back.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::Duration;

use ::route::{ClaimRules, RateKey, RateKeyPart};
use mistake::nearest;
use shape::{ConnectionFault, Fault, Millionths, Occasion};

use crate::document::reader::{Reader, Span};
use crate::option::kind::{Located, located};
use crate::option::quantity::written_duration;
use crate::option::table::{Element, one_of};
use crate::tables::fault::kinds::written_fault;
use crate::tables::fault::options::{FaultWritten, FaultsWritten};
use crate::tables::fault::{FaultRule, Faults, First, response as fault_response};
use crate::tables::listen::Listener;
use crate::tables::names::{Names, unique};
use crate::tables::requests::Requests;
use crate::tables::route::Route;

/// Converts the faults of a file; `None` if there is a mistake.
pub(crate) fn faults(
    (section, written): (&FaultsWritten, &[Element<FaultWritten>]),
    names: &Names<'_>,
    routes: &[Option<Route>],
    reader: &mut Reader<'_>,
) -> Option<Faults> {
    let FaultsWritten { seed, header, header_clients } = section;
    match header {
        Some(header) if header_clients.is_empty() => {
            let mistake = reader.mistake(&header.at, "header: no client may use it");
            reader.add(mistake.expecting("header_clients with a network such as 127.0.0.0/8"));
        }
        _ => {}
    }
    let known: Option<Vec<KnownRoute<'_>>> =
        routes.iter().map(|route| route.as_ref().map(KnownRoute::from_route)).collect();
    let rules = rules(written, names, known.as_deref(), reader)?;
    let header = header.as_ref().map(|header| header.value.clone());
    Some(Faults { seed: *seed, header, header_clients: header_clients.clone(), rules })
}

/// The properties of a route that faults need.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownRoute<'r> {
    name: &'r str,
    /// Whether the route responds without a server.
    is_answered_here: bool,
}

impl<'r> KnownRoute<'r> {
    pub(crate) fn from_route(route: &'r Route) -> Self {
        let is_answered_here = route.action.upstreams().next().is_none();
        Self { name: &route.name, is_answered_here }
    }
}

/// Converts `[[fault]]` tables to rules. `routes` is `None` if they have mistakes. Returns `None` if there is a
/// mistake.
pub(crate) fn rules(
    faults: &[Element<FaultWritten>],
    names: &Names<'_>,
    routes: Option<&[KnownRoute<'_>]>,
    reader: &mut Reader<'_>,
) -> Option<Vec<FaultRule>> {
    check_names(faults, reader);
    let rules: Vec<Option<FaultRule>> =
        faults.iter().map(|fault| rule(fault, names, routes, reader)).collect();
    let mut rules: Vec<FaultRule> = rules.into_iter().collect::<Option<_>>()?;
    let written = faults.iter().map(|fault| fault.value.name.as_ref().map(|name| name.value.clone()));
    let defaults: Vec<String> = rules.iter().map(|rule| rule.name.clone()).collect();
    for (rule, name) in rules.iter_mut().zip(unique(written.zip(defaults))) {
        rule.name = name;
    }
    Some(rules)
}

fn check_names(faults: &[Element<FaultWritten>], reader: &mut Reader<'_>) {
    let mut seen = HashMap::new();
    for Located { value, at } in faults.iter().filter_map(|fault| fault.value.name.as_ref()) {
        let first = *seen.entry(value).or_insert(at);
        if first != at {
            let mistake = reader.mistake(at, format!("name: {value:?} appears twice"));
            let line = reader.line(first);
            reader.add(mistake.expecting(format!("a name other than the one in {line}")));
        }
    }
}

fn rule(
    Element { value: written, is_intact, .. }: &Element<FaultWritten>,
    names: &Names<'_>,
    routes: Option<&[KnownRoute<'_>]>,
    reader: &mut Reader<'_>,
) -> Option<FaultRule> {
    let refused_before = reader.refused();
    check_times(written, reader);
    check_routes(written, routes, reader);
    let is_of_connections = written.inject.as_ref().is_some_and(|inject| inject.value.is_of_connections());
    let rules = if is_of_connections {
        check_connection(written, names, reader);
        vec![written.requests.rule_of_connections(names, reader)]
    } else {
        written.requests.rules(ClaimRules::default(), names, reader)
    };
    let fault = written.inject.as_ref()?.value.clone();
    let response =
        written.response.as_deref().and_then(|response| fault_response::response(response, &fault, reader));
    let key = || RateKey(written.key.iter().flatten().cloned().collect());
    (*is_intact && reader.refused() == refused_before).then(|| FaultRule {
        name: written.name.as_ref().map_or_else(|| written_fault(&fault), |name| name.value.clone()),
        fault,
        response: response.map(Box::new),
        occasion: Occasion {
            probability: written.probability,
            every: NonZeroU32::new(written.every).unwrap_or(NonZeroU32::MIN),
            clients: written.client_share,
            from: written.from,
            until: written.until.as_ref().map(|until| until.value),
            repeat: written.repeat.as_ref().map(|repeat| repeat.value),
            expires: written.expires,
        },
        rules,
        routes: written.route.iter().map(|name| name.value.clone()).collect(),
        first: written.first.and_then(NonZeroU32::new).map(|count| First { count, key: key() }),
        is_shown: written.show,
    })
}

fn check_times(written: &FaultWritten, reader: &mut Reader<'_>) {
    let FaultWritten { from, until, repeat, .. } = written;
    if let Some(until) = until.as_ref().filter(|until| until.value <= *from) {
        let message = format!("until: {} is not after from", written_duration(until.value));
        let mistake = reader.mistake(&until.at, message);
        reader.add(mistake.expecting(format!("more than {}", written_duration(*from))));
    }
    let last = until.as_ref().map_or(*from, |until| until.value);
    // A fault that begins when all begins again never happens.
    let is_late = |repeat: Duration| repeat < last || repeat <= *from;
    if let Some(repeat) = repeat.as_ref().filter(|repeat| is_late(repeat.value)) {
        let message = format!("repeat: {} ends before the fault does", written_duration(repeat.value));
        let mistake = reader.mistake(&repeat.at, message);
        reader.add(mistake.expecting(format!("at least {}", written_duration(last))));
    }
}

/// Checks a fault of connections: only listener and client are known before a request is read.
fn check_connection(written: &FaultWritten, names: &Names<'_>, reader: &mut Reader<'_>) {
    let Some(inject) = &written.inject else { return };
    let is_of_client = |part: &Option<RateKeyPart>| {
        part.as_ref().is_none_or(|part| matches!(part, RateKeyPart::ClientNetwork { .. }))
    };
    let said = [
        ("route", !written.route.is_empty()),
        ("show", written.show),
        ("key with a part that is not the client", !written.key.iter().all(is_of_client)),
    ];
    let said = said.into_iter().filter_map(|(option, is_said)| is_said.then_some(option));
    for option in said.chain(written.requests.of_requests_alone()) {
        let message = format!("inject: {option} applies to requests, but this fault affects connections");
        let mistake = reader.mistake(&inject.at, message);
        reader.add(mistake.expecting("listener and clients, or another fault with it"));
    }
    if matches!(inject.value, Fault::Connection(ConnectionFault::BadHandshake)) {
        check_handshake(written, &inject.at, names, reader);
    }
    if inject.value.is_of_datagrams() {
        check_datagrams(written, &inject.at, names, reader);
    }
    warn_of_tcp_alone(written, inject, names, reader);
    if inject.value.is_of_listeners() {
        check_refusal(written, &inject.at, names, reader);
    }
}

/// Checks a fault that refuses connections: the kernel refuses them without regard to the client.
fn check_refusal(written: &FaultWritten, at: &Span, names: &Names<'_>, reader: &mut Reader<'_>) {
    let said = [
        ("probability", written.probability != Millionths::WHOLE),
        ("every", written.every > 1),
        ("client_share", written.client_share != Millionths::WHOLE),
        ("first", written.first.is_some()),
        ("clients", written.requests.are_of_some_clients()),
    ];
    for (option, _) in said.into_iter().filter(|(_, is_said)| *is_said) {
        let message =
            format!("inject: a listener refuses all connections or none, so {option} has no effect");
        let mistake = reader.mistake(at, message);
        reader.add(mistake.expecting(
            "listener, from, until, repeat or expires with it, or \"connection reset\" of some connections",
        ));
    }
    for Located { value, at } in written.requests.listeners() {
        if names.listeners.get(value).is_some_and(|place| names.is_unix[*place]) {
            let message = format!("listener: {value:?} is a Unix socket, which cannot refuse for a while");
            let mistake = reader.mistake(at, message);
            reader.add(mistake.expecting("a listener of TCP, or \"connection reset\""));
        }
    }
}

/// Checks a fault of TLS handshakes, which requires a listener with TLS.
fn check_handshake(written: &FaultWritten, at: &Span, names: &Names<'_>, reader: &mut Reader<'_>) {
    let named = written.requests.listeners();
    for Located { value, at } in named {
        if names.listeners.get(value).is_some_and(|place| !names.has_tls[*place]) {
            let mistake =
                reader.mistake(at, format!("listener: {value:?} has no tls, so no handshake can fail there"));
            reader.add(mistake.expecting("a listener with tls, or \"connection reset\""));
        }
    }
    if named.is_empty() && !names.has_tls.contains(&true) && reader.is_whole() {
        let mistake = reader.mistake(at, "inject: no listener has tls, so no handshake can fail");
        reader.add(mistake.expecting("a listener with tls, or \"connection reset\""));
    }
}

/// Warns of a fault that changes bytes of TCP, where clients of HTTP/3 come as well.
fn warn_of_tcp_alone(
    written: &FaultWritten,
    Located { value, at }: &Located<Fault>,
    names: &Names<'_>,
    reader: &mut Reader<'_>,
) {
    let Fault::Connection(fault) = value else { return };
    let named: Vec<usize> = written
        .requests
        .listeners()
        .iter()
        .filter_map(|name| names.listeners.get(&name.value).copied())
        .collect();
    let mut with_http3 = (0..names.has_http3.len()).filter(|place| names.has_http3[*place]);
    if !fault.is_of_quic() && with_http3.any(|place| named.is_empty() || named.contains(&place)) {
        let warning =
            reader.mistake(at, "inject: this fault affects only TCP; HTTP/3 clients are served as before");
        reader.warn(warning.expecting("connection datagrams, black-hole or slow-start for them as well"));
    }
}

/// Checks a fault of datagrams: only HTTP/3 has any.
fn check_datagrams(written: &FaultWritten, at: &Span, names: &Names<'_>, reader: &mut Reader<'_>) {
    let named = written.requests.listeners();
    for Located { value, at } in named {
        if names.listeners.get(value).is_some_and(|place| !names.has_http3[*place]) {
            let message = format!("listener: {value:?} has no http3, and only HTTP/3 has datagrams");
            let mistake = reader.mistake(at, message);
            reader.add(mistake.expecting("a listener with http3, or its loss and latency"));
        }
    }
    if named.is_empty() && !names.has_http3.contains(&true) && reader.is_whole() {
        let mistake = reader.mistake(at, "inject: no listener has http3, and only HTTP/3 has datagrams");
        reader.add(mistake.expecting("a listener with http3, or loss and latency of a listener"));
    }
}

/// Checks the routes that a fault names, unless routes have mistakes and are unknown.
fn check_routes(written: &FaultWritten, routes: Option<&[KnownRoute<'_>]>, reader: &mut Reader<'_>) {
    let Some(known) = routes.filter(|_| reader.is_whole()) else { return };
    let drops_trailers =
        written.inject.as_ref().is_some_and(|inject| matches!(inject.value, Fault::NoTrailers));
    for Located { value, at } in &written.route {
        match known.iter().find(|route| route.name == value) {
            None => {
                let names: Vec<&str> = known.iter().map(|route| route.name).collect();
                let mistake = reader.mistake(at, format!("route: no route is named {value:?}"));
                let near = nearest(value, names.iter().copied()).map(str::to_owned);
                reader.add(mistake.meaning(near).expecting(one_of(&names)));
            }
            Some(route) if route.is_answered_here && drops_trailers => {
                let message =
                    format!("route: {value:?} is answered without a server, so it never has trailers");
                let mistake = reader.mistake(at, message);
                reader.add(mistake.expecting("a route with an upstream, or another fault"));
            }
            Some(_) => {}
        }
    }
}

/// Converts a rule back to a parsed `[[fault]]` table, for a file with these listeners.
pub(crate) fn written(rule: &FaultRule, listeners: &[Listener]) -> FaultWritten {
    let FaultRule { name, fault, response, occasion, rules, routes, first, is_shown } = rule.clone();
    let mut key: Option<Vec<_>> = first.as_ref().map(|first| first.key.0.iter().cloned().map(Some).collect());
    if let Some(key) = key.as_mut().filter(|key| key.is_empty()) {
        key.push(None);
    }
    FaultWritten {
        name: Some(located(name)),
        inject: Some(located(fault)),
        response: response.as_deref().map(|response| Box::new(fault_response::written(response))),
        probability: occasion.probability,
        every: occasion.every.get(),
        client_share: occasion.clients,
        first: first.map(|first| first.count.get()),
        key: key.unwrap_or_else(|| FaultWritten::default().key),
        from: occasion.from,
        until: occasion.until.map(located),
        repeat: occasion.repeat.map(located),
        expires: occasion.expires,
        show: is_shown,
        route: routes.into_iter().map(located).collect(),
        requests: Requests::written(&rules, listeners),
    }
}
