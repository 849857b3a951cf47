//! Requests as applications get them.

use testkit::scene::{BOTH, BodylessRequest, Scene, Spoken, get};

use super::application::{Application, FILES, configuration, scene};

const OK: &str = "Content-Type: text/plain\r\n\r\nok";

#[test]
fn an_application_gets_the_parameters_that_php_fpm_expects() {
    for spoken in BOTH {
        let scene = scene("");
        let root = scene.file("").display().to_string();
        let root = root.trim_end_matches('/');
        let mut client = scene.client(spoken);
        client.asks(&BodylessRequest {
            method: "GET",
            host: "shop.example:8080",
            target: "/a.php/more%20info?q=1&r",
            fields: "x-tag: one\nx-tag: two\ncookie: c=1\nx_tag: forged\nproxy: forged",
        });
        let mut application = Application::accept(&scene, 0);
        let asked = application.serves(OK);
        assert_eq!(client.gets().body, "ok");
        assert!(asked.keep);
        let file = format!("{root}/a.php");
        for (name, value) in [
            ("SCRIPT_FILENAME", Some(file.as_str())),
            ("SCRIPT_NAME", Some("/a.php")),
            ("PATH_INFO", Some("/more info")),
            ("DOCUMENT_ROOT", Some(root)),
            ("REQUEST_URI", Some("/a.php/more%20info?q=1&r")),
            ("QUERY_STRING", Some("q=1&r")),
            ("REQUEST_METHOD", Some("GET")),
            ("REMOTE_ADDR", Some("127.0.0.1")),
            ("SERVER_ADDR", Some("127.0.0.1")),
            ("SERVER_NAME", Some("shop.example")),
            ("SERVER_PORT", Some("8080")),
            ("HTTP_HOST", Some("shop.example:8080")),
            ("HTTP_X_TAG", Some("one, two")),
            ("HTTP_COOKIE", Some("c=1")),
            ("REQUEST_SCHEME", Some("http")),
            ("REDIRECT_STATUS", Some("200")),
            ("SERVER_PROTOCOL", Some(if spoken == Spoken::Http2 { "HTTP/2.0" } else { "HTTP/1.1" })),
            ("HTTPS", None),
            ("HTTP_PROXY", None),
            ("CONTENT_LENGTH", None),
            ("REMOTE_USER", None),
            ("HTTP_X_FORWARDED_FOR", Some("127.0.0.1")),
        ] {
            assert_eq!(asked.param(name), value, "{name} of {:#?}", asked.params);
        }
    }
}

#[test]
fn parameters_of_the_upstream_replace_others() {
    let text = configuration("").replace(
        "fastcgi = { root = \"{dir}\" }",
        "fastcgi = { root = \"{dir}\", params = { APP_ENV = \"test\", SERVER_NAME = \"fixed\" } }",
    );
    let scene = Scene::with_files(FILES, &text);
    let mut client = scene.client(Spoken::Http1);
    client.asks(&get("/"));
    let asked = Application::accept(&scene, 0).serves(OK);
    assert_eq!(asked.param("APP_ENV"), Some("test"));
    assert_eq!(asked.param("SERVER_NAME"), Some("fixed"));
    assert_eq!(client.gets().body, "ok");
}

#[test]
fn edits_of_the_route_apply_to_parameters() {
    let text = configuration("").replace(
        "upstream = \"app\"\n",
        "upstream = \"app\"\nrequest_headers = { set = { X-Ours = \"1\" }, remove = [\"Authorization\"] }\n\
         rewrite = { path = \"/a.php/new\" }\n",
    );
    let scene = Scene::with_files(FILES, &text);
    let mut client = scene.client(Spoken::Http1);
    client.asks(&BodylessRequest { fields: "authorization: secret\nx-ours: theirs", ..get("/old?q") });
    let asked = Application::accept(&scene, 0).serves(OK);
    assert_eq!(asked.param("HTTP_X_OURS"), Some("1"));
    assert_eq!(asked.param("HTTP_AUTHORIZATION"), None);
    assert_eq!(asked.param("SCRIPT_NAME"), Some("/a.php"));
    assert!(asked.param("PATH_INFO").is_some_and(|path| path.starts_with("/new")), "{:?}", asked.params);
    assert_eq!(client.gets().body, "ok");
}

#[test]
fn a_body_is_cut_into_records_with_its_length_before() {
    for spoken in BOTH {
        let scene = scene("");
        let (first, second) = (vec![b'a'; 70_000], vec![b'b'; 100_000]);
        let mut client = scene.client(spoken);
        let whole = [first.as_slice(), second.as_slice()].concat();
        std::thread::scope(|scope| {
            scope.spawn(|| client.posts(&[&first, &second], true));
            let mut application = Application::accept(&scene, 0);
            let asked = application.gets();
            assert_eq!(asked.param("CONTENT_LENGTH"), Some("170000"));
            assert_eq!(asked.param("REQUEST_METHOD"), Some("POST"));
            assert_eq!(asked.param("SCRIPT_NAME"), Some("/index.php"));
            assert!(asked.body == whole);
            application.answers(OK);
        });
        assert_eq!(client.gets().body, "ok");
    }
}

#[test]
fn a_short_body_leaves_with_the_head() {
    let scene = scene("");
    let mut client = scene.client(Spoken::Http1);
    client.posts(&[b"name=value"], true);
    let asked = Application::accept(&scene, 0).serves(OK);
    assert_eq!((asked.param("CONTENT_LENGTH"), asked.body.as_slice()), (Some("10"), &b"name=value"[..]));
    assert_eq!(client.gets().body, "ok");
}

#[test]
fn a_body_of_unknown_length_is_received_before() {
    for spoken in BOTH {
        let scene = scene("");
        let mut client = scene.client(spoken);
        let piece = vec![b'c'; 60_000];
        std::thread::scope(|scope| {
            scope.spawn(|| client.posts(&[&piece, b"end"], false));
            let mut application = Application::accept(&scene, 0);
            let asked = application.gets();
            assert_eq!(asked.param("CONTENT_LENGTH"), Some("60003"));
            assert_eq!(asked.param("HTTP_TRANSFER_ENCODING"), None);
            assert_eq!(asked.body.len(), 60_003);
            application.answers(OK);
        });
        assert_eq!(client.gets().body, "ok");
    }
}

#[test]
fn a_client_that_waits_for_100_is_asked_for_its_body() {
    let scene = scene("");
    let mut client = scene.client(Spoken::Http1);
    client.asks(&BodylessRequest {
        method: "POST",
        fields: "content-length: 4\nexpect: 100-continue",
        ..get("/")
    });
    assert_eq!(client.gets_head_alone().status, 100);
    let testkit::scene::SceneClient::One(peer) = &mut client else { panic!("HTTP/1") };
    peer.sends("body");
    let asked = Application::accept(&scene, 0).serves(OK);
    assert_eq!((asked.body.as_slice(), asked.param("HTTP_EXPECT")), (&b"body"[..], None));
    assert_eq!(client.gets().body, "ok");
}

#[test]
fn an_application_at_a_unix_socket_is_reached() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("fpm.sock");
    let listener = testkit::ports::listen_unix(&socket);
    let text = configuration("").replace("fcgi://{0}", &format!("fcgi+unix:{}", socket.display()));
    let scene = Scene::with_files(FILES, &text);
    let mut client = scene.client(Spoken::Http1);
    client.asks(&get("/"));
    let mut application = Application::from_stream(testkit::ports::accept(&listener));
    application.serves(OK);
    assert_eq!(client.gets().body, "ok");
}
