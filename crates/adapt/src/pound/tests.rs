//! Whole configurations: the output, the remarks, and that no statement is lost.

use super::*;
use crate::RemarkKind;
use crate::told::{self, filled, nothing, options, routes, whole};

const SAMPLES: [&str; 5] = [
    include_str!("../../samples/pound/01-sites.cfg"),
    include_str!("../../samples/pound/02-tls.cfg"),
    include_str!("../../samples/pound/03-hosts-paths.cfg"),
    include_str!("../../samples/pound/04-fields.cfg"),
    include_str!("../../samples/zproxy/01-farm.cfg"),
];

#[track_caller]
fn checked(text: &str) -> Adapted {
    let adapted = pound(text, "p.cfg", &mut nothing).unwrap_or_else(|mistake| panic!("{mistake}"));
    let (_, source) = syntax::read(text, "p.cfg", &mut nothing).expect("it was read");
    whole(&source, &adapted);
    adapted
}

#[test]
fn samples_are_valid_and_whole() {
    for text in SAMPLES {
        checked(&filled(text));
    }
}

fn with(services: &[&str]) -> String {
    let services: Vec<String> = services
        .iter()
        .enumerate()
        .map(|(index, inner)| {
            let server = "BackEnd\nAddress 10.0.0.1\nPort 80\nEnd";
            let server = if inner.contains("Redirect") || inner.contains("BackEnd") { "" } else { server };
            format!("Service \"s{index}\"\n{inner}\n{server}\nEnd")
        })
        .collect();
    format!("ListenHTTP\nAddress 0.0.0.0\nPort 80\n{}\nEnd\n", services.join("\n"))
}

#[test]
fn services_become_routes() {
    let none = "respond = { status = 503 }";
    let cases: [(&[&str], &[&str]); 9] = [
        (&[""], &["upstream = \"s0\""]),
        (&["URL \"^/a/\"", ""], &["path = \"~ /a/.*\"; upstream = \"s0\"", "upstream = \"s1\""]),
        (&["Host \"a.example\""], &["host = \"a.example\"; upstream = \"s0\"", none]),
        (&["HeadRequire \"Host: a\\.example$\""], &["host = \"a.example\"; upstream = \"s0\"", none]),
        (
            &["HeadRequire \"Host:.*a\\.example.*\""],
            &["host = \"~ (?:.*a\\\\.example.*).*\"; upstream = \"s0\"", none],
        ),
        (
            &["HeadDeny \"X-A:.*\""],
            &["headers = { X-A = true }; respond = { status = 503 }", "upstream = \"s0\""],
        ),
        (
            &["Redirect \"https://b.example\""],
            &["redirect = { to = \"https://b.example$path_and_query\", status = 302 }"],
        ),
        (
            &["Path -exact \"/a\"\nRedirect 301 \"https://b.example/c\"", ""],
            &[
                "path = \"= /a\"; redirect = { to = \"https://b.example/c?\", status = 301 }",
                "upstream = \"s1\"",
            ],
        ),
        (&["Disabled 1", ""], &["upstream = \"s1\""]),
    ];
    for (services, expected) in cases {
        let adapted = checked(&with(services));
        assert_eq!(routes(&adapted), expected, "{services:?}\n{}\n{:#?}", with(services), adapted.remarks);
    }
}

#[test]
fn statements_become_options() {
    let cases = [
        (
            "BackEnd\nAddress 10.0.0.1\nPort 81\nPriority 3\nEnd",
            "servers = [{ url = \"http://10.0.0.1:81\", weight = 3 }]",
        ),
        (
            "BackEnd\nAddress 10.0.0.1\nEnd\nEmergency\nAddress /run/x.sock\nEnd",
            "servers = [\"http://10.0.0.1:80\", { url = \"http+unix:/run/x.sock\", priority = 1 }]",
        ),
        ("BackEnd\nAddress 10.0.0.1\nConnTO 2\nEnd", "pool = { connect_timeout = \"2s\" }"),
        ("Session\nType IP\nTTL 60\nEnd", "sticky = { by = \"client\", ttl = \"1m\" }"),
        ("Session\nType HEADER\nID \"X-S\"\nEnd", "sticky = { by = \"header:X-S\" }"),
    ];
    for (inner, option) in cases {
        let written = options(&checked(&with(&[inner])));
        assert!(written.iter().any(|line| line == option), "{inner}: {written:#?}");
    }
    let server = |time| format!("BackEnd\nAddress 10.0.0.1\nPort 8{time}\nConnTO {time}\nEnd\n");
    let adapted = checked(&with(&[&(server(1) + &server(2))]));
    assert_eq!(adapted.refused(), 1, "{:?}", adapted.remarks);
}

#[test]
fn unsupported_statements_have_a_remark() {
    let cases = [
        ("Rewrite\nSetPath \"/x\"\nEnd", "Rewrite"),
        ("ACL \"known\"", "Service"),
        ("Session\nType PARM\nEnd", "Session"),
        ("Redirect 301 \"https://%h/\"", "Redirect"),
        ("Whatever 1", "Whatever"),
    ];
    for (inner, name) in cases {
        let adapted = checked(&with(&[inner]));
        let said = adapted
            .remarks
            .iter()
            .any(|remark| remark.kind == RemarkKind::Refused && remark.directive.starts_with(name));
        assert!(said, "{inner}: {:#?}", adapted.remarks);
    }
}

#[test]
fn texts_that_are_no_configuration_are_refused() {
    for (text, expected) in [
        ("ListenHTTP\n", "a block has no end"),
        ("End\n", "End without a block"),
        ("User \"x\n", "a quote does not end"),
    ] {
        assert!(
            pound(text, "p.cfg", &mut nothing).expect_err("it is wrong").message.contains(expected),
            "{text}"
        );
    }
    let circle = &mut |_: &str| Ok(vec![("m".to_owned(), "Include \"m\"".to_owned())]);
    assert!(pound("Include \"m\"", "p.cfg", circle).expect_err("a circle").message.contains("16 deep"));
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_or_refused_and_nothing_is_lost(lines in proptest::collection::vec(told::word(include_str!("words.txt")), 0..40)) {
        // Unclosed blocks are closed at the end, so that most texts parse.
        let open = lines.iter().map(|line| {
            let opens = ["ListenHTTP", "Service"].iter().any(|name| line.starts_with(name));
            i32::from(opens) - i32::from(line == "End")
        });
        let ends = "End\n".repeat(usize::try_from(open.sum::<i32>()).unwrap_or_default());
        let text = lines.join("\n") + "\n" + &ends;
        if let Ok(adapted) = pound(&text, "p.cfg", &mut nothing) {
            let (_, source) = syntax::read(&text, "p.cfg", &mut nothing).expect("it was read");
            told::sound(&source, &adapted);
        }
    }
}
