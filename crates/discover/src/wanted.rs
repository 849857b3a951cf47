//! Routes and servers that containers ask for, put together: containers that ask for the same upstream are its servers.

use std::collections::BTreeMap;
use std::fmt;

use crate::container::{Container, State};
use crate::rule::{Match, Path};
use crate::written::{list, text};
use crate::{own, traefik};

/// A label that was not taken over, or means something else here.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Remark {
    /// The name of the container.
    pub container: String,
    /// The label; empty if it is about none.
    pub label: String,
    /// Why, and what to do.
    pub why: String,
}

/// `web: vanward.port: why; what to do`
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

/// A part of `vanward.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fragment {
    /// Its text.
    pub toml: String,
    /// What is to be said of labels, by container.
    pub remarks: Vec<Remark>,
    /// How many routes it has.
    pub routes: usize,
    /// How many servers.
    pub servers: usize,
}

/// What containers ask for.
#[derive(Default)]
pub(crate) struct Wanted {
    routes: BTreeMap<String, Route>,
    upstreams: BTreeMap<String, Upstream>,
    remarks: Vec<Remark>,
}

/// A route, or several that differ in their conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) matches: Vec<Match>,
    /// Where it leads.
    pub(crate) upstream: String,
    /// More options, with values of TOML.
    pub(crate) options: Vec<(String, String)>,
}

#[derive(Debug, Default)]
struct Upstream {
    /// The URL of each container.
    servers: BTreeMap<String, String>,
    options: Vec<(String, String)>,
}

/// Turns containers into a part of `vanward.toml`: those that run, are not unhealthy, and ask for it by their labels.
pub fn translate(containers: &[Container]) -> Fragment {
    let mut wanted = Wanted::default();
    // In the order of names, so that the same containers are the same text.
    let mut sorted: Vec<&Container> = containers.iter().filter(|one| one.state == State::Running).collect();
    sorted.sort_by(|one, other| one.name.cmp(&other.name));
    for container in sorted {
        own::read(container, &mut wanted);
        traefik::read(container, &mut wanted);
    }
    wanted.written()
}

impl Wanted {
    pub(crate) fn remark(&mut self, container: &Container, label: impl Into<String>, why: impl Into<String>) {
        let remark = Remark { container: container.name.clone(), label: label.into(), why: why.into() };
        if !self.remarks.contains(&remark) {
            self.remarks.push(remark);
        }
    }

    /// Adds a route. Containers of one service say the same; the first one counts where they do not.
    pub(crate) fn route(&mut self, container: &Container, (label, name): (&str, &str), route: Route) {
        match self.routes.get(name) {
            Some(known) if *known != route => {
                let why = format!(
                    "another container asks for route {name} otherwise, and was first: the labels have to be the same"
                );
                self.remark(container, label, why);
            }
            Some(_) => {}
            None => _ = self.routes.insert(name.to_owned(), route),
        }
    }

    /// Adds a server to an upstream.
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
                "another container asks for upstream {upstream} otherwise, and was first: the labels have to be the same"
            );
            self.remark(container, label, why);
        }
    }

    fn written(self) -> Fragment {
        let Self { mut routes, upstreams, mut remarks } = self;
        let mut toml = String::new();
        let (mut count, mut servers) = (0, 0);
        routes.retain(|_, route| upstreams.contains_key(&route.upstream));
        // What two routes both want the first one gets.
        let mut taken: Vec<(Match, String)> = Vec::new();
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
        for (name, Upstream { servers: of, options }) in &upstreams {
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

fn conditions(one: &Match) -> String {
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

/// A name with the letters that names of servers and upstreams may have.
pub(crate) fn plain(name: &str) -> String {
    let plain =
        |letter: char| if letter.is_ascii_alphanumeric() || "._-".contains(letter) { letter } else { '-' };
    name.chars().map(plain).take(64).collect()
}
