//! Entry points: the doors of routers.

use adapt::statements::Statement;

use super::tree::{TraefikTree, find, is_on, joined, place, word};
use super::untested;
use crate::old::{OldCondition, OldConfiguration, OldDoor, OldRule, StatementPlace, split_port};
use crate::pattern::TextPattern;

pub(super) struct EntryPoint<'s> {
    pub(super) name: String,
    /// `None` for one of the usual ones, which no file defines.
    pub(super) statement: Option<&'s Statement>,
    host: String,
    port: u16,
    /// Whether it serves routers without entry points.
    is_default: bool,
}

/// The entry points that serve HTTP, without Traefik's own.
pub(super) fn points(tree: TraefikTree<'_>) -> Vec<EntryPoint<'_>> {
    let defined: Vec<&Statement> = tree.top("entryPoints").flat_map(Statement::inner).collect();
    let has_defaults = defined.iter().any(|point| is_on(point, "asDefault"));
    if defined.is_empty() {
        return usual(tree);
    }
    let points = defined.into_iter().filter_map(|statement| {
        let address = word(statement, "address")?;
        let (host, port) = split_port(address.strip_suffix("/tcp").unwrap_or(address));
        let host = if matches!(host, "" | "0.0.0.0" | "[::]") { "*" } else { host };
        Some(EntryPoint {
            name: statement.name.clone(),
            statement: Some(statement),
            host: host.to_owned(),
            port: port?,
            is_default: (!has_defaults || is_on(statement, "asDefault")) && !is_own(statement, tree),
        })
    });
    points.filter(|point| point.redirection().is_some() || point.has_router(tree)).collect()
}

/// Whether an entry point is for pages of Traefik, and for routers that name it.
fn is_own(point: &Statement, tree: TraefikTree<'_>) -> bool {
    let metrics = tree.top("metrics").find_map(|metrics| word(find(metrics, "prometheus")?, "entryPoint"));
    point.name.eq_ignore_ascii_case("traefik")
        || metrics.is_some_and(|name| name.eq_ignore_ascii_case(&point.name))
}

/// Without a static file, `web` and `websecure` have the usual ports.
fn usual(tree: TraefikTree<'_>) -> Vec<EntryPoint<'_>> {
    let mut names: Vec<String> = Vec::new();
    for router in tree.defined("http", "routers") {
        let named =
            find(router, "entryPoints").map_or_else(|| vec!["web".to_owned()], |list| list.words.clone());
        names.extend(named);
    }
    names.sort();
    names.dedup();
    let point = |name: String| {
        let port = match name.to_ascii_lowercase().as_str() {
            "web" | "http" => 80,
            "websecure" | "https" => 443,
            _ => return None,
        };
        Some(EntryPoint { name, statement: None, host: "*".to_owned(), port, is_default: true })
    };
    names.into_iter().filter_map(point).collect()
}

impl<'s> EntryPoint<'s> {
    /// Whether a router is served here. Beside routers with TLS, those without are not.
    pub(super) fn has(&self, router: &Statement, tree: TraefikTree<'_>) -> bool {
        self.is_for(router) && (!self.is_tls(tree) || self.has_tls(router))
    }

    pub(super) fn is_for(&self, router: &Statement) -> bool {
        match find(router, "entryPoints") {
            Some(list) => list.words.iter().any(|name| name.eq_ignore_ascii_case(&self.name)),
            None => self.is_default,
        }
    }

    fn has_tls(&self, router: &Statement) -> bool {
        self.http("tls").is_some() || find(router, "tls").is_some()
    }

    pub(super) fn is_tls(&self, tree: TraefikTree<'_>) -> bool {
        self.http("tls").is_some()
            || tree
                .defined("http", "routers")
                .into_iter()
                .any(|router| self.is_for(router) && self.has_tls(router))
    }

    fn has_router(&self, tree: TraefikTree<'_>) -> bool {
        tree.defined("http", "routers").into_iter().any(|router| self.is_for(router))
    }

    /// An option for all routers of the entry point.
    pub(super) fn http(&self, name: &str) -> Option<&'s Statement> {
        find(find(self.statement?, "http")?, name)
    }

    /// The middlewares before those of routers, with the list's place.
    pub(super) fn middlewares(&self) -> Option<(&'s Statement, String)> {
        let list = self.http("middlewares")?;
        Some((list, format!("entryPoints.{}.http.{}", self.name, list.name)))
    }

    /// The place of the redirect of all requests.
    pub(super) fn redirection(&self) -> Option<StatementPlace> {
        let redirections = self.http("redirections")?;
        let target = find(redirections, "entryPoint").and_then(|point| find(point, "to"))?;
        Some(place(&format!("entryPoints.{}.http.redirections.entryPoint", self.name), target))
    }

    pub(super) fn door(&self, tree: TraefikTree<'_>) -> OldDoor {
        let is_tls = self.is_tls(tree);
        let header = self.statement.and_then(|statement| find(statement, "proxyProtocol"));
        OldDoor {
            host: self.host.clone(),
            port: self.port,
            is_tls,
            has_proxy_header: header.is_some_and(|header| is_on(header, "insecure")),
            has_http2: is_tls,
        }
    }

    /// Notes what clients behind other proxies may say, which is not tested.
    pub(super) fn forwarded(&self, old: &mut OldConfiguration) {
        let Some(statement) = self.statement else { return };
        let path = format!("entryPoints.{}", self.name);
        for name in ["proxyProtocol", "forwardedHeaders"] {
            let Some(option) = find(statement, name) else { continue };
            let Some(list) = find(option, "trustedIPs") else { continue };
            if name == "proxyProtocol" {
                let place = place(&joined(&path, &option.name), list);
                untested(old, place, "clients send no PROXY header from these networks");
            } else {
                list.words.iter().for_each(|network| old.network(network));
            }
        }
    }

    /// A rule for clients whose X-Forwarded-For counts.
    pub(super) fn trusted(&self) -> Option<OldRule> {
        let option = find(self.statement?, "forwardedHeaders")?;
        let list = find(option, "trustedIPs")?;
        let path = format!("entryPoints.{}.{}", self.name, option.name);
        let field = |name: &str, value: &str| {
            OldCondition::Field(name.to_owned(), TextPattern::Exact(value.to_owned()))
        };
        let conditions = vec![
            OldCondition::Clients(list.words.clone()),
            field("X-Forwarded-For", "203.0.113.9"),
            field("X-Forwarded-Proto", "https"),
        ];
        Some(OldRule { place: place(&path, list), conditions })
    }

    /// A rule for the page of `ping` at this entry point.
    pub(super) fn ping(&self, tree: TraefikTree<'_>) -> Option<OldRule> {
        let ping = tree.top("ping").find_map(|ping| find(ping, "entryPoint"))?;
        let path = OldCondition::Path(TextPattern::Exact("/ping".to_owned()));
        ping.word(0)
            .eq_ignore_ascii_case(&self.name)
            .then(|| OldRule { place: place("ping", ping), conditions: vec![path] })
    }
}
