//! Operators' changes at run time. They override the configuration file, and survive reloads and upgrades but not
//! restarts. This file has the changes of servers.

/// Operators' changes of rates and delays.
pub(crate) mod shaping_overrides;
/// Operators' switches of maintenance.
mod maintenance_overrides;

use std::collections::{BTreeMap, HashMap, HashSet};

use balance::{IneligibleCause, Time, WEIGHT_MAX};
use config::{Config, Mistake, Server, Settings};
use serde::{Deserialize, Serialize};
use telemetry::message;

use proxy::context::plan::Plan;

pub(crate) use maintenance_overrides::{MaintenanceHandover, MaintenanceOverrides, MaintenanceRefusal};
pub(crate) use shaping_overrides::{ReshapeRefusal, ShapingOverrides};

const CHANGES_MAX: usize = 16_384;

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RuntimeOverrides {
    servers: BTreeMap<(String, String), ServerChange>,
    pub(crate) shaping: ShapingOverrides,
    pub(crate) maintenance: MaintenanceOverrides,
    /// Instances that share a cache, as listed in etcd; empty without etcd.
    pub(crate) peers: Vec<Server>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServerChange {
    upstream: String,
    /// The URL with the port.
    server: String,
    pub(crate) is_drained: bool,
    /// Whether it gets requests although it is `down` in the file.
    #[serde(default)]
    pub(crate) is_restored: bool,
    pub(crate) weight: Option<u32>,
    pub(crate) presence: Presence,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Presence {
    AsInTheFile,
    Added,
    Removed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Amendment {
    /// The server gets no new requests.
    Drain,
    Restore,
    Weigh(u32),
    Add(u32),
    Remove,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum OverrideRefusal {
    #[error("no upstream is named {0:?}")]
    NoUpstream(String),
    #[error("no server is {0:?}: give it as its URL, its host and port, or its name in the file")]
    NoServer(String),
    #[error("{0:?} is not a server: {1}")]
    NotAServer(String, config::ValueError),
    #[error("there are several upstreams: name the server's upstream")]
    WhichUpstream,
    #[error("{0} is already a server of {1}")]
    IsThere(String, String),
    #[error("{0} is the only server of {1}: an upstream has at least one")]
    TheLast(String, String),
    #[error("weight {0} is out of range: write {1} to {WEIGHT_MAX}")]
    Weight(u32, u32),
    #[error("{0} has weight 0: set another weight with vanward weigh")]
    NoWeight(String),
    #[error("more than {CHANGES_MAX} servers differ from the file: put them into it")]
    TooMany,
}

impl ServerChange {
    pub(crate) fn none(upstream: &str, server: &str) -> Self {
        Self {
            upstream: upstream.to_owned(),
            server: server.to_owned(),
            is_drained: false,
            is_restored: false,
            weight: None,
            presence: Presence::AsInTheFile,
        }
    }

    fn is_none(&self) -> bool {
        !self.is_drained
            && !self.is_restored
            && self.weight.is_none()
            && self.presence == Presence::AsInTheFile
    }
}

impl RuntimeOverrides {
    pub(crate) fn changes(&self) -> impl Iterator<Item = &ServerChange> {
        self.servers.values()
    }

    fn changes_in(&self, upstream: &str) -> impl Iterator<Item = &ServerChange> {
        let first = (upstream.to_owned(), String::new());
        let changes = self.servers.range(first..).map(|(_, change)| change);
        changes.take_while(move |change| change.upstream == upstream)
    }

    pub(crate) fn insert(&mut self, change: ServerChange) {
        let key = (change.upstream.clone(), change.server.clone());
        if change.is_none() {
            self.servers.remove(&key);
        } else {
            self.servers.insert(key, change);
        }
    }

    pub(crate) fn for_upstream(&self, upstream: &str, server: &Server) -> Option<&ServerChange> {
        self.servers.get(&(upstream.to_owned(), server.to_string()))
    }

    /// Records a change. Returns upstream and URL of each changed server. `file` is the configuration of the file,
    /// `effective` has the overrides applied.
    pub(crate) fn amend(
        &mut self,
        amendment: &Amendment,
        server: &str,
        upstream: Option<&str>,
        (file, effective): (&Config, &Config),
    ) -> Result<Vec<(String, String)>, OverrideRefusal> {
        match amendment {
            Amendment::Weigh(weight) if *weight > WEIGHT_MAX => {
                return Err(OverrideRefusal::Weight(*weight, 0));
            }
            Amendment::Add(weight) if !(1..=WEIGHT_MAX).contains(weight) => {
                return Err(OverrideRefusal::Weight(*weight, 1));
            }
            _ => {}
        }
        if let Some(name) = upstream
            && !effective.upstreams.iter().any(|upstream| upstream.name == name)
        {
            return Err(OverrideRefusal::NoUpstream(name.to_owned()));
        }
        let targets = match amendment {
            Amendment::Add(_) => vec![new_server(server, upstream, effective)?],
            _ => servers(server, upstream, effective)?,
        };
        for (upstream, url) in &targets {
            let is_in_file = has(file, upstream, url);
            let key = (upstream.clone(), url.clone());
            let mut change =
                self.servers.get(&key).cloned().unwrap_or_else(|| ServerChange::none(upstream, url));
            match amendment {
                Amendment::Drain => change.is_drained = true,
                Amendment::Restore => {
                    let of_file = server_of(file, upstream, url);
                    let weight = change.weight.or(of_file.map(|server| server.weight));
                    if weight == Some(0) {
                        return Err(OverrideRefusal::NoWeight(url.clone()));
                    }
                    change.is_drained = false;
                    change.is_restored = of_file.is_some_and(|server| server.down);
                }
                Amendment::Weigh(weight) => change.weight = Some(*weight),
                Amendment::Add(weight) => {
                    change = ServerChange::none(upstream, url);
                    change.weight = Some(*weight);
                    change.presence = if is_in_file { Presence::AsInTheFile } else { Presence::Added };
                }
                Amendment::Remove => {
                    let of_it = effective.upstreams.iter().find(|of| of.name == *upstream);
                    if of_it.is_some_and(|of| of.servers.iter().all(|server| server.to_string() == *url)) {
                        return Err(OverrideRefusal::TheLast(url.clone(), upstream.clone()));
                    }
                    change = ServerChange::none(upstream, url);
                    if is_in_file {
                        change.presence = Presence::Removed;
                    }
                }
            }
            self.insert(change);
        }
        if self.servers.len() > CHANGES_MAX { Err(OverrideRefusal::TooMany) } else { Ok(targets) }
    }

    /// Applies all overrides to the file's configuration. An override for an upstream that the file no longer has is
    /// kept. The combination may have mistakes, because the file may have changed since the override was accepted.
    pub(crate) fn over(&self, file: &Config) -> Result<Config, Vec<Mistake>> {
        file.edit(|settings| {
            self.shaping.over(settings);
            self.maintenance.over(settings);
            self.peers_over(settings);
            self.servers_over(settings);
        })
    }

    fn peers_over(&self, settings: &mut Settings) {
        let is_told = |peers: &config::CachePeers| peers.members.is_none() && !self.peers.is_empty();
        let peers = settings.cache.as_ref().and_then(|cache| cache.peers.as_ref());
        if let Some(place) = settings.peers().filter(|_| peers.is_some_and(is_told)) {
            settings.upstreams[place].servers.clone_from(&self.peers);
        }
    }

    fn servers_over(&self, config: &mut Settings) {
        if self.servers.is_empty() {
            return;
        }
        let changed: HashSet<&str> = self.changes().map(|change| change.upstream.as_str()).collect();
        for upstream in
            config.upstreams.iter_mut().filter(|upstream| changed.contains(upstream.name.as_str()))
        {
            let removed = |server: &Server| {
                self.for_upstream(&upstream.name, server)
                    .is_some_and(|change| change.presence == Presence::Removed)
            };
            let mut servers: Vec<Server> =
                upstream.servers.iter().filter(|server| !removed(server)).cloned().collect();
            for change in self.changes_in(&upstream.name) {
                let is_there = upstream.servers.iter().any(|server| server.to_string() == change.server);
                if change.presence == Presence::Added
                    && !is_there
                    && let Ok(server) = change.server.parse()
                {
                    servers.push(server);
                }
            }
            if servers.is_empty() {
                message::warn(&format!(
                    "upstream {}: all servers of the file were removed; they stay, because there are no others",
                    upstream.name
                ));
                servers.clone_from(&upstream.servers);
            }
            for server in &mut servers {
                if let Some(weight) =
                    self.for_upstream(&upstream.name, server).and_then(|change| change.weight)
                {
                    server.weight = weight;
                }
            }
            // If servers are only drained, the upstream stays shared with the file's.
            if servers != upstream.servers {
                upstream.servers = servers;
            }
        }
    }

    /// Drains exactly the servers of a plan that the overrides or the configuration drain.
    pub(crate) fn settle(&self, plan: &Plan, now: Time) -> Vec<String> {
        let mut changes = Vec::new();
        let changed: HashSet<&str> = self.changes().map(|change| change.upstream.as_str()).collect();
        for upstream in &plan.upstreams {
            let is_changed = changed.contains(upstream.config.name.as_str());
            let out = upstream.config.servers.iter().filter(|server| server.down || server.weight == 0);
            let out: HashMap<String, &Server> = out.map(|server| (server.to_string(), server)).collect();
            for (server, member) in upstream.servers.iter().zip(upstream.fleet.members()) {
                let change =
                    is_changed.then(|| self.for_upstream(&upstream.config.name, &server.config)).flatten();
                let out = if out.is_empty() { None } else { out.get(&server.config.to_string()) };
                let is_drained = change.is_some_and(|change| change.is_drained);
                let is_restored = change.is_some_and(|change| change.is_restored);
                let causes = [
                    (IneligibleCause::Drain, is_drained || out.is_some_and(|server| server.weight == 0)),
                    (IneligibleCause::Disabled, !is_restored && out.is_some_and(|server| server.down)),
                ];
                for (cause, holds) in causes {
                    let health = &member.health;
                    let is_news = if holds { health.stop(cause) } else { health.restore(cause, now) };
                    let what = match (cause, holds) {
                        _ if !is_news => continue,
                        (IneligibleCause::Disabled, true) => "taken out, its sessions move",
                        (_, true) => "drained, its sessions may finish",
                        (_, false) => "back in service",
                    };
                    let upstream = &upstream.config.name;
                    changes.push(format!("upstream {upstream}, server {}: {what}", server.label));
                }
            }
        }
        changes
    }
}

fn has(config: &Config, upstream: &str, url: &str) -> bool {
    server_of(config, upstream, url).is_some()
}

fn server_of<'c>(config: &'c Config, upstream: &str, url: &str) -> Option<&'c Server> {
    let mut servers = config.upstreams.iter().filter(|of| of.name == upstream).flat_map(|of| &of.servers);
    servers.find(|server| server.to_string() == url)
}

fn servers(
    server: &str,
    upstream: Option<&str>,
    config: &Config,
) -> Result<Vec<(String, String)>, OverrideRefusal> {
    let url = server.parse::<Server>().map(|server| server.to_string()).ok();
    let is_meant = |known: &Server| {
        Some(known.to_string()) == url || known.authority() == server || known.label() == server
    };
    let mut found = Vec::new();
    for of in config.upstreams.iter().filter(|of| upstream.is_none_or(|upstream| of.name == upstream)) {
        for known in of.servers.iter().filter(|known| is_meant(known)) {
            let target = (of.name.clone(), known.to_string());
            if !found.contains(&target) {
                found.push(target);
            }
        }
    }
    if found.is_empty() { Err(OverrideRefusal::NoServer(server.to_owned())) } else { Ok(found) }
}

fn new_server(
    server: &str,
    upstream: Option<&str>,
    config: &Config,
) -> Result<(String, String), OverrideRefusal> {
    let url = server
        .parse::<Server>()
        .map_err(|error| OverrideRefusal::NotAServer(server.to_owned(), error))?
        .to_string();
    let upstream = match (upstream, config.upstreams.as_slice()) {
        (Some(name), _) => name,
        (None, [only]) => only.name.as_str(),
        (None, _) => return Err(OverrideRefusal::WhichUpstream),
    };
    if has(config, upstream, &url) {
        return Err(OverrideRefusal::IsThere(url, upstream.to_owned()));
    }
    Ok((upstream.to_owned(), url))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
[[listen]]
address = \"127.0.0.1:0\"
[[route]]
path = \"/b\"
upstream = \"b\"
[[route]]
upstream = \"a\"
[upstream.a]
servers = [\"http://one:1\", { url = \"http://two:2\", weight = 7 }]
[upstream.b]
servers = [\"http://two:2\"]
";

    fn file() -> Config {
        config::parse(FILE, "f").expect("is valid")
    }

    /// Applies the steps, and lists the servers of each upstream with weights.
    fn after(steps: &[(Amendment, &str, Option<&str>)], next: &Config) -> Result<String, OverrideRefusal> {
        let file = file();
        let mut overrides = RuntimeOverrides::default();
        for (amendment, server, upstream) in steps {
            let effective = overrides.over(&file).expect("it is valid");
            overrides.amend(amendment, server, *upstream, (&file, &effective))?;
        }
        Ok(shown(&overrides.over(next).expect("it is valid")))
    }

    fn shown(config: &Config) -> String {
        let upstream = |upstream: &config::Shared<config::Upstream>| {
            let servers: Vec<String> = upstream
                .servers
                .iter()
                .map(|server| format!("{}*{}", server.authority(), server.weight))
                .collect();
            format!("{}: {}", upstream.name, servers.join(" "))
        };
        config.upstreams.iter().map(upstream).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn changes_lie_over_the_file() {
        use Amendment::{Add, Drain, Remove, Restore, Weigh};
        type Step = (Amendment, &'static str, Option<&'static str>);
        let cases: &[(&[Step], &str)] = &[
            (&[], "a: one:1*1 two:2*7; b: two:2*1"),
            (&[(Weigh(3), "two:2", None)], "a: one:1*1 two:2*3; b: two:2*3"),
            (&[(Weigh(3), "http://two:2/", Some("a"))], "a: one:1*1 two:2*3; b: two:2*1"),
            (&[(Remove, "two:2", Some("a"))], "a: one:1*1; b: two:2*1"),
            (
                &[(Remove, "two:2", Some("a")), (Add(5), "http://two:2", Some("a"))],
                "a: one:1*1 two:2*5; b: two:2*1",
            ),
            (&[(Add(2), "http://three", Some("b"))], "a: one:1*1 two:2*7; b: two:2*1 three*2"),
            (
                &[(Add(2), "http://three", Some("b")), (Weigh(9), "three", None), (Drain, "three", None)],
                "a: one:1*1 two:2*7; b: two:2*1 three*9",
            ),
            (
                &[(Add(2), "http://three", Some("b")), (Remove, "three", None)],
                "a: one:1*1 two:2*7; b: two:2*1",
            ),
            (&[(Drain, "one:1", None), (Restore, "one:1", None)], "a: one:1*1 two:2*7; b: two:2*1"),
        ];
        for (steps, expected) in cases {
            assert_eq!(after(steps, &file()).expect("is done"), *expected, "{steps:?}");
        }
    }

    #[test]
    fn servers_that_are_out_in_the_file_come_back_by_command() {
        use Amendment::{Drain, Restore, Weigh};
        let text = FILE
            .replace("weight = 7", "weight = 0")
            .replace("\"http://one:1\"", "{ url = \"http://one:1\", down = true }");
        let file = config::parse(&text, "f").expect("is valid");
        let mut overrides = RuntimeOverrides::default();
        let mut amend = |amendment: Amendment, server: &str| {
            let effective = overrides.over(&file).expect("it is valid");
            overrides.amend(&amendment, server, Some("a"), (&file, &effective)).map(|_| {
                let change = |server: &Server| overrides.for_upstream("a", server).cloned();
                let [one, two] = &file.upstreams[0].servers[..] else { panic!("{file:?}") };
                (change(one), change(two), shown(&overrides.over(&file).expect("it is valid")))
            })
        };
        let (one, two, _) = amend(Restore, "one:1").expect("is done");
        assert!(one.is_some_and(|change| change.is_restored && !change.is_drained) && two.is_none());
        let refusal = amend(Restore, "two:2").expect_err("is refused").to_string();
        assert_eq!(refusal, "http://two:2 has weight 0: set another weight with vanward weigh");
        let (_, _, weights) = amend(Weigh(4), "two:2").expect("is done");
        assert_eq!(weights, "a: one:1*1 two:2*4; b: two:2*1");
        amend(Drain, "two:2").expect("is done");
        let (_, two, _) = amend(Restore, "two:2").expect("it has a weight by now");
        assert!(two.is_some_and(|change| !change.is_drained && !change.is_restored));
        let (_, _, weights) = amend(Weigh(0), "two:2").expect("is done");
        assert_eq!(weights, "a: one:1*1 two:2*0; b: two:2*1");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        use Amendment::{Add, Drain, Remove, Weigh};
        let cases = [
            (Drain, "four:4", None, "no server is \"four:4\""),
            (Drain, "one:1", Some("b"), "no server is"),
            (Drain, "one:1", Some("c"), "no upstream is named \"c\""),
            (Add(0), "http://four:4", Some("a"), "weight 0 is out of range"),
            (Weigh(1001), "one:1", None, "weight 1001 is out of range"),
            (Remove, "two:2", None, "http://two:2 is the only server of b"),
            (Add(1), "http://two:2", Some("b"), "http://two:2 is already a server of b"),
            (Add(1), "http://three", None, "several upstreams"),
            (Add(1), "three", Some("b"), "\"three\" is not a server"),
        ];
        for (amendment, server, upstream, expected) in cases {
            let refusal = after(&[(amendment.clone(), server, upstream)], &file()).expect_err("is refused");
            assert!(refusal.to_string().contains(expected), "{amendment:?} {server}: {refusal}");
        }
    }

    /// The file has changed since the override was accepted: a layer 4 upstream is one of HTTP now.
    #[test]
    fn an_override_that_a_file_no_longer_allows_is_a_mistake() {
        let before =
            "[[listen]]\naddress = \"127.0.0.1:0\"\ntcp = \"b\"\n[upstream.b]\nservers = [\"tcp://two:2\"]";
        let before = config::parse(before, "f").expect("is valid");
        let mut overrides = RuntimeOverrides::default();
        overrides.amend(&Amendment::Add(1), "tcp://three:3", None, (&before, &before)).expect("is accepted");
        assert_eq!(shown(&overrides.over(&before).expect("is valid")), "b: two:2*1 three:3*1");
        let mistakes = overrides.over(&file()).expect_err("a route leads there");
        assert!(mistakes[0].message.contains("tcp:// server"), "{mistakes:?}");
    }

    #[test]
    fn changes_outlive_another_file() {
        use Amendment::{Add, Remove, Weigh};
        let next = FILE.replace("\"http://one:1\", ", "\"http://one:1\", \"http://three:3\", ");
        let next = config::parse(&next, "f").expect("is valid");
        let steps = [
            (Weigh(4), "one:1", None),
            (Remove, "two:2", Some("a")),
            // The file now has it as well.
            (Add(6), "http://three:3", Some("a")),
        ];
        assert_eq!(after(&steps, &next).expect("is done"), "a: one:1*4 three:3*6; b: two:2*1");
    }

    #[test]
    fn an_upstream_is_never_left_without_servers() {
        let next = FILE.replace("\"http://one:1\", ", "");
        let next = config::parse(&next, "f").expect("is valid");
        let steps = [(Amendment::Remove, "two:2", Some("a"))];
        assert_eq!(after(&steps, &next).expect("is done"), "a: two:2*7; b: two:2*1");
    }
}
