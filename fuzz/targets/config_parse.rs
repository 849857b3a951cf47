//! Configuration files: accepted or rejected with each mistake at a place in its file. Accepted ones are valid.
//!
//! A line `%%` begins another file: `1.toml`, `2.toml` and so on. Every pattern with wildcards matches all of them.

#![no_main]

use std::path::{Path, PathBuf};

use config::Surroundings;
use libfuzzer_sys::fuzz_target;
use route::{HostRule, PathRule, RouteRule, RouteTable};

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let files = Files(text.split("\n%%\n").collect());
    let reading = config::examine_in(files.0[0], "0.toml", &files);
    assert_eq!(reading.config.is_some(), reading.mistakes.is_empty());
    assert!(reading.sources.len() <= files.0.len(), "each at most once");
    for mistake in reading.mistakes.iter().chain(&reading.warnings) {
        let index = Files::index(Path::new(&mistake.file)).expect("one of the files");
        let line = files.0[index].split('\n').nth(mistake.line.wrapping_sub(1)).expect("a line of the text");
        // One past the end is the place of a missing item.
        assert!((1..=line.chars().count() + 1).contains(&mistake.column), "{mistake}");
        assert!(!mistake.message.is_empty());
    }
    let Some(config) = reading.config else { return };
    assert!(!config.listeners.is_empty() && !config.routes.is_empty());
    let printed = config.text(&config);
    assert_eq!(config::examine_in(&printed, "printed", &files).config.as_ref(), Some(&config), "{printed}");
    for upstream in &config.upstreams {
        assert!(!upstream.servers.is_empty());
        assert!(upstream.servers.iter().all(|server| (0..=1000).contains(&server.weight)));
    }
    for route in &config.routes {
        assert!(!route.rules.is_empty());
        assert!(route.action.upstreams().all(|upstream| upstream < config.upstreams.len()));
        let mut listeners = route.rules.iter().flat_map(|rule| &rule.listeners);
        assert!(listeners.all(|listener| *listener < config.listeners.len()));
    }
    let rules: Vec<RouteRule> = config.routes.iter().flat_map(|route| route.rules.iter().cloned()).collect();
    let table = RouteTable::compile(rules.clone());
    for rule in rules {
        let (Some(host), PathRule::Prefix(path)) = (host(&rule), &rule.path) else { continue };
        assert!(path.starts_with('/'));
        // Found by this rule, or by a more specific one.
        let is_for_all =
            RouteRule { host: rule.host.clone(), path: rule.path.clone(), ..RouteRule::default() } == rule;
        assert!(!is_for_all || table.find(host.as_bytes(), path.as_bytes()).is_some(), "{rule:?}");
    }
});

struct Files<'t>(Vec<&'t str>);

impl Files<'_> {
    fn index(path: &Path) -> Option<usize> {
        path.to_str()?.strip_suffix(".toml")?.parse().ok()
    }
}

impl Surroundings for Files<'_> {
    fn file(&self, path: &Path) -> Result<Vec<u8>, String> {
        let text = Self::index(path).and_then(|index| self.0.get(index));
        text.map(|text| text.as_bytes().to_vec()).ok_or_else(|| "there is none".to_owned())
    }

    fn matches(&self, _: &str) -> Result<Vec<PathBuf>, String> {
        Ok((1..self.0.len()).map(|index| format!("{index}.toml").into()).collect())
    }

    fn identity(&self, path: &Path) -> PathBuf {
        path.to_owned()
    }

    fn variable(&self, name: &str) -> Option<Vec<u8>> {
        (name.len() % 2 == 1).then(|| name.as_bytes().to_vec())
    }

    fn secret(&self, path: &Path) -> Result<(Vec<u8>, bool), String> {
        // Printed, its path is absolute.
        let path = path.file_name().and_then(|name| name.to_str()).ok_or("it has no name")?;
        Ok((format!("${{{path}}}$\n").into_bytes(), path.len() % 2 == 1))
    }

    /// Returns a text that is a page, a cookie secret and a list of users, or the text of a file.
    fn named_file(&self, path: &Path, _: u64) -> Result<Vec<u8>, String> {
        const USERS: &str = "me:$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW\n";
        match path.to_str().ok_or("it has no name")?.len() % 3 {
            0 => self.file(path),
            _ => Ok(USERS.into()),
        }
    }
}

/// Returns a host that the rule matches, unless its host is a pattern.
fn host(rule: &RouteRule) -> Option<&str> {
    match &rule.host {
        HostRule::Any => Some("nobody.invalid"),
        HostRule::Exact(host) => Some(host),
        _ => None,
    }
}
