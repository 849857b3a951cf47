//! Configuration files: read or refused, every mistake at a place in the text, and what is read is valid.

#![no_main]

use libfuzzer_sys::fuzz_target;

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
        assert!(
            upstream.servers.iter().all(|server| (1..=1000).contains(&server.weight) && server.port != 0)
        );
    }
    for route in &config.routes {
        assert!(route.upstream < config.upstreams.len() && route.path.starts_with('/'));
    }
    let routes = config.routes.iter().map(|route| (route.host.as_deref(), route.path.as_str()));
    let table = route::RouteTable::new(routes);
    for (index, route) in config.routes.iter().enumerate() {
        let host = route.host.as_deref().unwrap_or("nobody.invalid");
        let found = table.find(host.as_bytes(), route.path.as_bytes());
        assert_eq!(found, Some(index), "{:?}: every route is reached", config.routes);
    }
});
