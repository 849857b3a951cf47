//! Emulated paths: lost, late or duplicate datagrams only cost time.

use std::fs;
use std::time::{Duration, Instant};

use testkit::wait::holds_soon;

use super::scene::{PLAIN, Scene};

const FILES: &str = "[[route]]\nfiles = { root = \"{dir}\" }\n";

fn long_body() -> Vec<u8> {
    (0..1 << 20_u32).map(|at: u32| ((at / 251) ^ at) as u8).collect()
}

#[test]
fn a_download_survives_lost_late_and_double_datagrams() {
    let faults = [("lose", "5%"), ("duplicate", "5%"), ("delay 3ms", "10%")].map(|(what, share)| {
        format!("[[fault]]\ninject = \"connection datagrams {what}\"\nprobability = \"{share}\"\n")
    });
    let scene = Scene::with(&format!("[faults]\nseed = 7\n{FILES}{}", faults.concat()));
    let body = long_body();
    fs::write(scene.file("long"), &body).expect("it can be written");
    let client = scene.client();
    assert!(client.asks("GET", "/long", "").response().1 == body, "the file is another");
    assert!(scene.running.counters().faults_injected > 20, "{}", scene.running.counters().faults_injected);
}

#[test]
fn a_fault_of_one_direction_and_other_clients_harms_nobody_else() {
    let fault = "[[fault]]\ninject = \"connection datagrams lose up\"\nclients = [\"192.0.2.0/24\"]\n";
    let scene = Scene::with(&format!("[[route]]\nrespond = {{ status = 200 }}\n{fault}"));
    assert!(scene.client().asks("GET", "/", "").response().0.starts_with(":status: 200\n"));
    assert_eq!(scene.running.counters().faults_injected, 0);
}

#[test]
fn a_link_delays_datagrams_both_ways_and_a_reload_takes_it_away() {
    let respond = "[[route]]\nrespond = { status = 200 }";
    let scene = Scene::of(1, "http3 = true\nlatency = \"40ms\"\nloss = \"1% 100ms\"", respond);
    let client = scene.client();
    assert!(client.asks("GET", "/", "").response().0.starts_with(":status: 200\n"));
    assert!(client.quic.rtt() >= Duration::from_millis(80), "{:?}", client.quic.rtt());
    scene.reload("http3 = true", respond);
    let is_fast = || {
        assert!(client.asks("GET", "/", "").response().0.starts_with(":status: 200\n"));
        client.quic.rtt() < Duration::from_millis(70)
    };
    assert!(holds_soon(is_fast), "{:?}", client.quic.rtt());
}

/// The minimum time of a long body at 2 MB/s.
const LEAST: Duration = Duration::from_millis(500);

/// Rate limits of bodies and of datagrams, in one direction.
fn rates(direction: &str) -> [String; 2] {
    [
        format!("http3 = true\n{direction}rate = \"2MB/s\""),
        format!("http3 = true\ndatagram_{direction}rate = \"2MB/s queue 30KB\""),
    ]
}

#[test]
fn a_rate_holds_for_a_download_of_a_connection_that_exists_already() {
    for rate in rates("") {
        let scene = Scene::with(FILES);
        let body = long_body();
        fs::write(scene.file("long"), &body).expect("it can be written");
        let client = scene.client();
        assert!(client.asks("GET", "/long", "").response().1 == body, "the file is another");
        scene.reload(&rate, FILES);
        let began = Instant::now();
        assert!(client.asks("GET", "/long", "").response().1 == body, "the file is another");
        assert!(began.elapsed() >= LEAST, "{rate}: {:?}", began.elapsed());
    }
}

#[test]
fn a_rate_from_clients_holds_for_an_upload() {
    for rate in rates("upload_") {
        let scene = Scene::of(1, &rate, PLAIN);
        let client = scene.client();
        let began = Instant::now();
        let mut stream = client.open();
        let sent = std::thread::spawn(move || {
            stream.sends_head(":method: POST\n:scheme: https\n:authority: test\n:path: /\n");
            stream.sends_data(&long_body());
            stream.ends();
            stream
        });
        let mut server = scene.accept();
        let head = server.head();
        assert!(head.starts_with("POST / "), "{head}");
        assert!(server.chunks() == long_body(), "the body is another");
        assert!(began.elapsed() >= LEAST, "{rate}: {:?}", began.elapsed());
        server.sends("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        let mut stream = sent.join().expect("it is sent");
        assert!(stream.response().0.starts_with(":status: 200\n"));
    }
}
