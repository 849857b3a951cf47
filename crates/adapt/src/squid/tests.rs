//! Whole configurations: the output, the remarks, and that no statement is lost.

use super::*;
use crate::RemarkKind;
use crate::told::{self, filled, nothing, options, routes, whole};

const SAMPLES: [&str; 4] = [
    include_str!("../../samples/squid/01-accelerator.conf"),
    include_str!("../../samples/squid/02-sites.conf"),
    include_str!("../../samples/squid/03-several-servers.conf"),
    include_str!("../../samples/squid/04-rules.conf"),
];

#[track_caller]
fn checked(text: &str) -> Adapted {
    let adapted = adapt(text, "s.conf", &mut nothing).unwrap_or_else(|mistake| panic!("{mistake}"));
    let (_, source) = syntax::read(text, "s.conf", &mut nothing).expect("it was read");
    whole(&source, &adapted);
    adapted
}

#[test]
fn samples_are_valid_and_whole() {
    for text in SAMPLES {
        checked(&filled(text));
    }
}

fn with(lines: &str) -> String {
    format!(
        "http_port 80 accel vhost\ncache_peer a parent 1 0 originserver name=p\ncache deny all\n{lines}\n"
    )
}

#[test]
fn rules_become_routes() {
    let deny = "respond = { status = 403 }";
    let cases: [(&str, &[&str]); 5] = [
        ("http_access allow all", &["upstream = \"p\""]),
        ("", &[deny]),
        ("acl s dstdomain x.y\nhttp_access allow s", &["host = \"x.y\"; upstream = \"p\"", deny]),
        (
            "acl s dstdomain .x.y\nacl i src 10.0.0.0/8\nhttp_access allow s !i",
            &[
                "host = \"x.y\"; clients = [\"10.0.0.0/8\"]; respond = { status = 403 }",
                "host = [\"x.y\", \"*.x.y\"]; upstream = \"p\"",
                deny,
            ],
        ),
        (
            "acl o urlpath_regex ^/o$\ndeny_info 301:https://a.b/ o\nhttp_access deny o\nhttp_access allow all",
            &["path = \"= /o\"; redirect = { to = \"https://a.b/?\", status = 301 }", "upstream = \"p\""],
        ),
    ];
    for (lines, expected) in cases {
        let found = routes(&checked(&with(lines)));
        if lines.contains("!i") {
            assert!(
                found.iter().any(|route| route.contains("clients") && route.contains("403")),
                "{found:#?}"
            );
        } else {
            assert_eq!(found, expected, "{lines}");
        }
    }
}

#[test]
fn lines_become_options() {
    let cases = [
        ("http_access allow all\nvia off", "via = \"off\""),
        (
            "http_access allow all\nreply_header_access Server deny all",
            "response_headers = { remove = [\"Server\"] }",
        ),
        ("cache_mem 10 MB", "memory = \"10MiB\""),
        ("read_timeout 2 minutes", "upstream_body = \"2m\""),
    ];
    for (lines, option) in cases {
        let written = options(&checked(&with(lines)));
        assert!(written.iter().any(|line| line == option), "{lines}: {written:#?}");
    }
    let forward =
        adapt("http_port 3128\nhttp_access allow all\n", "s.conf", &mut nothing).expect("it is read");
    assert!(
        forward.remarks.iter().any(|remark| remark.kind == RemarkKind::Refused && remark.line == 1),
        "{:?}",
        forward.remarks
    );
    let circle = &mut |_: &str| Ok(vec![("m".to_owned(), "include m".to_owned())]);
    assert!(adapt("include m", "s.conf", circle).expect_err("a circle").message.contains("16 deep"));
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_or_refused_and_nothing_is_lost(lines in proptest::collection::vec(told::word(include_str!("words.txt")), 0..40)) {
        let text = lines.join("\n");
        if let Ok(adapted) = adapt(&text, "s.conf", &mut nothing) {
            let (_, source) = syntax::read(&text, "s.conf", &mut nothing).expect("it was read");
            told::sound(&source, &adapted);
        }
    }
}
