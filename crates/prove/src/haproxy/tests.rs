//! Facts of configurations, and rewritten ones.

use super::*;
use crate::nginx::tests::stand_ins;
use crate::pattern::TextPattern;

const SITE: &str = "
global
  daemon
  log /dev/log local0
defaults
  mode http
  option httplog
  timeout client 5s
userlist staff
  user ann insecure-password secret
frontend web
  bind *:80
  bind :443 ssl crt /etc/cert.pem
  acl is_api path_beg /api
  acl is_api path -i /API2
  acl inside src 10.0.0.0/8
  http-request deny if is_api !inside
  http-request auth if { path /admin } !{ http_auth(staff) }
  redirect scheme https if !{ ssl_fc } { hdr(host) -i www.example.com }
  use_backend api if is_api
  default_backend site
backend api
  http-request set-header X-A 1 if { hdr(x-b) -m found }
  server one 10.0.0.1:8080 check ssl verify none weight 10
backend site
  server two app:3000 backup
";

fn old() -> OldConfiguration {
    let nothing = &mut |_: &str| Err("there is none".to_owned());
    examine(adapt::statements::haproxy(SITE, "h.cfg", &mut *nothing).expect("it is right"), nothing)
}

#[test]
fn frontends_conditions_and_backends_are_facts() {
    let old = old();
    let doors: Vec<_> = old.doors.iter().map(|door| (door.port, door.is_tls)).collect();
    assert_eq!(doors, [(80, false), (443, true)]);
    let servers: Vec<_> =
        old.servers.iter().map(|server| (server.address.as_str(), server.group.as_str())).collect();
    assert_eq!(servers, [("10.0.0.1:8080", "api"), ("app:3000", "site")]);
    assert_eq!(old.networks, ["10.0.0.0/8"]);
    let [site] = &old.sites[..] else { panic!("{:?}", old.sites) };
    let of_line = |line: usize| {
        let rules = site.rules.iter().filter(|rule| rule.place.line == line);
        rules.map(|rule| rule.conditions.clone()).collect::<Vec<_>>()
    };
    let api = || OldCondition::Path(TextPattern::Prefix("/api".to_owned()));
    let inside = || OldCondition::Clients(vec!["10.0.0.0/8".to_owned()]);
    let upper = || OldCondition::Path(TextPattern::ExactAnyCase("/API2".to_owned()));
    let admin = || OldCondition::Path(TextPattern::Exact("/admin".to_owned()));
    let ann = || {
        let basic = TextPattern::Exact("Basic YW5uOnNlY3JldA==".to_owned());
        OldCondition::Field("Authorization".to_owned(), basic)
    };
    let rows = [
        (17, vec![vec![api()], vec![upper()], vec![api(), inside()], vec![upper(), inside()]]),
        (18, vec![vec![admin()], vec![admin(), ann()]]),
        (19, vec![vec![OldCondition::Host(TextPattern::ExactAnyCase("www.example.com".to_owned()))]]),
        (20, vec![vec![api()], vec![upper()]]),
        (22, vec![vec![api()]]),
        (23, vec![vec![api(), OldCondition::Field("x-b".to_owned(), TextPattern::Present)]]),
        (25, vec![vec![]]),
    ];
    for (line, conditions) in rows {
        assert_eq!(of_line(line), conditions, "line {line}");
    }
}

#[test]
fn addresses_and_servers_are_replaced_and_each_rule_has_a_mark() {
    let old = old();
    let made = original(&old, &stand_ins(&old));
    for line in [
        "bind 127.0.0.9:4000",
        "bind 127.0.0.9:4001 ssl crt /tmp/p/pair.pem",
        "server one 127.0.0.9:5000 check weight 10",
        "server two 127.0.0.9:5001 backup",
        "http-request deny if is_api !inside",
        "http-request set-var(txn.proof_0) str(0.) if is_api !inside",
        "http-request set-var(txn.proof) req.hdr(X-Vanward-Proof)",
        "timeout client 5s",
    ] {
        assert_eq!(
            made.text.lines().filter(|known| known.trim() == line).count(),
            1,
            "{line}\n{}",
            made.text
        );
    }
    for word in ["daemon", "/dev/log", "httplog", "/etc/cert.pem"] {
        assert!(!made.text.contains(word), "{word}\n{}", made.text);
    }
    assert_eq!(made.text.lines().count(), made.lines.len());
    let place = made.text.lines().position(|line| line.contains("backup")).expect("it is there");
    assert_eq!(made.lines[place].as_ref().map(|place| place.line), Some(26));
    assert_eq!(made.marks.len(), 7, "{:?}", made.marks);
}

#[test]
fn credentials_are_as_in_authorization() {
    for (text, encoded) in [("", ""), ("a", "YQ=="), ("ab", "YWI="), ("alice:secret", "YWxpY2U6c2VjcmV0")] {
        assert_eq!(base64(text), encoded);
    }
}

#[test]
fn keys_of_maps_are_conditions() {
    let text = "defaults\n  mode http\nfrontend f\n  bind :80\n  http-request deny unless { path,map_beg(m.map) -m found }\n  \
                use_backend %[path,map_beg(m.map)]\nbackend a\n  server s 10.0.0.1:1\n";
    let read = &mut |file: &str| Ok(vec![(file.to_owned(), "# keys\n/x a\n/y a\n".to_owned())]);
    let old = examine(adapt::statements::haproxy(text, "h.cfg", &mut *read).expect("it is right"), read);
    let at = |line: usize| {
        let rules = old.sites[0].rules.iter().filter(|rule| rule.place.line == line);
        rules.map(|rule| rule.conditions.clone()).collect::<Vec<_>>()
    };
    let path = |text: &str| vec![OldCondition::Path(TextPattern::Prefix(text.to_owned()))];
    assert_eq!(at(5), [vec![], path("/x"), path("/y")]);
    assert_eq!(at(7), [path("/x")]);
}

#[test]
fn numbers_are_met() {
    let text = "defaults\n  mode http\nfrontend f\n  bind :80\n  http-request deny if { sc_conn_cur(0) gt 30 }\n  \
                http-request deny if { req.hdr(content-length) -m int gt 1000 }\n  default_backend a\nbackend a\n  server s 10.0.0.1:1\n";
    let nothing = &mut |_: &str| Err("there is none".to_owned());
    let old =
        examine(adapt::statements::haproxy(text, "h.cfg", &mut *nothing).expect("it is right"), nothing);
    let found: Vec<_> = old.sites[0].rules.iter().take(2).map(|rule| rule.conditions.clone()).collect();
    let length = OldCondition::Field("content-length".to_owned(), TextPattern::Exact("1001".to_owned()));
    assert_eq!(found, [vec![OldCondition::AtOnce(33)], vec![length]]);
}
