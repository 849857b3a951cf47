//! The format of the metrics, and access to them.

use std::collections::BTreeMap;
use std::net::TcpStream;

use super::scene::{Scene, config, nobody, server, status};

/// A scene in which something of every kind was counted.
fn busy() -> Scene {
    let (good, gone) = (server(), nobody());
    let scene =
        Scene::with(config(&[("/a\\b", 0), ("/a", 0), ("/b", 1)], &[("app", &[&good]), ("gone", &[&gone])]));
    assert_eq!((scene.get("/a"), scene.get("/b")), (200, 502));
    scene.assert_told(&[
        ("vanward_requests_total{route=\"/a\",class=\"2xx\"}", 1.0),
        ("vanward_requests_total{route=\"/b\",class=\"5xx\"}", 1.0),
    ]);
    scene
}

#[test]
fn each_reader_gets_the_syntax_that_it_asks_for() {
    let scene = busy();
    let openmetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    for (accept, content_type, end) in [
        ("", "text/plain; version=0.0.4; charset=utf-8", "\n"),
        ("Accept: */*\r\n", "text/plain; version=0.0.4; charset=utf-8", "\n"),
        ("Accept: text/plain;q=0.1\r\nAccept: application/openmetrics-text\r\n", openmetrics, "\n# EOF\n"),
    ] {
        let (head, body) = scene.told("GET /metrics", accept);
        assert_eq!(status(&head), 200, "{head}");
        let content_type = format!("content-type: {content_type}");
        assert!(head.lines().any(|line| line.eq_ignore_ascii_case(&content_type)), "{head}");
        assert!(body.ends_with(end), "{body}");
        assert_eq!(body.contains("# EOF"), end.contains("EOF"));
    }
}

#[test]
fn every_sample_belongs_to_a_family_that_is_told_once() {
    let scene = busy();
    let text = scene.told("GET /metrics", "").1;
    let mut types = BTreeMap::new();
    let mut family = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a name and a type");
            assert_eq!(types.insert(name, kind), None, "{name} is told twice");
            assert_eq!(
                name.ends_with("_total"),
                kind == "counter" && name != "process_cpu_seconds",
                "{name}"
            );
            family = name;
        } else if !line.starts_with('#') {
            let name = line.split(['{', ' ']).next().unwrap_or_default();
            let suffix = name.strip_prefix(family).unwrap_or_else(|| panic!("{line} is told under {family}"));
            let suffixes: &[&str] =
                if types[family] == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(suffixes.contains(&suffix), "{line} is told under {family}");
        }
    }
    assert!(text.contains("vanward_requests_total{route=\"/a\\\\b\",class=\"2xx\"} 0\n"), "{text}");
    assert!(text.contains("vanward_build_info{version=\""), "{text}");
}

#[test]
fn every_family_is_described() {
    let described = include_str!("../../../../docs/observing.md");
    let text = busy().told("GET /metrics", "").1;
    for name in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()) {
        assert!(described.contains(&format!("`{name}`")), "docs/observing.md says nothing of {name}");
    }
}

#[test]
fn buckets_add_up() {
    let scene = busy();
    let text = scene.told("GET /metrics", "").1;
    let prefix = "vanward_request_duration_seconds_bucket{route=\"/a\",le=\"";
    let buckets: Vec<(&str, u64)> = text
        .lines()
        .filter_map(|line| line.strip_prefix(prefix)?.split_once("\"} "))
        .map(|(bound, count)| (bound, count.parse().expect("a number")))
        .collect();
    let finite: Vec<f64> = buckets.iter().map(|(bound, _)| bound.parse().expect("a number")).collect();
    assert_eq!((finite[0], *finite.last().expect("some")), (1e-5, f64::INFINITY));
    assert!(finite.is_sorted() && buckets.is_sorted_by_key(|(_, count)| *count), "{buckets:?}");
    assert_eq!(buckets.last().map(|(_, count)| *count), Some(1));
}

#[test]
fn there_is_nothing_else() {
    let scene = busy();
    for (request, expected) in
        [("GET /", 404), ("GET /metrics/more", 404), ("POST /metrics", 405), ("HEAD /metrics", 200)]
    {
        let (head, body) = scene.told(request, "");
        assert_eq!(status(&head), expected, "{request}: {head}");
        assert_eq!(body.is_empty(), matches!(expected, 200 | 405), "{request}: {body}");
    }
    let long = format!("X: {}\r\n", "x".repeat(64 * 1024));
    let mut refused = 0;
    for lines in [long.as_str(), "Bad Line\r\n"] {
        refused += u32::from(matches!(status(&scene.told("GET /metrics", lines).0), 400 | 431));
    }
    assert_eq!(refused, 2);
}

#[test]
fn clients_that_say_nothing_keep_no_reader_waiting() {
    let scene = busy();
    // Fewer connections than are served at a time.
    let silent: Vec<TcpStream> =
        (0..8).map(|_| TcpStream::connect(scene.metrics_address()).expect("it listens")).collect();
    assert_eq!(status(&scene.told("GET /metrics", "").0), 200);
    drop(silent);
}

#[test]
fn there_are_none_unless_wanted() {
    let mut config = config(&[("/", 0)], &[("app", &[&server()])]);
    config.metrics = None;
    let scene = Scene::with(config);
    assert_eq!((scene.get("/"), scene.running.metrics_address()), (200, None));
}
