//! Templates that are right, and the mistakes of others.

use super::*;
use crate::pattern::BytePattern;

fn fault(text: &str, place: TemplateUse) -> (usize, TemplateFault) {
    let pattern = BytePattern::new("/(a)/(?<kind>b)").unwrap();
    let error = RouteTemplate::new(text, place, TemplateStage::Route, Some(&pattern)).unwrap_err();
    (error.offset, error.fault)
}

#[test]
fn texts_and_variables() {
    let pattern = BytePattern::new("/(a)/(?<kind>b)").unwrap();
    let pieces = |text: &str| {
        RouteTemplate::new(text, TemplateUse::FieldValue, TemplateStage::Response, Some(&pattern))
            .unwrap()
            .pieces
    };
    let text = |text: &str| TemplatePiece::Text(text.as_bytes().into());
    let variable = |variable| TemplatePiece::Variable(variable, Position::Anywhere);
    assert_eq!(pieces(""), []);
    assert_eq!(pieces("caf\u{e9} $$1"), [text("caf\u{e9} $1")]);
    assert_eq!(pieces("$host-x"), [variable(Variable::Host), text("-x")]);
    assert_eq!(pieces("$path.html"), [variable(Variable::Path), text(".html")]);
    assert_eq!(pieces("${path}_and_query"), [variable(Variable::Path), text("_and_query")]);
    assert_eq!(pieces("$path_and_query"), [variable(Variable::PathAndQuery)]);
    assert_eq!(
        pieces("$header.User-Agent;$cookie.a_b."),
        [
            variable(Variable::Header((*b"User-Agent").into())),
            text(";"),
            variable(Variable::Cookie((*b"a_b").into())),
            text(".")
        ]
    );
    assert_eq!(pieces("${arg.a[b]}"), [variable(Variable::Argument((*b"a[b]").into()))]);
    assert_eq!(
        pieces("$1$0$capture.kind$2x$tls.sni."),
        [
            variable(Variable::Group(1)),
            variable(Variable::Group(0)),
            variable(Variable::Group(2)),
            variable(Variable::Group(2)),
            text("x"),
            variable(Variable::TlsServerName),
            text("."),
        ]
    );
    assert_eq!(pieces("$status").len(), 1);
}

#[test]
fn every_variable_that_is_listed_is_one() {
    let pattern = BytePattern::new("(?<NAME>a)").unwrap();
    for name in VARIABLES {
        for text in [format!("${name}"), format!("${{{name}}}")] {
            let template =
                RouteTemplate::new(&text, TemplateUse::FieldValue, TemplateStage::Response, Some(&pattern));
            assert!(template.is_ok_and(|template| template.pieces.len() == 1), "{text}");
        }
    }
}

#[test]
fn mistakes_say_where_they_are() {
    let name = |name: &str| name.to_owned();
    let unknown = |name: &str| TemplateFault::Unknown { name: name.to_owned(), values: Vec::new() };
    for (text, offset, expected) in [
        ("a$", 1, TemplateFault::NameMissing),
        ("a$-", 1, TemplateFault::NameMissing),
        ("${}", 0, TemplateFault::NameMissing),
        ("\u{e9} ${host", 3, TemplateFault::BraceMissing),
        ("$hots", 0, unknown("hots")),
        ("$tls.x", 0, unknown("tls.x")),
        ("$Host", 0, TemplateFault::NameMissing),
        ("$header.", 0, TemplateFault::MemberMissing("header.")),
        ("$header", 0, unknown("header")),
        ("x $server", 2, TemplateFault::TooEarly(name("server"))),
        ("$3", 0, TemplateFault::NoGroup(name("3"))),
        ("$capture.x", 0, TemplateFault::NoGroup(name("capture.x"))),
        ("a\r\nb", 1, TemplateFault::Character('\r')),
        ("a\0", 1, TemplateFault::Character('\0')),
    ] {
        assert_eq!(fault(text, TemplateUse::FieldValue), (offset, expected), "{text}");
    }
    let error = RouteTemplate::new("$1", TemplateUse::FieldValue, TemplateStage::Route, None).unwrap_err();
    assert_eq!(error.fault, TemplateFault::NoPattern(name("1")));
    let long = "x".repeat(5000);
    assert_eq!(fault(&long, TemplateUse::FieldValue).1, TemplateFault::TooLong(5000));
}

/// No value from a client can choose the host of a redirect.
#[test]
fn locations() {
    let pattern = BytePattern::new("/(a)/(?<kind>b)").unwrap();
    for text in [
        "/",
        "/x/$1?y=$2#z",
        "$path",
        "$path_and_query",
        "https://$host$path",
        "$scheme://$host:8443/$1",
        "${scheme}://www.example.com$path_and_query",
        "https://$1.example.com/",
        "https://$1.example.com?a",
        "http://$host",
        "https://www.$host$path_and_query",
        "https://www.$host:8443/",
        "https://example.com/$1",
    ] {
        assert!(
            RouteTemplate::new(text, TemplateUse::Location, TemplateStage::Route, Some(&pattern)).is_ok(),
            "{text}"
        );
    }
    for (text, offset, expected) in [
        ("https://example.com$1", 21, TemplateFault::InAuthority),
        ("https://example.com$1/", 21, TemplateFault::InAuthority),
        ("https://$1", 10, TemplateFault::InAuthority),
        ("https://$header.x/", 17, TemplateFault::InAuthority),
        ("https://example.com$1$path", 21, TemplateFault::InAuthority),
        ("https://www.$header.x/", 21, TemplateFault::InAuthority),
        ("https://example.com$host/", 24, TemplateFault::InAuthority),
        ("https://$host$1?", 15, TemplateFault::InAuthority),
        ("//example.com", 0, TemplateFault::Beginning("one slash")),
        ("$1", 0, TemplateFault::Beginning("a slash, http://, https:// or $scheme://")),
        ("$arg.next", 0, TemplateFault::Beginning("a slash, http://, https:// or $scheme://")),
        ("javascript:x", 0, TemplateFault::Beginning("a slash, http://, https:// or $scheme://")),
        ("", 0, TemplateFault::Beginning("a slash, http://, https:// or $scheme://")),
        ("/a b", 2, TemplateFault::Character(' ')),
        ("/\u{e9}", 1, TemplateFault::Character('\u{e9}')),
        ("/a\\b", 2, TemplateFault::Character('\\')),
    ] {
        assert_eq!(fault(text, TemplateUse::Location), (offset, expected), "{text}");
    }
    assert_eq!(fault("x", TemplateUse::Path), (0, TemplateFault::Beginning("a slash")));
    assert_eq!(fault("/#", TemplateUse::Path), (1, TemplateFault::Character('#')));
    assert_eq!(fault("a/b", TemplateUse::Host), (1, TemplateFault::Character('/')));
}
