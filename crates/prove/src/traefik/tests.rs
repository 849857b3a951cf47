//! Facts of Traefik's files, and rewritten ones.

use super::*;
use crate::nginx::tests::stand_ins;

const FILE: &str = "\
entryPoints:
  web:
    address: ':80'
    http:
      redirections:
        entryPoint:
          to: websecure
  websecure:
    address: ':443'
    forwardedHeaders:
      trustedIPs: [10.9.0.0/16]
    http:
      middlewares: [seen@file]
      tls:
        certResolver: own
  traefik:
    address: ':8080'
api: {}
http:
  routers:
    api:
      rule: Host(`a.example.com`) && PathPrefix(`/api`) && !Path(`/api/open`)
      middlewares: [both, strip]
      service: app
    near:
      rule: ClientIP(`10.0.0.0/8`)
      middlewares: [away]
      service: noop@internal
    board:
      rule: Host(`board.example.com`)
      service: api@internal
  middlewares:
    both:
      chain:
        middlewares: [inside, staff]
    inside:
      ipAllowList:
        sourceRange: [10.0.0.0/8]
    staff:
      basicAuth:
        users: ['bob:$apr1$x$y']
    strip:
      stripPrefix:
        prefixes: [/api, '/v{{1}}']
    away:
      redirectScheme:
        scheme: https
    seen:
      headers:
        customRequestHeaders:
          X-Seen: '1'
  services:
    app:
      loadBalancer:
        serversTransport: tls
        healthCheck:
          path: /up
        servers:
          - url: https://app:8443/base
            weight: 2
          - url: http://10.0.0.2
";

fn old_of(text: &str) -> OldConfiguration {
    let nothing = &mut |_: &str| Err("there is none".to_owned());
    examine(adapt::statements::traefik(text, "t.yml", nothing).expect("it is right"))
}

#[test]
fn entry_points_routers_and_middlewares_are_facts() {
    let old = old_of(FILE);
    let doors: Vec<_> = old.doors.iter().map(|door| (door.port, door.is_tls, door.has_http2)).collect();
    assert_eq!(doors, [(80, false, false), (443, true, true)]);
    let servers: Vec<_> =
        old.servers.iter().map(|server| (server.address.as_str(), server.group.as_str())).collect();
    assert_eq!(servers, [("app:8443", "app"), ("10.0.0.2:80", "app")]);
    assert_eq!(old.networks, ["10.9.0.0/16", "10.0.0.0/8"]);
    let [redirects, routers] = &old.sites[..] else { panic!("{:?}", old.sites) };
    assert_eq!((&redirects.doors[..], &routers.doors[..]), (&[0][..], &[1][..]));
    assert_eq!(
        redirects.rules[0].place.to_string(),
        "t.yml:7 entryPoints.web.http.redirections.entryPoint.to websecure"
    );
    let host = |text: &str| OldCondition::Host(TextPattern::Exact(text.to_owned()));
    let prefix = || OldCondition::Path(TextPattern::Prefix("/api".to_owned()));
    let open = OldCondition::Path(TextPattern::Exact("/api/open".to_owned()));
    let inside = || OldCondition::Clients(vec!["10.0.0.0/8".to_owned()]);
    let braces = OldCondition::Path(TextPattern::Prefix("/v{{1}}".to_owned()));
    let api = || vec![host("a.example.com"), prefix()];
    let with = |more: &[OldCondition]| [&api()[..], more].concat();
    let through = |path: OldCondition| vec![host("a.example.com"), inside(), OldCondition::Credentials, path];
    let found: Vec<_> =
        routers.rules.iter().map(|rule| (rule.place.text.as_str(), rule.conditions.clone())).collect();
    let expected = [
        ("http.routers.api", api()),
        ("http.routers.api", with(&[open])),
        ("http.middlewares.both.chain.middlewares inside", with(&[inside()])),
        ("http.middlewares.both.chain.middlewares staff", with(&[inside(), OldCondition::Credentials])),
        ("http.routers.api.middlewares strip", through(prefix())),
        ("http.routers.api.middlewares strip", through(braces)),
        ("http.routers.api.service app", with(&[inside(), OldCondition::Credentials])),
        ("http.routers.near", vec![inside()]),
        ("http.routers.board", vec![host("board.example.com")]),
    ];
    assert_eq!(found[..expected.len()], expected);
    let trusted = routers.rules.last().expect("it is there");
    assert_eq!(trusted.conditions.len(), 3, "{trusted:?}");
    let untested: Vec<_> = old.untested.iter().map(|(place, _)| place.text.as_str()).collect();
    assert_eq!(untested, ["http.middlewares.strip.stripPrefix.prefixes /api /v{{1}}", "http.routers.board"]);
}

#[test]
fn addresses_servers_networks_and_users_are_replaced_and_each_step_of_a_chain_has_a_mark() {
    let old = old_of(FILE);
    let made = original(&old, &stand_ins(&old));
    for line in [
        "\"address\": \"127.0.0.9:4000\"",
        "\"address\": \"127.0.0.9:4001\"",
        "\"tls\": {}",
        "\"to\": \"websecure\"",
        "\"rule\": \"Host(`a.example.com`) && PathPrefix(`/api`) && !Path(`/api/open`)\"",
        "\"rule\": \"ClientIP(`127.100.0.0/16`)\"",
        // The length of the rule in the file.
        "\"priority\": \"22\"",
        "- \"/v\\x7b\\x7b1}}\"",
        "- \"alice:$apr1$vanward0$yWvGlbC9i0mIiiq1RcmWV0\"",
        "\"url\": \"http://127.0.0.9:5000/base\"",
        "\"weight\": \"2\"",
        "\"url\": \"http://127.0.0.9:5001\"",
        "\"scheme\": \"https\"",
    ] {
        let times = made.text.lines().filter(|known| known.trim() == line).count();
        assert_eq!(times, if line == "\"tls\": {}" { 2 } else { 1 }, "{line}\n{}", made.text);
    }
    for word in ["8080", "certResolver", "healthCheck", "serversTransport", "api@internal", "bob", "chain"] {
        assert!(!made.text.contains(word), "{word}\n{}", made.text);
    }
    assert_eq!(made.text.lines().count(), made.lines.len());
    let marks: Vec<_> = made.marks.iter().map(|mark| mark.place.text.as_str()).collect();
    assert_eq!(
        marks,
        [
            "entryPoints.web.http.redirections.entryPoint.to websecure",
            "entryPoints.websecure.http.middlewares seen@file",
            "http.routers.api",
            "http.middlewares.both.chain.middlewares inside",
            "http.middlewares.both.chain.middlewares staff",
            "http.routers.api.middlewares strip",
            "http.routers.api.service app",
            "http.routers.near",
            "http.routers.near.middlewares away",
            "http.routers.board",
        ]
    );
    let texts: Vec<_> = made.marks[3].statements.iter().map(|place| place.text.as_str()).collect();
    assert_eq!(
        texts,
        ["http.middlewares.inside", "http.middlewares.inside.ipAllowList.sourceRange 10.0.0.0/8"]
    );
    let place =
        made.lines[made.text.lines().position(|line| line.contains("5001")).expect("it is there")].clone();
    assert_eq!(place.map(|place| place.line), Some(61));
}

#[test]
fn a_dynamic_file_alone_has_the_usual_entry_points() {
    let old = old_of(
        "http:\n  routers:\n    a:\n      entryPoints: [websecure]\n      tls: {}\n      rule: Path(`/a`)\n      service: s\n    \
         b:\n      rule: Path(`/b`)\n      service: s\n  services:\n    s:\n      loadBalancer:\n        servers:\n        - url: http://a\n",
    );
    let doors: Vec<_> = old.doors.iter().map(|door| (door.port, door.is_tls)).collect();
    assert_eq!(doors, [(443, true), (80, false)]);
}

#[test]
fn what_requests_cannot_test_is_named() {
    let old = old_of(
        "http:\n  routers:\n    a:\n      rule: Nothing(`/a`)\n      service: s\n    b:\n      rule: Path(`/b`)\n      \
         middlewares: [auth@docker, more]\n      service: s@docker\n  middlewares:\n    more:\n      plugin:\n        x: {}\n\
         tcp:\n  routers:\n    t:\n      rule: HostSNI(`*`)\n      service: s\n",
    );
    let untested: Vec<_> = old.untested.iter().map(|(place, _)| place.text.as_str()).collect();
    assert_eq!(
        untested,
        [
            "tcp.routers.t",
            "http.routers.a",
            "http.routers.b",
            "http.routers.b.middlewares auth@docker",
            "http.middlewares.more.plugin"
        ]
    );
}
