//! Facts of VCL, and rewritten VCL.

use super::*;
use crate::nginx::tests::stand_ins;
use crate::pattern::TextPattern;

const SITE: &str = "vcl 4.1;
import std;
backend app { .host = \"10.0.0.1\"; .port = \"3000\"; .probe = { .url = \"/up\"; .interval = 5s; } }
backend other { .host = \"other\"; }
acl inside { \"10.0.0.0\"/8; ! \"10.0.0.5\"; }
sub vcl_recv {
  if (req.method == \"PURGE\" && client.ip ~ inside) {
    return (purge);
  }
  if (req.url ~ \"(?i)^/admin\" || req.http.X-A) {
    set req.backend_hint = other;
  } else {
    unset req.http.Cookie;
  }
}
sub vcl_backend_response {
  set beresp.ttl = 10s;
}
";

fn old() -> OldConfiguration {
    let nothing = &mut |_: &str| Err("there is none".to_owned());
    examine(adapt::statements::varnish(SITE, "v.vcl", nothing).expect("it is right"))
}

#[test]
fn backends_and_conditions_are_facts() {
    let old = old();
    let servers: Vec<_> = old.servers.iter().map(|server| server.address.as_str()).collect();
    assert_eq!(servers, ["10.0.0.1:3000", "other:80"]);
    assert_eq!(old.networks, ["10.0.0.0/8", "10.0.0.5"]);
    let found: Vec<_> =
        old.sites[0].rules.iter().map(|rule| (rule.place.line, rule.conditions.clone())).collect();
    let networks = OldCondition::Clients(vec!["10.0.0.0/8".to_owned(), "10.0.0.5".to_owned()]);
    let admin = TextPattern::Regex { pattern: "^/admin".to_owned(), any_case: true };
    assert_eq!(
        found,
        [
            (7, vec![OldCondition::Methods(vec!["PURGE".to_owned()]), networks]),
            (10, vec![OldCondition::Path(admin)]),
            (12, vec![]),
        ]
    );
}

#[test]
fn servers_are_replaced_and_each_branch_has_a_mark() {
    let old = old();
    let made = original(&old, &stand_ins(&old));
    for line in [
        ".host = \"127.0.0.9\";",
        ".port = \"5000\";",
        ".port = \"5001\";",
        ".url = \"/up\";",
        "\"127.100.0.0\"/16;",
        "! \"127.100.0.1\";",
        "if (req.method == \"PURGE\" && client.ip ~ inside) {",
        "return ( purge );",
        "set req.http.X-Vanward-Reached = req.http.X-Vanward-Reached + \"m0.\";",
        "set beresp.http.X-Vanward-Reached = beresp.http.X-Vanward-Reached + \"m4.\";",
    ] {
        let count = made.text.lines().filter(|known| known.trim() == line).count();
        let wanted = if line.starts_with(".host") { 2 } else { 1 };
        assert_eq!(count, wanted, "{line}\n{}", made.text);
    }
    assert_eq!(made.text.lines().count(), made.lines.len());
    assert_eq!(made.marks.len(), 5, "{:?}", made.marks);
}

#[test]
fn any_backend_of_a_director_may_answer() {
    let text = "vcl 4.1;\nimport directors;\nbackend a { .host = \"10.0.0.1\"; }\nbackend b { .host = \"10.0.0.2\"; }\n\
                backend c { .host = \"10.0.0.3\"; }\nsub vcl_init {\n  new web = directors.round_robin();\n  \
                web.add_backend(a);\n  web.add_backend(b);\n  new spare = directors.fallback();\n  spare.add_backend(c);\n}\n";
    let nothing = &mut |_: &str| Err("there is none".to_owned());
    let old = examine(adapt::statements::varnish(text, "v.vcl", nothing).expect("it is right"));
    let groups: Vec<&str> = old.servers.iter().map(|server| server.group.as_str()).collect();
    assert_eq!(groups, ["web", "web", "c"]);
}
