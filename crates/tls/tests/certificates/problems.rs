//! Every problem that a file can have, and its message.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use config::{CertificateFiles, ClientCertificates, Shared, Upstream};
use tls::{CertificateFault, CertificateProblem, ClientSide, ServerSide};

use super::scene::{
    Authority, FAR_AWAY, GOOD, Issued, REVOKED, Scene, USUAL, Wanted, inside, listener, ocsp_response, pem,
};

/// The problems of a listener with these certificates, usable or not.
fn problems(files: Vec<CertificateFiles>) -> Vec<CertificateProblem> {
    match ServerSide::load(&listener(files)) {
        Ok(side) => {
            let remarks = side.unwrap().remarks();
            assert!(remarks.iter().all(CertificateProblem::is_usable), "{remarks:?}");
            remarks
        }
        Err(problems) => {
            assert!(problems.iter().any(|problem| !problem.is_usable()), "{problems:?}");
            problems
        }
    }
}

/// The only problem, and the name of its file.
fn only(files: CertificateFiles) -> (String, CertificateFault) {
    let found = problems(vec![files]);
    let [CertificateProblem { file: Some(file), fault }] = &found[..] else { panic!("{found:?}") };
    (file.file_name().unwrap().to_str().unwrap().to_owned(), fault.clone())
}

#[test]
fn keys_of_every_kind_and_form_are_taken() {
    let scene = Scene::new();
    let issue = |algorithm| scene.authority.issue(&["a.example"], Wanted { algorithm, ..USUAL });
    for (name, issued, old_form) in [
        ("rsa", issue(&rcgen::PKCS_RSA_SHA256), Some("RSA PRIVATE KEY")),
        ("p256", issue(&rcgen::PKCS_ECDSA_P256_SHA256), Some("EC PRIVATE KEY")),
        ("p384", issue(&rcgen::PKCS_ECDSA_P384_SHA384), Some("EC PRIVATE KEY")),
        ("p521", issue(&rcgen::PKCS_ECDSA_P521_SHA512), Some("EC PRIVATE KEY")),
        ("ed25519", issue(&rcgen::PKCS_ED25519), None),
    ] {
        let files = scene.put(name, &issued);
        assert_eq!(problems(vec![files.clone()]), [], "{name} in PKCS#8");
        // Both in one file, which is a common practice; and text around the sections.
        let both = format!("Key of a:\n{}\n{}", issued.key.serialize_pem(), chain(&scene, &issued));
        let mut one = files.clone();
        one.pair.cert = scene.write(&format!("{name}.both"), &both);
        one.pair.key = one.pair.cert.clone();
        assert_eq!(problems(vec![one]), [], "{name} with its certificate");
        if let Some(label) = old_form {
            // PKCS#8 wraps the older forms: PKCS#1 and SEC1.
            let old = pem(label, &inside(&issued.key.serialize_der(), 0x04));
            scene.write(&format!("{name}.key"), old);
            assert_eq!(problems(vec![files]), [], "{name} as {label}");
        }
    }
}

fn chain(scene: &Scene, issued: &Issued) -> String {
    pem("CERTIFICATE", &issued.certificate) + &pem("CERTIFICATE", &scene.authority.certificate)
}

#[test]
fn files_that_are_no_certificate_or_no_key() {
    let scene = Scene::new();
    let good = scene.files("good", &["a.example"]);
    let certificate = std::fs::read_to_string(&good.pair.cert).unwrap();
    let key = std::fs::read_to_string(&good.pair.key).unwrap();
    let missing = std::fs::read(scene.path("missing")).unwrap_err().to_string();
    let folder = std::fs::read(scene.folder.path()).unwrap_err().to_string();
    let unreadable = |error: &str| CertificateFault::Unreadable(error.to_owned());
    let encrypted = pem("ENCRYPTED PRIVATE KEY", &[1; 40]);
    let headers = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nAAAA\n\
                   -----END RSA PRIVATE KEY-----\n";
    let second_is_none = format!("{certificate}{}", pem("CERTIFICATE", b"no certificate"));
    for (name, content, cert_fault, key_fault) in [
        ("empty", Some(""), CertificateFault::NoCertificate, CertificateFault::NoKey),
        ("text", Some("hello"), CertificateFault::NoCertificate, CertificateFault::NoKey),
        ("missing", None, unreadable(&missing), unreadable(&missing)),
        (".", None, unreadable(&folder), unreadable(&folder)),
        (
            "large",
            Some(&*"#".repeat(1 << 20 | 1)),
            CertificateFault::TooLarge(1024),
            CertificateFault::TooLarge(1024),
        ),
        ("swapped", None, CertificateFault::NoCertificate, CertificateFault::NoKey),
        (
            "cut",
            Some("-----BEGIN CERTIFICATE-----\nAAAA\n"),
            broken("a section has no END line"),
            broken("a section has no END line"),
        ),
        (
            "base64",
            Some("-----BEGIN CERTIFICATE-----\n*\n-----END CERTIFICATE-----\n"),
            broken("a section is not base64"),
            broken("a section is not base64"),
        ),
        ("encrypted", Some(&*encrypted), CertificateFault::NoCertificate, CertificateFault::EncryptedKey),
        ("headers", Some(headers), broken("a section is not base64"), CertificateFault::EncryptedKey),
        (
            "garbage.key",
            Some(&*pem("PRIVATE KEY", &[0x30, 0])),
            CertificateFault::NoCertificate,
            CertificateFault::UnusableKey,
        ),
        (
            "garbage.pem",
            Some(&*pem("CERTIFICATE", &[0x30, 0])),
            CertificateFault::NotACertificate(1),
            CertificateFault::NoKey,
        ),
        ("second", Some(&*second_is_none), CertificateFault::NotACertificate(2), CertificateFault::NoKey),
    ] {
        let path = match (name, content) {
            ("swapped", _) => None,
            (_, Some(content)) => Some(scene.write(name, content)),
            (_, None) => Some(scene.path(name)),
        };
        let mut files = good.clone();
        files.pair.cert = path.clone().unwrap_or_else(|| scene.write("swapped.pem", &key));
        let file_name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!(only(files.clone()), (file_name(&files.pair.cert), cert_fault), "{name} as cert");
        let mut files = good.clone();
        files.pair.key = path.unwrap_or_else(|| scene.write("swapped.key", &certificate));
        assert_eq!(only(files.clone()), (file_name(&files.pair.key), key_fault), "{name} as key");
    }
    // The problems of both are reported at once.
    let mut both = good;
    both.pair.cert = scene.path("missing");
    both.pair.key = scene.path("missing.key");
    assert_eq!(problems(vec![both]).len(), 2);
}

fn broken(what: &str) -> CertificateFault {
    CertificateFault::BrokenPem(what.to_owned())
}

#[test]
fn a_key_of_another_certificate() {
    let scene = Scene::new();
    let mut files = scene.files("a", &["a.example"]);
    files.pair.key = scene.files("b", &["a.example"]).pair.key;
    assert_eq!(only(files.clone()), ("b.key".to_owned(), CertificateFault::OtherKey(files.pair.cert)));
}

#[test]
fn usable_certificates_with_problems_are_reported() {
    let scene = Scene::new();
    let put = |name: &str, names: &[&str], years| {
        scene.put(name, &scene.authority.issue(names, Wanted { years, ..USUAL }))
    };
    let expired = CertificateFault::Expired { until: "2001-01-01 00:00:00 UTC".to_owned() };
    assert_eq!(only(put("old", &["a.example"], (2000, 2001))), ("old.pem".to_owned(), expired));
    let early = CertificateFault::NotYetValid { from: "3999-01-01 00:00:00 UTC".to_owned() };
    assert_eq!(only(put("new", &["a.example"], (3999, 4000))), ("new.pem".to_owned(), early));
    // Without a name, only the first certificate is usable.
    let (first, second) = (put("first", &[], USUAL.years), put("second", &[], USUAL.years));
    let of_address = put("third", &["127.0.0.1"], USUAL.years);
    let found = problems(vec![first, second.clone(), of_address]);
    assert_eq!(found, [CertificateProblem { file: Some(second.pair.cert), fault: CertificateFault::NoName }]);
}

#[test]
fn ocsp_responses() {
    let scene = Scene::new();
    let good = ocsp_response(USUAL.serial, GOOD, FAR_AWAY);
    let stale = CertificateFault::OcspStale { until: "2020-01-08 00:00:00 UTC".to_owned() };
    let not_successful = [0x30, 0x03, 0x0a, 0x01, 0x06];
    for (response, fault) in [
        (good.clone(), None),
        (ocsp_response(USUAL.serial, GOOD, None), None),
        (ocsp_response(USUAL.serial + 1, GOOD, FAR_AWAY), Some(CertificateFault::OcspOfAnother)),
        (ocsp_response(USUAL.serial, GOOD, Some("20200108000000Z")), Some(stale)),
        (ocsp_response(USUAL.serial, REVOKED, FAR_AWAY), Some(CertificateFault::OcspNotGood("revoked"))),
        (
            ocsp_response(USUAL.serial, 0x82, FAR_AWAY),
            Some(CertificateFault::OcspNotGood("unknown to the responder")),
        ),
        (good[..good.len() - 1].to_vec(), Some(CertificateFault::NotAnOcspResponse)),
        (not_successful.to_vec(), Some(CertificateFault::NotAnOcspResponse)),
        (b"hello".to_vec(), Some(CertificateFault::NotAnOcspResponse)),
        (Vec::new(), Some(CertificateFault::NotAnOcspResponse)),
    ] {
        let mut files = scene.files("a", &["a.example"]);
        files.ocsp = Some(scene.write("a.ocsp", response));
        let found: Vec<CertificateFault> =
            problems(vec![files]).into_iter().map(|problem| problem.fault).collect();
        assert_eq!(found, fault.into_iter().collect::<Vec<_>>());
    }
    let mut files = scene.files("a", &["a.example"]);
    files.ocsp = Some(scene.path("missing"));
    assert!(matches!(only(files), (name, CertificateFault::UnreadableOcsp(_)) if name == "missing"));
}

#[test]
fn authorities() {
    let scene = Scene::new();
    let broken = format!("{}{}", std::fs::read_to_string(scene.ca()).unwrap(), pem("CERTIFICATE", b"none"));
    let (empty, broken) = (scene.write("empty", ""), scene.write("broken", broken));
    for (ca, fault) in
        [(empty, CertificateFault::NoCertificate), (broken, CertificateFault::NotACertificate(2))]
    {
        let expected = [CertificateProblem { file: Some(ca.clone()), fault }];
        let mut listener = listener(vec![scene.files("a", &["a.example"])]);
        if let Some(tls) = &mut listener.tls {
            tls.client_certificates = ClientCertificates::Optional(ca.clone().into());
        }
        assert_eq!(ServerSide::load(&listener).unwrap_err(), expected);
        assert_eq!(ClientSide::load(&upstream(Some(ca))).unwrap_err(), expected);
    }
    // With `verify = false`, the CA file is not read.
    let mut unverified = upstream(Some(scene.path("missing")));
    unverified.tls.verify = false;
    assert!(ClientSide::load(&unverified).is_ok());
}

fn upstream(ca: Option<PathBuf>) -> Shared<Upstream> {
    let server = "https://a.example".parse().unwrap();
    let mut upstream =
        config::Settings::for_servers(vec![([127, 0, 0, 1], 0).into()], vec![server]).upstreams.remove(0);
    upstream.tls.ca = ca;
    upstream
}

#[test]
fn certificates_for_servers() {
    let scene = Scene::new();
    let mut upstream = upstream(Some(scene.ca()));
    let old = Authority::new("old").issue(&["own"], Wanted { years: (2000, 2001), ..USUAL });
    upstream.tls.certificate = Some(scene.put("own", &old).pair);
    let side = ClientSide::load(&upstream).unwrap().unwrap();
    assert!(
        matches!(side.remarks(), [CertificateProblem { fault: CertificateFault::Expired { .. }, .. }]),
        "{:?}",
        side.remarks()
    );
    scene.write("own.key", "");
    let path = scene.path("own.key");
    assert_eq!(
        ClientSide::load(&upstream).unwrap_err(),
        [CertificateProblem { file: Some(path), fault: CertificateFault::NoKey }]
    );
}

#[test]
fn secrets_that_others_can_read_are_remarked_on() {
    let scene = Scene::new();
    let mut files = scene.put("a", &scene.authority.issue(&["a.example"], USUAL));
    // An unencrypted key may have a passphrase, too.
    files.pair.passphrase = Some(scene.write("a.pass", "opensesame\n"));
    let mut upstream = upstream(Some(scene.ca()));
    upstream.tls.certificate = Some(files.pair.clone());
    let is_root = std::fs::metadata(&files.pair.key).unwrap().uid() == 0;
    let set =
        |name: &str, mode| std::fs::set_permissions(scene.path(name), Permissions::from_mode(mode)).unwrap();
    for (of_key, of_passphrase, owner, is_for_all) in [
        (0o600, 0o400, 1, vec![]),
        (0o644, 0o600, 1, vec![("a.key", 0o644, true)]),
        (0o604, 0o666, 0, vec![("a.key", 0o604, true), ("a.pass", 0o666, true)]),
        (0o640, 0o600, 1, vec![("a.key", 0o640, false)]),
        // The group of the process, if the owner is root.
        (0o640, 0o440, 0, vec![]),
    ] {
        if is_root {
            chown(scene.path("a.key"), Some(owner), None).unwrap();
        } else if owner == 0 {
            continue;
        }
        set("a.key", of_key);
        set("a.pass", of_passphrase);
        let expected: Vec<_> = is_for_all
            .into_iter()
            .map(|(name, mode, is_for_all)| CertificateProblem {
                file: Some(scene.path(name)),
                fault: CertificateFault::Readable { mode, is_for_all },
            })
            .collect();
        assert!(expected.iter().all(CertificateProblem::is_advice));
        assert_eq!(problems(vec![files.clone()]), expected, "{of_key:o}");
        assert_eq!(ClientSide::load(&upstream).unwrap().unwrap().remarks(), expected, "{of_key:o}");
    }
}

#[test]
fn problems_have_a_remedy() {
    let problem = |fault| CertificateProblem { file: Some("/etc/a.pem".into()), fault }.to_string();
    assert_eq!(
        problem(CertificateFault::NoCertificate),
        "/etc/a.pem: it has no certificate; expected certificates in PEM: -----BEGIN CERTIFICATE-----"
    );
    assert_eq!(
        problem(CertificateFault::OtherKey("/etc/b.pem".into())),
        "/etc/a.pem: it is not the key of the certificate in /etc/b.pem; expected the key that the certificate was \
         made for"
    );
    assert_eq!(
        problem(CertificateFault::Readable { mode: 0o640, is_for_all: false }),
        "/etc/a.pem: the file's group can read this secret (mode 0640); expected mode 0600; or 0640, with root as the \
         owner and the group of the process as the group"
    );
    assert_eq!(
        problem(CertificateFault::Unreadable("gone".to_owned())),
        "/etc/a.pem: it can't be read: gone"
    );
}

#[test]
fn a_key_that_no_suite_is_for_is_refused() {
    use config::TlsCipher as Cipher;
    let scene = Scene::new();
    let issue = |algorithm| scene.authority.issue(&["a.example"], Wanted { algorithm, ..USUAL });
    let rsa = scene.put("rsa", &issue(&rcgen::PKCS_RSA_SHA256));
    let ecdsa = scene.put("ecdsa", &issue(&rcgen::PKCS_ECDSA_P256_SHA256));
    let ed25519 = scene.put("ed25519", &issue(&rcgen::PKCS_ED25519));
    let of_ecdsa = Cipher::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
    let of_rsa = Cipher::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256;
    let of_all = Cipher::TLS_AES_128_GCM_SHA256;
    for (files, ciphers, refused) in [
        (&rsa, &[of_ecdsa][..], Some("RSA")),
        (&rsa, &[of_ecdsa, of_rsa], None),
        (&rsa, &[of_ecdsa, of_all], None),
        (&ecdsa, &[of_rsa], Some("ECDSA")),
        (&ecdsa, &[of_ecdsa], None),
        // RFC 8422 §5.10: its suites are those of ECDSA.
        (&ed25519, &[of_ecdsa], None),
        (&ed25519, &[of_rsa], Some("Ed25519")),
    ] {
        let mut listener = listener(vec![files.clone()]);
        let tls = listener.tls.as_mut().unwrap();
        tls.negotiation.ciphers = Some(ciphers.to_vec());
        if !ciphers.contains(&of_all) {
            tls.negotiation.max_version = Some(config::TlsVersion::Tls12);
        }
        let expected = refused.map(|kind| {
            vec![CertificateProblem {
                file: Some(files.pair.key.clone()),
                fault: CertificateFault::NoSuite(kind),
            }]
        });
        assert_eq!(ServerSide::load(&listener).err(), expected, "{ciphers:?}");
    }
}
