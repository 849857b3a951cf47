//! `vanward capture`, and proofs with captured requests.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::Value;

use super::peers::installed;
use crate::process::{Ended, run_in};

const NGINX: &str = "events {}
http {
    upstream app { server 10.0.0.1:3000; }
    server {
        listen 80;
        server_name example.com;
        add_header X-Frame-Options DENY always;
        location / { proxy_pass http://app; proxy_set_header Host $host; }
        location /api/ { proxy_pass http://10.0.0.3:8080; proxy_set_header X-Site main; }
        location /v1/ { proxy_pass http://10.0.0.3:8080/api/; }
        location = /old { return 301 /new$is_args$args; }
        location ~ \\.php$ { return 403; }
        location /inside/ { allow 10.0.0.0/8; deny all; proxy_pass http://app; proxy_set_header Host $host; }
        location /signed/ {
            if ($http_x_key = \"\") { return 401; }
            proxy_pass http://app;
        }
    }
    server {
        listen 80;
        server_name www.example.com;
        return 308 http://example.com$request_uri;
    }
}
";

/// `log_format` of the log below.
const FORMAT: &str = "$remote_addr [$time_local] \"$request\" $status $host \"$http_x_key\"";

const LOG: &str = "\
192.0.2.7 [10/Oct/2026:13:55:36 +0000] \"GET / HTTP/1.1\" 200 example.com \"-\"
192.0.2.7 [10/Oct/2026:13:55:36 +0000] \"GET /api/users?page=2 HTTP/1.1\" 200 example.com \"-\"
192.0.2.8 [10/Oct/2026:13:55:37 +0000] \"POST /v1/orders HTTP/1.1\" 201 example.com \"-\"
192.0.2.8 [10/Oct/2026:13:55:38 +0000] \"GET /old?a=b&token=hunter2 HTTP/1.1\" 301 example.com \"-\"
192.0.2.9 [10/Oct/2026:13:55:38 +0000] \"GET /wp-login.php HTTP/1.1\" 403 example.com \"-\"
192.0.2.9 [10/Oct/2026:13:55:38 +0000] \"\\x16\\x03\\x01\" 400 example.com \"-\"
192.0.2.9 [10/Oct/2026:13:55:39 +0000] \"GET /inside/report HTTP/1.1\" 403 example.com \"-\"
10.4.5.6 [10/Oct/2026:13:55:39 +0000] \"GET /inside/report HTTP/1.1\" 200 example.com \"-\"
192.0.2.7 [10/Oct/2026:13:55:40 +0000] \"GET /signed/file HTTP/1.1\" 401 example.com \"-\"
192.0.2.7 [10/Oct/2026:13:55:41 +0000] \"GET /signed/file HTTP/1.1\" 200 example.com \"hunter2\"
192.0.2.7 [10/Oct/2026:13:55:42 +0000] \"GET /a?b HTTP/1.1\" 308 www.example.com \"-\"
";

/// Captures the log in a folder.
fn captured(folder: &Path, more: &[&str]) -> Ended {
    std::fs::write(folder.join("access.log"), LOG).expect("it is writable");
    let words = ["capture", "nginx", "access.log", "--format", FORMAT, "-o", "a.capture"];
    run_in(folder, &[&words, more].concat())
}

fn lines_of(folder: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join("a.capture")).expect("it was written");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn a_log_becomes_a_capture_without_secrets() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let folder = folder.path();
    let said = captured(folder, &[]).with_code(0);
    assert!(said.errors.contains("access.log: 10 requests, 1 skipped (line 6: "), "{said:?}");
    assert!(said.errors.contains("missing for a faithful replay: bodies of requests"), "{said:?}");
    let lines = lines_of(folder);
    assert_eq!((lines.len(), &lines[0]["masked"], &lines[0]["requests"]), (11, &true.into(), &10.into()));
    let text = std::fs::read_to_string(folder.join("a.capture")).expect("it was written");
    assert!(!text.contains("hunter2"), "{text}");
    let target = lines[4]["target"].as_str().unwrap_or_default();
    let token = target.strip_prefix("/old?a=b&token=").unwrap_or_default();
    // The field with the same secret.
    assert_eq!(lines[9]["fields"][0][1], token, "{text}");
    let mode = std::fs::metadata(folder.join("a.capture")).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // Not overwritten, unless it is asked for.
    assert!(captured(folder, &[]).with_code(1).errors.contains("--force overwrites it"), "no reason");
    let json = captured(folder, &["--force", "--unmasked", "--json"]).with_code(0).output;
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(
        (&json["masked"], &json["requests"], &json["skipped"]),
        (&false.into(), &10.into(), &1.into())
    );
    assert_eq!(lines_of(folder)[9]["fields"][0][1], "hunter2");
    captured(folder, &["--force", "--keep", "x-key"]).with_code(0);
    assert_eq!(lines_of(folder)[9]["fields"][0][1], "hunter2");
}

#[test]
fn replacements_with_the_same_key_are_the_same() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let folder = folder.path();
    std::fs::write(folder.join("key"), [7; 32]).expect("it is writable");
    std::fs::write(folder.join("short"), "secret").expect("it is writable");
    let mut found = [&["--mask-key", "key"][..], &["--mask-key", "key"], &[]].map(|more| {
        captured(folder, &[&["--force"], more].concat()).with_code(0);
        lines_of(folder)[9]["fields"][0][1].clone()
    });
    assert_eq!(found[0], found[1]);
    found.rotate_left(1);
    assert_ne!(found[0], found[1]);
    let said = captured(folder, &["--force", "--mask-key", "short"]).with_code(1);
    assert!(said.errors.contains("short: a key has at least 32 bytes"), "{said:?}");
}

#[test]
fn what_cannot_be_read_is_refused_with_its_reason() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let folder = folder.path();
    std::fs::write(folder.join("access.log"), LOG).expect("it is writable");
    std::fs::write(folder.join("empty"), "").expect("it is writable");
    let rows: [(&[&str], i32, &str); 8] = [
        (&["nginx", "nowhere"], 1, "nowhere: it cannot be read: No such file"),
        (&["nginx", "empty"], 1, "empty: no line is a request as nginx logs it; it is empty"),
        (&["caddy", "access.log"], 1, "access.log: no line is a request as Caddy logs it; line 1: "),
        (&["pcap", "access.log"], 1, "access.log: it is no pcap or pcapng file"),
        (
            &["har", "access.log", "--format", "$request"],
            2,
            "--format is for access logs of nginx and Apache",
        ),
        (&["nginx", "access.log", "--format", "$status"], 2, "--format: the format has no request"),
        (&["nginx", "access.log", "--port", "80"], 2, "--port is for pcap"),
        (&["caddy", "access.log", "--fields", "Host"], 2, "--fields: only HAProxy logs"),
    ];
    let is_built = |words: &[&str]| words[0] != "pcap" || cfg!(feature = "packets");
    for (words, code, why) in rows.into_iter().filter(|(words, ..)| is_built(words)) {
        let said = run_in(folder, &[&["capture"], words].concat()).with_code(code);
        assert!(said.errors.contains(why) && said.output.is_empty(), "{words:?}: {said:?}");
    }
}

/// Ten mistakes in a running configuration, each found by the captured requests alone.
#[test]
fn captured_requests_find_planted_mistakes() {
    if installed("nginx").is_none() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let folder = folder.path();
    std::fs::write(folder.join("old"), NGINX).expect("it is writable");
    captured(folder, &["--keep", "x-key"]).with_code(0);
    let right = run_in(folder, &["adapt", "nginx", "old"]).with_code(0).output;
    let proved = |candidate: &str| {
        std::fs::write(folder.join("v.toml"), candidate).expect("it is writable");
        let words = [
            "adapt",
            "nginx",
            "old",
            "--json",
            "--requests",
            "0",
            "--capture",
            "a.capture",
            "--prove",
            "v.toml",
        ];
        let ended = run_in(folder, &words);
        let report: Value =
            serde_json::from_str(&ended.output).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
        report
    };
    let report = proved(&right);
    assert_eq!((&report["differing"], &report["requests"]), (&0.into(), &11.into()), "{report}");
    let lacks = report["capture_lacks"].as_array().expect("a list");
    assert!(lacks.iter().any(|lack| lack == "bodies of requests"), "{report}");
    let status = "the status";
    for (part, wrong, differs, is_open) in [
        ("allow = [\"10.0.0.0/8\"]", "allow = [\"0.0.0.0/0\"]", status, true),
        ("respond = { status = 403 }", "upstream = \"app\"", status, true),
        ("respond = { status = 401 }", "upstream = \"app\"", status, true),
        ("to = \"/new\"", "to = \"/new?\"", "the field location of the response", false),
        ("X-Site = \"main\"", "X-Site = \"other\"", "the field x-site that the server got", false),
        (
            "path = \"/api/*\"\nupstream = \"10.0.0.3-8080\"",
            "path = \"/api/*\"\nupstream = \"app\"",
            "the server that was asked",
            false,
        ),
        ("rewrite = { path = \"/api/\"", "rewrite = { path = \"/\"", "the target that the server got", false),
        (
            "X-Frame-Options = \"DENY\"",
            "X-Frame = \"DENY\"",
            "the field x-frame-options of the response",
            false,
        ),
        ("status = 308", "status = 302", status, false),
        ("rewrite = { host = \"app\" }", "", "the field host that the server got", false),
    ] {
        let broken = right.replacen(part, wrong, 1);
        assert_ne!(right, broken, "{part} is not in {right}");
        let report = proved(&broken);
        let causes = report["causes"].as_array().expect("a list");
        let is_it = |cause: &&Value| cause["differs"] == differs && cause["open"] == is_open;
        assert!(causes.iter().any(|cause| is_it(&cause)), "{part}: {report}");
    }
}

#[test]
fn a_proof_without_requests_or_with_a_broken_capture_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let folder = folder.path();
    std::fs::write(folder.join("old"), NGINX).expect("it is writable");
    captured(folder, &[]).with_code(0);
    let text = std::fs::read_to_string(folder.join("a.capture")).expect("it was written");
    std::fs::write(folder.join("cut"), &text[..text.len() - 9]).expect("it is writable");
    for (more, code, why) in [
        (&["--requests", "0"][..], 2, "--requests 0 leaves nothing to send"),
        (&["--capture", "nowhere"], 98, "nowhere: it cannot be read"),
        (&["--capture", "cut"], 98, "cut: line 11: "),
        (
            &["--capture", "access.log"],
            98,
            "access.log: line 1: it is no capture; make one with `vanward capture`",
        ),
    ] {
        let said = run_in(folder, &[&["adapt", "nginx", "old", "--prove"], more].concat()).with_code(code);
        assert!(said.errors.contains(why), "{more:?}: {said:?}");
    }
}
