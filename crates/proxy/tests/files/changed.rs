//! Files that change, even while they are sent.

use std::fs;
use std::net::TcpStream;
use std::time::Instant;

use testkit::http1::Http1Peer;
use testkit::http2::frame::{H2Frame, window_update};
use testkit::scene::{BOTH, SceneClient, Spoken, get};
use testkit::wait::PATIENCE;

use super::scene::{answer_twice, scene, write};

#[test]
fn a_change_is_seen_within_a_moment() {
    let scene = scene("", "");
    let before = answer_twice(&scene, Spoken::Http1, &get("/page.txt"));
    // The same length, and another date.
    fs::write(scene.file("root/page.txt"), "abcdefghij").expect("it can be written");
    fs::remove_file(scene.file("root/docs/index.html")).expect("it is there");
    let began = Instant::now();
    let mut client = scene.client(Spoken::Http2);
    let after = loop {
        let got = client.asks_for(&get("/page.txt"));
        if got.body != "0123456789" {
            break got;
        }
        assert!(began.elapsed() < PATIENCE, "a change was not seen");
        std::thread::yield_now();
    };
    assert_eq!((after.status, after.body.as_str()), (200, "abcdefghij"));
    assert_ne!(after.field("etag"), before.field("etag"));
    // A file that was never open is missing at once.
    assert_eq!(scene.answer(Spoken::Http1, &get("/docs/")).status, 404);
}

/// A file that no socket buffer holds completely.
const HUGE_BYTES: u64 = 64 << 20;

#[test]
fn a_file_that_is_made_shorter_while_it_is_sent_ends_its_connection() {
    let scene = scene("", "");
    let huge = |name: &str| {
        let file = write(&scene, &format!("root/{name}"), "");
        let file = fs::File::options().write(true).open(file).expect("it is there");
        file.set_len(HUGE_BYTES).expect("it can grow");
        file
    };
    for (name, range) in [("whole.bin", ""), ("part.bin", "Range: bytes=1-\r\n")] {
        let file = huge(name);
        let address = scene.running().addresses()[0];
        let mut client = Http1Peer::new("client", TcpStream::connect(address).expect("the proxy listens"));
        client.sends(format!("GET /{name} HTTP/1.1\r\nHost: test\r\n{range}\r\n"));
        assert!(client.head().contains("Content-Length: 671088"));
        file.set_len(1000).expect("it can shrink");
        let (body, _) = client.rest();
        assert!((body.len() as u64) < HUGE_BYTES - 1, "{}", body.len());
    }
    // Over HTTP/2 the stream is reset, once its window is open.
    let file = huge("framed.bin");
    let client = scene.client(Spoken::Http2).asking(&get("/framed.bin"));
    let SceneClient::Two(mut end, stream) = client else { return };
    assert!(matches!(end.next_on(stream), H2Frame::Headers { ends: false, .. }));
    file.set_len(1000).expect("it can shrink");
    end.sends([window_update(0, 1 << 20), window_update(stream, 1 << 20)].concat());
    while let H2Frame::Data { ends, .. } = end.next_on(stream) {
        assert!(!ends, "a part of a file looks like all of it");
    }
}

#[test]
fn what_is_removed_is_not_found_and_what_comes_is() {
    let scene = scene("", "");
    for (spoken, target) in BOTH.into_iter().zip(["/one.txt", "/two.txt"]) {
        assert_eq!(answer_twice(&scene, spoken, &get(target)).status, 404);
        let file = write(&scene, &format!("root{target}"), "new");
        assert_eq!(answer_twice(&scene, spoken, &get(target)).body, "new");
        fs::remove_file(file).expect("it is there");
        let began = Instant::now();
        while scene.answer(spoken, &get(target)).status != 404 {
            assert!(began.elapsed() < PATIENCE, "a removal was not seen");
        }
    }
}
