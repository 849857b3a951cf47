//! Responses of applications, as clients get them.

use fastcgi::RecordType;
use testkit::scene::{BOTH, BodylessRequest, Spoken, get};

use super::application::{Application, end, record, scene, stderr, stdout};

#[test]
fn status_and_location_make_the_response() {
    for spoken in BOTH {
        let scene = scene("");
        let mut application = None;
        let mut client = scene.client(spoken);
        for (text, status, field) in [
            ("Content-Type: text/plain\r\n\r\nhi", 200, ("content-type", "text/plain")),
            ("Status: 404 Not Found\r\nX-A: b\r\n\r\nhi", 404, ("x-a", "b")),
            ("Location: https://b.example/\n\nhi", 302, ("location", "https://b.example/")),
            ("Status: 500\r\nX-Powered-By: PHP\r\n\r\nhi", 500, ("x-powered-by", "PHP")),
            ("Content-Length: 2\r\nX-A: b\r\n\r\nhi", 200, ("x-a", "b")),
        ] {
            client.asks(&get("/"));
            // The connection is kept, so that each request after the first one finds it.
            application.get_or_insert_with(|| Application::accept(&scene, 0)).serves(text);
            let got = client.gets();
            assert_eq!((got.status, got.field(field.0)), (status, Some(field.1)), "{text}");
            assert_eq!((got.body.as_str(), got.field("content-length")), ("hi", Some("2")), "{text}");
        }
        assert!(scene.try_accept(0).is_none(), "one connection suffices");
    }
}

#[test]
fn responses_without_a_body_have_none() {
    let scene = scene("");
    let mut application = None;
    let mut client = scene.client(Spoken::Http1);
    for (method, text, status) in [
        ("HEAD", "Content-Type: text/plain\r\n\r\nnot sent", 200),
        ("HEAD", "Content-Length: 8\r\n\r\n", 200),
        ("GET", "Status: 304\r\nETag: \"a\"\r\n\r\n", 304),
        ("GET", "Status: 204\r\nX-A: b\r\n\r\nnot sent", 204),
    ] {
        client.asks(&BodylessRequest { method, ..get("/") });
        application.get_or_insert_with(|| Application::accept(&scene, 0)).serves(text);
        let got = client.gets_head_alone();
        assert_eq!(got.status, status, "{method} {text}");
        // Bytes of a body would be taken for the next response.
        client.asks(&get("/"));
        application.as_mut().expect("it was accepted").serves("X-A: b\r\n\r\nnext");
        assert_eq!(client.gets().body, "next", "{method} {text}");
    }
}

#[test]
fn pieces_pass_as_they_arrive() {
    for spoken in BOTH {
        let scene = scene("");
        let mut client = scene.client(spoken);
        client.asks(&get("/"));
        let mut application = Application::accept(&scene, 0);
        application.gets();
        application.sends(stdout("Content-Type: text/event-stream\r\n\r\nfirst"));
        if let testkit::scene::SceneClient::One(peer) = &mut client {
            let head = peer.head();
            assert!(head.contains("Transfer-Encoding: chunked"), "{head}");
            peer.gets(b"5\r\nfirst\r\n");
            application.sends(stdout("second"));
            peer.gets(b"6\r\nsecond\r\n");
            application.sends([stdout(""), end(0)].concat());
            peer.gets(b"0\r\n\r\n");
        } else {
            application.sends([stdout("second"), end(0)].concat());
            assert_eq!(client.gets().body, "firstsecond");
        }
        client.asks(&get("/"));
        application.serves("A: b\r\n\r\nkept");
        assert_eq!(client.gets().body, "kept");
    }
}

#[test]
fn any_cut_of_the_records_gives_the_same_response() {
    let scene = scene("");
    let padded = {
        let mut record = record(RecordType::Stdout, b"Content-Type: text/plain\r\n\r\nbo");
        record[6] = 5;
        record.extend([0xff; 5]);
        record
    };
    let bytes = [padded, stderr("a warning"), stdout("dy"), stdout(""), end(0)].concat();
    let mut application = None;
    let mut client = scene.client(Spoken::Http1);
    for cut in 1..bytes.len() {
        client.asks(&get("/"));
        let application = application.get_or_insert_with(|| Application::accept(&scene, 0));
        application.gets();
        application.sends(&bytes[..cut]);
        application.sends(&bytes[cut..]);
        let got = client.gets();
        assert_eq!((got.status, got.body.as_str()), (200, "body"), "{cut}");
    }
}

#[test]
fn a_large_response_arrives_whole() {
    for spoken in BOTH {
        for has_length in [true, false] {
            let scene = scene("");
            let mut client = scene.client(spoken);
            client.asks(&get("/"));
            let piece = "0123456789abcdef".repeat(4000);
            let length =
                if has_length { format!("Content-Length: {}\r\n", 20 * piece.len()) } else { String::new() };
            let head = stdout(&format!("{length}X-A: b\r\n\r\n"));
            let bytes = [head, stdout(&piece).repeat(20), end(0)].concat();
            std::thread::scope(|scope| {
                let mut application = Application::accept(&scene, 0);
                scope.spawn(move || {
                    application.gets();
                    application.sends(bytes);
                });
                let got = client.gets();
                assert!(got.status == 200 && got.body == piece.repeat(20), "{spoken:?} {has_length}");
            });
        }
    }
}

#[test]
fn a_response_may_come_before_the_end_of_its_request() {
    let scene = scene("");
    let mut client = scene.client(Spoken::Http1);
    let testkit::scene::SceneClient::One(peer) = &mut client else { panic!("HTTP/1") };
    peer.sends("POST /up HTTP/1.1\r\nhost: test\r\ncontent-length: 100000\r\n\r\nfirst");
    let mut application = Application::accept(&scene, 0);
    application.gets_params();
    assert_eq!(application.gets_piece(), b"first");
    application.answers("Status: 413\r\n\r\nenough");
    let got = peer.message();
    assert_eq!((got.status(), got.body.as_slice()), (413, &b"enough"[..]));
    // The application would take the rest of the body for the next request.
    drop(client);
    application.is_closed();
}

#[test]
fn a_long_head_arrives_whole() {
    let scene = scene("");
    let mut client = scene.client(Spoken::Http1);
    client.asks(&get("/"));
    let fields: String = (0..200).map(|number| format!("X-{number}: {}\n", "v".repeat(200))).collect();
    Application::accept(&scene, 0).serves(&format!("{fields}\nbody"));
    let got = client.gets();
    assert_eq!(
        (got.status, got.body.as_str(), got.field("x-199")),
        (200, "body", Some("v".repeat(200).as_str()))
    );
}
