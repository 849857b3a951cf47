//! Checks relations between the values of a file: references, duplicates, unused parts.
//!
//! The only place that converts a file to `Settings` and back.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;

use crate::acme_options::AcmeWritten;
use crate::acme_resolve::{self, check_acme};
use crate::cache_options::CacheWritten;
use crate::consul_options::{self, ConsulWritten};
use crate::dashboard_options;
use crate::fault_resolve::{self, faults};
use crate::header_sets::check_header_sets;
use crate::kind::{Located, located};
use crate::log_options::{self, Log};
use crate::options::{FILE, File, Listen, ShedWritten, WakeupCoalescing};
use crate::passthrough_options;
use crate::peer_options;
use crate::profile::{check_profiles, with_profiles};
use crate::reader::{Reader, Span};
use crate::redis_options::{self, RedisWritten};
use crate::request_buffering_options::BuffersWritten;
use crate::request_id_options::RequestIdsWritten;
use crate::route_defaults::{self, DefaultsWritten, Inherited};
use crate::route_options::{pages, written_pages};
use crate::route_resolve::{Names, route};
use crate::route_written;
use crate::settings::{
    Faults, ListenAddress, Listener, Passthrough, Route, Scheme, Settings, Shedding, Upstream,
};
use crate::table::element;
use crate::tls_resolve::{check_tls, listener};
use crate::tracing_options::TracingWritten;
use crate::unreachable::warn_of_unreachable;
use crate::upstream_options::UpstreamWritten;
use crate::upstream_resolve::{check_upstream, upstream};
use ::route::Rule;

/// Converts a file to settings; `None` if there is a mistake, found here or before.
pub(crate) fn resolve(mut file: File, reader: &mut Reader<'_>) -> Option<Settings> {
    let inherited = route_defaults::apply(&mut file);
    check_listeners(&file, reader);
    let names = names(&file);
    let onward: Vec<Onward> =
        file.listen.iter().map(|listen| onward(&listen.value, &names, &file, reader)).collect();
    let routes = routes(&file, &inherited, &names, reader);
    for (at, _, upstream) in &file.upstreams {
        check_upstream(at, upstream, reader);
    }
    check_tls(&file, reader);
    check_acme(&file, &routes, reader);
    check_profiles(&file, reader);
    dashboard_options::check(&file, reader);
    file.request_id.check(file.tracing.is_some(), reader);
    log_options::check(&file.log, reader);
    file.request_buffering.check(reader);
    if let Some(tracing) = &file.tracing {
        tracing.value.check(reader);
    }
    redis_options::check(&file, reader);
    consul_options::check(&file, reader);
    peer_options::check(&file, reader);
    let faults = faults(&file, &names, &routes, reader);
    check_header_sets(&file, reader);
    warn_of_unused(&file, &routes, &onward, reader);
    warn_of_unreachable(&file, &routes, reader);
    if reader.has_mistakes() { None } else { meaning(file, routes, onward, faults) }
}

fn check_listeners(file: &File, reader: &mut Reader<'_>) {
    let mut addresses = HashMap::new();
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
    // Port 0 is another port each time.
    for (address, option, at) in all.filter(|(address, ..)| address.port() != Some(0)) {
        let first = *addresses.entry(address.clone()).or_insert(at);
        if first != at {
            let mistake = reader.mistake(at, format!("{option}: {address} is there twice"));
            let line = reader.line(first);
            reader.add(mistake.expecting(format!("an address other than that of {line}")));
        }
    }
    check_families(&addresses, reader);
    for Located { value, at } in file.listen.iter().filter_map(|listen| listen.value.name.as_ref()) {
        let first = *names.entry(value).or_insert(at);
        if first != at {
            let mistake = reader.mistake(at, format!("name: {value:?} is there twice"));
            let line = reader.line(first);
            reader.add(mistake.expecting(format!("a name other than that of {line}")));
        }
    }
}

/// Refuses all addresses of one family beside all of both.
fn check_families(addresses: &HashMap<ListenAddress, &Span>, reader: &mut Reader<'_>) {
    for (both, at) in addresses {
        let ListenAddress::Any(port) = both else { continue };
        for (other, one) in addresses {
            if matches!(other, ListenAddress::Tcp(address) if address.port() == *port && address.ip().is_unspecified())
            {
                let mistake = reader.mistake(one, format!("address: {other} is a part of {both}"));
                let line = reader.line(at);
                reader.add(mistake.expecting(format!("an address other than that of {line}")));
            }
        }
    }
}

/// The names of listeners: the written name or the address, with a number if it is taken.
fn listener_names(file: &File) -> Vec<String> {
    let written = file.listen.iter().map(|listen| listen.value.name.as_ref().map(|name| name.value.clone()));
    let address =
        |listen: &Listen| listen.address.as_ref().map(|it| it.value.to_string()).unwrap_or_default();
    let defaults = file.listen.iter().map(|listen| address(&listen.value));
    unique(written.zip(defaults))
}

/// Makes names unique: written names stay, and a default name that is taken gets a number.
pub(crate) fn unique(names: impl Iterator<Item = (Option<String>, String)> + Clone) -> Vec<String> {
    let mut taken: HashSet<String> = names.clone().filter_map(|(written, _)| written).collect();
    let mut next_of: HashMap<String, usize> = HashMap::new();
    let name = |(written, default): (Option<String>, String)| {
        if let Some(written) = written {
            return written;
        }
        let mut name = default.clone();
        while !taken.insert(name.clone()) {
            let next = next_of.entry(default.clone()).or_insert(1);
            *next += 1;
            name = format!("{default} #{next}");
        }
        name
    };
    names.map(name).collect()
}

fn names(file: &File) -> Names<'_> {
    let mut listeners: HashMap<String, usize> = HashMap::new();
    for (index, name) in listener_names(file).into_iter().enumerate() {
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
        protocols: file.upstreams.iter().map(|(_, _, written)| written.protocol).collect(),
    }
}

fn is_unix(listen: &Listen) -> bool {
    matches!(listen.address, Some(Located { value: ListenAddress::Unix(_), .. }))
}

/// Where a listener passes connections on to without looking at what is in them.
#[derive(Default)]
struct Onward {
    tcp: Option<usize>,
    passthrough: Vec<Passthrough>,
}

fn onward(listen: &Listen, names: &Names<'_>, file: &File, reader: &mut Reader<'_>) -> Onward {
    let tcp = listen.tcp.as_ref();
    let tcp = tcp.and_then(|Located { value, at }| names.tcp_upstream("tcp", value, at, reader));
    Onward { tcp, passthrough: passthrough_options::resolve(listen, names, file, reader) }
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
    let mut rules = HashMap::new();
    let mut written_names = HashMap::new();
    let mut routes = Vec::with_capacity(file.routes.len());
    for (written, inherited) in file.routes.iter().zip(inherited) {
        if let Some(Located { value, at }) = &written.value.name {
            let first = *written_names.entry(value.as_str()).or_insert(at);
            if first != at {
                let mistake = reader.mistake(at, format!("name: {value:?} is there twice"));
                let line = reader.line(first);
                reader.add(mistake.expecting(format!("a name other than that of {line}")));
            }
        }
        reader.enter(written, inherited);
        let mut route = route(written, names, reader);
        reader.leave();
        // Neighbours are alike most often.
        if let (Some(route), Some(Some(before))) = (&mut route, routes.last()) {
            let before: &Route = before;
            route.policies.share_with(&before.policies);
        }
        for rule in route.iter().flat_map(|route| &route.rules) {
            let first = *rules.entry(identity(rule)).or_insert(&written.at);
            if first != &written.at {
                let host = match &rule.host {
                    ::route::HostRule::Any => "any host".to_owned(),
                    host => format!("host {:?}", host.to_string()),
                };
                let message =
                    format!("[[route]]: {host} with path {:?} is there twice", rule.path.to_string());
                let mistake = reader.mistake(&written.at, message);
                let line = reader.line(first);
                reader.add(mistake.expecting(format!("a host, path or condition other than that of {line}")));
            }
        }
        routes.push(route);
    }
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

/// A text that is equal for rules that obviously match the same requests.
fn identity(rule: &Rule) -> String {
    let Rule { listeners, host, path, methods, headers, cookies, query, claims, clients } = rule;
    let sorted = |list: &[String]| {
        let mut list = list.to_vec();
        list.sort_unstable();
        list
    };
    let mut listeners = listeners.clone();
    listeners.sort_unstable();
    format!(
        "{listeners:?} {host:?} {path:?} {:?} {headers:?} {cookies:?} {query:?} {claims:?} {clients:?}",
        sorted(methods)
    )
}

/// Warns of unused parts. Does nothing if there are mistakes: the broken route may be the one that uses a part.
fn warn_of_unused(file: &File, routes: &[Option<Route>], onward: &[Onward], reader: &mut Reader<'_>) {
    if reader.has_mistakes() {
        return;
    }
    consul_options::warn_of_unused(file, reader);
    let of_routes = routes.iter().flatten().flat_map(Route::upstreams);
    let of_listeners = onward.iter().flat_map(|onward| {
        onward.tcp.into_iter().chain(onward.passthrough.iter().flat_map(Passthrough::upstreams))
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
    routes: Vec<Option<Route>>,
    onward: Vec<Onward>,
    faults: Option<Faults>,
) -> Option<Settings> {
    let names = listener_names(&file);
    let dashboard = dashboard_options::meaning(&mut file);
    with_profiles(&mut file);
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
    Some(Settings {
        workers: file.workers.and_then(NonZeroUsize::new),
        wakeup_coalescing: file.wakeup_coalescing.0,
        admin: file.admin.map(|admin| admin.value),
        metrics: file.metrics.map(|metrics| metrics.value),
        dashboard,
        listeners,
        routes,
        acme,
        upstreams,
        profiles: file.profiles.into_iter().map(|(_, name, written)| written.named(name)).collect(),
        trusted_proxies: file.trusted_proxies,
        error_pages: pages(file.error_pages),
        faults: faults?,
        timeouts: file.timeouts,
        limits: file.limits,
        shed: Shedding {
            concurrency: file.shed.concurrency.map(|concurrency| concurrency.value),
            memory: file.shed.memory,
        },
        cache,
        request_buffers: file.request_buffering.meaning(),
        request_ids: file.request_id.meaning(),
        access_logs: file.log.into_iter().filter_map(|log| log.value.meaning()).collect(),
        tracing: file.tracing.and_then(|tracing| tracing.value.meaning()),
        redis: file.redis.and_then(|redis| redis.value.meaning()),
        consul: file.consul.meaning(),
        messages: file.messages,
    })
}

impl Settings {
    /// Prints the settings as a file, with all options.
    pub fn to_toml(&self) -> String {
        FILE.print(&File::from(self), "")
    }
}

/// Converts back to a parsed file, for printing.
impl From<&Settings> for File {
    fn from(config: &Settings) -> Self {
        let listen = |listener: &Listener| {
            let upstream = listener.tcp.and_then(|index| config.upstreams.get(index));
            let tcp = upstream.map(|upstream| located(upstream.name.clone()));
            let passthrough = passthrough_options::written(&listener.passthrough, config);
            element(Listen { tcp, passthrough, ..Listen::from(listener) })
        };
        let mut file = Self {
            include: Vec::new(),
            workers: config.workers.map(NonZeroUsize::get),
            wakeup_coalescing: WakeupCoalescing(config.wakeup_coalescing),
            admin: config.admin.clone().map(located),
            metrics: config.metrics.map(located),
            dashboard: None,
            dashboard_write: None,
            dashboard_token_file: None,
            dashboard_hosts: None,
            error_pages: written_pages(&config.error_pages),
            trusted_proxies: config.trusted_proxies.clone(),
            listen: config.listeners.iter().filter(|listener| !listener.is_for_peers).map(listen).collect(),
            route_defaults: DefaultsWritten::default(),
            routes: config.routes.iter().map(|route| element(route_written::route(route, config))).collect(),
            upstreams: config
                .upstreams
                .iter()
                .enumerate()
                .filter(|(index, _)| Some(*index) != config.peers())
                .map(|(_, upstream)| upstream)
                .map(|each| (0..0, each.name.clone(), UpstreamWritten::from(each)))
                .collect(),
            // Listeners have what theirs says already.
            // Routes have what theirs say already.
            headers: Vec::new(),
            profiles: config.profiles.iter().map(|own| (0..0, own.name.clone(), own.into())).collect(),
            acme: AcmeWritten::from(&config.acme),
            faults: fault_resolve::written_section(&config.faults),
            fault: fault_resolve::written(&config.faults.rules, &config.listeners),
            timeouts: config.timeouts,
            limits: config.limits,
            shed: ShedWritten::from(&config.shed),
            cache: config.cache.as_ref().map(|cache| element(CacheWritten::from(cache))),
            request_buffering: BuffersWritten::from(&config.request_buffers),
            request_id: RequestIdsWritten::from(&config.request_ids),
            log: config.access_logs.iter().map(|log| element(Log::from(log))).collect(),
            tracing: config.tracing.as_ref().map(|tracing| element(TracingWritten::from(tracing))),
            redis: config.redis.as_ref().map(|redis| element(RedisWritten::from(redis))),
            consul: ConsulWritten::from(&config.consul),
            messages: config.messages,
        };
        dashboard_options::write(config.dashboard.as_ref(), &mut file);
        file
    }
}
