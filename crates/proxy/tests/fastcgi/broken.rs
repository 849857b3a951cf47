//! Applications that break off, or break rules of FastCGI. Incomplete responses look incomplete.

use fastcgi::{Header, RecordType};
use testkit::http1::{Http1Peer, ReaderEnding};
use testkit::scene::{Scene, SceneClient, Spoken, get};

use super::application::{Application, end, record, scene, stderr, stdout};

/// A proxy that makes one attempt for each request.
fn once() -> Scene {
    scene("retry = { attempts = 1 }\neject = \"off\"\n")
}

fn client(scene: &Scene) -> Http1Peer {
    let SceneClient::One(peer) = scene.client(Spoken::Http1) else { panic!("HTTP/1") };
    peer.saying("GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")
}

/// Returns the status that a client gets, and whether the response is complete.
fn outcome(client: &mut Http1Peer) -> (u16, bool) {
    let (bytes, ending) = client.rest();
    let text = String::from_utf8(bytes).expect("is text");
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text}"));
    let status = head[9..12].parse().expect("is a status");
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let length = length.or_else(|| head.lines().find_map(|line| line.strip_prefix("content-length: ")));
    let is_whole = match length {
        Some(length) => body.len() == length.parse::<usize>().expect("is a number"),
        None => body.ends_with("0\r\n\r\n"),
    };
    (status, is_whole && ending == ReaderEnding::End)
}

#[test]
fn an_application_that_dies_at_any_byte_gives_no_complete_response() {
    let scene = once();
    let head = "Content-Type: text/plain\r\n\r\n";
    for (body, has_length) in [(stdout("body"), false), (stdout("body"), true)] {
        let head = if has_length { format!("Content-Length: 4\r\n{head}") } else { head.to_owned() };
        let bytes = [stdout(&head), stderr("oh"), body, end(0)].concat();
        // The head is complete with its record.
        let head_end = 8 + head.len();
        // With its length, the body is complete before the end of the response.
        let whole = if has_length { bytes.len() - 16 } else { bytes.len() };
        for cut in 0..=bytes.len() {
            let mut client = client(&scene);
            let mut application = Application::accept(&scene, 0);
            application.gets();
            application.sends(&bytes[..cut]);
            drop(application);
            let got = outcome(&mut client);
            let is_right = match cut {
                _ if cut < head_end => got == (502, true),
                _ if cut >= whole => got == (200, true),
                // The rest of a short body is awaited, so that an error can take its place.
                _ => got == (200, false) || has_length && got == (502, true),
            };
            assert!(is_right, "{got:?} after {cut} of {}, {has_length}", bytes.len());
        }
    }
}

#[test]
fn responses_that_break_rules_are_refused() {
    let other = |kind: u8, id: u16, version: u8| {
        Header { version, kind, id, content: 0, padding: 0 }.encode().to_vec()
    };
    for (why, bytes) in [
        ("another request", other(RecordType::Stdout as u8, 2, 1)),
        ("another version", other(RecordType::Stdout as u8, 1, 2)),
        ("a record of a web server", other(RecordType::Params as u8, 1, 1)),
        ("no head", [stdout("body without a head\n\n"), end(0)].concat()),
        ("no response", end(0)),
        ("an end of another length", record(RecordType::EndRequest, b"short")),
        ("an endless head", stdout(&"x".repeat(65_000)).repeat(2)),
        ("a head with two lengths", stdout("Content-Length: 1\nContent-Length: 2\n\n")),
    ] {
        let scene = once();
        let mut client = client(&scene);
        let mut application = Application::accept(&scene, 0);
        application.gets();
        application.sends(bytes);
        assert_eq!(outcome(&mut client), (502, true), "{why}");
        application.is_closed();
    }
}

#[test]
fn a_body_that_breaks_rules_is_cut() {
    for bytes in [
        // Shorter than its length.
        [stdout("Content-Length: 5\r\n\r\nbody"), end(0)].concat(),
        // The second record belongs to another request.
        [
            stdout("A: b\r\n\r\nbody"),
            Header { id: 2, ..Header::new(RecordType::Stdout, 0) }.encode().to_vec(),
        ]
        .concat(),
        // The application gives up after its head.
        [stdout("A: b\r\n\r\nbody"), end(2)].concat(),
    ] {
        let scene = once();
        let mut client = client(&scene);
        let mut application = Application::accept(&scene, 0);
        application.gets();
        application.sends(bytes);
        let got = outcome(&mut client);
        assert!(matches!(got, (200, false) | (502, true)), "{got:?}");
        application.is_closed();
    }
}

#[test]
fn bytes_behind_the_end_close_the_connection() {
    let scene = once();
    let mut client = client(&scene);
    let mut application = Application::accept(&scene, 0);
    application.gets();
    application.sends([stdout("A: b\r\n\r\nbody"), end(0), end(0)].concat());
    assert_eq!(outcome(&mut client), (200, true));
    application.is_closed();
}

#[test]
fn a_client_that_leaves_ends_its_request() {
    let scene = once();
    let client = client(&scene);
    let mut application = Application::accept(&scene, 0);
    application.gets();
    drop(client);
    // A script that writes notices it, as with other web servers.
    application.sends(stdout("A: b\r\n\r\nbody"));
    let piece = stdout(&"x".repeat(60_000));
    while application.can_send(&piece) {}
}

#[test]
fn a_slow_application_times_out() {
    let scene = Scene::with_files(
        super::application::FILES,
        &format!(
            "timeouts = {{ upstream_first_byte = \"100ms\" }}\n{}",
            super::application::configuration("retry = { attempts = 1 }")
        ),
    );
    let mut client = scene.client(Spoken::Http1);
    client.asks(&get("/"));
    let mut application = Application::accept(&scene, 0);
    application.gets();
    assert_eq!(client.gets().status, 504);
    application.is_closed();
}
