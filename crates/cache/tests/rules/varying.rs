//! Vary (RFC 9111 §4.1) and Accept-Encoding.

use cache::{CachePolicy, Codings, Ignore, KeySecret, NotStored, VariantKey, Vary};

use crate::{Request, Response};

const SECRET: KeySecret = KeySecret::new(7);

fn vary(fields: &str) -> Result<Vary, NotStored> {
    let response = Response::new(200, fields);
    Vary::new(&response.head, &response.bytes, &CachePolicy::default())
}

fn variant(vary: &Vary, fields: &str) -> VariantKey {
    let request = Request::get(fields);
    vary.variant(SECRET, &CachePolicy::default(), &request.head, &request.bytes, |_| true)
}

#[test]
fn rfc9111_4_1_star_fits_nothing() {
    for value in ["Vary: *", "Vary: *, *", "Vary: , *", "Vary: a, *", "Vary: *, a", "Vary:\r\nVary: *"] {
        assert_eq!(vary(&format!("{value}\r\n")), Err(NotStored::VaryStar), "{value}");
    }
    assert_eq!(vary(&format!("Vary: {}\r\n", "a,".repeat(2000))), Err(NotStored::VaryTooLong));
    let response = Response::new(200, "Vary: *\r\n");
    let policy = CachePolicy { ignore: Ignore { vary: true, ..Ignore::default() }, ..CachePolicy::default() };
    assert_eq!(Vary::new(&response.head, &response.bytes, &policy), Ok(Vary::default()));
}

#[test]
fn rfc9110_12_5_3_a_coding_that_was_not_named_is_for_no_second_request() {
    for (accepted, vary, coding, is_told) in [
        ("gzip, br", "Accept-Encoding", "gzip", true),
        ("gzip", "Accept-Encoding", "X-GZIP", true),
        ("x-gzip;q=0.5", "Accept-Encoding", "gzip", true),
        ("*", "Accept-Encoding", "zstd", true),
        ("gzip, br", "Accept-Encoding", "br, gzip", true),
        ("gzip", "Accept-Encoding", "identity", true),
        ("gzip", "Accept-Encoding", "", true),
        ("gzip", "Accept-Encoding", "br", false),
        ("gzip, br;q=0", "Accept-Encoding", "br", false),
        // This client accepts it, but the key does not distinguish it from one that accepts gzip alone.
        ("gzip, compress", "Accept-Encoding", "compress", false),
        ("gzip, compress", "Accept-Encoding", "compress, gzip", false),
        // Without the field, the server chooses freely; clients that accept only `identity` have the same key.
        ("", "Accept-Encoding", "gzip", false),
        ("identity", "Accept-Encoding", "gzip", false),
        ("gzip, compress", "Accept", "compress", true),
    ] {
        let field =
            if accepted.is_empty() { String::new() } else { format!("Accept-Encoding: {accepted}\r\n") };
        let request = Request::get(&field);
        let codings = Codings::new(&request.head, &request.bytes);
        let response = Response::new(200, &format!("Vary: {vary}\r\nContent-Encoding: {coding}\r\n"));
        let vary = Vary::new(&response.head, &response.bytes, &CachePolicy::default()).unwrap();
        for normalises_accept_encoding in [true, false] {
            let policy = CachePolicy { normalises_accept_encoding, ..CachePolicy::default() };
            let told = vary.check_coding(codings, &response.head, &response.bytes, &policy);
            assert_eq!(told.is_ok(), is_told || !normalises_accept_encoding, "{accepted} {coding}");
        }
    }
}

#[test]
fn removed_fields_make_no_variant() {
    let vary = vary("Vary: a, b\r\n").unwrap();
    let variant = |fields: &str, is_kept: bool| {
        let request = Request::get(fields);
        let passes = |name: &[u8]| is_kept || name != b"b";
        vary.variant(SECRET, &CachePolicy::default(), &request.head, &request.bytes, passes)
    };
    let without = variant("a: 1\r\n", true);
    assert_eq!(variant("a: 1\r\nb: 2\r\n", false), without);
    assert_eq!(variant("a: 1\r\n", false), without);
    assert_ne!(variant("a: 1\r\nb: 2\r\n", true), without);
    assert_ne!(variant("a: 2\r\nb: 2\r\n", false), without);
}

#[test]
fn names_are_a_set() {
    let expected = vary("Vary: a, b-c, d\r\n").unwrap();
    assert_eq!(expected.as_bytes(), b"a,b-c,d");
    for value in ["Vary: D,B-C,a", "Vary: d\r\nVary: a,, b-c", "Vary: a, a, d, b-C"] {
        assert_eq!(vary(&format!("{value}\r\n")).unwrap(), expected, "{value}");
    }
    assert_eq!(Vary::from_bytes(expected.as_bytes()), expected);
    assert!(vary("Vary: ,\r\n").unwrap().is_empty());
}

#[test]
fn rfc9111_4_1_requests_that_are_alike() {
    let foo = vary("Vary: Foo\r\n").unwrap();
    for (one, other, alike) in [
        ("Foo: 1\r\n", "Foo: 1\r\n", true),
        ("Foo: 1\r\n", "foo:  1\r\nOther: 2\r\n", true),
        ("Foo: 1\r\n", "Foo: 2\r\n", false),
        ("Foo: 1\r\n", "", false),
        ("Foo:\r\n", "", false),
        ("", "Bar: 1\r\n", true),
        ("Foo: 1, 2\r\n", "Foo: 1\r\nFoo: 2\r\n", true),
        ("Foo: 1, 2\r\n", "Foo: 1,2\r\n", true),
        ("Foo: 1, 2\r\n", "Foo: 2, 1\r\n", false),
        ("Foo: 1, 2\r\n", "Foo: 12\r\n", false),
        ("Foo: a\r\n", "Foo: A\r\n", false),
    ] {
        assert_eq!(variant(&foo, one) == variant(&foo, other), alike, "{one:?} {other:?}");
    }
    let language = vary("Vary: Accept-Language\r\n").unwrap();
    for (one, other, alike) in [
        ("Accept-Language: en-US, de;q=0.5\r\n", "Accept-Language: EN-us,DE;q=0.5\r\n", true),
        ("Accept-Language: en, de\r\n", "Accept-Language: de, en\r\n", false),
    ] {
        assert_eq!(variant(&language, one) == variant(&language, other), alike, "{one:?} {other:?}");
    }
    let both = vary("Vary: Foo, Bar\r\n").unwrap();
    assert_ne!(variant(&both, "Foo: 1\r\n"), variant(&both, "Bar: 1\r\n"));
    assert_eq!(variant(&both, "Foo: 1\r\nBar: 2\r\n"), variant(&both, "Bar: 2\r\nFoo: 1\r\n"));
}

#[test]
fn accept_encoding_has_few_forms() {
    let codings = |value: &str| {
        let request = Request::get(&format!("Accept-Encoding: {value}\r\n"));
        Codings::new(&request.head, &request.bytes)
    };
    for (one, other, alike) in [
        ("gzip, br", "br;q=0.9, gzip;q=1.0", true),
        ("gzip", "GZIP, unknown", true),
        ("gzip", "x-gzip", true),
        ("gzip", "br", false),
        ("gzip, br;q=0", "gzip", true),
        ("gzip, br;q=0.000", "gzip", true),
        ("gzip, br;q=0.001", "gzip", false),
        ("", "identity", true),
        ("gzip, identity;q=0", "gzip", false),
        ("*", "gzip, br, zstd, deflate", true),
        ("*, br;q=0", "gzip, zstd, deflate", true),
        ("gzip, *;q=0", "gzip, identity;q=0", true),
        ("gzip, identity, *;q=0", "gzip", true),
    ] {
        assert_eq!(codings(one) == codings(other), alike, "{one:?} {other:?}");
    }
    let by_coding = vary("Vary: Accept-Encoding\r\n").unwrap();
    let (one, other) = ("Accept-Encoding: gzip, br\r\n", "Accept-Encoding: br,gzip\r\n");
    assert_eq!(variant(&by_coding, one), variant(&by_coding, other));
    let exact = CachePolicy { normalises_accept_encoding: false, ..CachePolicy::default() };
    let [one, other] = [one, other]
        .map(Request::get)
        .map(|request| by_coding.variant(SECRET, &exact, &request.head, &request.bytes, |_| true));
    assert_ne!(one, other);
}
