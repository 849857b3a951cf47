//! The simple labels of Traefik: routers with rules, the port of a service, and the middlewares that have a
//! counterpart. A router is rejected if it has an unsupported restriction, because the route would be open without it.

use std::collections::BTreeMap;

use crate::container::Container;
use crate::own::{upstream_name, url};
use crate::rule::{self, Path, RuleMatch};
use crate::wanted::{WantedRoute, WantedRoutes, plain};
use crate::written::{text, value};

const PREFIX: &str = "traefik.";
/// Conventional names of public entry points.
const PUBLIC: [&str; 2] = ["web", "websecure"];

/// Labels of one router, service or middleware: option → (value, whole label).
type Options<'c> = BTreeMap<&'c str, (&'c str, &'c str)>;

#[derive(Default)]
struct Labels<'c> {
    routers: BTreeMap<&'c str, Options<'c>>,
    services: BTreeMap<&'c str, Options<'c>>,
    middlewares: BTreeMap<&'c str, Options<'c>>,
}

pub(crate) fn read(container: &Container, wanted: &mut WantedRoutes) {
    match container.label("traefik.enable") {
        Some("true") => {}
        Some(_) => return,
        // By default, Traefik takes every container.
        None if container.labels.keys().any(|label| label.starts_with("traefik.http.routers.")) => {}
        None => return,
    }
    let labels = sorted(container, wanted);
    let network = container.label("traefik.docker.network");
    for (name, options) in &labels.routers {
        if let Err((label, why)) = router(container, wanted, (&labels, network), (name, options)) {
            wanted.remark(container, label, format!("{why}; the router {name} is not taken over"));
        }
    }
    if labels.routers.is_empty() {
        let why =
            "it has no router: write traefik.http.routers.NAME.rule, or vanward.enable=true and vanward.host";
        wanted.remark(container, "traefik.enable", why);
    }
}

fn sorted<'c>(container: &'c Container, wanted: &mut WantedRoutes) -> Labels<'c> {
    let mut labels = Labels::default();
    for (label, said) in &container.labels {
        let Some(rest) = label.strip_prefix(PREFIX) else { continue };
        if ["enable", "docker.network"].contains(&rest) {
            continue;
        }
        let mut parts = rest.splitn(4, '.');
        let (kind, what, name, option) = (parts.next(), parts.next(), parts.next(), parts.next());
        let place = match (kind, what) {
            (Some("http"), Some("routers")) => Some(&mut labels.routers),
            (Some("http"), Some("services")) => Some(&mut labels.services),
            (Some("http"), Some("middlewares")) => Some(&mut labels.middlewares),
            _ => None,
        };
        match (place, name, option) {
            (Some(place), Some(name), Some(option)) => {
                place.entry(name).or_default().insert(option, (said, label));
            }
            _ => wanted.remark(
                container,
                label,
                "it is not taken over: only routers, services and middlewares of HTTP are",
            ),
        }
    }
    labels
}

type Refused = (String, String);

fn router(
    container: &Container,
    wanted: &mut WantedRoutes,
    (labels, network): (&Labels<'_>, Option<&str>),
    (name, options): (&str, &Options<'_>),
) -> Result<(), Refused> {
    let Some((said, label)) = options.get("rule") else {
        let why = "it has no rule: Vanward does not derive one from the container's name";
        return Err((format!("traefik.http.routers.{name}"), why.to_owned()));
    };
    let matches = rule::read(said).map_err(|why| ((*label).to_owned(), why))?;
    let mut own = Vec::new();
    note(container, wanted, options)?;
    if let Some((said, label)) = options.get("middlewares") {
        for middleware in said.split(',').map(str::trim) {
            let middleware = middleware.strip_suffix("@docker").unwrap_or(middleware);
            let Some(said) = labels.middlewares.get(middleware) else {
                return Err(((*label).to_owned(), format!("{middleware} is not in this container's labels")));
            };
            match apply(said, &matches)
                .map_err(|why| ((*label).to_owned(), format!("{middleware}: {why}")))?
            {
                Applied::Options(options) => own.extend(options),
                Applied::ToHttps => {
                    let why = "needs nothing: redirect_to_https = true of the listener without TLS redirects";
                    wanted.remark(container, *label, why);
                    return Ok(());
                }
            }
        }
    }
    let service = service(labels, (name, options))?;
    let upstream = upstream_name(container, service.name);
    let scheme = service.scheme;
    let port_label =
        format!("traefik.http.services.{}.loadbalancer.server.port", service.name.unwrap_or("NAME"));
    let Some(url) = url(container, wanted, (service.port, &port_label), (network, scheme)) else {
        return Ok(());
    };
    for label in &service.unknown {
        wanted.remark(container, *label, "is not taken over");
    }
    wanted.server(container, (label, &upstream), (url, service.options));
    let route = WantedRoute { matches, upstream, options: own };
    wanted.route(container, (label, &format!("docker-{}", plain(name))), route);
    Ok(())
}

fn note(container: &Container, wanted: &mut WantedRoutes, options: &Options<'_>) -> Result<(), Refused> {
    for (option, (said, label)) in options {
        match *option {
            "rule" | "service" | "middlewares" => {}
            // Any other entry point may be for some clients only.
            "entrypoints" => match said.split(',').map(str::trim).find(|name| !PUBLIC.contains(name)) {
                Some(name) => {
                    let why = format!(
                        "{name}: routes apply to all listeners, so only the entry points {} are supported",
                        PUBLIC.join(" and ")
                    );
                    return Err(((*label).to_owned(), why));
                }
                None => wanted.remark(container, *label, "needs nothing: routes apply to all listeners"),
            },
            "priority" => wanted.remark(
                container,
                *label,
                "needs nothing: the route with the most exact host and path counts",
            ),
            option if option == "tls" || option.starts_with("tls.") => {
                wanted.remark(
                    container,
                    *label,
                    "needs nothing: TLS is the listener's, tls = { certificates = \"auto\" }",
                );
            }
            _ => wanted.remark(container, *label, format!("{said:?} is not taken over")),
        }
    }
    Ok(())
}

enum Applied {
    Options(Vec<(String, String)>),
    ToHttps,
}

fn apply(said: &Options<'_>, matches: &[RuleMatch]) -> Result<Applied, String> {
    let keys: Vec<String> = said.keys().map(|key| key.to_ascii_lowercase()).collect();
    let values: Vec<&str> = said.values().map(|(said, _)| *said).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let rewrite = |path: &str| {
        Ok(Applied::Options(vec![("rewrite".to_owned(), format!("{{ path = {} }}", text(path)))]))
    };
    let prefix = |one: &RuleMatch| match &one.path {
        Some(Path::Prefix(path)) => Some(path.trim_end_matches('/').to_owned()),
        None => Some(String::new()),
        Some(Path::Exact(_)) => None,
    };
    let prefixes: Vec<Option<String>> = matches.iter().map(prefix).collect();
    match (&keys[..], &values[..]) {
        (["stripprefix.prefixes"], [stripped]) => {
            let stripped = stripped.trim_end_matches('/');
            if prefixes.iter().all(|prefix| prefix.as_deref() == Some(stripped)) {
                return rewrite("/");
            }
            Err(format!("stripprefix is supported only if the rule is PathPrefix(`{stripped}`)"))
        }
        (["addprefix.prefix"], [added]) => match &prefixes[..] {
            [Some(prefix)] if added.starts_with('/') && !added.contains('$') => {
                rewrite(&format!("{}{prefix}", added.trim_end_matches('/')))
            }
            _ => Err("addprefix is supported only for a plain path, if the rule has at most one PathPrefix"
                .to_owned()),
        },
        (["redirectscheme.permanent", "redirectscheme.scheme"], [_, "https"])
        | (["redirectscheme.scheme"], ["https"]) => Ok(Applied::ToHttps),
        (["compress"], ["true"]) => Ok(Applied::Options(vec![("compress".to_owned(), "true".to_owned())])),
        ([], _) => Err("it has no options".to_owned()),
        _ => Err(format!("{} is not supported", keys.join(", "))),
    }
}

#[derive(Default)]
struct TraefikService<'c> {
    name: Option<&'c str>,
    port: Option<u16>,
    scheme: Option<&'c str>,
    options: Vec<(String, String)>,
    /// Labels that have no effect here.
    unknown: Vec<&'c str>,
}

/// Returns the service of a router: the named one, or the only one of its container.
fn service<'c>(
    labels: &Labels<'c>,
    (router, options): (&str, &Options<'c>),
) -> Result<TraefikService<'c>, Refused> {
    let named =
        options.get("service").map(|(said, label)| (said.strip_suffix("@docker").unwrap_or(said), *label));
    let (name, said) = match (named, labels.services.len()) {
        (Some((name, label)), _) => match labels.services.get_key_value(name) {
            Some((name, said)) => (*name, said),
            None => return Err((label.to_owned(), format!("{name} is not a service of this container"))),
        },
        (None, 0) => return Ok(TraefikService::default()),
        (None, 1) => match labels.services.first_key_value() {
            Some((name, said)) => (*name, said),
            None => return Ok(TraefikService::default()),
        },
        (None, _) => {
            let why = "the container has several services: name one with .service";
            return Err((format!("traefik.http.routers.{router}"), why.to_owned()));
        }
    };
    let mut service = TraefikService { name: Some(name), ..TraefikService::default() };
    for (option, (said, label)) in said {
        let refused = |why: String| ((*label).to_owned(), why);
        let option = option.to_ascii_lowercase();
        match option.strip_prefix("loadbalancer.").unwrap_or_default() {
            "server.port" => {
                service.port = Some(said.parse().map_err(|_| refused(format!("{said:?} is not a port")))?);
            }
            "server.scheme" if ["http", "https"].contains(said) => service.scheme = Some(said),
            "server.scheme" if *said == "h2c" => service.options.push(("protocol".to_owned(), text("h2"))),
            "passhostheader" if *said == "true" => {}
            "passhostheader" => service.options.push(("host".to_owned(), text("server"))),
            "sticky.cookie" if *said == "true" => {
                service.options.push(("sticky.by".to_owned(), text("cookie")));
            }
            "sticky.cookie.name" => {
                service.options.push(("sticky.by".to_owned(), text("cookie")));
                service.options.push(("sticky.name".to_owned(), text(said)));
            }
            "healthcheck.path" => {
                service.options.push(("check.type".to_owned(), text("http")));
                service.options.push(("check.path".to_owned(), text(said)));
            }
            "healthcheck.interval" => service.options.push(("check.interval".to_owned(), text(said))),
            "healthcheck.timeout" => service.options.push(("check.timeout".to_owned(), text(said))),
            "healthcheck.port" => service.options.push(("check.port".to_owned(), value(said))),
            _ => service.unknown.push(label),
        }
    }
    service.options.sort();
    service.options.dedup();
    Ok(service)
}
