//! Many certificates on one listener.

use std::sync::Arc;

use config::{CertificateFiles, KeyPair};
use rcgen::{CertificateParams, SerialNumber};
use tls::{Reload, ServerSide};

use super::scene::{Scene, connect, listener, pem};

/// More than one tick checks.
const MANY: usize = 1001;

#[test]
fn each_of_many_is_found_and_renewed() {
    let scene = Scene::new();
    // One key for all, because keys take the most time.
    let key = rcgen::KeyPair::generate().unwrap();
    let key_file = scene.write("all.key", key.serialize_pem());
    let issue = |number: usize, serial: u64| {
        let mut parameters = CertificateParams::new(vec![format!("s{number}.example")]).unwrap();
        parameters.serial_number = Some(SerialNumber::from(serial));
        scene.authority.sign(parameters, &key)
    };
    let files: Vec<CertificateFiles> = (0..MANY)
        .map(|number| {
            // The chain contains the CA's certificate, like an intermediate one.
            let chain = [&issue(number, 1), &scene.authority.certificate].map(|one| pem("CERTIFICATE", one));
            let cert = scene.write(&format!("{number}.pem"), chain.concat());
            CertificateFiles { pair: KeyPair::new(cert, &key_file), ocsp: None, names: Vec::new() }
        })
        .collect();
    let side = ServerSide::load(&listener(files.clone())).unwrap().unwrap();
    let client = Arc::new(scene.client());
    let config = side.config();
    let shown = |name: &str| connect(&config, &client, name).unwrap().shown();
    for number in [0, 1, MANY / 2, MANY - 1] {
        let names = x509_names(&shown(&format!("s{number}.example")));
        assert_eq!(names, [format!("s{number}.example")]);
    }
    // Each tick checks a part of them, and a change is taken at the second check.
    let renewed = issue(MANY - 1, 2);
    scene.write(&format!("{}.pem", MANY - 1), pem("CERTIFICATE", &renewed));
    let reloads: Vec<Reload> =
        (0..5).map(|_| side.tick()).filter(|reload| *reload != Reload::default()).collect();
    let taken = vec![files[MANY - 1].pair.cert.clone()];
    assert_eq!(reloads, [Reload { taken, problems: Vec::new() }]);
    // A client without a session from the old certificate.
    let client = Arc::new(scene.client());
    assert_eq!(connect(&config, &client, &format!("s{}.example", MANY - 1)).unwrap().shown(), renewed);
}

fn x509_names(certificate: &rustls::pki_types::CertificateDer<'_>) -> Vec<String> {
    let names = tls::VerifiedClient::from_certificate(certificate).names;
    names.split(',').map(|name| name.trim_start_matches("DNS:").to_owned()).collect()
}
