//! Outcomes that differ, and those that only seem to.

use super::*;
use crate::OldProxy;
use crate::old::OldDoor;
use crate::request::tests::get;

const HEAD: &str = "content-type: text/html";

fn old() -> OldConfiguration {
    let mut old = OldConfiguration::new(OldProxy::Nginx, Vec::new());
    old.door(OldDoor::plain(80));
    for server in ["10.0.0.1:3000", "10.0.0.2:3000"] {
        old.server(server, 80, Some("app"));
    }
    old.server("legacy", 80, None);
    old
}

fn stand_ins(side: u16) -> StandIns {
    let address = |host: u16, port: u16| format!("127.0.0.{host}:{port}").parse().expect("an address");
    StandIns {
        folder: "/tmp/p".to_owned(),
        doors: vec![address(side, 4000)],
        servers: (0..3).map(|index| address(1, side * 1000 + index)).collect(),
        existing: BTreeSet::new(),
        certificate: String::new(),
        key: String::new(),
        rejected: BTreeSet::new(),
    }
}

fn fields(lines: &str) -> Vec<(String, String)> {
    let pair = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned()));
    lines.lines().filter_map(pair).collect()
}

fn outcome(status: u16, lines: &str, body: &str, seen: &[(usize, &str, &str)]) -> ProofOutcome {
    let seen = seen.iter().map(|(server, target, lines)| SeenRequest {
        server: *server,
        method: "GET".to_owned(),
        target: (*target).to_owned(),
        fields: fields(lines),
        body: Vec::new(),
    });
    let answer =
        ProofAnswer { status, fields: fields(lines), body: body.as_bytes().to_vec(), trouble: String::new() };
    ProofOutcome { answer, seen: seen.collect() }
}

/// The differences and rules of a pair of outcomes.
fn compared(target: &str, theirs: &ProofOutcome, ours: &ProofOutcome) -> (Vec<String>, Vec<&'static str>) {
    let (old, their_places, our_places) = (old(), stand_ins(3), stand_ins(4));
    let mut comparer =
        Comparer { old: &old, theirs: &their_places, ours: &our_places, tolerated: BTreeMap::new() };
    let found = comparer.compare(&get("example.com", target), theirs, ours);
    let shown = |difference: &ProofDifference| {
        let open = if difference.is_open { "OPEN " } else { "" };
        format!("{open}{}: {} / {}", difference.aspect.text(), difference.theirs, difference.ours)
    };
    (found.iter().map(shown).collect(), comparer.tolerated.keys().copied().collect())
}

#[test]
fn differences_are_found() {
    let ok = |seen: &[(usize, &str, &str)]| outcome(200, HEAD, "a", seen);
    let plain = ok(&[(0, "/", "host: a")]);
    let rows: Vec<(ProofOutcome, ProofOutcome, Vec<&str>)> = vec![
        (plain.clone(), ok(&[(1, "/", "host: a")]), vec![]),
        (
            outcome(403, HEAD, "<center>nginx", &[]),
            plain.clone(),
            vec!["OPEN the status: 403; no server was asked / 200; 10.0.0.1:3000 got GET /"],
        ),
        (
            plain.clone(),
            outcome(404, HEAD, "", &[]),
            vec!["the status: 200; 10.0.0.1:3000 got GET / / 404; no server was asked"],
        ),
        (
            plain.clone(),
            ok(&[(2, "/", "host: a")]),
            vec!["the server that was asked: 200; 10.0.0.1:3000 got GET / / 200; legacy:80 got GET /"],
        ),
        (plain.clone(), ok(&[(0, "/?a", "host: a")]), vec!["the target that the server got: / / /?a"]),
        (plain.clone(), ok(&[(0, "/", "host: b")]), vec!["the field host that the server got: a / b"]),
        (
            ok(&[(0, "/", "x: 1796107142.071\ny: \u{e4}\nz: 1796107142071")]),
            ok(&[(0, "/", "x: 1796107142071\ny: \u{f6}\nz: 1796107442071")]),
            vec![
                "the field x that the server got: 1796107142.071 / 1796107142071",
                "the field y that the server got: \u{e4} / \u{f6}",
                "the field z that the server got: 1796107142071 / 1796107442071",
            ],
        ),
        (
            plain.clone(),
            outcome(200, "x: 1", "a", &[(0, "/", "host: a")]),
            vec![
                "the field content-type of the response: text/html / none",
                "the field x of the response: none / 1",
            ],
        ),
        // A path that stays below the root, a lifetime that a file lacks, and a target that dots do not explain.
        (
            outcome(400, HEAD, "", &[]),
            outcome(200, HEAD, "", &[(0, "/a/../b", "host: a")]),
            vec!["OPEN the status: 400; no server was asked / 200; 10.0.0.1:3000 got GET /a/../b"],
        ),
        (
            outcome(200, "cache-control: max-age=60", "a", &[]),
            outcome(200, "", "a", &[]),
            vec!["the field cache-control of the response: max-age=60 / none"],
        ),
        (
            ok(&[(0, "/b", "host: a")]),
            ok(&[(0, "/a/../c", "host: a")]),
            vec!["the target that the server got: /b / /a/../c"],
        ),
        // A page of a server in place of one of nginx, a refusal of a path without a slash, and the source of a script.
        (
            outcome(500, HEAD, "<center>nginx", &[(0, "/", "host: a")]),
            outcome(500, HEAD, ORIGIN_LINE, &[(0, "/", "host: a")]),
            vec![
                "the body of the response: 13 bytes: \"<center>nginx\" / 40 bytes: \"A line of a page that can be compressed.\"",
            ],
        ),
        (
            outcome(403, HEAD, "", &[]),
            outcome(404, HEAD, "", &[(0, "/", "host: a")]),
            vec!["OPEN the status: 403; no server was asked / 404; 10.0.0.1:3000 got GET /"],
        ),
        (
            plain,
            outcome(200, HEAD, "b", &[(0, "/", "host: a")]),
            vec!["the body of the response: 1 bytes: \"a\" / 1 bytes: \"b\""],
        ),
    ];
    for (theirs, ours, found) in rows {
        assert_eq!(compared("/a/../b", &theirs, &ours).0, found);
    }
}

#[test]
fn a_script_may_only_differ_by_the_path_behind_it() {
    let rows = [
        ("/a.php/b", "script_name: /a.php/b", "script_name: /a.php\npath_info: /b", 0),
        ("/a.php/b", "script_name: /a.php\npath_info: /b", "script_name: /a.php/b", 0),
        ("/a.php", "script_name: /a.php", "script_name: /b.php", 1),
        ("/a.php/b", "script_name: /a.php/b", "script_name: /c.php\npath_info: /b", 1),
        ("/a.php/b", "path_info: /b", "path_info: /c", 1),
        ("/a", "ssl_cipher: TLS_AES_128_GCM_SHA256", "ssl_cipher: TLS_AES_256_GCM_SHA384", 0),
        ("/a", "ssl_cipher: TLS_AES_128_GCM_SHA256", "ssl_cipher: TLSv1.3", 1),
    ];
    for (target, theirs, ours, count) in rows {
        let [their, our] = [theirs, ours].map(|lines| outcome(200, HEAD, "a", &[(0, target, lines)]));
        assert_eq!(compared(target, &their, &our).0.len(), count, "{theirs:?} {ours:?}");
    }
}

#[test]
fn differences_without_a_meaning_are_counted_by_rule() {
    let rows: Vec<(&str, ProofOutcome, ProofOutcome, Vec<&str>)> = vec![
        // The stand-ins of both proxies mean the same.
        (
            "/",
            outcome(302, "location: http://example.com:4000/x", "", &[(2, "/", "host: 127.0.0.1:3002")]),
            outcome(302, "location: /x", "", &[(2, "/", "host: 127.0.0.1:4002")]),
            vec![],
        ),
        ("/", outcome(200, "date: a\nserver: b", "", &[]), outcome(200, "via: c", "", &[]), vec![]),
        (
            "/",
            outcome(200, "", "", &[(0, "/", "")]),
            outcome(200, "", "", &[(0, "/", "forwarded: for=a")]),
            vec!["servers get Forwarded and X-Forwarded-… from Vanward"],
        ),
        (
            "/",
            outcome(200, "", "", &[(0, "/", "x-start: t=1796107142.071\nx-name: \u{e4}")]),
            outcome(200, "", "", &[(0, "/", "x-start: t=1796107143.002\nx-name: \u{e4}")]),
            vec!["the time of a request, up to a minute apart"],
        ),
        (
            "/a/../b",
            outcome(200, "", "", &[]),
            outcome(400, "", "", &[]),
            vec!["paths that servers may read as others get 400"],
        ),
        (
            "/a/../b",
            outcome(200, "", "", &[(0, "/b?x", "")]),
            outcome(200, "", "", &[(0, "/a/../b?x", "")]),
            vec!["nginx, Traefik and Apache resolve dot segments, and servers get them from Vanward"],
        ),
        (
            "/../b",
            outcome(400, "", "", &[]),
            outcome(200, "", "", &[(0, "/../b", "")]),
            vec!["paths above the root and zero bytes reach servers, where no route goes by them"],
        ),
        (
            "/",
            outcome(404, "content-type: text/html", "<center>nginx", &[]),
            outcome(404, "", "not found", &[]),
            vec!["the proxies' own responses"],
        ),
        (
            "/",
            outcome(302, "location: HTTP://EXAMPLE.com:4000/x?", "", &[]),
            outcome(302, "location: /x", "", &[]),
            vec![],
        ),
        (
            "/",
            outcome(302, "location: https://a.example//x/%61", "", &[]),
            outcome(302, "location: https://a.example/x/a", "", &[]),
            vec!["repeated slashes and escapes in redirects"],
        ),
        (
            "/",
            ProofOutcome {
                answer: ProofAnswer {
                    trouble: "the connection was closed".to_owned(),
                    ..ProofAnswer::default()
                },
                seen: Vec::new(),
            },
            outcome(403, "", "", &[]),
            vec!["refusals that close the connection become a status"],
        ),
        // A server that was asked whether to admit the client sends no page.
        (
            "/",
            outcome(500, "content-type: text/html", "<center>nginx", &[(2, "/check", "")]),
            outcome(500, "", "", &[(2, "/check", "")]),
            vec!["the proxies' own responses"],
        ),
        (
            "/a.PHP",
            outcome(200, HEAD, "source", &[]),
            outcome(200, HEAD, "page", &[(0, "/a.PHP", "")]),
            vec!["the source of a script is never sent, whatever the case of its extension"],
        ),
        (
            "/a/",
            outcome(403, "content-type: text/html", "<center>nginx", &[]),
            outcome(404, "", "", &[]),
            vec!["a directory without an index gets 404, not 403"],
        ),
        (
            "/a",
            outcome(302, "location: https://a.example/b/c?x=/../", "", &[]),
            outcome(302, "location: https://a.example/a/../b/./c?x=/../", "", &[]),
            vec!["repeated slashes and escapes in redirects"],
        ),
        (
            "/a",
            outcome(
                200,
                "",
                "",
                &[(0, "/", "document_uri: /index.php\npath_info: //a\nquery_string: q=/a b")],
            ),
            outcome(
                200,
                "",
                "",
                &[(0, "/", "document_uri: /index.php/a\npath_info: /a\nquery_string: q=/a%20b")],
            ),
            vec![
                "paths are read with escapes decoded and repeated slashes merged",
                "scripts with a path behind them",
            ],
        ),
        (
            "/",
            outcome(200, "content-encoding: gzip\netag: W/a", "1", &[]),
            outcome(200, "content-encoding: gzip\netag: b", "2", &[]),
            vec!["ETag of compressed responses"],
        ),
    ];
    for (target, theirs, ours, rules) in rows {
        assert_eq!(compared(target, &theirs, &ours), (vec![], rules), "{theirs:?}");
    }
}

#[test]
fn a_304_of_varnish_is_excused_only_for_the_tag_of_the_request() {
    let mut old = old();
    old.peer = OldProxy::Varnish;
    let (their_places, our_places) = (stand_ins(3), stand_ins(4));
    for (tag, is_excused) in [("\"proof\"", true), ("\"other\"", false)] {
        let mut request = get("example.com", "/");
        request.fields.push(("If-None-Match".to_owned(), "\"proof\"".to_owned()));
        let theirs = outcome(304, "etag: \"proof\"", "", &[(0, "/", "")]);
        let ours = outcome(200, &format!("etag: {tag}"), "a", &[(0, "/", "")]);
        let mut comparer =
            Comparer { old: &old, theirs: &their_places, ours: &our_places, tolerated: BTreeMap::new() };
        assert_eq!(comparer.compare(&request, &theirs, &ours).is_empty(), is_excused, "{tag}");
    }
}

#[test]
fn a_rule_about_a_statement_needs_the_statement() {
    let statement = |name: &str, word: &str| Statement {
        file: "n.conf".to_owned(),
        line: 1,
        name: name.to_owned(),
        words: vec![word.to_owned()],
        block: None,
    };
    let rows = [
        (
            "add_header",
            "X-A",
            outcome(404, "", "a", &[(0, "/", "")]),
            outcome(404, "x-a: b", "a", &[(0, "/", "")]),
        ),
        (
            "charset",
            "utf-8",
            outcome(200, "content-type: text/html; charset=utf-8", "a", &[(0, "/", "")]),
            outcome(200, "content-type: text/html", "a", &[(0, "/", "")]),
        ),
    ];
    for (name, word, theirs, ours) in rows {
        for has_statement in [true, false] {
            let mut old = old();
            old.statements.extend(has_statement.then(|| statement(name, word)));
            let (their_places, our_places) = (stand_ins(3), stand_ins(4));
            let mut comparer =
                Comparer { old: &old, theirs: &their_places, ours: &our_places, tolerated: BTreeMap::new() };
            let found = comparer.compare(&get("example.com", "/"), &theirs, &ours);
            assert_eq!(found.is_empty(), has_statement, "{name}: {found:?}");
        }
    }
}

/// An excuse for one proxy is none for another.
#[test]
fn rules_about_paths_and_hosts_are_for_the_programs_that_need_them() {
    let asked = |status, target| outcome(status, "", "", &[(0, target, "")]);
    let own = |status| outcome(status, "", "", &[]);
    let rows = [
        // Capitals reach what is in small letters.
        (OldProxy::Caddy, "example.com", "/METRICS", own(404), asked(200, "/METRICS"), false),
        (OldProxy::Caddy, "example.com", "//x", own(404), asked(200, "//x"), false),
        (OldProxy::Caddy, "example.com", "//x", own(404), own(301), true),
        (OldProxy::Haproxy, "example.com", "//x", own(404), asked(200, "//x"), true),
        (OldProxy::Varnish, "example.com", "/x?a", asked(200, "/x?a"), own(404), false),
        (OldProxy::Caddy, "unknown.example", "/", own(200), own(404), true),
        (OldProxy::Caddy, "example.com", "/", own(200), own(404), false),
    ];
    for (peer, host, target, theirs, ours, is_excused) in rows {
        let mut old = old();
        old.peer = peer;
        let hosts = vec![crate::pattern::TextPattern::Exact("example.com".to_owned())];
        old.sites = vec![crate::old::Site { doors: vec![0], hosts, rules: Vec::new() }];
        let (their_places, our_places) = (stand_ins(3), stand_ins(4));
        let mut comparer =
            Comparer { old: &old, theirs: &their_places, ours: &our_places, tolerated: BTreeMap::new() };
        let found = comparer.compare(&get(host, target), &theirs, &ours);
        assert_eq!(found.is_empty(), is_excused, "{peer:?} {host}{target}: {found:?}");
    }
}

#[test]
fn counts_of_stub_status_may_differ_and_nothing_else_of_it() {
    let counts = |numbers: &str, end: &str| {
        let body =
            format!("Active connections: {numbers} \nserver accepts handled requests\n {numbers} {end}");
        outcome(200, HEAD, &body, &[])
    };
    let (found, rules) = compared("/status", &counts("1", "7"), &counts("12", "3"));
    assert_eq!((found.len(), rules), (0, vec!["the counts of stub_status"]));
    let (found, _) = compared("/status", &counts("1", "7"), &counts("12", "seven"));
    assert_eq!(found.len(), 1, "{found:?}");
}
