//! TLS with curl as the client: both versions of HTTP by ALPN. On CI curl must be installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use origin::{OriginCertificate, OriginOptions};

struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("vanward-origin-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs curl. Returns the version of HTTP and the status, then the body; `None` without curl, unless this is CI.
fn curl(arguments: &[&str]) -> Option<String> {
    let told = Command::new("curl")
        .args([
            "--silent",
            "--show-error",
            "--max-time",
            "30",
            "--write-out",
            "%{stderr}%{http_version} %{http_code}",
        ])
        .args(arguments)
        .output();
    match told {
        Ok(told) => Some(
            String::from_utf8_lossy(&told.stderr).into_owned()
                + "\n"
                + &String::from_utf8_lossy(&told.stdout),
        ),
        Err(error) if std::env::var_os("CI").is_some() => panic!("curl must be installed on CI: {error}"),
        Err(_) => None,
    }
}

#[test]
fn a_given_certificate_is_shown_and_both_versions_are_spoken() {
    let folder = Folder::new("given");
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let (certificate, key) = (folder.0.join("cert.pem"), folder.0.join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).expect("a file");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("a file");
    let given = OriginCertificate::Files { certificate: certificate.clone(), key };
    let running = origin::start(OriginOptions { certificate: Some(given), ..OriginOptions::default() })
        .expect("starts");
    let url = |path: &str| format!("https://localhost:{}{path}", running.addresses()[0].port());
    let authority = certificate.to_string_lossy();
    for (version, expected) in
        [("--http1.1", "1.1 200\nGET /echo HTTP/1.1\r\n"), ("--http2", "2 200\n:method: GET\r\n")]
    {
        let Some(told) = curl(&["--cacert", &authority, version, &url("/echo")]) else { return };
        assert!(told.starts_with(expected), "{told}");
        let large = curl(&["--cacert", &authority, version, &url("/large")]).expect("it was there");
        let expected: String = (0..165_854).map(|offset| origin::body_byte(offset) as char).collect();
        assert!(large.ends_with(&expected), "{version}");
    }
    let scheme = curl(&["--cacert", &authority, &url("/cgi-bin/second.pl")]).expect("it was there");
    assert!(scheme.contains("REQUEST_SCHEME --> https<br>"), "{scheme}");
    let told = curl(&[&url("/tiny")]).expect("it was there");
    assert!(told.contains("certificate"), "nobody signed it: {told}");
}

#[test]
fn some_addresses_may_be_plain_and_only_one_cipher_suite_spoken() {
    let options = OriginOptions {
        certificate: Some(OriginCertificate::SelfSigned),
        listen_tls: vec![([127, 0, 0, 1], 0).into()],
        cipher: Some("TLS_AES_128_GCM_SHA256".to_owned()),
        ..OriginOptions::default()
    };
    let running = origin::start(options.clone()).expect("starts");
    let [plain, encrypted] = running.addresses() else { panic!("two addresses: {:?}", running.addresses()) };
    let Some(told) = curl(&[&format!("http://{plain}/tiny")]) else { return };
    assert!(told.starts_with("1.1 200\n"), "{told}");
    let tiny = format!("https://{encrypted}/tiny");
    let told = curl(&["--insecure", &tiny]).expect("it was there");
    assert!(told.starts_with("2 200\n"), "{told}");
    for (suites, is_spoken) in [("TLS_AES_128_GCM_SHA256", true), ("TLS_AES_256_GCM_SHA384", false)] {
        let told = curl(&["--insecure", "--tls13-ciphers", suites, &tiny]).expect("it was there");
        assert_eq!(told.starts_with("2 200\n"), is_spoken, "{suites}: {told}");
    }
    for (bad, said) in [
        (OriginOptions { cipher: Some("ROT13".to_owned()), ..options.clone() }, "no cipher suite ROT13"),
        (OriginOptions { certificate: None, ..options }, "without a certificate"),
    ] {
        let refused = origin::start(bad).err().expect(said).to_string();
        assert!(refused.contains(said), "{refused}");
    }
}

#[test]
fn a_certificate_is_made_for_those_who_have_none() {
    let certificate = Some(OriginCertificate::SelfSigned);
    let running = origin::start(OriginOptions { certificate, ..OriginOptions::default() }).expect("starts");
    let url = format!("https://{}/tiny", running.addresses()[0]);
    let Some(told) = curl(&["--insecure", &url]) else { return };
    assert!(told.starts_with("2 200\n"), "{told}");
}

#[test]
fn a_certificate_that_cannot_be_used_is_an_error_with_its_file() {
    let folder = Folder::new("wrong");
    let path = |name: &str| folder.0.join(name);
    let pair =
        |names: &str| rcgen::generate_simple_self_signed(vec![names.to_owned()]).expect("a certificate");
    let (one, other) = (pair("a"), pair("b"));
    std::fs::write(path("cert.pem"), one.cert.pem()).expect("a file");
    std::fs::write(path("key.pem"), other.signing_key.serialize_pem()).expect("a file");
    std::fs::write(path("empty.pem"), "").expect("a file");
    let failing = |certificate: &Path, key: &Path| {
        let certificate =
            OriginCertificate::Files { certificate: certificate.to_owned(), key: key.to_owned() };
        let started =
            origin::start(OriginOptions { certificate: Some(certificate), ..OriginOptions::default() });
        started.err().expect("it cannot be used").to_string()
    };
    for (certificate, key, named) in [
        ("missing.pem", "key.pem", "missing.pem"),
        ("empty.pem", "key.pem", "empty.pem"),
        ("cert.pem", "empty.pem", "empty.pem"),
        ("cert.pem", "key.pem", "certificate"),
    ] {
        let message = failing(&path(certificate), &path(key));
        assert!(message.contains(named), "{message}");
    }
}
