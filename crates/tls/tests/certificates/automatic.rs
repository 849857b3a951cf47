//! Automatic certificates: self-signed until there are files, which are then in force.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use config::{Certificates, Listener};
use tls::{CertificateInUse, Challenges, ServerSide, Source};

use crate::scene::{Scene, USUAL, connect, listener, pem};

fn automatic(folder: &Path, names: &[&str]) -> Listener {
    let mut listener = listener(Vec::new());
    let tls = listener.tls.as_mut().unwrap();
    tls.certificates = Certificates::Automatic {
        names: names.iter().map(ToString::to_string).collect(),
        folder: folder.to_owned(),
    };
    listener
}

fn load(listener: &Listener) -> ServerSide {
    ServerSide::load_answering(listener, &Arc::new(Challenges::default())).unwrap().unwrap()
}

fn put(scene: &Scene, name: &str) -> Vec<u8> {
    let files = Certificates::automatic_files(scene.folder.path(), name);
    fs::create_dir_all(files.cert.parent().unwrap()).unwrap();
    let issued = scene.authority.issue(&[name], USUAL);
    fs::write(&files.key, issued.key.serialize_pem()).unwrap();
    fs::set_permissions(&files.key, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&files.cert, pem("CERTIFICATE", &issued.certificate)).unwrap();
    issued.certificate.to_vec()
}

fn sources(side: &ServerSide) -> Vec<Source> {
    side.certificates().into_iter().map(|CertificateInUse { source, .. }| source).collect()
}

#[test]
fn a_self_signed_certificate_stands_in_until_there_is_one() {
    let scene = Scene::new();
    let cert = |name: &str| Certificates::automatic_files(scene.folder.path(), name).cert;
    let ours = put(&scene, "b.example");
    let side = load(&automatic(scene.folder.path(), &["a.example", "b.example", "192.0.2.1"]));
    let stand_in = |name: &str| Source::StandIn(name.to_owned());
    let auto = |name: &str| Source::Automatic(name.to_owned(), cert(name));
    assert_eq!(sources(&side), [stand_in("a.example"), auto("b.example"), stand_in("192.0.2.1")]);
    assert_eq!(side.certificates()[2].names, ["192.0.2.1"]);
    // A new one each time: what a session remembers is no certificate.
    let client = || Arc::new(scene.client());
    connect(&side.config(), &client(), "a.example").expect_err("nobody believes it");
    assert_eq!(connect(&side.config(), &client(), "b.example").unwrap().shown().to_vec(), ours);

    // As soon as it is said, or at the second look of a tick.
    let config = side.config();
    let first = put(&scene, "a.example");
    assert_eq!(side.reload_automatic("a.example").problems, []);
    assert_eq!(connect(&config, &client(), "a.example").unwrap().shown().to_vec(), first);
    assert_eq!(sources(&side)[0], auto("a.example"));
    let second = put(&scene, "a.example");
    side.tick();
    assert_eq!(side.tick().taken, [cert("a.example")]);
    assert_eq!(connect(&config, &client(), "a.example").unwrap().shown().to_vec(), second);
    // What is broken replaces nothing.
    fs::write(cert("a.example"), "nonsense").unwrap();
    assert_eq!(side.reload_automatic("a.example").problems.len(), 1);
    assert_eq!(connect(&config, &client(), "a.example").unwrap().shown().to_vec(), second);
    // Nor does it keep a process from starting.
    assert_eq!(sources(&load(&automatic(scene.folder.path(), &["a.example"]))), [stand_in("a.example")]);
}
