//! Policies of the route on top of FastCGI: cache, compression, limits, buffering.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use testkit::scene::{BOTH, BodylessRequest, Scene, Spoken, get};

use super::application::{Application, FILES, configuration};
use crate::policies::USERS;

/// A proxy with these options of the route.
fn scene(route: &str, rest: &str) -> Scene {
    let text = configuration("").replace("upstream = \"app\"\n", &format!("upstream = \"app\"\n{route}\n"));
    Scene::with_files(FILES, &format!("{rest}\n{text}"))
}

#[test]
fn responses_are_stored() {
    let scene = scene("cache = {}", "[cache]\nmemory = \"16MiB\"");
    let mut client = scene.client(Spoken::Http1);
    client.asks(&get("/page"));
    Application::accept(&scene, 0)
        .serves("Cache-Control: max-age=60\r\nContent-Type: text/plain\r\n\r\nstored");
    assert_eq!(client.gets().body, "stored");
    // The application is gone, and the next response comes from the store.
    let got = client.asks_for(&get("/page"));
    assert_eq!((got.status, got.body.as_str()), (200, "stored"));
    assert!(got.field("age").is_some());
}

#[test]
fn a_directory_without_its_slash_is_redirected_before_the_cache_asks() {
    let scene = scene("cache = {}", "[cache]\nmemory = \"16MiB\"");
    std::fs::create_dir(scene.file("admin")).expect("a directory");
    std::fs::write(scene.file("admin/index.php"), "").expect("it can be written");
    let got = scene.client(Spoken::Http1).asks_for(&get("/admin"));
    assert_eq!((got.status, got.field("location")), (301, Some("/admin/")));
}

#[test]
fn responses_are_compressed() {
    let scene = scene("compress = true", "");
    let mut client = scene.client(Spoken::Http1);
    client.asks(&BodylessRequest { fields: "accept-encoding: gzip", ..get("/") });
    let mut application = Application::accept(&scene, 0);
    application.serves(&format!("Content-Type: text/html\r\n\r\n{}", "<p>text</p>".repeat(2000)));
    let testkit::scene::SceneClient::One(peer) = &mut client else { panic!("HTTP/1") };
    let message = peer.message();
    assert!(message.head.contains("Content-Encoding: gzip"), "{}", message.head);
    assert!(message.body.len() < 2000);
    client.asks(&get("/"));
    application.serves("A: b\r\n\r\nkept");
    assert_eq!(client.gets().body, "kept");
}

#[test]
fn a_body_beyond_the_limit_is_refused() {
    let scene = scene("limits = { body_bytes = 1000 }", "");
    let mut client = scene.client(Spoken::Http1);
    client.posts(&[&[b'x'; 2000]], true);
    assert_eq!(client.gets().status, 413);
    let mut client = scene.client(Spoken::Http1);
    client.posts(&[&[b'x'; 2000]], false);
    assert_eq!(client.gets().status, 413);
    assert!(scene.try_accept(0).is_none(), "no application is asked");
}

#[test]
fn a_buffered_body_is_sent_as_a_whole() {
    for bytes in [1000, 200_000] {
        let scene = scene("request_buffering = true", "");
        let mut client = scene.client(Spoken::Http1);
        let body = vec![b'x'; bytes];
        std::thread::scope(|scope| {
            scope.spawn(|| client.posts(&[&body], true));
            let asked = Application::accept(&scene, 0).serves("A: b\r\n\r\nok");
            assert!(asked.body == body);
            assert_eq!(asked.param("CONTENT_LENGTH"), Some(bytes.to_string().as_str()));
        });
        assert_eq!(client.gets().body, "ok");
    }
}

#[test]
fn the_authenticated_user_is_a_parameter() {
    let text = configuration("").replace(
        "upstream = \"app\"\n",
        "upstream = \"app\"\nauth = { realm = \"a\", users = \"{dir}/users\" }\n",
    );
    let scene = Scene::with_files(&[FILES, &[("users", USERS)]].concat(), &text);
    let mut client = scene.client(Spoken::Http1);
    let fields = format!("authorization: Basic {}", BASE64_STANDARD.encode("me:secret"));
    client.asks(&BodylessRequest { fields: &fields, ..get("/") });
    let asked = Application::accept(&scene, 0).serves("A: b\r\n\r\nok");
    assert_eq!((asked.param("REMOTE_USER"), asked.param("AUTH_TYPE")), (Some("me"), Some("Basic")));
    assert_eq!(client.gets().body, "ok");
}

#[test]
fn an_application_names_a_file() {
    // Whether a connection stays open behind a discarded body depends on what has arrived of it.
    let route = "upstream = \"app\"\naccel = { \"/protected/\" = \"{dir}\" }\n";
    let text = configuration("pool = { idle = 0 }").replace("upstream = \"app\"\n", route);
    let scene = Scene::with_files(FILES, &text);
    std::fs::write(scene.file("x.jpg"), "picture").expect("it can be written");
    for spoken in BOTH {
        let mut client = scene.client(spoken);
        for (text, status, body) in [
            ("X-Accel-Redirect: /protected/x.jpg\r\nContent-Type: image/jpeg\r\n\r\nhidden", 200, "picture"),
            ("X-Accel-Redirect: /protected/x.jpg\r\nStatus: 403\r\n\r\nshown", 403, "shown"),
            ("X-Accel-Redirect: /protected/gone\r\n\r\nhidden", 404, "There is no such file.\n"),
            ("X-Accel-Redirect: /other/x.jpg\r\n\r\nhidden", 404, "There is no such file.\n"),
        ] {
            client.asks(&get("/a.php"));
            Application::accept(&scene, 0).serves(text);
            let got = client.gets();
            assert_eq!((got.status, got.body.as_str()), (status, body), "{text}");
            assert!(!got.fields.contains("x-accel"), "{}", got.fields);
        }
    }
}
