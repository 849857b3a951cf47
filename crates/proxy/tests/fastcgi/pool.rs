//! Kept connections, retries, and health checks.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use testkit::scene::{BodylessRequest, Scene, Spoken, get};
use testkit::wait::assert_soon;

use super::application::{Application, FILES, configuration, end, scene};

const OK: &str = "Content-Type: text/plain\r\n\r\nok";

/// A proxy with two applications, asked in turn.
fn two(upstream: &str) -> Scene {
    let text = configuration(upstream).replace("[\"fcgi://{0}\"]", "[\"fcgi://{0}\", \"fcgi://{1}\"]");
    Scene::with_files(FILES, &text)
}

#[test]
fn a_connection_that_the_application_has_closed_is_replaced() {
    let scene = scene("");
    let mut client = scene.client(Spoken::Http1);
    for _ in 0..3 {
        client.asks(&get("/"));
        // One exchange, and then the application ends its connection.
        Application::accept(&scene, 0).serves(OK);
        assert_eq!(client.gets().body, "ok");
    }
}

#[test]
fn no_connection_is_kept_if_the_pool_keeps_none() {
    let scene = scene("pool = { idle = 0 }");
    let mut client = scene.client(Spoken::Http1);
    client.asks(&get("/"));
    let mut application = Application::accept(&scene, 0);
    assert!(!application.serves(OK).keep);
    assert_eq!(client.gets().body, "ok");
    application.is_closed();
}

#[test]
fn an_application_without_room_is_passed_over() {
    let scene = two("");
    // Not even a POST was seen by an application that refuses it.
    for request in [get("/"), BodylessRequest { method: "POST", fields: "content-length: 0", ..get("/") }] {
        let mut client = scene.client(Spoken::Http1);
        client.asks(&request);
        let mut refusing = None;
        assert_soon("no application is asked", || {
            let asked = (0..2).find_map(|server| Some((server, scene.try_accept(server)?)));
            refusing = asked.map(|(server, peer)| (server, peer.stream().try_clone().expect("a descriptor")));
            refusing.is_some()
        });
        let (server, stream) = refusing.expect("it was asked");
        let mut application = Application::from_stream(stream);
        application.gets();
        // FCGI_OVERLOADED.
        application.sends(end(2));
        Application::accept(&scene, 1 - server).serves(OK);
        assert_eq!(client.gets().body, "ok");
    }
}

#[test]
fn an_application_that_dies_without_a_response_is_passed_over() {
    let scene = two("");
    let mut client = scene.client(Spoken::Http1);
    client.asks(&get("/"));
    let listeners = [scene.listener(0), scene.listener(1)];
    let mut first = true;
    let mut served = false;
    assert_soon("the request is not repeated", || {
        for listener in &listeners {
            let Some(stream) = testkit::ports::try_accept(listener) else { continue };
            let mut application = Application::from_stream(stream);
            application.gets();
            if !std::mem::take(&mut first) {
                application.answers(OK);
                served = true;
            }
        }
        served
    });
    assert_eq!(client.gets().body, "ok");
}

#[test]
fn a_post_that_was_seen_is_not_repeated() {
    let scene = scene("");
    let mut client = scene.client(Spoken::Http1);
    client.posts(&[b"once"], true);
    let mut application = Application::accept(&scene, 0);
    application.gets();
    drop(application);
    assert_eq!(client.gets().status, 502);
}

#[test]
fn a_status_is_retried_if_it_is_configured() {
    let scene = two("retry = { on = [503] }");
    let mut client = scene.client(Spoken::Http1);
    client.asks(&get("/"));
    let listeners = [scene.listener(0), scene.listener(1)];
    let mut answers = ["Status: 503\r\n\r\nbusy", OK].into_iter();
    assert_soon("the request is not repeated", || {
        for listener in &listeners {
            let Some(stream) = testkit::ports::try_accept(listener) else { continue };
            Application::from_stream(stream).serves(answers.next().expect("two attempts"));
        }
        answers.len() == 0
    });
    assert_eq!(client.gets().body, "ok");
}

#[test]
fn a_ping_page_tells_the_health_of_an_application() {
    let scene = scene(
        "none_up = \"refuse\"\ncheck = { type = \"http\", path = \"/ping?full\", interval = \"10ms\", rise = 1, fall = 1, body = \
         \"pong\" }\neject = \"off\"\n",
    );
    let (is_well, is_over) = (AtomicBool::new(true), AtomicBool::new(false));
    let listener = scene.listener(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                let Some(stream) = testkit::ports::try_accept(&listener) else {
                    std::thread::yield_now();
                    continue;
                };
                let mut application = Application::from_stream(stream);
                let asked = application.gets();
                if asked.param("SCRIPT_NAME") != Some("/ping") {
                    application.answers(OK);
                    continue;
                }
                assert_eq!((asked.param("QUERY_STRING"), asked.keep), (Some("full"), false));
                let answer = if is_well.load(Relaxed) { "pong" } else { "dead" };
                application.answers(&format!("Content-Type: text/plain\r\n\r\n{answer}"));
            }
        });
        let becomes = |status: u16| {
            assert_soon("the checks have no effect", || {
                scene.client(Spoken::Http1).asks_for(&get("/")).status == status
            });
        };
        becomes(200);
        is_well.store(false, Relaxed);
        becomes(503);
        is_well.store(true, Relaxed);
        becomes(200);
        is_over.store(true, Relaxed);
    });
}
