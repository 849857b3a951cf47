//! Labels of Vanward: `vanward.enable`, `vanward.host`, `vanward.path`, `vanward.port`, and options of routes and upstreams.

use crate::container::Container;
use crate::rule::{Path, RuleMatch};
use crate::wanted::{WantedRoute, WantedRoutes, plain};
use crate::written::value;

/// Route options that labels may set. Options that name files on the host, or lead elsewhere, are not among them.
const ROUTE: [&str; 20] = [
    "access_log",
    "allow",
    "clients",
    "compress",
    "concurrency",
    "cors",
    "deny",
    "grpc_web",
    "headers",
    "limits",
    "methods",
    "proxy_status",
    "query",
    "rate",
    "rate_limit",
    "request_headers",
    "response_headers",
    "retry",
    "rewrite",
    "timeouts",
];
const UPSTREAM: [&str; 15] = [
    "balance",
    "breaker",
    "check",
    "eject",
    "hash_key",
    "host",
    "load_bound",
    "none_up",
    "pool",
    "priority_suffices",
    "protocol",
    "queue",
    "retry",
    "slow_start",
    "sticky",
];

const PREFIX: &str = "vanward.";

pub(crate) fn read(container: &Container, wanted: &mut WantedRoutes) {
    let all: Vec<(&str, &str)> = container
        .labels
        .iter()
        .filter_map(|(label, value)| Some((label.strip_prefix(PREFIX)?, value.as_str())))
        .collect();
    match container.label("vanward.enable") {
        Some("true") => {}
        Some("false") => return,
        Some(_) => {
            return wanted.remark(
                container,
                "vanward.enable",
                "it is neither true nor false, so it counts as false",
            );
        }
        None if all.is_empty() => return,
        None => {
            return wanted.remark(
                container,
                "",
                "it has labels of Vanward, but not vanward.enable=true: no route leads to it",
            );
        }
    }
    let (mut draft, mut is_right) = (LabelDraft::default(), true);
    for (label, value) in all {
        if let Err(why) = draft.take(label, value) {
            is_right = false;
            wanted.remark(container, format!("{PREFIX}{label}"), format!("{why}; the container is left out"));
        }
    }
    // A wrong option may have been meant to keep clients out, so it drops the route.
    if is_right {
        draft.add(container, wanted);
    }
}

/// The labels of one container, as routes and an upstream.
#[derive(Default)]
struct LabelDraft<'c> {
    name: Option<&'c str>,
    conditions: RuleMatch,
    port: Option<u16>,
    network: Option<&'c str>,
    scheme: Option<&'c str>,
    route: Vec<(String, String)>,
    upstream: Vec<(String, String)>,
}

impl<'c> LabelDraft<'c> {
    fn take(&mut self, label: &str, said: &'c str) -> Result<(), String> {
        let option = |label: &str, known: &[&str]| {
            let parts: Vec<&str> = label.split('.').collect();
            let is_plain = |part: &&str| {
                part.bytes().all(|byte| byte.is_ascii_lowercase() || b"_0123456789".contains(&byte))
            };
            if !known.contains(&parts[0]) || !parts.iter().all(|part| !part.is_empty() && is_plain(part)) {
                return Err(format!("labels may not set this option; they may set {}", known.join(", ")));
            }
            Ok((label.to_owned(), value(said)))
        };
        match label {
            "enable" => {}
            "host" => self.conditions.hosts = said.split(',').map(|host| host.trim().to_owned()).collect(),
            "path" => {
                self.conditions.path = Some(match said.strip_prefix('=') {
                    Some(path) => Path::Exact(path.trim().to_owned()),
                    None => Path::Prefix(said.to_owned()),
                });
            }
            "port" => self.port = Some(said.parse().map_err(|_| format!("{said:?} is not a port"))?),
            "network" => self.network = Some(said),
            "scheme" if ["http", "https"].contains(&said) => self.scheme = Some(said),
            "scheme" => return Err(format!("{said:?} is neither http nor https")),
            "name" => self.name = Some(said),
            _ => match label.split_once('.') {
                Some(("route", key)) => self.route.push(option(key, &ROUTE)?),
                Some(("upstream", key)) => self.upstream.push(option(key, &UPSTREAM)?),
                _ => {
                    return Err("there is no such label; the labels are enable, host, path, port, network, \
                                scheme, name, route.OPTION and upstream.OPTION"
                        .to_owned());
                }
            },
        }
        Ok(())
    }

    fn add(self, container: &Container, wanted: &mut WantedRoutes) {
        if self.conditions == RuleMatch::default() {
            return wanted.remark(
                container,
                "vanward.enable",
                "there is neither vanward.host nor vanward.path: no route leads to it",
            );
        }
        let Some(url) = url(container, wanted, (self.port, "vanward.port"), (self.network, self.scheme))
        else {
            return;
        };
        let name = upstream_name(container, self.name);
        wanted.server(container, ("", &name), (url, self.upstream));
        let route =
            WantedRoute { matches: vec![self.conditions], upstream: name.clone(), options: self.route };
        wanted.route(container, ("", &name), route);
    }
}

/// Returns the name of a container's upstream: from its label, else its Compose service, else its own name.
pub(crate) fn upstream_name(container: &Container, said: Option<&str>) -> String {
    let compose = |part: &str| container.label(&format!("com.docker.compose.{part}"));
    match (said, compose("project"), compose("service")) {
        (Some(said), ..) => format!("docker-{}", plain(said)),
        (None, Some(project), Some(service)) => format!("docker-{}-{}", plain(project), plain(service)),
        _ => format!("docker-{}", plain(&container.name)),
    }
}

pub(crate) fn url(
    container: &Container,
    wanted: &mut WantedRoutes,
    (port, label): (Option<u16>, &str),
    (network, scheme): (Option<&str>, Option<&str>),
) -> Option<String> {
    let port = match port.map_or_else(|| container.port(), |port| Ok((port, false))) {
        Ok((port, is_one_of_several)) => {
            if is_one_of_several {
                wanted.remark(
                    container,
                    label,
                    format!("it exposes several ports: the lowest, {port}, is used"),
                );
            }
            port
        }
        Err(why) => {
            wanted.remark(container, label, why);
            return None;
        }
    };
    if network.is_none() && container.networks() > 1 {
        let why =
            "it is in several networks: the first one by name is used, unless vanward.network names another";
        wanted.remark(container, "", why);
    }
    match container.place(port, network) {
        Ok((address, port)) => {
            let scheme = scheme.unwrap_or("http");
            Some(format!("{scheme}://{}", std::net::SocketAddr::new(address, port)))
        }
        Err(why) => {
            wanted.remark(container, label, why);
            None
        }
    }
}
