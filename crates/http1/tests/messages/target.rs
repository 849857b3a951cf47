//! The four target forms, Host and authorities.

use http1::{RequestTarget, TargetError, TargetForm, host_without_port, is_valid_authority};

use crate::parse_request;

fn target(head: &str) -> Result<(TargetForm, String, String, String), TargetError> {
    let bytes = format!("{head}\r\n\r\n").into_bytes();
    let parsed = parse_request(&bytes).unwrap();
    let target = RequestTarget::from_head(&parsed, &bytes)?;
    let text = |span: http1::ByteSpan| String::from_utf8(span.for_bytes(&bytes).to_vec()).unwrap();
    Ok((target.form, text(target.authority), text(target.path_and_query), text(target.path)))
}

/// RFC 9112 §3.2.
#[test]
fn the_four_forms() {
    for (head, form, authority, path_and_query, path) in [
        ("GET /a/b?c=d?e HTTP/1.1\r\nHost: h:80", TargetForm::Origin, "h:80", "/a/b?c=d?e", "/a/b"),
        ("GET / HTTP/1.1\r\nHost: h", TargetForm::Origin, "h", "/", "/"),
        ("GET //h2/x HTTP/1.1\r\nHost: h", TargetForm::Origin, "h", "//h2/x", "//h2/x"),
        ("GET /http://x/ HTTP/1.1\r\nHost: h", TargetForm::Origin, "h", "/http://x/", "/http://x/"),
        ("OPTIONS * HTTP/1.1\r\nHost: h", TargetForm::Asterisk, "h", "*", "*"),
        ("OPTIONS /x HTTP/1.1\r\nHost: h", TargetForm::Origin, "h", "/x", "/x"),
        ("CONNECT h:443 HTTP/1.1\r\nHost: h:443", TargetForm::Authority, "h:443", "", ""),
        ("CONNECT [::1]:443 HTTP/1.1\r\nHost: h", TargetForm::Authority, "[::1]:443", "", ""),
        // §3.2.2: Host is parsed, then overruled.
        ("GET http://t/x?y HTTP/1.1\r\nHost: h", TargetForm::Absolute, "t", "/x?y", "/x"),
        ("GET HTTPS://t:8443/ HTTP/1.1\r\nHost: h", TargetForm::Absolute, "t:8443", "/", "/"),
        ("GET http://t HTTP/1.1\r\nHost: h", TargetForm::Absolute, "t", "", ""),
        ("GET http://t?q HTTP/1.1\r\nHost: h", TargetForm::Absolute, "t", "?q", ""),
        ("GET http://[::1]:80/p HTTP/1.1\r\nHost: h", TargetForm::Absolute, "[::1]:80", "/p", "/p"),
        ("OPTIONS http://t HTTP/1.1\r\nHost: h", TargetForm::Absolute, "t", "", ""),
        ("GET http://t/x HTTP/1.0", TargetForm::Absolute, "t", "/x", "/x"),
        ("GET /x HTTP/1.0", TargetForm::Origin, "", "/x", "/x"),
        ("GET /x HTTP/1.0\r\nHost: h", TargetForm::Origin, "h", "/x", "/x"),
    ] {
        let owned = str::to_owned;
        assert_eq!(target(head), Ok((form, owned(authority), owned(path_and_query), owned(path))), "{head}");
    }
}

/// RFC 9112 §3.2 and RFC 9110 §4.2.4.
#[test]
fn targets_and_hosts_that_are_refused() {
    for (head, error) in [
        ("GET / HTTP/1.1", TargetError::HostMissing),
        ("GET http://t/ HTTP/1.1", TargetError::HostMissing),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a", TargetError::HostRepeated),
        ("GET / HTTP/1.0\r\nHost: a\r\nhost: b", TargetError::HostRepeated),
        ("GET / HTTP/1.1\r\nHost:", TargetError::HostInvalid),
        ("GET / HTTP/1.1\r\nHost: a b", TargetError::HostInvalid),
        ("GET / HTTP/1.1\r\nHost: a, b", TargetError::HostInvalid),
        ("GET / HTTP/1.1\r\nHost: a,b", TargetError::HostInvalid),
        ("GET / HTTP/1.1\r\nHost: a/b", TargetError::HostInvalid),
        ("GET / HTTP/1.1\r\nHost: a?b", TargetError::HostInvalid),
        ("GET / HTTP/1.1\r\nHost: u@a", TargetError::HostInvalid),
        ("GET / HTTP/1.1\r\nHost: http://a", TargetError::HostInvalid),
        ("GET / HTTP/1.0\r\nHost: a\"b", TargetError::HostInvalid),
        ("GET http://t/ HTTP/1.1\r\nHost: a b", TargetError::HostInvalid),
        ("GET http://u@t/ HTTP/1.1\r\nHost: t", TargetError::Absolute),
        ("GET http://u:p@t/ HTTP/1.1\r\nHost: t", TargetError::Absolute),
        ("GET http:///x HTTP/1.1\r\nHost: t", TargetError::Absolute),
        ("GET http:// HTTP/1.1\r\nHost: t", TargetError::Absolute),
        ("GET http://t:x/ HTTP/1.1\r\nHost: t", TargetError::Absolute),
        ("GET http://t\\@x/ HTTP/1.1\r\nHost: t", TargetError::Absolute),
        ("GET ftp://t/ HTTP/1.1\r\nHost: t", TargetError::Absolute),
        ("GET ws://t/ HTTP/1.1\r\nHost: t", TargetError::Absolute),
        ("GET http:/t/ HTTP/1.1\r\nHost: t", TargetError::Form),
        ("GET * HTTP/1.1\r\nHost: t", TargetError::Form),
        ("OPTIONS ** HTTP/1.1\r\nHost: t", TargetError::Form),
        ("GET t:80 HTTP/1.1\r\nHost: t", TargetError::Form),
        ("GET path HTTP/1.1\r\nHost: t", TargetError::Form),
        ("GET ?q HTTP/1.1\r\nHost: t", TargetError::Form),
        ("GET ../x HTTP/1.1\r\nHost: t", TargetError::Form),
        // §3.2.3: CONNECT allows only this form, with a port.
        ("CONNECT / HTTP/1.1\r\nHost: t", TargetError::Form),
        ("CONNECT t HTTP/1.1\r\nHost: t", TargetError::Form),
        ("CONNECT t: HTTP/1.1\r\nHost: t", TargetError::Form),
        ("CONNECT [::1] HTTP/1.1\r\nHost: t", TargetError::Form),
        ("CONNECT http://t/ HTTP/1.1\r\nHost: t", TargetError::Form),
        ("CONNECT u@t:443 HTTP/1.1\r\nHost: t", TargetError::Form),
    ] {
        assert_eq!(target(head), Err(error), "{head}");
    }
}

/// RFC 3986 §3.2.2 and §3.2.3.
#[test]
fn authorities() {
    let longest = "a".repeat(255);
    let too_long = "a".repeat(256);
    for (authority, host) in [
        ("a", "a"),
        ("A.Example.:80", "A.Example."),
        ("a:", "a"),
        ("a:0", "a"),
        ("a:65535", "a"),
        ("a:00080", "a"),
        ("127.0.0.1:80", "127.0.0.1"),
        ("[::1]", "[::1]"),
        ("[::1]:80", "[::1]"),
        ("[::ffff:1.2.3.4]:1", "[::ffff:1.2.3.4]"),
        ("a_b-c~d", "a_b-c~d"),
        ("!$&'()*+;=", "!$&'()*+;="),
        (&longest, &longest),
    ] {
        assert!(is_valid_authority(authority.as_bytes()), "{authority}");
        assert_eq!(host_without_port(authority.as_bytes()), host.as_bytes(), "{authority}");
    }
    for authority in [
        "",
        ":",
        ":80",
        "a:b",
        "a:-1",
        "a:+1",
        "a:65536",
        "a:99999999999999999999",
        "a:80:80",
        "a: 80",
        "a:80 ",
        "::1",
        "::1:80",
        "[]",
        "[]:80",
        "[::1",
        "::1]",
        "[::1]x",
        "[::1]x:80",
        "[::1]]",
        "[[::1]]",
        "[1.2.3.4]",
        "[a]",
        "[fe80::1%eth0]",
        "[fe80::1%25eth0]",
        "[v1.a]",
        "a%",
        "a%zz",
        "a%41",
        "a,b",
        "a b",
        "a/b",
        "a\\b",
        "a@b",
        "a#b",
        "a?b",
        "a\"b",
        "a<b",
        "a[b]",
        "\u{e9}",
        "a\0",
        "a\t",
        &too_long,
    ] {
        assert!(!is_valid_authority(authority.as_bytes()), "{authority}");
    }
}
