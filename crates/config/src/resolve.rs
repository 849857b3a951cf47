//! Relations between the values of a file: what names what, what is there twice, what is never used.
//!
//! The only place that makes a `Config` of a file, and back.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;

use crate::kind::{Located, located};
use route::{HostRule, PathRule};

use crate::meaning::{AccessLog, Action, Config, Pages, Route, Shedding, Upstream};
use crate::nearest::nearest;
use crate::options::{FILE, File, Listen, Log, RouteWritten, UpstreamWritten};
use crate::reader::Reader;
use crate::table::{Element, element, one_of};
use crate::tls_resolve::{check_tls, listener, upstream_tls, written_tls};

/// The file's meaning; `None` if it has a mistake, found here or before.
pub(crate) fn resolve(file: File, reader: &mut Reader<'_>) -> Option<Config> {
    check_listeners(&file, reader);
    check_routes(&file, reader);
    check_upstreams(&file, reader);
    check_tls(&file, reader);
    if reader.has_mistakes() { None } else { meaning(file) }
}

fn check_listeners(file: &File, reader: &mut Reader<'_>) {
    let mut first_of = HashMap::new();
    let addresses = file.listen.iter().filter_map(|listen| listen.value.address.as_ref());
    // Port 0 is another port each time.
    for Located { value, at } in addresses.filter(|address| address.value.port() != 0) {
        let first = *first_of.entry(value).or_insert(at);
        if first != at {
            let mistake = reader.mistake(at, format!("address: {value} is there twice"));
            let line = reader.line(first);
            reader.add(mistake.expecting(format!("an address other than that of line {line}")));
        }
    }
}

fn check_routes(file: &File, reader: &mut Reader<'_>) {
    let names: HashSet<&str> = file.upstreams.iter().map(|(_, name, _)| name.as_str()).collect();
    let mut first_of = HashMap::new();
    for Element { at, value: route, is_intact } in &file.routes {
        if *is_intact {
            let first = *first_of.entry((&route.host, &route.path)).or_insert(at);
            if first != at {
                let host = route.host.as_ref().map_or("any host".to_owned(), |host| format!("host {host:?}"));
                let message = format!("[[route]]: {host} with path {:?} is there twice", route.path);
                let mistake = reader.mistake(at, message);
                let line = reader.line(first);
                reader.add(mistake.expecting(format!("a host or path other than that of line {line}")));
            }
        }
        let upstream = route.upstream.as_ref().filter(|upstream| !names.contains(upstream.value.as_str()));
        if let Some(upstream) = upstream.filter(|_| reader.is_whole()) {
            refuse_reference(upstream, file, reader);
        }
    }
}

fn refuse_reference(upstream: &Located<String>, file: &File, reader: &mut Reader<'_>) {
    let names: Vec<&str> = file.upstreams.iter().map(|(_, name, _)| name.as_str()).collect();
    let wanted = &upstream.value;
    let mistake = reader.mistake(&upstream.at, format!("upstream: no upstream is named {wanted:?}"));
    let mistake = mistake.meaning(nearest(wanted, names.iter().copied()).map(str::to_owned));
    reader.add(if names.is_empty() { mistake } else { mistake.expecting(one_of(&names)) });
}

fn check_upstreams(file: &File, reader: &mut Reader<'_>) {
    let references = file.routes.iter().filter_map(|route| route.value.upstream.as_ref());
    let used: HashSet<&str> = references.map(|name| name.value.as_str()).collect();
    for (at, name, upstream) in &file.upstreams {
        // Beside a mistake it is noise: the route that is wrong may be the one that was to lead here.
        if !reader.has_mistakes() && !used.contains(name.as_str()) {
            let warning = reader.mistake(at, format!("no route leads to upstream {name:?}"));
            reader.warn(warning);
        }
        let mut first_of = HashMap::new();
        for Located { value, at } in &upstream.servers {
            let first = *first_of.entry(value.to_string()).or_insert(at);
            if first != at {
                let warning = reader.mistake(at, format!("servers: {value} is there twice"));
                let line = reader.line(first);
                reader.warn(warning.expecting(format!("a weight on the one of line {line}")));
            }
        }
    }
}

/// What a file without mistakes means.
fn meaning(file: File) -> Option<Config> {
    let index_of: HashMap<String, usize> =
        file.upstreams.iter().enumerate().map(|(index, (_, name, _))| (name.clone(), index)).collect();
    let route = |Element { value: route, .. }: Element<RouteWritten>| {
        let upstream = *index_of.get(&route.upstream?.value)?;
        Some(Route::to(route.host.as_deref(), &route.path, upstream))
    };
    Some(Config {
        workers: file.workers.and_then(NonZeroUsize::new),
        admin: None,
        metrics: None,
        error_pages: Pages::default(),
        shed: Shedding::default(),
        listeners: file.listen.into_iter().map(|listen| listener(listen.value)).collect::<Option<_>>()?,
        routes: file.routes.into_iter().map(route).collect::<Option<_>>()?,
        upstreams: file.upstreams.into_iter().map(|(_, name, written)| upstream(name, written)).collect(),
        trusted_proxies: file.trusted_proxies,
        timeouts: file.timeouts,
        limits: file.limits,
        access_log: file.log.target.map(|target| AccessLog { target, format: file.log.format }),
    })
}

fn upstream(name: String, written: UpstreamWritten) -> Upstream {
    let UpstreamWritten { servers, balance: (), host, protocol, tls, pool } = written;
    let servers = servers.into_iter().map(|server| server.value).collect();
    Upstream { host, protocol, tls: upstream_tls(tls), pool, ..Upstream::of(&name, servers) }
}

impl Config {
    /// The file that means this, with every option in it.
    pub fn to_toml(&self) -> String {
        FILE.print(&File::from(self), "")
    }
}

/// As it would have been read, from nowhere.
impl From<&Config> for File {
    fn from(config: &Config) -> Self {
        let route = |route: &Route| RouteWritten {
            host: match &route.rules[0].host {
                HostRule::Exact(host) => Some(host.clone()),
                _ => None,
            },
            path: match &route.rules[0].path {
                PathRule::Prefix(prefix) => prefix.clone(),
                _ => "/".to_owned(),
            },
            upstream: match &route.action {
                Action::Upstream(index) => {
                    config.upstreams.get(*index).map(|upstream| located(upstream.name.clone()))
                }
                _ => None,
            },
        };
        let upstream = |upstream: &Upstream| UpstreamWritten {
            servers: upstream.servers.iter().cloned().map(located).collect(),
            balance: (),
            host: upstream.host.clone(),
            protocol: upstream.protocol,
            tls: written_tls(upstream),
            pool: upstream.pool,
        };
        let log = config.access_log.as_ref();
        Self {
            workers: config.workers.map(NonZeroUsize::get),
            trusted_proxies: config.trusted_proxies.clone(),
            listen: config.listeners.iter().map(|listener| element(Listen::from(listener))).collect(),
            routes: config.routes.iter().map(|written| element(route(written))).collect(),
            upstreams: config
                .upstreams
                .iter()
                .map(|each| (0..0, each.name.clone(), upstream(each)))
                .collect(),
            timeouts: config.timeouts,
            limits: config.limits,
            log: Log {
                target: log.map(|log| log.target.clone()),
                format: log.map(|log| log.format).unwrap_or_default(),
            },
        }
    }
}
