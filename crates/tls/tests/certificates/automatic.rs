//! Automatic certificates: self-signed until there are files, which are then used.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use config::{Certificates, Listener};
use tls::{CertificateInUse, Challenges, InventorySource, ServerSide};

use super::scene::{Scene, USUAL, connect, listener, pem};

fn automatic(folder: &Path, names: &[&str]) -> Listener {
    let mut listener = listener(Vec::new());
    let tls = listener.tls.as_mut().unwrap();
    tls.certificates = Certificates::Automatic {
        names: names.iter().map(ToString::to_string).collect(),
        folder: folder.to_owned(),
        is_one: false,
    };
    listener
}

fn load(listener: &Listener) -> ServerSide {
    ServerSide::load_answering(listener, &Arc::new(Challenges::default())).unwrap().unwrap()
}

fn put(scene: &Scene, name: &str) -> Vec<u8> {
    put_for(scene, name, &[name])
}

/// Puts a certificate for other names into the folder of a name.
fn put_for(scene: &Scene, folder: &str, names: &[&str]) -> Vec<u8> {
    let files = Certificates::automatic_files(scene.folder.path(), folder);
    fs::create_dir_all(files.cert.parent().unwrap()).unwrap();
    let issued = scene.authority.issue(names, USUAL);
    fs::write(&files.key, issued.key.serialize_pem()).unwrap();
    fs::set_permissions(&files.key, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&files.cert, pem("CERTIFICATE", &issued.certificate)).unwrap();
    issued.certificate.to_vec()
}

fn sources(side: &ServerSide) -> Vec<InventorySource> {
    side.certificates().into_iter().map(|CertificateInUse { source, .. }| source).collect()
}

#[test]
fn a_self_signed_certificate_stands_in_until_there_is_one() {
    let scene = Scene::new();
    let cert = |name: &str| Certificates::automatic_files(scene.folder.path(), name).cert;
    let ours = put(&scene, "b.example");
    let side = load(&automatic(scene.folder.path(), &["a.example", "b.example", "192.0.2.1"]));
    let stand_in = |name: &str| InventorySource::StandIn(name.to_owned());
    let auto = |name: &str| InventorySource::Automatic(name.to_owned(), cert(name));
    assert_eq!(sources(&side), [stand_in("a.example"), auto("b.example"), stand_in("192.0.2.1")]);
    assert_eq!(side.certificates()[2].names, ["192.0.2.1"]);
    // A new client each time, because a resumed session shows no certificate.
    let client = || Arc::new(scene.client());
    connect(&side.config(), &client(), "a.example").expect_err("nobody believes it");
    assert_eq!(connect(&side.config(), &client(), "b.example").unwrap().shown().to_vec(), ours);

    // Used after `reload_automatic`, or at the second check of a tick.
    let config = side.config();
    let first = put(&scene, "a.example");
    assert_eq!(side.reload_automatic("a.example").problems, []);
    assert_eq!(connect(&config, &client(), "a.example").unwrap().shown().to_vec(), first);
    assert_eq!(sources(&side)[0], auto("a.example"));
    let second = put(&scene, "a.example");
    side.tick();
    assert_eq!(side.tick().taken, [cert("a.example")]);
    assert_eq!(connect(&config, &client(), "a.example").unwrap().shown().to_vec(), second);
    // A broken file replaces nothing.
    fs::write(cert("a.example"), "nonsense").unwrap();
    assert_eq!(side.reload_automatic("a.example").problems.len(), 1);
    assert_eq!(connect(&config, &client(), "a.example").unwrap().shown().to_vec(), second);
    // A broken file does not prevent a start.
    assert_eq!(sources(&load(&automatic(scene.folder.path(), &["a.example"]))), [stand_in("a.example")]);
}

/// At a start, at a reload, and while it runs: no client gets it, and the conflict is reported as long as it lasts.
#[test]
fn a_certificate_for_another_name_is_not_served() {
    let scene = Scene::new();
    let client = || Arc::new(scene.client());
    let told = |side: &ServerSide| -> Vec<String> {
        side.certificates()[0].problems.iter().map(|problem| problem.fault.to_string()).collect()
    };
    let conflict = ["its certificate is for b.example, not for a.example: it is not used"];
    put_for(&scene, "a.example", &["b.example"]);
    let listener = automatic(scene.folder.path(), &["a.example"]);
    let side = load(&listener);
    assert_eq!(sources(&side), [InventorySource::StandIn("a.example".to_owned())]);
    assert_eq!(told(&side), conflict);
    assert!(
        side.remarks().iter().all(tls::CertificateProblem::is_usable),
        "it keeps no process from starting"
    );

    let own = put(&scene, "a.example");
    assert_eq!(side.reload_automatic("a.example").problems, []);
    assert_eq!(told(&side), [""; 0]);
    put_for(&scene, "a.example", &["b.example"]);
    assert_eq!(side.reload_automatic("a.example").problems.len(), 1);
    side.reload();
    assert_eq!(told(&side), conflict);
    put_for(&scene, "a.example", &["b.example"]);
    side.tick();
    assert_eq!(side.tick().problems.len(), 1);
    assert_eq!(connect(&side.config(), &client(), "a.example").unwrap().shown().to_vec(), own);

    // A certificate for several names belongs to any folder of these names.
    let wide = put_for(&scene, "a.example", &["b.example", "a.example"]);
    assert_eq!(side.reload_automatic("a.example").problems, []);
    assert_eq!(connect(&side.config(), &client(), "a.example").unwrap().shown().to_vec(), wide);
    assert_eq!(told(&side), [""; 0]);
}
