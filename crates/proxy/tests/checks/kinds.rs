//! A server that fails its checks gets no requests until it is back: with every kind of check.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use config::{Check, Probe, Protocol};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;

use super::checked::{Checked, Files, Spoken};
use super::scene::{QUICK, Scene, check, get, waits_until};

#[test]
fn http() {
    let scene = Scene::checked(check(get()));
    let second = &scene.servers[1];
    goes_down_and_comes_back(
        &scene,
        |is_well| second.is_ill.store(!is_well, SeqCst),
        || second.checks.load(SeqCst),
    );
    let asked = second.asked.lock().expect("no panic");
    assert!(asked.contains("User-Agent: vanward-check/"), "{asked}");
    assert!(asked.contains(&format!("\r\nHost: {}\r\n", scene.config.upstreams[0].servers[1].authority())));
}

#[test]
fn http2() {
    let checked = Checked::start(Spoken::Http2);
    let scene = Scene::new(2, |config| {
        config.upstreams[0].protocol = Protocol::Http2;
        config.upstreams[0].servers.iter_mut().for_each(|server| server.port = checked.port);
        config.upstreams[0].check = Some(check(get()));
    });
    goes_down_and_comes_back(&scene, |is_well| checked.is(is_well), || checked.connections.load(SeqCst));
}

#[test]
fn tcp() {
    goes_down_and_comes_back_at_its_port(Spoken::Nothing, Probe::Tcp);
}

#[test]
fn tls() {
    goes_down_and_comes_back_at_its_port(Spoken::Tls(Arc::new(certified())), Probe::Tls);
}

#[test]
fn grpc() {
    goes_down_and_comes_back_at_its_port(Spoken::Grpc, Probe::Grpc { service: "shop.Cart".to_owned() });
}

#[test]
fn command() {
    let files = Files::new();
    // The path is the program's argument; the rest comes from environment variables.
    let script = "test -e \"$0/$VANWARD_ADDRESS\" && test \"$VANWARD_SERVER\" = \"http://$VANWARD_HOST:$VANWARD_PORT\"";
    let folder = files.folder.path().display().to_string();
    let command = ["/bin/sh", "-c", script, &folder].map(str::to_owned).to_vec();
    let scene = Scene::checked(check(Probe::Command { command }));
    scene.waits_for(&["1", "2"]);
    files.is("127.0.0.2", false);
    scene.waits_for(&["1"]);
    files.is("127.0.0.2", true);
    scene.waits_for(&["1", "2"]);
}

fn goes_down_and_comes_back_at_its_port(spoken: Spoken, probe: Probe) {
    let checked = Checked::start(spoken);
    let check = Check { port: Some(checked.port), ..check(probe) };
    let scene = Scene::new(2, |config| {
        config.upstreams[0].tls.verify = false;
        config.upstreams[0].check = Some(check);
    });
    goes_down_and_comes_back(&scene, |is_well| checked.is(is_well), || checked.connections.load(SeqCst));
}

/// `checks` counts those of the second server.
fn goes_down_and_comes_back(scene: &Scene, is: impl Fn(bool), checks: impl Fn() -> usize) {
    waits_until("no checks", || checks() > QUICK.rise as usize);
    assert_eq!(scene.who(), ["1", "2"], "both are well");
    for _ in 0..2 {
        is(false);
        scene.waits_for(&["1"]);
        // Several requests, so that it is not by chance.
        for _ in 0..8 {
            assert_eq!(scene.who(), ["1"]);
        }
        is(true);
        scene.waits_for(&["1", "2"]);
    }
}

/// TLS with a self-signed certificate.
fn certified() -> ServerConfig {
    let made = rcgen::generate_simple_self_signed(vec!["a.example".to_owned()]).expect("it can be made");
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.expect("they are spoken").with_no_client_auth();
    builder.with_single_cert(vec![made.cert.der().clone()], key).expect("the key fits")
}
