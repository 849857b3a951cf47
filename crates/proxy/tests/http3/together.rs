//! HTTP/3 in combination with traces, logs, a cache, faults, sessions and reloads.

use std::fs;

use serde_json::Value;
use testkit::admin;

use super::scene::Scene;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const FIELDS: &str = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\n";
const STORED: &str = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 4\r\n\r\nkept";

/// All features at once; no program listens at the collector's address.
fn all(logs: &str) -> String {
    format!(
        "admin = \"{{dir}}/admin\"\ncache = {{ memory = \"16MB\" }}\ntracing = {{ collector = \"http://127.0.0.1:1\", follow = \"all\" }}\n\
         [[route]]\nname = \"kept\"\npath = \"/kept\"\nupstream = \"app\"\ncache = {{}}\n\
         [[route]]\nname = \"session\"\nupstream = \"held\"\n\
         [[fault]]\nname = \"broken\"\ninject = \"503\"\npath = \"/broken\"\n\
         [upstream.held]\nservers = [\"http://{{server}}\"]\nsticky = {{ by = \"cookie\", name = \"who\" }}\n\
         [[log]]\ntarget = \"{{dir}}/log\"\nformat = \"json\"\n\
         fields = [\"version\", \"target\", \"status\", \"trace_id\", \"cache\", \"fault\", \"response_header.Set-Cookie\"]\n{logs}"
    )
}

/// Waits for this number of lines in the first log.
fn lines(scene: &Scene, count: usize) -> Vec<Value> {
    let read = || fs::read_to_string(scene.file("log")).unwrap_or_default();
    testkit::wait::assert_soon("each request is logged", || read().lines().count() >= count);
    read().lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect()
}

#[test]
fn http3_traces_logs_cache_faults_and_sessions_go_together() {
    let scene = Scene::with(&all(""));
    let client = scene.client();
    let mut first = client.asks("GET", "/kept", FIELDS);
    let mut server = scene.accept();
    let seen = server.head().to_lowercase();
    assert!(seen.contains(&format!("traceparent: 00-{TRACE}-")), "{seen}");
    assert_eq!(seen.matches("traceparent").count(), 1, "{seen}");
    server.sends(STORED);
    assert_eq!(first.response().1, b"kept");
    // The client may have the response before the cache.
    testkit::wait::assert_soon("the response is stored", || {
        let order = r#"{"url":"https://test/kept"}"#;
        let (status, told) = admin::asks(&scene.file("admin"), "POST", "/cache/explain", order);
        assert_eq!(status, 200, "{told}");
        !told.contains("\"miss\"")
    });
    assert_eq!(client.asks("GET", "/kept", FIELDS).response().1, b"kept");
    assert!(client.asks("GET", "/broken", FIELDS).response().0.starts_with(":status: 503\n"));

    // A reload changes the log; open connections and stored responses stay.
    scene.reload(
        "http3 = true",
        &all("[[log]]\ntarget = \"{dir}/other\"\nformat = '$status $trace_id $cache'\n"),
    );
    let mut held = client.asks("GET", "/held", FIELDS);
    let mut server = scene.accept();
    assert!(server.head().to_lowercase().contains(TRACE));
    server.sends("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let (head, ..) = held.response();
    assert!(head.contains("\nset-cookie: who="), "{head}");
    assert_eq!(client.asks("GET", "/kept", FIELDS).response().1, b"kept");

    let lines = lines(&scene, 5);
    let told = |line: &Value| {
        assert_eq!((&line["version"], &line["trace_id"]), (&"3.0".into(), &TRACE.into()), "{line}");
        let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        (
            text("target"),
            line["status"].as_u64(),
            text("cache"),
            text("fault"),
            text("response_header.Set-Cookie"),
        )
    };
    let expected = |target: &str, status, cache: &str, fault: &str, cookie: &str| {
        (target.to_owned(), Some(status), cache.to_owned(), fault.to_owned(), cookie.to_owned())
    };
    assert_eq!(
        lines.iter().map(told).collect::<Vec<_>>(),
        [
            expected("/kept", 200, "miss", "", ""),
            expected("/kept", 200, "hit", "", ""),
            expected("/broken", 503, "", "broken", ""),
            expected("/held", 200, "", "", "***"),
            expected("/kept", 200, "hit", "", ""),
        ]
    );
    let other = || fs::read_to_string(scene.file("other")).unwrap_or_default();
    testkit::wait::assert_soon("both logs have what came after the reload", || other().lines().count() == 2);
    assert_eq!(other(), format!("200 {TRACE} -\n200 {TRACE} hit\n"));
}
