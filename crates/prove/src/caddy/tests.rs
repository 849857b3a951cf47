//! Facts of Caddyfiles, and rewritten ones.

use super::*;
use crate::nginx::tests::stand_ins;

const SITE: &str = "{
	email a@example.com
}
(shared) {
	encode gzip
}
example.com, www.example.com:8443 {
	import shared
	@api path /api/*
	@inside {
		remote_ip 10.0.0.0/8
		method GET
	}
	respond @inside \"in\" 200
	reverse_proxy @api app:3000 https://10.0.0.1
	handle /files/* {
		root * /srv/nowhere
		file_server
	}
	redir /old /new
	log
}
";

fn old() -> OldConfiguration {
    let nothing = &mut |_: &str| Err("there is none".to_owned());
    examine(adapt::statements::caddy(SITE, "C", nothing).expect("it is right"))
}

#[test]
fn sites_and_matchers_are_facts() {
    let old = old();
    let doors: Vec<_> = old.doors.iter().map(|door| (door.port, door.is_tls)).collect();
    assert_eq!(doors, [(443, true), (80, false), (8443, true)]);
    let servers: Vec<_> = old.servers.iter().map(|server| server.written.as_str()).collect();
    assert_eq!(servers, ["app:3000", "10.0.0.1"]);
    let [site] = &old.sites[..] else { panic!("{:?}", old.sites) };
    let path = |text: &str| OldCondition::Path(TextPattern::Prefix(text.to_owned()));
    let inside = vec![
        OldCondition::Clients(vec!["10.0.0.0/8".to_owned()]),
        OldCondition::Methods(vec!["GET".to_owned()]),
    ];
    let found: Vec<_> = site.rules.iter().map(|rule| (rule.place.line, rule.conditions.clone())).collect();
    let exact = OldCondition::Path(TextPattern::ExactAnyCase("/old".to_owned()));
    assert_eq!(
        found,
        [
            (7, vec![]),
            (14, inside),
            (15, vec![path("/api/")]),
            (16, vec![path("/files/")]),
            (20, vec![exact])
        ]
    );
}

#[test]
fn a_site_may_be_bound_to_an_address() {
    let nothing = &mut |_: &str| Err("there is none".to_owned());
    let read = adapt::statements::caddy(":8080 {\n\tbind 10.0.0.9\n}\n", "C", nothing).expect("it is right");
    let doors: Vec<_> =
        examine(read).doors.into_iter().map(|door| (door.host, door.port, door.is_tls)).collect();
    assert_eq!(doors, [("10.0.0.9".to_owned(), 8080, false)]);
}

#[test]
fn addresses_and_servers_are_replaced_and_each_matcher_has_a_mark() {
    let old = old();
    let made = original(&old, &stand_ins(&old));
    for line in [
        "default_bind 127.0.0.9",
        "http_port 4001",
        "https_port 4000",
        "example.com, www.example.com:4002 {",
        "encode gzip",
        "remote_ip 127.100.0.0/16",
        "reverse_proxy @api 127.0.0.9:5000 127.0.0.9:5001",
        "vars @api m2 m2.",
        "root * /tmp/p/files/srv/nowhere",
    ] {
        assert_eq!(
            made.text.lines().filter(|known| known.trim() == line).count(),
            1,
            "{line}\n{}",
            made.text
        );
    }
    assert!(!made.text.contains("email") && !made.text.contains("import"), "{}", made.text);
    assert_eq!(made.text.lines().count(), made.lines.len());
    assert_eq!(made.marks.len(), 5, "{:?}", made.marks);
}

#[test]
fn matchers_are_met_and_missed() {
    let text = ":80 {\n\tmap {path} {to} {\n\t\t/old /new\n\t\tdefault \"\"\n\t}\n\t@moved expression `{to} != \"\"`\n\t\
                redir @moved {to}\n\t@out {\n\t\tpath /in\n\t\tnot remote_ip 10.0.0.0/8\n\t}\n\trespond @out 403\n\t\
                @next expression `{query.a} == \"b\"`\n\trespond @next 201\n}\n";
    let nothing = &mut |_: &str| Err("there is none".to_owned());
    let old = examine(adapt::statements::caddy(text, "C", nothing).expect("it is right"));
    assert_eq!(old.networks, ["10.0.0.0/8"]);
    let inside = OldCondition::Path(TextPattern::ExactAnyCase("/in".to_owned()));
    let network = OldCondition::Clients(vec!["10.0.0.0/8".to_owned()]);
    let argument = OldCondition::Argument("a".to_owned(), TextPattern::Exact("b".to_owned()));
    let found: Vec<_> = old.sites[0].rules.iter().skip(1).map(|rule| rule.conditions.clone()).collect();
    assert_eq!(
        found,
        [
            vec![OldCondition::Path(TextPattern::Exact("/old".to_owned()))],
            vec![inside.clone()],
            vec![inside, network],
            vec![argument],
        ]
    );
}
