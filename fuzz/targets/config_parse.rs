//! Configuration files: read or refused, every mistake at a place in the text, and what is read is valid.

#![no_main]

use libfuzzer_sys::fuzz_target;
use route::{HostRule, PathRule, RouteTable, Rule};

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let reading = config::examine(text, "f.toml");
    assert_eq!(reading.config.is_some(), reading.mistakes.is_empty());
    let lines: Vec<&str> = text.split('\n').collect();
    for mistake in reading.mistakes.iter().chain(&reading.warnings) {
        let line = lines.get(mistake.line.wrapping_sub(1)).expect("a line of the text");
        // One past the end is where something is missing.
        assert!((1..=line.chars().count() + 1).contains(&mistake.column), "{mistake}");
        assert!(!mistake.message.is_empty() && mistake.to_string().starts_with("f.toml:"));
    }
    let Some(config) = reading.config else { return };
    assert!(!config.listeners.is_empty() && !config.routes.is_empty());
    for upstream in &config.upstreams {
        assert!(!upstream.servers.is_empty());
        assert!(upstream.servers.iter().all(|server| (1..=1000).contains(&server.weight)));
    }
    for route in &config.routes {
        assert!(!route.rules.is_empty());
        assert!(route.action.upstreams().all(|upstream| upstream < config.upstreams.len()));
        let mut listeners = route.rules.iter().flat_map(|rule| &rule.listeners);
        assert!(listeners.all(|listener| *listener < config.listeners.len()));
    }
    let rules: Vec<Rule> = config.routes.iter().flat_map(|route| route.rules.iter().cloned()).collect();
    let table = RouteTable::compile(rules.clone());
    for rule in rules {
        let (Some(host), PathRule::Prefix(path)) = (host(&rule), &rule.path) else { continue };
        assert!(path.starts_with('/'));
        // By itself, or by one that is more specific.
        let is_for_all = Rule { host: rule.host.clone(), path: rule.path.clone(), ..Rule::default() } == rule;
        assert!(!is_for_all || table.find(host.as_bytes(), path.as_bytes()).is_some(), "{rule:?}");
    }
});

/// One of those that it is for, if it is not for a pattern of them.
fn host(rule: &Rule) -> Option<&str> {
    match &rule.host {
        HostRule::Any => Some("nobody.invalid"),
        HostRule::Exact(host) => Some(host),
        _ => None,
    }
}
