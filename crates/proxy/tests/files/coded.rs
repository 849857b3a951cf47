//! Precompressed siblings.

use testkit::scene::{BOTH, BodylessRequest, get};

use super::scene::{answer_twice, scene, with, write};

#[test]
fn rfc9110_12_5_3_the_sibling_that_the_client_wants_most_is_sent() {
    let scene = scene(", precompressed = true", "");
    for (name, text) in [("app.js", "plain"), ("app.js.br", "brotli"), ("app.js.gz", "gzipped")] {
        write(&scene, &format!("root/{name}"), text);
    }
    for spoken in BOTH {
        let mut tags = Vec::new();
        for (accepts, coding, body) in [
            ("", None, "plain"),
            ("accept-encoding: gzip, deflate, br, zstd", Some("br"), "brotli"),
            ("accept-encoding: gzip, zstd", Some("gzip"), "gzipped"),
            ("accept-encoding: zstd", None, "plain"),
            ("accept-encoding: br;q=0.1, gzip;q=0.9", Some("gzip"), "gzipped"),
            ("accept-encoding: gzip;q=0.5\naccept-encoding: identity", None, "plain"),
            ("accept-encoding: br;q=0, gzip;q=0", None, "plain"),
            ("accept-encoding: *", Some("br"), "brotli"),
        ] {
            let got = answer_twice(&scene, spoken, &with("/app.js", accepts));
            assert_eq!((got.field("content-encoding"), got.body.as_str()), (coding, body), "{accepts}");
            assert_eq!(got.field("content-type"), Some("text/javascript; charset=utf-8"), "{accepts}");
            assert_eq!(got.field("vary"), Some("Accept-Encoding"), "{accepts}");
            tags.push(got.field("etag").expect("has a tag").to_owned());
        }
        tags.sort_unstable();
        tags.dedup();
        assert_eq!(tags.len(), 3);
        // Preconditions apply to the representation that would be sent.
        let got = answer_twice(&scene, spoken, &with("/app.js", "accept-encoding: gzip"));
        let tag = got.field("etag").expect("has a tag").to_owned();
        for (accepts, status) in [("gzip", 304), ("br", 200), ("identity", 200)] {
            let fields = format!("accept-encoding: {accepts}\nif-none-match: {tag}");
            let got = answer_twice(&scene, spoken, &with("/app.js", &fields));
            assert_eq!((got.status, got.field("vary")), (status, Some("Accept-Encoding")), "{accepts}");
        }
        // A range refers to the coded bytes.
        let got = answer_twice(&scene, spoken, &with("/app.js", "accept-encoding: br\nrange: bytes=0-1"));
        assert_eq!((got.status, got.body.as_str(), got.field("content-encoding")), (206, "br", Some("br")));
        // A sibling under its own name is a plain file.
        let got = answer_twice(&scene, spoken, &with("/app.js.gz", "accept-encoding: gzip"));
        assert_eq!(
            (got.field("content-encoding"), got.field("content-type")),
            (None, Some("application/gzip"))
        );
        // Without a sibling there is no Vary.
        assert_eq!(
            answer_twice(&scene, spoken, &with("/page.txt", "accept-encoding: br")).field("vary"),
            None
        );
        let head = BodylessRequest { method: "HEAD", ..with("/app.js", "accept-encoding: br") };
        assert_eq!(answer_twice(&scene, spoken, &head).field("content-encoding"), Some("br"));
    }
}

#[test]
fn siblings_are_for_routes_that_want_them_and_for_files_that_there_are() {
    let plain = scene("", "");
    write(&plain, "root/page.txt.gz", "gzipped");
    let coded = scene(", precompressed = true", "");
    write(&coded, "root/alone.txt.gz", "gzipped");
    for spoken in BOTH {
        let got = answer_twice(&plain, spoken, &with("/page.txt", "accept-encoding: gzip"));
        assert_eq!((got.field("content-encoding"), got.body.as_str()), (None, "0123456789"));
        assert_eq!(answer_twice(&coded, spoken, &with("/alone.txt", "accept-encoding: gzip")).status, 404);
        assert_eq!(answer_twice(&coded, spoken, &get("/page.txt")).body, "0123456789");
    }
}
