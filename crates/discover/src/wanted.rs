//! Merges the routes and servers of all containers. Containers that name the same upstream become its servers.

use std::collections::BTreeMap;
use std::fmt;

use crate::container::{Container, ContainerState};
use crate::rule::{Path, RuleMatch};
use crate::written::{list, text};
use crate::{own, traefik};

/// A label that was not translated, or that has another effect here.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Remark {
    pub container: String,
    /// Empty if the remark is about no label.
    pub label: String,
    /// The reason, and what to do.
    pub why: String,
}

/// `web: vanward.port: reason; what to do`
impl fmt::Display for Remark {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { container, label, why } = self;
        if label.is_empty() {
            write!(formatter, "{container}: {why}")
        } else {
            write!(formatter, "{container}: {label}: {why}")
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fragment {
    pub toml: String,
    /// In the order of containers.
    pub remarks: Vec<Remark>,
    pub routes: usize,
    pub servers: usize,
}

/// The merged routes and upstreams of all containers.
#[derive(Default)]
pub(crate) struct WantedRoutes {
    routes: BTreeMap<String, WantedRoute>,
    upstreams: BTreeMap<String, WantedUpstream>,
    remarks: Vec<Remark>,
}

/// A route, or several with different conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WantedRoute {
    pub(crate) matches: Vec<RuleMatch>,
    pub(crate) upstream: String,
    /// Further options, with TOML values.
    pub(crate) options: Vec<(String, String)>,
}

#[derive(Debug, Default)]
struct WantedUpstream {
    servers: BTreeMap<String, String>,
    options: Vec<(String, String)>,
}

/// Translates containers into a part of `vanward.toml`. Only running containers that are not unhealthy, and that
/// have labels for it, take part.
pub fn translate(containers: &[Container]) -> Fragment {
    let mut wanted = WantedRoutes::default();
    // Sorted by name, so that the same containers give the same text.
    let mut sorted: Vec<&Container> =
        containers.iter().filter(|one| one.state == ContainerState::Running).collect();
    sorted.sort_by(|one, other| one.name.cmp(&other.name));
    for container in sorted {
        own::read(container, &mut wanted);
        traefik::read(container, &mut wanted);
    }
    wanted.written()
}

impl WantedRoutes {
    pub(crate) fn remark(&mut self, container: &Container, label: impl Into<String>, why: impl Into<String>) {
        let remark = Remark { container: container.name.clone(), label: label.into(), why: why.into() };
        if !self.remarks.contains(&remark) {
            self.remarks.push(remark);
        }
    }

    /// Adds a route. If containers of one service differ, the first one wins.
    pub(crate) fn route(&mut self, container: &Container, (label, name): (&str, &str), route: WantedRoute) {
        match self.routes.get(name) {
            Some(known) if *known != route => {
                let why = format!(
                    "an earlier container defines route {name} differently: both need the same labels"
                );
                self.remark(container, label, why);
            }
            Some(_) => {}
            None => _ = self.routes.insert(name.to_owned(), route),
        }
    }

    pub(crate) fn server(
        &mut self,
        container: &Container,
        (label, upstream): (&str, &str),
        (url, options): (String, Vec<(String, String)>),
    ) {
        let is_new = !self.upstreams.contains_key(upstream);
        let known = self.upstreams.entry(upstream.to_owned()).or_default();
        known.servers.insert(container.name.clone(), url);
        if is_new {
            known.options = options;
        } else if known.options != options {
            let why = format!(
                "an earlier container defines upstream {upstream} differently: both need the same labels"
            );
            self.remark(container, label, why);
        }
    }

    fn written(self) -> Fragment {
        let Self { mut routes, upstreams, mut remarks } = self;
        let mut toml = String::new();
        let (mut count, mut servers) = (0, 0);
        routes.retain(|_, route| upstreams.contains_key(&route.upstream));
        // If two routes match the same requests, the first one gets them.
        let mut taken: Vec<(RuleMatch, String)> = Vec::new();
        for (name, route) in &routes {
            let mut number = 0;
            for one in &route.matches {
                if let Some((_, first)) = taken.iter().find(|(known, _)| known == one) {
                    let why =
                        format!("route {name} is for the same requests as route {first}, which gets them");
                    remarks.push(Remark { container: route.upstream.clone(), label: String::new(), why });
                    continue;
                }
                taken.push((one.clone(), name.clone()));
                number += 1;
                count += 1;
                let name = if number == 1 { name.clone() } else { format!("{name}-{number}") };
                toml += &format!("[[route]]\nname = {}\n", text(&name));
                toml += &conditions(one);
                toml += &format!("upstream = {}\n", text(&route.upstream));
                route.options.iter().for_each(|(key, value)| toml += &format!("{key} = {value}\n"));
                toml.push('\n');
            }
        }
        for (name, WantedUpstream { servers: of, options }) in &upstreams {
            if !routes.values().any(|route| route.upstream == *name) {
                continue;
            }
            servers += of.len();
            toml += &format!("[upstream.{}]\nservers = [\n", text(name));
            for (container, url) in of {
                toml += &format!("    {{ url = {}, name = {} }},\n", text(url), text(&plain(container)));
            }
            toml += "]\n";
            options.iter().for_each(|(key, value)| toml += &format!("{key} = {value}\n"));
            toml.push('\n');
        }
        remarks.sort();
        Fragment { toml, remarks, routes: count, servers }
    }
}

fn conditions(one: &RuleMatch) -> String {
    let mut lines = String::new();
    if !one.hosts.is_empty() {
        lines += &format!("host = {}\n", list(&one.hosts));
    }
    match &one.path {
        Some(Path::Exact(path)) => lines += &format!("path = {}\n", text(&format!("= {path}"))),
        Some(Path::Prefix(path)) => lines += &format!("path = {}\n", text(path)),
        None => {}
    }
    if !one.methods.is_empty() {
        lines += &format!("methods = {}\n", list(&one.methods));
    }
    lines
}

/// Replaces characters that names of servers and upstreams may not have.
pub(crate) fn plain(name: &str) -> String {
    let plain =
        |letter: char| if letter.is_ascii_alphanumeric() || "._-".contains(letter) { letter } else { '-' };
    name.chars().map(plain).take(64).collect()
}
