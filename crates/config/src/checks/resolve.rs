//! Checks relations between the values of a file: references, duplicates, unused parts.
//!
//! The only place that converts a file to `Settings`.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;
use std::sync::Arc;

use ::route::{NamedValues, Split};
use logline::Needs;

use crate::checks::acme::check_acme;
use crate::checks::services::{
    check_consul, check_dashboard, check_peers, check_profiles, check_redis, warn_of_unused_consul,
};
use crate::checks::tls::check_tls;
use crate::checks::twice::{self, Twice};
use crate::checks::unreachable::warn_of_unreachable;
use crate::checks::zones;
use crate::document::reader::{Inherited, Reader};
use crate::option::host::ListenAddress;
use crate::option::kind::Located;
use crate::option::server::Scheme;
use crate::option::shared::Shared;
use crate::tables::acme::resolve as acme_resolve;
use crate::tables::dashboard::Dashboard;
use crate::tables::fault::Faults;
use crate::tables::fault::resolve::faults;
use crate::tables::file::File;
use crate::tables::headers::check_header_sets;
use crate::tables::listen::{
    Listen, Listener, Passthrough, layer4 as layer4_options, listener_names,
    passthrough as passthrough_options,
};
use crate::tables::log::{self, LoggedValues, needs_of_value};
use crate::tables::names::{Names, unique};
use crate::tables::profile::{OwnProfile, with_profiles};
use crate::tables::request_buffering;
use crate::tables::request_id as request_id_options;
use crate::tables::route::error_page::pages;
use crate::tables::route::resolve::route;
use crate::tables::route::{Route, defaults};
use crate::tables::settings::Settings;
use crate::tables::tls::resolve::listener;
use crate::tables::upstream::Upstream;
use crate::tables::upstream::options::UpstreamWritten;
use crate::tables::upstream::resolve::{check_upstream, upstream};
use crate::tables::values;

/// Converts a file to settings; `None` if there is a mistake, found here or before.
pub(crate) fn resolve(mut file: File, reader: &mut Reader<'_>) -> Option<Settings> {
    let inherited = defaults::apply(&file.route_defaults, &mut file.routes);
    check_listeners(&file, reader);
    let names = names(&file, reader);
    let onward: Vec<Onward> =
        file.listen.iter().map(|listen| onward(&listen.value, &names, reader)).collect();
    let routes = routes(&file, &inherited, &names, reader);
    for (at, _, upstream) in &file.upstreams {
        check_upstream(at, upstream, reader);
    }
    check_tls(&file, reader);
    check_acme(&file, &routes, reader);
    check_profiles(&file, reader);
    check_dashboard(&file, reader);
    request_id_options::check(&file.request_id, file.tracing.is_some(), reader);
    log::check(&file.log, &logged_values(&file), reader);
    request_buffering::check(&file.request_buffering, reader);
    if let Some(tracing) = &file.tracing {
        tracing.value.check(reader);
    }
    check_redis(&file, reader);
    check_consul(&file, reader);
    check_peers(&file, reader);
    let faults = faults((&file.faults, &file.fault), &names, &routes, reader);
    let header_sets = file.routes.iter().flat_map(|route| {
        let edits = [&route.value.request_headers, &route.value.response_headers];
        edits.into_iter().flatten().flat_map(|edits| &edits.value.uses)
    });
    let header_sets = header_sets.map(|used| used.value.as_str()).collect();
    check_header_sets(&file.headers, &header_sets, reader);
    warn_of_unused(&file, &routes, &onward, reader);
    warn_of_unreachable(&file, &routes, reader);
    let values = names.values;
    if reader.has_mistakes() { None } else { meaning(file, values, routes, onward, faults) }
}

fn check_listeners(file: &File, reader: &mut Reader<'_>) {
    let mut names = HashMap::new();
    let own = [("metrics", &file.metrics), ("dashboard", &file.dashboard)];
    let own = own.into_iter().filter_map(|(option, address)| Some((option, address.as_ref()?)));
    let own = own.map(|(option, Located { value, at })| (ListenAddress::Tcp(*value), option, at));
    let listeners = file.listen.iter().filter_map(|listen| listen.value.address.as_ref());
    let peers = file.cache.as_ref().and_then(|cache| cache.value.peers.as_ref());
    let peers = peers.and_then(|peers| peers.value.listen.as_ref());
    let peers = peers.map(|Located { value, at }| (ListenAddress::Tcp(*value), "listen", at));
    let all = own.chain(peers);
    let all = all.chain(listeners.map(|Located { value, at }| (value.clone(), "address", at)));
    let all: Vec<_> = all.collect();
    let addresses: Vec<_> = all.iter().map(|(address, option, _)| (address, *option)).collect();
    for Twice { second, first, message } in twice::addresses(&addresses) {
        let mistake = reader.mistake(all[second].2, message);
        let line = reader.line(all[first].2);
        reader.add(mistake.expecting(format!("an address other than the one in {line}")));
    }
    for Located { value, at } in file.listen.iter().filter_map(|listen| listen.value.name.as_ref()) {
        let first = *names.entry(value).or_insert(at);
        if first != at {
            let mistake = reader.mistake(at, format!("name: {value:?} appears twice"));
            let line = reader.line(first);
            reader.add(mistake.expecting(format!("a name other than the one in {line}")));
        }
    }
}

fn names<'f>(file: &'f File, reader: &Reader<'_>) -> Names<'f> {
    let mut listeners: HashMap<String, usize> = HashMap::new();
    for (index, name) in listener_names(&file.listen).into_iter().enumerate() {
        listeners.entry(name).or_insert(index);
    }
    for (index, listen) in file.listen.iter().enumerate() {
        if let Some(address) = &listen.value.address {
            listeners.entry(address.value.to_string()).or_insert(index);
        }
    }
    let upstream_names: Vec<&str> = file.upstreams.iter().map(|(_, name, _)| name.as_str()).collect();
    let is_bytes =
        |written: &UpstreamWritten| written.servers.iter().any(|server| server.value.scheme == Scheme::Tcp);
    let has_https =
        |written: &UpstreamWritten| written.servers.iter().any(|server| server.value.scheme == Scheme::Https);
    Names {
        listeners,
        is_tcp: file.listen.iter().map(|listen| listen.value.tcp.is_some()).collect(),
        is_unix: file.listen.iter().map(|listen| is_unix(&listen.value)).collect(),
        has_tls: file.listen.iter().map(|listen| listen.value.tls.is_some()).collect(),
        has_http3: file.listen.iter().map(|listen| listen.value.http3.value).collect(),
        upstreams: upstream_names.iter().copied().zip(0..).collect(),
        upstream_names,
        has_cache: file.cache.is_some(),
        header_sets: file.headers.iter().map(|(_, name, edits)| (name.as_str(), edits)).collect(),
        has_bytes_only: file.upstreams.iter().map(|(_, _, written)| is_bytes(written)).collect(),
        has_https: file.upstreams.iter().map(|(_, _, written)| has_https(written)).collect(),
        keyed_by: file.upstreams.iter().map(|(_, _, written)| written.keyed_by()).collect(),
        protocols: file.upstreams.iter().map(|(_, _, written)| written.spoken()).collect(),
        values: Arc::new(values::of_file(&file.values, &reader.expression_names)),
        maps: &file.maps,
    }
}

fn is_unix(listen: &Listen) -> bool {
    matches!(listen.address, Some(Located { value: ListenAddress::Unix(_), .. }))
}

/// Where a listener passes connections on to without looking at what is in them.
#[derive(Default)]
struct Onward {
    tcp: Option<Split>,
    passthrough: Vec<Passthrough>,
}

fn onward(listen: &Listen, names: &Names<'_>, reader: &mut Reader<'_>) -> Onward {
    let tcp = listen.tcp.as_ref().and_then(|tcp| layer4_options::resolve(tcp, names, reader));
    Onward { tcp, passthrough: passthrough_options::resolve(listen, names, reader) }
}

fn routes(
    file: &File,
    inherited: &[Vec<Inherited>],
    names: &Names<'_>,
    reader: &mut Reader<'_>,
) -> Vec<Option<Route>> {
    if file.routes.is_empty() && names.is_tcp.contains(&false) && reader.is_whole() {
        let mistake = reader.mistake(&(0..0), "the file has no route");
        reader.add(mistake.expecting("at least one [[route]]"));
    }
    let mut written_names = HashMap::new();
    let mut routes = Vec::with_capacity(file.routes.len());
    for (written, inherited) in file.routes.iter().zip(inherited) {
        if let Some(Located { value, at }) = &written.value.name {
            let first = *written_names.entry(value.as_str()).or_insert(at);
            if first != at {
                let mistake = reader.mistake(at, format!("name: {value:?} appears twice"));
                let line = reader.line(first);
                reader.add(mistake.expecting(format!("a name other than the one in {line}")));
            }
        }
        reader.enter(&written.at, inherited);
        let mut route = route(written, names, reader);
        reader.leave();
        // Neighbours are alike most often.
        if let (Some(route), Some(Some(before))) = (&mut route, routes.last()) {
            route.share_with(before);
        }
        routes.push(route);
    }
    check_same_rules(file, &routes, reader);
    check_zones(file, &routes, reader);
    let written = file.routes.iter().map(|route| route.value.name.as_ref().map(|name| name.value.clone()));
    let defaults =
        routes.iter().map(|route| route.as_ref().map(|route| route.name.clone()).unwrap_or_default());
    let unique = unique(written.zip(defaults));
    for (route, name) in routes.iter_mut().zip(unique) {
        if let Some(route) = route {
            route.name = name;
        }
    }
    routes
}

/// Rejects rules that obviously match the same requests as one of a route before.
fn check_same_rules(file: &File, routes: &[Option<Route>], reader: &mut Reader<'_>) {
    let rules = routes.iter().enumerate().filter_map(|(index, route)| Some((index, route.as_ref()?)));
    let rules = rules.flat_map(|(index, route)| route.rules.iter().map(move |rule| (index, rule)));
    for Twice { second, first, message } in twice::rules(rules) {
        let mistake = reader.mistake(&file.routes[second].at, message);
        let line = reader.line(&file.routes[first].at);
        reader.add(mistake.expecting(format!("a host, path or condition other than the one in {line}")));
    }
}

/// Rejects limits of one zone that cannot count together.
fn check_zones(file: &File, routes: &[Option<Route>], reader: &mut Reader<'_>) {
    let routes = routes.iter().enumerate().filter_map(|(index, route)| Some((index, route.as_ref()?)));
    for Twice { second, first, message } in zones::disagreements(routes) {
        let mistake = reader.mistake(&file.routes[second].at, message);
        let line = reader.line(&file.routes[first].at);
        reader.add(mistake.expecting(format!("values as in {line}, or another zone or file")));
    }
}

/// Warns of unused parts. Does nothing if there are mistakes: the broken route may be the one that uses a part.
fn warn_of_unused(file: &File, routes: &[Option<Route>], onward: &[Onward], reader: &mut Reader<'_>) {
    if reader.has_mistakes() {
        return;
    }
    warn_of_unused_consul(file, reader);
    let of_routes = routes.iter().flatten().flat_map(Route::upstreams);
    let of_listeners = onward.iter().flat_map(|onward| {
        let tcp = onward.tcp.iter().flat_map(|to| to.shares().map(|(upstream, _)| upstream));
        tcp.chain(onward.passthrough.iter().flat_map(Passthrough::upstreams))
    });
    let used: HashSet<usize> = of_routes.chain(of_listeners).collect();
    for (index, (at, name, _)) in file.upstreams.iter().enumerate() {
        if !used.contains(&index) {
            let warning = reader.mistake(at, format!("no route leads to upstream {name:?}"));
            reader.warn(warning);
        }
    }
    if let Some(cache) = &file.cache
        && routes.iter().flatten().all(|route| route.cache.is_none())
    {
        let warning = reader.mistake(&cache.at, "[cache]: no route has cache, so nothing is stored");
        reader.warn(warning);
    }
}

/// Converts a file without mistakes to settings.
fn meaning(
    mut file: File,
    values: Arc<NamedValues>,
    routes: Vec<Option<Route>>,
    onward: Vec<Onward>,
    faults: Option<Faults>,
) -> Option<Settings> {
    let names = listener_names(&file.listen);
    let logged = logged_values(&file);
    let dashboard = dashboard(&mut file);
    with_profiles(&mut file.listen, &file.profiles);
    let listeners = file.listen.into_iter().zip(names).zip(onward);
    let listeners = listeners.map(|((listen, name), Onward { tcp, passthrough })| {
        Some(Listener { name, tcp, passthrough, ..listener(listen.value)? })
    });
    let secret = file.redis.as_ref().and_then(|redis| redis.value.secret());
    let upstreams = file.upstreams.into_iter().map(|(_, name, written)| upstream(name, written, secret));
    let mut listeners: Vec<Listener> = listeners.collect::<Option<_>>()?;
    let routes: Vec<Route> = routes.into_iter().collect::<Option<_>>()?;
    let acme = acme_resolve::meaning(file.acme)?;
    acme_resolve::complete(&mut listeners, &routes, &acme);
    let mut upstreams: Vec<Upstream> = upstreams.collect::<Option<_>>()?;
    let cache = match &file.cache {
        Some(cache) => Some(cache.value.meaning()?),
        None => None,
    };
    if let Some(peers) = cache.as_ref().and_then(|cache| cache.peers.as_ref()) {
        // Behind the others, whose places have names in the file.
        listeners.push(peers.listener());
        upstreams.push(peers.upstream());
    }
    let tokens = routes.iter().filter_map(|route| route.policies.jwt.as_ref());
    let secret: Vec<&str> = tokens.filter_map(|jwt| jwt.from.parameter()).collect();
    let access_logs = file.log.into_iter().filter_map(|log| log.value.meaning(&secret, &logged)).collect();
    Some(Settings {
        workers: file.workers.and_then(NonZeroUsize::new),
        wakeup_coalescing: file.wakeup_coalescing.0,
        admin: file.admin.map(|admin| admin.value),
        metrics: file.metrics.map(|metrics| metrics.value),
        dashboard,
        listeners,
        routes: routes.into_iter().map(Shared::from).collect(),
        values,
        acme,
        upstreams: upstreams.into_iter().map(Shared::from).collect(),
        profiles: file
            .profiles
            .into_iter()
            .map(|(_, name, written)| OwnProfile { name, ..written })
            .collect(),
        trusted_proxies: file.trusted_proxies,
        error_pages: pages(file.error_pages),
        maps: file.maps,
        faults: faults?,
        timeouts: file.timeouts,
        limits: file.limits,
        shed: file.shed,
        cache,
        request_buffers: file.request_buffering.value,
        request_ids: file.request_id.value,
        access_logs,
        tracing: file.tracing.and_then(|tracing| tracing.value.meaning()),
        redis: file.redis.and_then(|redis| redis.value.meaning()),
        consul: file.consul.meaning(),
        messages: file.messages,
        quic_key: file.quic_key_file.map(|key| key.value),
    })
}

/// The values that lines of an access log may have: those of the top level, of all routes, and of maps. Values of one name
/// count together.
fn logged_values(file: &File) -> LoggedValues {
    let of_routes = file.routes.iter().flat_map(|route| &route.value.values);
    let values = file.values.iter().chain(of_routes).map(|value| (value.name.clone(), &value.value));
    let maps = file.maps.iter().filter_map(|map| Some((map.full_name(), map.key.as_ref()?)));
    let mut all = LoggedValues::new();
    for (name, value) in values.chain(maps) {
        let needs = all.entry(name).or_insert(Needs::NONE);
        *needs = needs.and(needs_of_value(value));
    }
    all
}

/// Converts the options of the dashboard to settings.
fn dashboard(file: &mut File) -> Option<Dashboard> {
    Some(Dashboard {
        address: file.dashboard.take()?.value,
        is_writable: file.dashboard_write.as_ref().is_some_and(|is_on| is_on.value),
        tokens: file.dashboard_token_file.take().map(|tokens| tokens.value),
        hosts: file.dashboard_hosts.take().map(|hosts| hosts.value).unwrap_or_default(),
    })
}
