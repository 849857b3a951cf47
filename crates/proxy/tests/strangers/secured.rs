//! TLS and HTTP/2, with clients and servers, in every combination.

use std::net::SocketAddr;
use std::path::Path;

use config::{CertificateFiles, Certificates, KeyPair, Listener, ListenerTls, Protocol, Settings};
use control::Running;
use testkit::scene::valid;

use super::curl::curl;
use super::installed::installed;
use super::nginx::{LARGE_BYTES, Nginx, Pair, Secured, large_body};

/// A listener with a certificate, and one without TLS.
fn proxy_to(server: &str, certificates: Certificates, change: impl FnOnce(&mut Settings)) -> Running {
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut config = Settings::for_servers(vec![any_port; 2], vec![server.parse().expect("is a URL")]);
    let tls = ListenerTls::new(certificates);
    config.listeners[0] = Listener { tls: Some(tls), ..Listener::plain(any_port) };
    change(&mut config);
    control::start(valid(config)).expect("it starts")
}

fn files(pair: &Pair) -> Certificates {
    let Pair { cert, key } = pair.clone();
    Certificates::Files(vec![CertificateFiles {
        pair: KeyPair::new(cert, key),
        ocsp: None,
        names: Vec::new(),
    }])
}

/// curl, and nginx with all ports.
fn cast() -> Option<(std::path::PathBuf, Nginx)> {
    Some((installed("curl")?, Nginx::start_secured()?))
}

fn secured(nginx: &Nginx) -> &Secured {
    nginx.secured.as_ref().expect("it was started so")
}

/// A URL of the proxy, and curl's arguments for it.
struct Door {
    url: String,
    flags: Vec<String>,
    /// The HTTP version that nginx should report.
    version: &'static str,
}

/// All URLs of the proxy.
fn doors(proxy: &Running, cert: &Path) -> Vec<Door> {
    let (tls, plain) = (proxy.addresses()[0], proxy.addresses()[1]);
    let ca = ["--cacert".to_owned(), cert.display().to_string()];
    let resolve = ["--resolve".to_owned(), format!("localhost:{}:{}", tls.port(), tls.ip())];
    let secured = |flags: &[&str], version| Door {
        url: format!("https://localhost:{}", tls.port()),
        flags: ca.iter().chain(&resolve).cloned().chain(flags.iter().map(ToString::to_string)).collect(),
        version,
    };
    let clear = Door {
        url: format!("http://{plain}"),
        flags: vec!["--http2-prior-knowledge".to_owned()],
        version: "2",
    };
    vec![
        secured(&["--http2"], "2"),
        secured(&["--http2", "--tls-max", "1.2"], "2"),
        secured(&["--http1.1"], "1.1"),
        secured(&["--http1.1", "--tls-max", "1.2"], "1.1"),
        clear,
    ]
}

impl Door {
    fn get(&self, program: &Path, path: &str, more: &[&str]) -> Vec<u8> {
        let url = format!("{}{path}", self.url);
        let flags = self.flags.iter().map(String::as_str);
        let arguments: Vec<&str> = flags.chain(more.iter().copied()).chain([url.as_str()]).collect();
        curl(program, &arguments).stdout
    }

    fn text(&self, program: &Path, path: &str, more: &[&str]) -> String {
        String::from_utf8(self.get(program, path, more)).expect("is text")
    }
}

#[test]
fn curl_gets_pages_by_every_door() {
    let Some((program, nginx)) = cast() else { return };
    let pair = &secured(&nginx).pair;
    let proxy = proxy_to(&format!("http://{}", nginx.address), files(pair), |_| ());
    for door in doors(&proxy, &pair.cert) {
        let Door { url, flags, version } = &door;
        let told = ["--write-out", "%{http_version} %{http_code}\n"];
        let said = door.text(&program, "/small.txt", &told);
        assert_eq!(said, format!("hello\n{version} 200\n"), "{flags:?}");
        assert!(door.get(&program, "/large.bin", &[]) == large_body(), "{flags:?}");
        let zipped = door.get(&program, "/zipped", &["--compressed"]);
        assert!(zipped == large_body(), "{flags:?}, compressed");
        let head = door.text(&program, "/large.bin", &["--head"]).to_lowercase();
        assert!(head.contains(&format!("\r\ncontent-length: {LARGE_BYTES}\r\n")), "{flags:?}: {head}");
        let host = url.rsplit('/').next().expect("it has a host");
        let via = if *version == "2" { "2.0" } else { "1.1" };
        let seen = door.text(&program, "/seen", &[]);
        assert_eq!(seen, format!("{host} 127.0.0.1 {via} vanward\n"), "{flags:?}");
        if url.starts_with("http:") {
            // curl 7.88 fails at concurrent requests by prior knowledge, with any server.
            continue;
        }
        // Eight at once, on one connection if it has streams.
        let many = [format!("{url}/large.bin"), format!("{url}/small.txt")];
        let many: Vec<&str> = many.iter().cycle().take(7).map(String::as_str).collect();
        let together = door.get(&program, "/large.bin", &[&["--parallel"], &many[..]].concat());
        assert_eq!(together.len(), 5 * LARGE_BYTES + 3 * "hello\n".len(), "{flags:?}");
    }
}

#[test]
fn curl_puts_files_by_every_door() {
    let Some((program, nginx)) = cast() else { return };
    let pair = &secured(&nginx).pair;
    let proxy = proxy_to(&format!("http://{}", nginx.address), files(pair), |_| ());
    let file = nginx.root().join("pages/large.bin");
    let file = file.to_str().expect("is text");
    for (index, door) in doors(&proxy, &pair.cert).iter().enumerate() {
        let path = format!("/put/{index}");
        let status = ["--output", "/dev/null", "--write-out", "%{http_code}", "--upload-file", file];
        assert_eq!(door.text(&program, &path, &status), "201", "{:?}", door.flags);
        let stored = std::fs::read(nginx.root().join(&path[1..])).expect("it was stored");
        assert!(stored == large_body(), "{:?}: what was stored is not what was sent", door.flags);
    }
}

#[test]
fn nginx_is_spoken_to_by_every_door_of_its_own() {
    let Some((program, nginx)) = cast() else { return };
    let Secured { tls, h2c, pair } = secured(&nginx);
    let cases = [
        (format!("http://{}", nginx.address), Protocol::Http1, "HTTP/1.1  \n"),
        (format!("http://{h2c}"), Protocol::Http2, "HTTP/2.0  \n"),
        (format!("https://{tls}"), Protocol::Http1, "HTTP/1.1 TLSv1.3 localhost\n"),
        (format!("https://{tls}"), Protocol::Http2, "HTTP/2.0 TLSv1.3 localhost\n"),
    ];
    for (server, protocol, spoken) in cases {
        let proxy = proxy_to(&server, files(pair), |config| {
            let upstream = &mut config.upstreams[0];
            upstream.protocol = protocol;
            upstream.tls.ca = Some(pair.cert.clone());
            upstream.tls.name = Some("localhost".to_owned());
        });
        for door in doors(&proxy, &pair.cert) {
            let flags = &door.flags;
            assert_eq!(door.text(&program, "/spoken", &[]), spoken, "{server}, {flags:?}");
            assert!(door.get(&program, "/large.bin", &[]) == large_body(), "{server}, {flags:?}");
        }
    }
}

#[test]
fn a_server_that_nobody_trusted_signed_is_not_spoken_to() {
    let Some((program, nginx)) = cast() else { return };
    let Secured { tls, pair, .. } = secured(&nginx);
    let status = ["--output", "/dev/null", "--write-out", "%{http_code}"];
    for (is_trusted, is_named, is_verified, expected) in [
        (true, true, true, "200"),
        // Self-signed, for another name than this address.
        (false, true, true, "502"),
        (true, false, true, "502"),
        (false, false, false, "200"),
    ] {
        let proxy = proxy_to(&format!("https://{tls}"), files(pair), |config| {
            let upstream = &mut config.upstreams[0].tls;
            upstream.ca = is_trusted.then(|| pair.cert.clone());
            upstream.name = is_named.then(|| "localhost".to_owned());
            upstream.verify = is_verified;
        });
        let door = &doors(&proxy, &pair.cert)[0];
        let told = door.text(&program, "/small.txt", &status);
        assert_eq!(told, expected, "trusted {is_trusted}, named {is_named}, verified {is_verified}");
    }
}

#[test]
fn a_certificate_made_on_the_spot_has_to_be_accepted() {
    let Some((program, nginx)) = cast() else { return };
    let server = format!("http://{}", nginx.address);
    let proxy = proxy_to(&server, Certificates::SelfSigned, |_| ());
    let url = format!("https://{}/small.txt", proxy.addresses()[0]);
    assert_eq!(curl(&program, &["--insecure", &url]).stdout, b"hello\n");
    let refused = std::process::Command::new(&program)
        .args(["-q", "--silent", "--max-time", "60", "--noproxy", "*", &url])
        .status()
        .expect("curl starts");
    // 60: the peer's certificate cannot be authenticated.
    assert_eq!(refused.code(), Some(60));
}
