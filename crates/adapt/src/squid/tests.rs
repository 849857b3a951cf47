//! Whole configurations: what is written, what is said, and that nothing is lost.

use super::*;
use crate::told::{filled, lost, nothing, options, routes, whole};

/// Configurations in the manner of tutorials and projects.
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
        forward.remarks.iter().any(|remark| remark.kind == Kind::Refused && remark.line == 1),
        "{:?}",
        forward.remarks
    );
    let circle = &mut |_: &str| Ok(vec![("m".to_owned(), "include m".to_owned())]);
    assert!(adapt("include m", "s.conf", circle).expect_err("a circle").message.contains("16 deep"));
}

/// Lines that make configurations which mean something.
fn word() -> impl proptest::strategy::Strategy<Value = String> {
    use proptest::prelude::*;
    let words = [
        "http_port 80 accel vhost",
        "https_port 443 accel cert=/a.pem",
        "cache_peer a parent 1 0 originserver name=p",
        "cache_peer b parent 1 0 originserver round-robin",
        "acl s dstdomain .x.y",
        "acl i src 10.0.0.0/8",
        "acl u urlpath_regex -i ^/a",
        "acl u urlpath_regex \\.x$",
        "acl m method GET",
        "acl b browser x",
        "http_access allow s !i",
        "http_access deny all",
        "http_access allow u m",
        "cache deny u",
        "cache_peer_access p allow s",
        "refresh_pattern . 0 20% 4320",
        "refresh_pattern -i \\.png$ 60 50% 100 override-expire",
        "deny_info 301:https://a.b/ s",
        "cache_mem 1 MB",
        "via off",
        "include x",
        "# y",
        "\\",
        "reply_header_access X deny all",
        "cache_dir ufs /c 100 16 256",
        "access_log none",
        "workers 2",
        "\"",
    ];
    prop_oneof![12 => proptest::sample::select(words.to_vec()).prop_map(str::to_owned), 1 => any::<String>()]
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_or_refused_and_nothing_is_lost(lines in proptest::collection::vec(word(), 0..40)) {
        let text = lines.join("\n");
        if let Ok(adapted) = adapt(&text, "s.conf", &mut nothing) {
            let (_, source) = syntax::read(&text, "s.conf", &mut nothing).expect("it was read");
            proptest::prop_assert_eq!(lost(&source, &adapted), Vec::<String>::new());
            let parsed = config::examine(&adapted.toml, "v.toml");
            let syntax = parsed.mistakes.iter().find(|mistake| mistake.message.contains("TOML") || mistake.message.contains("closing"));
            proptest::prop_assert!(syntax.is_none(), "{:?}\n{}", syntax, adapted.toml);
        }
    }
}
