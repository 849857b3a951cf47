//! Keys as text and as hashes.

use cache::{CacheKey, KeyOptions, KeyQuery, KeySecret, Parameter, Uri, no_values, write_key};

use crate::{Request, text};

fn key(options: &KeyOptions, uri: &Uri<'_>, fields: &str) -> String {
    key_of_passed(options, uri, fields, |_| true)
}

fn key_of_passed(
    options: &KeyOptions,
    uri: &Uri<'_>,
    fields: &str,
    passes: impl Fn(&[u8]) -> bool,
) -> String {
    let request = Request::get(fields);
    let mut written = Vec::new();
    write_key(&mut written, uri, options, (&request.head, &request.bytes), passes, no_values);
    text(&written)
}

fn query(options: &KeyOptions, query: &str) -> String {
    let path = format!("/p?{query}");
    key(options, &Uri::new(false, b"a", path.as_bytes()), "").replace("http://a/p", "")
}

#[test]
fn rfc9110_4_2_3_uris_that_are_the_same() {
    for (is_https, authority, path, expected) in [
        (false, "A.example", "/p?q", "http://a.example/p?q"),
        (false, "a.example:80", "/p", "http://a.example/p"),
        (true, "a.example:443", "/p", "https://a.example/p"),
        (true, "a.example:80", "/p", "https://a.example:80/p"),
        (false, "a.example:", "", "http://a.example/"),
        (false, "[::1]:8080", "?", "http://[::1]:8080/?"),
        (false, "a", "/P/%7e?a?b", "http://a/P/%7e?a?b"),
    ] {
        let uri = Uri::new(is_https, authority.as_bytes(), path.as_bytes());
        assert_eq!(key(&KeyOptions::default(), &uri, ""), expected);
    }
}

#[test]
fn queries() {
    let named = |names: &[&str]| names.iter().map(|name| Parameter::from_written(name)).collect::<Vec<_>>();
    let of = |query, sorts_query| KeyOptions { query, sorts_query, ..KeyOptions::default() };
    for (options, given, expected) in [
        (of(KeyQuery::Whole, false), "b=1&a=2", "?b=1&a=2"),
        (of(KeyQuery::Whole, false), "&", "?&"),
        (of(KeyQuery::Whole, true), "b=1&a=2", "?a=2&b=1"),
        // Parameters with equal names keep their order.
        (of(KeyQuery::Whole, true), "b=2&a=2&b=1&a=1&&", "?a=2&a=1&b=2&b=1"),
        (of(KeyQuery::None, false), "b=1", ""),
        (of(KeyQuery::Keep(named(&["a", "c"])), false), "c&b=1&a=2&aa=3", "?c&a=2"),
        (of(KeyQuery::Keep(named(&["a", "c"])), true), "c&b=1&a=2", "?a=2&c"),
        (of(KeyQuery::Drop(named(&["utm_*", "b"])), false), "utm_x=1&a=2&b=1&utm=3", "?a=2&utm=3"),
        (of(KeyQuery::Drop(named(&["*"])), false), "a=1", ""),
    ] {
        assert_eq!(query(&options, given), expected, "{given} {options:?}");
    }
    // Parameters beyond the sorting limit all remain, in the order in which they came.
    let many: Vec<String> = (0..100).rev().map(|number| format!("p{number}=1")).collect();
    let joined = many.join("&");
    assert_eq!(query(&of(KeyQuery::Whole, true), &joined), format!("?{joined}"));
}

#[test]
fn cookies_and_fields() {
    let options = KeyOptions {
        cookies: vec![b"lang".as_slice().into()],
        headers: vec![b"x-device".as_slice().into()],
        ignores_scheme: true,
        ..KeyOptions::default()
    };
    let uri = Uri::new(true, b"a", b"/p");
    for (fields, expected) in [
        ("", "//a/p"),
        ("Cookie: lang=de; other=1\r\n", "//a/p\ncookie:lang=de"),
        ("Cookie: other=1; lang=de\r\nX-Device: Phone\r\n", "//a/p\ncookie:lang=de\nx-device=Phone"),
        ("Cookie: xlang=de; lang2=de\r\n", "//a/p"),
        ("Cookie: lang=\r\n", "//a/p\ncookie:lang="),
    ] {
        assert_eq!(key(&options, &uri, fields), expected, "{fields:?}");
    }
    let fields = "Cookie: lang=de\r\nX-Device: Phone\r\n";
    for (passing, expected) in
        [("cookie", "//a/p\ncookie:lang=de"), ("x-device", "//a/p\nx-device=Phone"), ("", "//a/p")]
    {
        let passes = |name: &[u8]| name == passing.as_bytes();
        assert_eq!(key_of_passed(&options, &uri, fields, passes), expected, "{passing:?} alone is passed on");
    }
    let bare = KeyOptions { ignores_host: true, ..options };
    assert_eq!(key(&bare, &uri, ""), "/p");
}

/// Values have any bytes, and still begin no other part.
#[test]
fn values_are_parts_of_the_key() {
    let options = KeyOptions { values: vec!["app".into(), "b".into()], ..KeyOptions::default() };
    let (uri, request) = (Uri::new(true, b"a", b"/p"), Request::get(""));
    let head = || (&request.head, &*request.bytes);
    let mut keys = Vec::new();
    for (app, expected) in [
        (Some(&b"www"[..]), "https://a/p\nvalue:app=www\nvalue:b=1"),
        (Some(b""), "https://a/p\nvalue:app=\nvalue:b=1"),
        (None, "https://a/p\nvalue:b=1"),
        (Some(b"x\nvalue:b=1"), "https://a/p\nvalue:app=x%0Avalue:b=1\nvalue:b=1"),
        (Some(b"%0A\x7f"), "https://a/p\nvalue:app=%250A%7F\nvalue:b=1"),
    ] {
        let values = |write: &mut dyn FnMut(&str, &[u8])| {
            app.into_iter().for_each(|app| write("app", app));
            write("b", b"1");
        };
        let mut text = Vec::new();
        write_key(&mut text, &uri, &options, head(), |_| true, values);
        assert_eq!(String::from_utf8(text).unwrap(), expected);
        keys.push(CacheKey::from_secret(KeySecret::new(1), &uri, &options, head(), |_| true, values));
    }
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 5, "all differ");
}

#[test]
fn the_hash_is_that_of_the_text() {
    let (plain, request) = (KeyOptions::default(), Request::get(""));
    let of = |secret, path: &'static str| {
        CacheKey::from_secret(
            secret,
            &Uri::new(false, b"a", path.as_bytes()),
            &plain,
            (&request.head, &request.bytes),
            |_| true,
            no_values,
        )
    };
    assert_eq!(of(KeySecret::new(1), "/a"), of(KeySecret::new(1), "/a"));
    assert_ne!(of(KeySecret::new(1), "/a"), of(KeySecret::new(1), "/b"));
    assert_ne!(of(KeySecret::new(1), "/a"), of(KeySecret::new(2), "/a"));
    let upper = Uri::new(false, b"A:80", b"/a");
    assert_eq!(
        CacheKey::from_secret(
            KeySecret::new(1),
            &upper,
            &plain,
            (&request.head, &request.bytes),
            |_| true,
            no_values
        ),
        of(KeySecret::new(1), "/a")
    );
    let sorted = KeyOptions { sorts_query: true, ..KeyOptions::default() };
    let uris = [b"/?b=1&a=2".as_slice(), b"/?a=2&b=1"].map(|path| Uri::new(false, b"a", path));
    let [one, other] = uris.map(|uri| {
        CacheKey::from_secret(
            KeySecret::new(1),
            &uri,
            &sorted,
            (&request.head, &request.bytes),
            |_| true,
            no_values,
        )
    });
    assert_eq!(one, other);
}
