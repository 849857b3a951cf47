//! Facts of configurations, and rewritten ones.

use std::collections::BTreeSet;

use super::*;
use crate::stand_in::StandIns;

const SITE: &str = "
upstream app { server 10.0.0.1:3000; server 10.0.0.2:3000 backup; }
map $http_x_key $site { default a; ~*^k-(.*) b; gold c; }
server {
    listen 80 default_server;
    listen [::]:80 default_server;
    server_name example.com *.example.com;
    root /srv/nowhere;
    client_max_body_size 2k;
    location / { proxy_pass http://app; }
    location ~ \\.php$ { deny all; }
    location /old { proxy_pass http://legacy/new; if ($request_method = POST) { return 403; } }
    location /in { allow 10.0.0.0/8; deny all; limit_req zone=a burst=3; }
    location @down { return 503 'a\nb'; }
}
";

fn old(text: &str) -> OldConfiguration {
    let nothing = &mut |_: &str| Err("there is none".to_owned());
    examine(adapt::statements::nginx(text, "n.conf", nothing).expect("it is right"))
}

pub(crate) fn stand_ins(old: &OldConfiguration) -> StandIns {
    let address = |port: usize| format!("127.0.0.9:{port}").parse().expect("an address");
    StandIns {
        folder: "/tmp/p".to_owned(),
        doors: (0..old.doors.len()).map(|index| address(4000 + index)).collect(),
        servers: (0..old.servers.len()).map(|index| address(5000 + index)).collect(),
        existing: BTreeSet::new(),
        certificate: "/tmp/p/cert.pem".to_owned(),
        key: "/tmp/p/key.pem".to_owned(),
        rejected: BTreeSet::new(),
    }
}

#[test]
fn servers_locations_and_conditions_are_facts() {
    let old = old(SITE);
    assert_eq!(
        old.doors,
        [OldDoor {
            host: "*".to_owned(),
            port: 80,
            is_tls: false,
            has_proxy_header: false,
            has_http2: false
        }]
    );
    let servers: Vec<_> =
        old.servers.iter().map(|server| (server.address.as_str(), server.group.as_str())).collect();
    assert_eq!(servers, [("10.0.0.1:3000", "app"), ("10.0.0.2:3000", "app"), ("legacy:80", "legacy:80")]);
    assert_eq!(old.networks, ["10.0.0.0/8"]);
    let [site] = &old.sites[..] else { panic!("{:?}", old.sites) };
    assert_eq!(
        site.hosts,
        [TextPattern::Exact("example.com".to_owned()), TextPattern::Suffix(".example.com".to_owned())]
    );
    let of_line = |line: usize| {
        let rules = site.rules.iter().filter(|rule| rule.place.line == line);
        rules.map(|rule| rule.conditions.clone()).collect::<Vec<_>>()
    };
    let prefix = |text: &str| OldCondition::Path(TextPattern::Prefix(text.to_owned()));
    let rows = [
        (9, vec![vec![OldCondition::Body(2048)]]),
        (10, vec![vec![prefix("/")]]),
        (11, vec![vec![OldCondition::Path(expression(r"\.php$", false))]]),
        (
            12,
            vec![vec![prefix("/old")], vec![prefix("/old"), OldCondition::Methods(vec!["POST".to_owned()])]],
        ),
        (
            13,
            vec![
                vec![prefix("/in")],
                vec![prefix("/in"), OldCondition::Clients(vec!["10.0.0.0/8".to_owned()])],
                vec![prefix("/in"), OldCondition::Burst(8)],
            ],
        ),
        (14, vec![vec![OldCondition::ServerError]]),
    ];
    for (line, conditions) in rows {
        assert_eq!(of_line(line), conditions, "line {line}");
    }
    let keys = of_line(3);
    assert!(
        keys.contains(&vec![OldCondition::Field("x-key".to_owned(), expression("^k-(.*)", true))]),
        "{keys:?}"
    );
    assert_eq!(keys.len(), 2, "{keys:?}");
}

#[test]
fn addresses_servers_and_files_are_replaced_and_each_block_has_a_mark() {
    let old = old(SITE);
    let made = original(&old, &stand_ins(&old));
    for line in [
        "server 127.0.0.9:5000 max_fails=0;",
        "server 127.0.0.9:5001 max_fails=0 backup;",
        "listen 127.0.0.9:4000 default_server;",
        "root /tmp/p/files/srv/nowhere;",
        "proxy_pass http://app;",
        "proxy_pass http://127.0.0.9:5002/new;",
        "location ~ \"\\\\.php$\" {",
        "allow 127.100.0.0/16;",
        "~*^k-(.*) b;",
        "set $vanward_mark_0 0,;",
    ] {
        assert_eq!(
            made.text.lines().filter(|known| known.trim() == line).count(),
            1,
            "{line}\n{}",
            made.text
        );
    }
    assert!(made.text.contains("return 503 \"a\nb\";\n"), "{}", made.text);
    let marks: Vec<String> = made.marks.iter().map(|mark| mark.place.to_string()).collect();
    assert_eq!(
        marks,
        [
            "n.conf:4 server",
            "n.conf:10 location /",
            "n.conf:11 location ~ \\.php$",
            "n.conf:12 location /old",
            "n.conf:12 if ($request_method = POST)",
            "n.conf:13 location /in",
            "n.conf:14 location @down",
        ]
    );
    let place = made.text.lines().position(|line| line.contains("backup")).expect("it is there");
    assert_eq!(made.lines[place].as_ref().map(|place| place.line), Some(2));
    let mut others = stand_ins(&old);
    let is_it = |place: &&StatementPlace| place.text.starts_with("client_max_body_size");
    others.rejected.extend(made.lines.iter().flatten().find(is_it).cloned());
    let without = original(&old, &others);
    assert!(!without.text.contains("client_max_body_size"), "{}", without.text);
}

#[test]
fn an_expression_within_a_prefix_and_a_query_are_met_there() {
    let old = old("server { listen 80; if ($query_string ~ \"a=b\") { return 403; }\n\
         location /m/ {\nlocation ~* \\.(ico|css)$ { } } }");
    let of_line = |line: usize| {
        let rules = old.sites[0].rules.iter().filter(|rule| rule.place.line == line);
        rules.flat_map(|rule| rule.conditions.clone()).collect::<Vec<_>>()
    };
    assert_eq!(of_line(1), [OldCondition::Query(expression("a=b", false))]);
    assert_eq!(of_line(3), [OldCondition::Path(expression("^/m/.*(?:\\.(ico|css)$)", true))]);
}

#[test]
fn what_requests_cannot_reach_is_named() {
    let old = old(
        "stream { server { listen 1; } }\nhttp { server { listen unix:/a; limit_conn a 1000; location / { uwsgi_pass b; } } }",
    );
    let untested: Vec<&str> = old.untested.iter().map(|(place, _)| place.text.as_str()).collect();
    assert_eq!(untested, ["stream", "listen unix:/a", "limit_conn a 1000", "uwsgi_pass b"]);
}

#[test]
fn sockets_applications_concurrent_requests_and_http2_are_facts() {
    let old = old("upstream php { server unix:/run/a.sock; server 10.0.0.1:9000; }\n\
         server { listen 443 ssl; http2 on; limit_conn a 2; location /a { fastcgi_pass php; }\n\
         location /b { fastcgi_pass unix:/run/b.sock; } location /c { proxy_pass http://unix:/run/c.sock:/x; } }");
    let servers: Vec<_> =
        old.servers.iter().map(|server| (server.address.as_str(), server.is_fastcgi)).collect();
    let expected = [
        ("unix:/run/a.sock", true),
        ("10.0.0.1:9000", true),
        ("unix:/run/b.sock", true),
        ("unix:/run/c.sock", false),
    ];
    assert_eq!(servers, expected);
    assert!(old.doors[0].has_http2, "{:?}", old.doors);
    let limits = old.sites[0].rules.iter().flat_map(|rule| &rule.conditions);
    assert_eq!(limits.filter(|condition| **condition == OldCondition::AtOnce(5)).count(), 1);
    assert_eq!(old.untested, Vec::new());
    let made = original(&old, &stand_ins(&old)).text;
    for line in [
        "listen 127.0.0.9:4000 ssl http2;",
        "server 127.0.0.9:5000 max_fails=0;",
        "fastcgi_pass php;",
        "fastcgi_pass 127.0.0.9:5002;",
        "proxy_pass http://127.0.0.9:5003/x;",
    ] {
        assert_eq!(made.lines().filter(|known| known.trim() == line).count(), 1, "{line}\n{made}");
    }
    assert!(!made.contains("http2 on"), "{made}");
}
