//! `vanward adapt --prove`: translations that are right, and planted mistakes that it finds.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use super::peers::installed;
use crate::process::{Ended, Patience, Process, run_in};

const NGINX: &str = "events {}
http {
    upstream app { server 10.0.0.1:3000; server 10.0.0.2:3000; }
    server {
        listen 80;
        server_name example.com;
        location / { proxy_pass http://app; proxy_set_header Host $host; }
        location /api/ { proxy_pass http://10.0.0.3:8080; proxy_set_header X-Site main; }
        location = /old { return 301 /new$is_args$args; }
        location ~ \\.php$ { return 403; }
        location /inside/ { allow 10.0.0.0/8; deny all; proxy_pass http://app; proxy_set_header Host $host; }
    }
}
";

const HAPROXY: &str = "defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
frontend web
    bind :80
    acl inside src 10.0.0.0/8
    http-request deny if { path_beg /admin } !inside
    http-request redirect location /new code 301 if { path /old }
    http-request set-header X-Site main
    use_backend api if { path_beg /api/ }
    default_backend site
backend api
    server one 10.0.0.3:8080
backend site
    server two 10.0.0.1:3000
";

const CADDY: &str = "http://example.com {
    @inside remote_ip 10.0.0.0/8
    @scripts path *.php
    respond @scripts 403
    redir /old /new 301
    handle /api/* {
        reverse_proxy 10.0.0.3:8080
    }
    reverse_proxy 10.0.0.1:3000 {
        header_up X-Site main
    }
}
";

const VARNISH: &str = "vcl 4.1;
backend site { .host = \"10.0.0.1\"; .port = \"3000\"; }
backend api { .host = \"10.0.0.3\"; .port = \"8080\"; }
sub vcl_recv {
    if (req.url ~ \"^/admin\") {
        return (synth(403));
    }
    if (req.url ~ \"^/api/\") {
        set req.backend_hint = api;
    }
    return (pass);
}
";

/// Each kind, its program, and a configuration.
const ALL: [(&str, &str, &str); 4] = [
    ("nginx", "nginx", NGINX),
    ("haproxy", "haproxy", HAPROXY),
    ("caddy", "caddy", CADDY),
    ("varnish", "varnishd", VARNISH),
];

/// Writes a file, and proves it.
fn proved(kind: &str, text: &str, candidate: Option<&str>) -> Ended {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("old"), text).expect("it is writable");
    let mut words = vec!["adapt", kind, "old", "--json", "--requests", "400", "--prove"];
    if let Some(candidate) = candidate {
        std::fs::write(folder.path().join("v.toml"), candidate).expect("it is writable");
        words.push("v.toml");
    }
    run_in(folder.path(), &words)
}

fn adapted(kind: &str, text: &str) -> String {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("old"), text).expect("it is writable");
    run_in(folder.path(), &["adapt", kind, "old"]).with_code(0).output
}

/// The causes of a report: what differs, whether something is open, and the lines that decide.
fn causes(ended: &Ended) -> Vec<(String, bool, Vec<u64>)> {
    let report: Value =
        serde_json::from_str(&ended.output).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    let of_cause = |cause: &Value| {
        let lines = cause["decided_by"].as_array().into_iter().flatten();
        let lines = lines.filter_map(|place| place["line"].as_u64()).collect();
        (cause["differs"].as_str().unwrap_or_default().to_owned(), cause["open"] == true, lines)
    };
    report["causes"].as_array().expect("a list").iter().map(of_cause).collect()
}

/// Plants a mistake in the translation, and checks that the proof finds it.
#[track_caller]
fn found(kind: &str, text: &str, (right, wrong): (&str, &str), differs: &str, is_open: bool, line: u64) {
    let candidate = adapted(kind, text);
    let broken = candidate.replacen(right, wrong, 1);
    assert_ne!(candidate, broken, "{right} is not in {candidate}");
    let ended = proved(kind, text, Some(&broken)).with_code(1);
    let causes = causes(&ended);
    let is_it = |(what, open, lines): &(String, bool, Vec<u64>)| {
        what == differs && *open == is_open && lines.contains(&line)
    };
    assert!(causes.iter().any(is_it), "{right}: {causes:?}");
}

fn is_there(program: &str) -> bool {
    installed(program).is_some()
}

#[test]
fn right_translations_are_proved() {
    for (kind, program, text) in ALL {
        if is_there(program) {
            let ended = proved(kind, text, None);
            assert!(ended.status.success(), "{kind}: {} {}", ended.output, ended.errors);
        }
    }
}

#[test]
fn planted_mistakes_in_a_translation_of_nginx_are_found() {
    if !is_there("nginx") {
        return;
    }
    let rows = [
        // A lost deny.
        (("allow = [\"10.0.0.0/8\"]", "allow = [\"0.0.0.0/0\"]"), "the status", true, 11),
        // A lost rule, whose requests reach a server.
        (("respond = { status = 403 }", "upstream = \"app\""), "the status", true, 10),
        // A dropped query.
        (("to = \"/new\"", "to = \"/new?\""), "the field location of the response", false, 9),
        (("X-Site = \"main\"", "X-Site = \"other\""), "the field x-site that the server got", false, 8),
        (("upstream = \"10.0.0.3-8080\"", "upstream = \"app\""), "the server that was asked", false, 8),
    ];
    for (mistake, differs, is_open, line) in rows {
        found("nginx", NGINX, mistake, differs, is_open, line);
    }
}

#[test]
fn planted_mistakes_in_a_translation_of_haproxy_are_found() {
    if !is_there("haproxy") {
        return;
    }
    let rows = [
        (("clients = [\"10.0.0.0/8\"]", "clients = [\"0.0.0.0/0\"]"), "the status", true, 9),
        (("to = \"/new?\"", "to = \"/new\""), "the field location of the response", false, 10),
        // A wrong order: the rule for all requests wins over that for some.
        (("path = \"/api*\"", "path = \"= /none\""), "the server that was asked", false, 12),
    ];
    for (mistake, differs, is_open, line) in rows {
        found("haproxy", HAPROXY, mistake, differs, is_open, line);
    }
}

#[test]
fn planted_mistakes_in_translations_of_caddy_and_varnish_are_found() {
    if is_there("caddy") {
        let lost = ("respond = { status = 403 }", "upstream = \"10.0.0.1-3000\"");
        found("caddy", CADDY, lost, "the status", true, 4);
    }
    if is_there("varnishd") {
        let lost = ("respond = { status = 403 }", "upstream = \"site\"");
        found("varnish", VARNISH, lost, "the status", true, 6);
    }
}

#[test]
fn what_the_old_program_does_not_accept_is_undecided() {
    if is_there("nginx") {
        let text = NGINX.replace("proxy_set_header X-Site main;", "proxy_set_header X-Site;");
        let ended = proved("nginx", &text, None).with_code(98);
        assert!(ended.errors.contains("old:8 proxy_set_header X-Site"), "{ended:?}");
    }
}

/// Starts a proof whose temporary files are in the folder.
fn started(folder: &Path, kind: &str, text: &str, more: &[&str]) -> Process {
    std::fs::write(folder.join("old"), text).expect("it is writable");
    std::fs::create_dir(folder.join("tmp")).expect("it is writable");
    let mut command = Command::new(env!("CARGO_BIN_EXE_vanward"));
    command.args(["adapt", kind, "old", "--prove"]).args(more);
    Process::of(command.current_dir(folder).env("TMPDIR", folder.join("tmp")))
}

/// The processes that name a folder in their command line, or have a file of it open, but not `except`.
fn processes_of(folder: &Path, except: u32) -> Vec<String> {
    let folder = folder.display().to_string();
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc").expect("it is mounted").flatten() {
        if process.file_name().to_string_lossy().parse::<u32>().is_ok_and(|id| id != except) {
            let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            let open = std::fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
            let mut links = open.filter_map(|open| std::fs::read_link(open.path()).ok());
            if line.contains(&folder) || links.any(|link| link.to_string_lossy().starts_with(&folder)) {
                found.push(line);
            }
        }
    }
    found
}

fn assert_nothing_is_left(folder: &Path, kind: &str) {
    assert_eq!(processes_of(folder, 0), Vec::<String>::new(), "{kind}");
    let files = std::fs::read_dir(folder.join("tmp")).expect("it is there");
    assert_eq!(files.flatten().map(|file| file.path()).collect::<Vec<_>>(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn programs_and_files_are_gone_after_a_proof() {
    for (kind, program, text) in ALL {
        if is_there(program) {
            let folder = tempfile::tempdir().expect("a temporary folder");
            started(folder.path(), kind, text, &["--requests", "20"]).ended();
            assert_nothing_is_left(folder.path(), kind);
        }
    }
}

#[test]
fn programs_and_files_are_gone_after_sigterm() {
    for (kind, program, text) in ALL {
        if is_there(program) {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let proof = started(folder.path(), kind, text, &["--requests", "20000"]);
            let patience = Patience::new();
            // Vanward starts last.
            while !processes_of(folder.path(), proof.id()).iter().any(|line| line.contains("vanward.toml")) {
                patience.wait_a_little("it starts nothing");
            }
            proof.signal(Signal::TERM);
            let ended = proof.ended().with_code(98);
            assert!(ended.errors.contains("interrupted"), "{ended:?}");
            assert_nothing_is_left(folder.path(), kind);
        }
    }
}

#[test]
fn a_missing_program_is_named_with_its_package() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("old"), CADDY).expect("it is writable");
    let mut command = Command::new(env!("CARGO_BIN_EXE_vanward"));
    command.args(["adapt", "caddy", "old", "--prove"]).current_dir(folder.path()).env("PATH", "");
    let ended = Process::of(&mut command).ended().with_code(98);
    let why = "caddy is not installed, so nothing can be compared: apt-get install caddy";
    assert!(ended.errors.contains(why), "{ended:?}");
    let ended = run_in(folder.path(), &["adapt", "squid", "old", "--prove"]);
    assert!(!ended.status.success() && ended.output.is_empty(), "{ended:?}");
}
