//! Files: the same requests to nginx and to the proxy, and curl as a client. The table lists the differences.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use control::Running;

use super::curl::curl;
use super::installed::{PATIENCE, installed};
use super::nginx::{LARGE_BYTES, Nginx, large_body};

/// The proxy in front of nginx's pages, with some additions.
fn proxy_of(nginx: &Nginx) -> Running {
    let pages = nginx.root().join("pages");
    for directory in ["docs", "empty", "coded"] {
        fs::create_dir(pages.join(directory)).expect("is writable");
    }
    for (name, text) in [
        ("docs/index.html", "<p>docs"),
        ("coded/app.css", "plain"),
        ("coded/app.css.gz", "gzipped"),
        (".secret", "secret"),
        ("none.txt", ""),
    ] {
        fs::write(pages.join(name), text).expect("is writable");
    }
    std::os::unix::fs::symlink("small.txt", pages.join("link.txt")).expect("is writable");
    // Older than any request, so that dates are strong validators.
    for name in ["small.txt", "large.bin", "docs/index.html", "coded/app.css", "coded/app.css.gz"] {
        let file = fs::File::options().write(true).open(pages.join(name)).expect("it is there");
        let modified = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_727_776_800);
        file.set_modified(modified).expect("it has a date");
    }
    let text = format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\n\
         [[route]]\npath = \"/\"\nfiles = {{ root = {pages:?}, precompressed = true }}\n"
    );
    let config = config::parse(&text, "test").unwrap_or_else(|mistakes| panic!("{mistakes:?}"));
    control::start(config).expect("it starts")
}

#[derive(Debug, PartialEq, Eq)]
struct Got {
    status: u16,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Got {
    fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The fields that both servers must agree on.
    fn told(&self) -> Vec<Option<&str>> {
        let mut told = vec![self.field("content-range"), self.field("content-encoding"), self.field("vary")];
        // Error pages differ.
        if self.status < 300 && !self.is_multipart() {
            told.extend([self.field("content-length"), self.field("last-modified")]);
        }
        told
    }

    fn is_multipart(&self) -> bool {
        self.field("content-type").is_some_and(|it| it.starts_with("multipart/byteranges; boundary="))
    }
}

fn ask(address: SocketAddr, method: &str, target: &str, fields: &str) -> Got {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("is a socket");
    let lines: String = fields.lines().map(|line| format!("{line}\r\n")).collect();
    let request = format!("{method} {target} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{lines}\r\n");
    stream.write_all(request.as_bytes()).expect("it takes a request");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("it answers");
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("there is a head");
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let lines = head.lines().skip(1).filter_map(|line| line.split_once(": "));
    Got {
        status: head[9..12].parse().expect("is a status"),
        fields: lines.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect(),
        body: bytes[end + 4..].to_vec(),
    }
}

const MODIFIED: &str = "Tue, 01 Oct 2024 10:00:00 GMT";
const EARLIER: &str = "Mon, 30 Sep 2024 10:00:00 GMT";
const LATER: &str = "Wed, 02 Oct 2024 10:00:00 GMT";

#[test]
fn files_are_sent_as_nginx_sends_them() {
    let Some(nginx) = Nginx::start() else { return };
    let proxy = proxy_of(&nginx);
    let dates = [EARLIER, MODIFIED].map(|date| {
        ["If-Modified-Since", "If-Unmodified-Since", "Range: bytes=1-2\nIf-Range"]
            .map(|name| ("/small.txt", format!("{name}: {date}")))
    });
    let tags = ["If-None-Match: ETAG", "If-None-Match: \"x\"", "If-None-Match: *", "If-Match: ETAG"];
    let tags = tags.into_iter().chain([
        "If-Match: \"x\"",
        "If-Match: *",
        "If-None-Match: \"x\", ETAG",
        "If-None-Match: W/ETAG",
        "Range: bytes=0-1\nIf-Range: ETAG",
        "Range: bytes=0-1\nIf-Range: \"x\"",
    ]);
    let ranges = ["0-0", "1-3", "-2", "2-", "6-", "-0", "0-99", "0-0,2-3", "9-,1-1"];
    let ranges = ranges.map(|range| ("/small.txt", format!("Range: bytes={range}")));
    let plain = [
        "/small.txt",
        "/small.txt?a=b",
        "//small.txt",
        "/%73mall.txt",
        "/large.bin",
        "/docs/",
        "/gone",
        "/small.txt/",
        "/none.txt",
        "/docs/gone.html",
        "/../small.txt",
        "/%00",
        "/%zz",
        "/docs",
    ];
    let rows = plain.map(|target| (target, String::new())).into_iter();
    let rows = rows.chain(dates.into_iter().flatten()).chain(tags.map(|it| ("/small.txt", it.to_owned())));
    let coded = ["gzip", "gzip;q=0", "identity", "br, gzip;q=0.5"];
    let coded = coded.map(|it| ("/coded/app.css", format!("Accept-Encoding: {it}")));
    let parts = [("/large.bin", "Range: bytes=1000000-2000000".to_owned())];
    for (target, fields) in rows.chain(ranges).chain(coded).chain(parts) {
        for method in ["GET", "HEAD"] {
            let of = |address: SocketAddr| {
                let etag = ask(address, "HEAD", "/small.txt", "").field("etag").map(str::to_owned);
                ask(address, method, target, &fields.replace("ETAG", &etag.expect("has a tag")))
            };
            let (theirs, ours) = (of(nginx.address), of(proxy.addresses()[0]));
            // RFC 9110 §14.2: a range only applies to GET; nginx also accepts it for HEAD.
            if method == "HEAD" && fields.contains("Range: ") {
                continue;
            }
            let row = format!("{method} {target} {fields}");
            assert_eq!(ours.status, theirs.status, "{row}: {ours:?}, nginx: {theirs:?}");
            assert_eq!(ours.told(), theirs.told(), "{row}");
            assert_eq!(ours.is_multipart(), theirs.is_multipart(), "{row}");
            if ours.status < 300 && !ours.is_multipart() {
                assert!(ours.body == theirs.body, "{row}");
            }
            if ours.status == 301 {
                let there = theirs.field("location").expect("a redirect leads somewhere");
                assert!(
                    there.ends_with(ours.field("location").expect("a redirect leads somewhere")),
                    "{there}"
                );
            }
        }
    }
}

#[test]
fn where_nginx_differs_it_is_on_purpose() {
    let Some(nginx) = Nginx::start() else { return };
    let proxy = proxy_of(&nginx);
    let later = format!("If-Modified-Since: {LATER}");
    for (method, target, fields, theirs, ours) in [
        // Whether such a directory exists is not disclosed.
        ("GET", "/empty/", "", 403, 404),
        ("GET", "/.secret", "", 200, 404),
        ("GET", "/link.txt", "", 200, 404),
        // Ambiguous paths are rejected.
        ("GET", "/docs/../small.txt", "", 200, 400),
        ("GET", "/./small.txt", "", 200, 400),
        ("GET", "/docs%2findex.html", "", 200, 400),
        ("GET", "/docs%5cindex.html", "", 404, 400),
        // RFC 9110 §13.1.3: a later date matches; nginx compares for equality by default.
        ("GET", "/small.txt", later.as_str(), 200, 304),
        // RFC 9110 §14.1.1: an invalid range is ignored.
        ("GET", "/small.txt", "Range: bytes=3-1", 416, 200),
        ("GET", "/small.txt", "Range: bytes=x", 416, 200),
    ] {
        let told =
            [nginx.address, proxy.addresses()[0]].map(|address| ask(address, method, target, fields).status);
        assert_eq!(told, [theirs, ours], "{method} {target} {fields}");
    }
    for method in ["POST", "OPTIONS"] {
        let told =
            [nginx.address, proxy.addresses()[0]].map(|address| ask(address, method, "/small.txt", ""));
        assert_eq!(told.each_ref().map(|got| got.status), [405, 405]);
        // RFC 9110 §15.5.6.
        assert_eq!(told.each_ref().map(|got| got.field("allow")), [None, Some("GET, HEAD")]);
    }
}

#[test]
fn curl_resumes_a_download_and_asks_for_what_is_new() {
    let (Some(program), Some(nginx)) = (installed("curl"), Nginx::start()) else { return };
    let proxy = proxy_of(&nginx);
    let url = |path: &str| format!("http://{}{path}", proxy.addresses()[0]);
    let status = ["--write-out", "%{http_code}"];
    let file = nginx.root().join("download");
    let path = file.to_str().expect("is text");
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        let large = url("/large.bin");
        let whole = curl(&program, &[version, &large]).stdout;
        assert!(whole == large_body(), "{version}");
        // The rest of an interrupted download is requested.
        fs::write(&file, &large_body()[..123_456]).expect("is writable");
        let said =
            curl(&program, &[&[version, "-C", "-", "-o", path, large.as_str()], &status[..]].concat()).stdout;
        assert_eq!(String::from_utf8_lossy(&said), "206", "{version}");
        assert!(fs::read(&file).expect("it was written") == large_body(), "{version}");
        let range = curl(&program, &[version, "--range", "100-199", &large]).stdout;
        assert_eq!(range, large_body()[100..200]);
        let parts = curl(&program, &[version, "--range", "0-9,10485750-10485759", &large]).stdout;
        let last = &large_body()[LARGE_BYTES - 10..];
        assert!(parts.windows(10).any(|ten| ten == last), "{version}");
        let small = url("/small.txt");
        let tag = nginx.root().join("tag");
        let tag = tag.to_str().expect("is text");
        let null = ["-o", "/dev/null"];
        let saved =
            curl(&program, &[&[version, "--etag-save", tag, &small], &null[..], &status].concat()).stdout;
        let compared =
            curl(&program, &[&[version, "--etag-compare", tag, &small], &null[..], &status].concat()).stdout;
        let newer = curl(&program, &[&[version, "-z", MODIFIED, &small], &null[..], &status].concat()).stdout;
        let said = [saved, compared, newer].map(|said| String::from_utf8_lossy(&said).into_owned());
        assert_eq!(said, ["200", "304", "304"], "{version}");
        let _ = fs::remove_file(Path::new(tag));
    }
}
