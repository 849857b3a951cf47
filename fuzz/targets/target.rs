//! Inputs of `authority path`: Host, the target and another parser agree on the authority. No spelling of a path
//! evades its route.

#![no_main]

use http1::{
    HeadLimits, Parsed, RequestHead, RequestTarget, TargetForm, host_without_port, is_valid_authority,
};
use libfuzzer_sys::fuzz_target;
use route::{RouteTable, has_dot_segments};

fuzz_target!(|bytes: &[u8]| {
    let space = bytes.iter().position(|&byte| byte == b' ').unwrap_or(bytes.len());
    // A head strips white space and ends the line here.
    let authority = bytes[..space].trim_ascii();
    if !authority.iter().any(|byte| b"\r\n".contains(byte)) {
        check_authority(authority);
    }
    check_path(bytes.get(space + 1..).unwrap_or(b""));
});

fn check_authority(authority: &[u8]) {
    let is_valid = is_valid_authority(authority);
    let host = host_without_port(authority);
    assert!(authority.starts_with(host));
    let in_host = [b"GET / HTTP/1.1\r\nHost: ", authority, b"\r\n\r\n"].concat();
    assert_eq!(authority_of(&in_host), is_valid.then(|| (TargetForm::Origin, authority.to_vec())));
    let in_target = [b"GET http://", authority, b"/x HTTP/1.1\r\nHost: other\r\n\r\n"].concat();
    let read = authority_of(&in_target);
    if is_valid {
        assert_eq!(read, Some((TargetForm::Absolute, authority.to_vec())));
        let other = http::uri::Authority::try_from(authority).expect("another parser takes it");
        assert_eq!(other.host().as_bytes(), host);
        assert!(!authority.iter().any(|byte| b"@/?#\\ ,\"".contains(byte)));
    } else if let Some((_, read)) = read {
        // A path or query inside cut it off.
        assert!(read.len() < authority.len() && authority.starts_with(&read));
    }
}

fn authority_of(bytes: &[u8]) -> Option<(TargetForm, Vec<u8>)> {
    let mut head = RequestHead::default();
    let limits = HeadLimits { bytes: 1 << 20, fields: 2, target: 1 << 20 };
    if head.parse(bytes, &limits) != Ok(Parsed::Complete) || head.len != bytes.len() {
        return None;
    }
    let target = RequestTarget::from_head(&head, bytes).ok()?;
    Some((target.form, target.authority.for_bytes(bytes).to_vec()))
}

fn check_path(path: &[u8]) {
    let table =
        RouteTable::new([(None, "/"), (None, "/a"), (None, "/a/b"), (None, "/a-b"), (Some("h"), "/a/c")]);
    let plain = decoded(path);
    for host in [b"h".as_slice(), b"H.", b"other"] {
        assert_eq!(
            table.find(host, path),
            Some(expected(host != b"other", &plain)),
            "{}",
            path.escape_ascii()
        );
    }
    let segments = plain.split(|byte| b"/\\".contains(byte));
    let names = segments.map(|segment| segment.split(|&byte| byte == b';').next().unwrap_or(b""));
    let has_dots = names.clone().any(|name| name == b"." || name == b"..");
    assert_eq!(has_dot_segments(path), has_dots, "{}", path.escape_ascii());
}

fn decoded(path: &[u8]) -> Vec<u8> {
    let (mut plain, mut rest) = (Vec::new(), path);
    while let Some(&first) = rest.first() {
        let digits = rest.get(1..3).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let value = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        match value.filter(|_| first == b'%') {
            Some(value) => (plain.push(value), rest = &rest[3..]).0,
            None => (plain.push(first), rest = &rest[1..]).0,
        }
    }
    plain
}

/// The rules of the routing table, applied to segments.
fn expected(has_host: bool, plain: &[u8]) -> usize {
    let is_rooted = plain.first().is_none_or(|&byte| byte == b'/');
    let mut segments = plain.split(|&byte| byte == b'/').filter(|segment| !segment.is_empty());
    match (is_rooted, segments.next(), segments.next()) {
        (true, Some(b"a"), Some(b"c")) if has_host => 4,
        (true, Some(b"a"), Some(b"b")) => 2,
        (true, Some(b"a"), _) => 1,
        (true, Some(b"a-b"), _) => 3,
        _ => 0,
    }
}
