//! Files that a server names in place of a body: X-Accel-Redirect and X-Sendfile.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use testkit::http1::Http1Peer;
use testkit::ports;
use testkit::scene::{BOTH, BodylessRequest, Got, Scene, SceneClient, Spoken, get, read};

use super::scene::{MODIFIED, TREE, with, write};

const ROOT: &str = "{dir}/root";

/// A server that may name files below two folders; `more` is the rest of the route and the file.
fn scene(more: &str) -> Scene {
    let scene = Scene::new(&format!(
        "[[route]]\nupstream = \"app\"\n\
         accel = {{ \"/protected/\" = \"{ROOT}\", \"/protected/deep\" = \"{ROOT}/docs\" }}\n{more}\n\
         [[route]]\npath = \"/plain\"\nupstream = \"app\"\n[upstream.app]\nservers = [\"http://{{0}}\"]\n"
    ));
    for (name, text) in TREE {
        write(&scene, name, text);
    }
    scene
}

/// A response that names a file, with the bodies that frameworks send.
fn naming(fields: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nDate: D\r\nConnection: close\r\n{fields}Content-Length: 7\r\n\r\nhidden!")
}

/// Sends a request whose response has these fields.
fn got(scene: &Scene, client: &mut SceneClient, asked: &BodylessRequest<'_>, fields: &str) -> Got {
    client.asks(asked);
    let mut server = scene.accept(0);
    server.head();
    let response = naming(fields);
    let length = if asked.method == "HEAD" { response.len() - 7 } else { response.len() };
    server.sends(&response[..length]);
    if asked.method == "HEAD" { client.gets_head_alone() } else { client.gets() }
}

#[test]
fn the_client_gets_the_file_with_the_fields_of_the_server() {
    let scene = scene("");
    write(&scene, "root/100%.txt", "percent");
    for spoken in BOTH {
        let mut client = scene.client(spoken);
        let path = |name: &str| format!("X-Sendfile: {}\r\n", scene.file(name).display());
        for (fields, body) in [
            ("X-Accel-Redirect: /protected/page.txt\r\n".to_owned(), "0123456789"),
            (
                "x-accel-redirect: /protected/page.txt?x=1\r\nX-Accel-Buffering: no\r\n".to_owned(),
                "0123456789",
            ),
            ("X-Accel-Redirect: /protected/a%20b&c.txt\r\n".to_owned(), "spaces"),
            ("X-Accel-Redirect: /protected/100%25.txt\r\n".to_owned(), "percent"),
            ("X-Accel-Redirect: /protected/deep/index.html\r\n".to_owned(), "<p>docs"),
            (path("root/page.txt"), "0123456789"),
            (path("root/100%.txt"), "percent"),
            (path("root/docs/index.html"), "<p>docs"),
        ] {
            let more = format!(
                "{fields}Content-Type: app/x\r\nContent-Disposition: attachment\r\nSet-Cookie: a=b\r\n"
            );
            let got = got(&scene, &mut client, &get("/download"), &format!("{more}X-Other: 1\r\n"));
            assert_eq!((got.status, got.body.as_str()), (200, body), "{fields}");
            assert_eq!(got.all("content-type"), ["app/x"]);
            assert_eq!(got.all("content-length"), [body.len().to_string()]);
            assert_eq!(got.field("content-disposition"), Some("attachment"));
            assert_eq!(got.field("set-cookie"), Some("a=b"));
            assert_eq!(got.field("last-modified"), Some(MODIFIED));
            assert!(!got.fields.contains("x-accel") && !got.fields.contains("x-sendfile"), "{}", got.fields);
        }
    }
}

#[test]
fn ranges_conditions_and_head_are_those_of_the_file() {
    let scene = scene("");
    let fields = "X-Accel-Redirect: /protected/page.txt\r\nContent-Type: app/x\r\nCache-Control: private\r\n";
    for spoken in BOTH {
        let mut client = scene.client(spoken);
        let whole = got(&scene, &mut client, &get("/"), fields);
        let tag = whole.field("etag").expect("a file has a tag").to_owned();
        let part = got(&scene, &mut client, &with("/", "range: bytes=2-3"), fields);
        assert_eq!((part.status, part.body.as_str()), (206, "23"));
        assert_eq!(part.field("content-type"), Some("app/x"));
        let parts = got(&scene, &mut client, &with("/", "range: bytes=0-0,4-4"), fields);
        assert_eq!(parts.status, 206);
        assert!(parts.field("content-type").is_some_and(|it| it.starts_with("multipart/byteranges")));
        let same = got(&scene, &mut client, &with("/", &format!("if-none-match: {tag}")), fields);
        assert_eq!(
            (same.status, same.field("cache-control"), same.field("content-type")),
            (304, Some("private"), None)
        );
        let head = got(&scene, &mut client, &BodylessRequest { method: "HEAD", ..get("/") }, fields);
        assert_eq!((head.status, head.field("content-length")), (200, Some("10")));
    }
}

#[test]
fn nothing_leads_out_of_the_folders() {
    let scene = scene("");
    std::os::unix::fs::symlink("../outside/secret.txt", scene.file("root/link")).expect("it can be made");
    let outside = scene.file("outside/secret.txt");
    for spoken in BOTH {
        let mut client = scene.client(spoken);
        for fields in [
            "X-Accel-Redirect: /protected/../outside/secret.txt".to_owned(),
            "X-Accel-Redirect: /protected/%2e%2e/outside/secret.txt".to_owned(),
            "X-Accel-Redirect: /protected/..%2foutside/secret.txt".to_owned(),
            "X-Accel-Redirect: /protected/link".to_owned(),
            "X-Accel-Redirect: /protected/.secret".to_owned(),
            "X-Accel-Redirect: /protected/gone".to_owned(),
            "X-Accel-Redirect: /protected/docs".to_owned(),
            "X-Accel-Redirect: /protected/docs/".to_owned(),
            "X-Accel-Redirect: /protected".to_owned(),
            "X-Accel-Redirect: /protectedpage.txt".to_owned(),
            "X-Accel-Redirect: /other/page.txt".to_owned(),
            "X-Accel-Redirect: @named".to_owned(),
            "X-Accel-Redirect: ".to_owned(),
            format!("X-Sendfile: {}", outside.display()),
            format!("X-Sendfile: {}/../outside/secret.txt", scene.file("root").display()),
            format!("X-Sendfile: {}", scene.file("root").display()),
            format!("X-Sendfile: {}x", scene.file("root").display()),
            "X-Sendfile: page.txt".to_owned(),
            "X-Sendfile: /etc/passwd".to_owned(),
        ] {
            let got = got(&scene, &mut client, &get("/"), &format!("{fields}\r\n"));
            assert_eq!((got.status, got.body.as_str()), (404, "There is no such file.\n"), "{fields}");
        }
    }
}

#[test]
fn other_responses_lose_the_fields_only_and_other_routes_keep_them() {
    let scene = scene("");
    for spoken in BOTH {
        let mut client = scene.client(spoken);
        client.asks(&get("/"));
        let mut server = scene.accept(0);
        server.head();
        server.sends(
            naming("X-Accel-Redirect: /protected/page.txt\r\nX-Accel-Limit-Rate: 1\r\n")
                .replace("200 OK", "403 No"),
        );
        let refused = client.gets();
        assert_eq!((refused.status, refused.body.as_str()), (403, "hidden!"));
        assert!(!refused.fields.contains("x-accel"), "{}", refused.fields);
        let passed = got(&scene, &mut client, &get("/plain"), "X-Accel-Redirect: /protected/page.txt\r\n");
        assert_eq!((passed.status, passed.body.as_str()), (200, "hidden!"));
        assert_eq!(passed.field("x-accel-redirect"), Some("/protected/page.txt"));
    }
}

#[test]
fn a_request_with_a_body_and_a_cache_and_compression() {
    let scene = scene("cache = {}\ncompress = { min_size = 0 }\n[cache]\nmemory = \"8MiB\"");
    write(&scene, "root/long.txt", &"long ".repeat(400));
    let fields = "X-Accel-Redirect: /protected/long.txt\r\nCache-Control: max-age=60\r\n";
    for spoken in BOTH {
        let mut client = scene.client(spoken);
        client.posts(&[b"which file?"], true);
        let mut server = scene.accept(0);
        assert_eq!(server.message().body, b"which file?");
        server.sends(naming("X-Accel-Redirect: /protected/page.txt\r\n"));
        assert_eq!(client.gets().body, "0123456789");
        // The name is not stored: the server decides each time.
        for _ in 0..2 {
            let got = got(&scene, &mut client, &with("/x", "accept-encoding: identity"), fields);
            assert_eq!((got.status, got.body.len()), (200, 2000));
            assert_eq!(got.all("cache-control"), ["max-age=60"]);
        }
    }
    let SceneClient::One(mut client) = scene.client(Spoken::Http1) else { panic!("it is HTTP/1") };
    client.sends("GET /y HTTP/1.1\r\nHost: test\r\nAccept-Encoding: gzip\r\n\r\n");
    let mut server = scene.accept(0);
    server.head();
    server.sends(naming(fields));
    let head = client.head().to_lowercase();
    assert!(head.contains("\r\ncontent-encoding: gzip\r\n") && !head.contains("x-accel"), "{head}");
}

#[test]
fn the_route_changes_the_fields_last() {
    let scene = scene("response_headers = { set = { Cache-Control = \"no-cache\", X-Site = \"s\" } }");
    let mut client = scene.client(Spoken::Http2);
    let got = got(
        &scene,
        &mut client,
        &get("/"),
        "X-Accel-Redirect: /protected/page.txt\r\nCache-Control: public\r\n",
    );
    assert_eq!((got.all("cache-control"), got.field("x-site")), (vec!["no-cache"], Some("s")));
}

/// Minimum time of 10 bytes at 40 bytes a second: a link makes up for a millisecond, and the first byte is free.
const LEAST: Duration = Duration::from_millis(200);

#[test]
fn the_server_sets_the_rate_of_its_body() {
    let scene = scene("");
    let file = "X-Accel-Redirect: /protected/page.txt\r\n";
    for spoken in BOTH {
        let mut client = scene.client(spoken);
        for (fields, is_slow) in [
            (format!("{file}X-Accel-Limit-Rate: 40\r\n"), true),
            ("X-Accel-Limit-Rate: 20\r\n".to_owned(), true),
            // The rate was that of one response.
            (file.to_owned(), false),
            (format!("{file}X-Accel-Limit-Rate: 0\r\n"), false),
            (format!("{file}X-Accel-Limit-Rate: 1k\r\n"), false),
            ("X-Accel-Limit-Rate: \r\n".to_owned(), false),
            ("X-Accel-Limit-Rate: 18446744073709551615\r\n".to_owned(), false),
        ] {
            let began = Instant::now();
            let got = got(&scene, &mut client, &get("/"), &fields);
            let body = if fields.contains("Redirect") { "0123456789" } else { "hidden!" };
            assert_eq!((got.status, got.body.as_str()), (200, body), "{fields}");
            assert!(!got.fields.contains("x-accel"), "{}", got.fields);
            // The others may be slow as well, on a busy machine.
            assert!(!is_slow || began.elapsed() >= LEAST, "{fields}: {:?}", began.elapsed());
        }
        // Elsewhere it is a field like any other.
        let got = got(&scene, &mut client, &get("/plain"), "X-Accel-Limit-Rate: 1\r\n");
        assert_eq!(got.field("x-accel-limit-rate"), Some("1"));
    }
}

#[test]
fn the_server_sets_the_lifetime_in_the_cache() {
    let scene = scene("cache = {}\n[cache]\nmemory = \"8MiB\"");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a date");
    let later = now.as_secs() + 3600;
    for (number, (fields, is_stored)) in [
        ("X-Accel-Expires: 60\r\nCache-Control: private, no-store\r\n".to_owned(), true),
        (format!("X-Accel-Expires: @{later}\r\nExpires: 0\r\n"), true),
        ("X-Accel-Expires: 0\r\nCache-Control: max-age=60\r\n".to_owned(), false),
        ("X-Accel-Expires: @1\r\nCache-Control: max-age=60\r\n".to_owned(), false),
        ("X-Accel-Expires: soon\r\nCache-Control: max-age=60\r\n".to_owned(), true),
    ]
    .into_iter()
    .enumerate()
    {
        for spoken in BOTH {
            let mut client = scene.client(spoken);
            let path = format!("/{number}/{spoken:?}");
            let control = fields.lines().find_map(|line| line.strip_prefix("Cache-Control: "));
            for is_first in [true, false] {
                let got = match is_first || !is_stored {
                    true => got(&scene, &mut client, &get(&path), &fields),
                    false => client.asks_for(&get(&path)),
                };
                assert_eq!((got.status, got.body.as_str()), (200, "hidden!"), "{fields}");
                assert_eq!(got.field("cache-control"), control, "{fields}");
                assert!(!got.fields.contains("x-accel"), "{}", got.fields);
            }
        }
    }
    assert!(scene.try_accept(0).is_none());
}

#[test]
fn a_request_keeps_the_folders_with_which_it_began() {
    let (server, directory) = (ports::listen(), tempfile::tempdir().expect("a temporary directory"));
    for folder in ["old", "new"] {
        std::fs::create_dir(directory.path().join(folder)).expect("a directory");
        std::fs::write(directory.path().join(folder).join("x"), folder).expect("it can be written");
    }
    let (dir, address) = (directory.path().display(), server.local_addr().expect("it listens"));
    let config = |folder: &str| {
        read(&format!(
            "workers = 1\n[[listen]]\naddress = \"127.0.0.1:0\"\n[[route]]\nupstream = \"app\"\naccel = {{ \"/p/\" = \
             \"{dir}/{folder}\" }}\n[upstream.app]\nservers = [\"http://{address}\"]\n"
        ))
    };
    let running = control::start(config("old")).unwrap_or_else(|error| panic!("{error}"));
    let stream = std::net::TcpStream::connect(running.addresses()[0]).expect("the proxy listens");
    let mut client = Http1Peer::new("client", stream);
    client.sends("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    let mut first = Http1Peer::new("server", ports::accept(&server));
    first.head();
    running.reload(config("new")).expect("it is valid");
    first.sends(naming("X-Accel-Redirect: /p/x\r\n"));
    assert_eq!(client.message().body, b"old");
    client.sends("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    let mut second = Http1Peer::new("server", ports::accept(&server));
    second.head();
    second.sends(naming("X-Accel-Redirect: /p/x\r\n"));
    assert_eq!(client.message().body, b"new");
}
