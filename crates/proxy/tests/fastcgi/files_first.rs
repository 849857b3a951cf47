//! Files beside the scripts of an application: `files` with `else`. No source of a script ever reaches a client.

use std::fs;

use testkit::http1::Http1Peer;
use testkit::scene::{BOTH, BodylessRequest, Scene, get, read};

use super::application::Application;

const OK: &str = "Content-Type: text/plain\r\n\r\nran";
const SOURCE: &str = "<?php secret";
const FILES: &[(&str, &str)] = &[
    ("index.php", SOURCE),
    ("a.php", SOURCE),
    ("a.php.gz", "coded source"),
    ("b.PHP", SOURCE),
    ("x.jpg", "picture"),
    ("notes.txt", "notes"),
];

/// Files of the folder with the scripts, and the application for all other paths.
fn scene() -> Scene {
    Scene::with_files(
        FILES,
        "[[route]]\nfiles = { root = \"{dir}\", index = [\"index.php\"], precompressed = true, else = { upstream = \"app\" } }\n\
         [upstream.app]\nservers = [\"fcgi://{0}\"]\nfastcgi = { root = \"{dir}\" }\npool = { idle = 0 }\n",
    )
}

#[test]
fn scripts_run_and_other_files_are_sent() {
    let scene = scene();
    fs::create_dir(scene.file("admin")).expect("a directory");
    fs::write(scene.file("admin/index.php"), SOURCE).expect("it can be written");
    for spoken in BOTH {
        let mut client = scene.client(spoken);
        // Twice: the first time it is looked up.
        for _ in 0..2 {
            for (target, script) in [
                ("/", "/index.php"),
                ("/a.php", "/a.php"),
                ("/a.php?x=1", "/a.php"),
                ("/%61.ph%70", "/a.php"),
                ("//a.php", "/a.php"),
                ("/a.php/b.txt", "/a.php"),
                ("/a.php/", "/a.php"),
                // No script for the application either, but source all the same.
                ("/b.PHP", "/index.php"),
                ("/gone.txt", "/index.php"),
                ("/admin/", "/admin/index.php"),
            ] {
                for fields in ["", "range: bytes=0-3", "accept-encoding: gzip"] {
                    client.asks(&BodylessRequest { fields, ..get(target) });
                    let asked = Application::accept(&scene, 0).serves(OK);
                    assert_eq!(asked.param("SCRIPT_NAME"), Some(script), "{target}");
                    let got = client.gets();
                    assert_eq!((got.status, got.body.as_str()), (200, "ran"), "{target} {fields}");
                }
            }
            for (target, body) in [("/x.jpg", "picture"), ("/notes.txt", "notes")] {
                let got = client.asks_for(&get(target));
                assert_eq!((got.status, got.body.as_str()), (200, body), "{target}");
            }
            let got = client.asks_for(&get("/admin?a"));
            assert_eq!((got.status, got.field("location")), (301, Some("/admin/?a")));
        }
    }
}

/// The script of the path for missing files runs, except for directories with a script of their own. The first index that
/// exists decides, also if it is a script.
#[test]
fn requests_without_a_file_run_the_script_of_the_other_path() {
    let scene = Scene::with_files(
        FILES,
        "[[route]]\nfiles = { root = \"{dir}\", index = [\"index.php\", \"index.html\"], else = { upstream = \"app\", path = \
         \"/index.php/front?q=$path&$query\" } }\n[upstream.app]\nservers = [\"fcgi://{0}\"]\n\
         fastcgi = { root = \"{dir}\", front_controller = false }\npool = { idle = 0 }\n",
    );
    for (folder, file) in [("admin", "index.php"), ("docs", "index.html")] {
        fs::create_dir(scene.file(folder)).expect("a directory");
        fs::write(scene.file(&format!("{folder}/{file}")), SOURCE).expect("it can be written");
    }
    fs::write(scene.file("admin/index.html"), "not sent").expect("it can be written");
    for spoken in BOTH {
        let mut client = scene.client(spoken);
        for _ in 0..2 {
            for (target, script, path_info, query) in [
                ("/gone?a=1", "/index.php", Some("/front"), "q=/gone&a=1"),
                ("/a.php/b", "/index.php", Some("/front"), "q=/a.php/b&"),
                ("/admin/?a=1", "/admin/index.php", None, "a=1"),
                ("/", "/index.php", None, ""),
            ] {
                client.asks(&get(target));
                let asked = Application::accept(&scene, 0).serves(OK);
                let param = |name: &str| asked.param(name).filter(|value| !value.is_empty());
                assert_eq!(param("SCRIPT_NAME"), Some(script), "{target}");
                assert_eq!(param("PATH_INFO"), path_info, "{target}");
                assert_eq!(asked.param("QUERY_STRING"), Some(query), "{target}");
                assert_eq!(asked.param("REQUEST_URI"), Some(target), "{target}");
                assert_eq!(client.gets().body, "ran", "{target}");
            }
            assert_eq!(client.asks_for(&get("/docs/")).body, SOURCE, "an index that is no script");
            let got = client.asks_for(&get("/admin"));
            assert_eq!((got.status, got.field("location")), (301, Some("/admin/")));
        }
    }
}

#[test]
fn a_reload_that_makes_files_scripts_holds_at_once() {
    let (server, directory) = (testkit::ports::listen(), tempfile::tempdir().expect("a directory"));
    fs::write(directory.path().join("a.php"), SOURCE).expect("it can be written");
    let (root, address) = (directory.path().display(), server.local_addr().expect("it listens"));
    let config = |servers: String| {
        read(&format!(
            "workers = 1\n[[listen]]\naddress = \"127.0.0.1:0\"\n[[route]]\nfiles = {{ root = \"{root}\", else = \
             {{ upstream = \"app\" }} }}\n[upstream.app]\n{servers}\n"
        ))
    };
    let plain = config(format!("servers = [\"http://{address}\"]"));
    let running = control::start(plain).unwrap_or_else(|error| panic!("{error}"));
    let stream = std::net::TcpStream::connect(running.addresses()[0]).expect("the proxy listens");
    let mut client = Http1Peer::new("client", stream);
    // A server that runs no scripts has none to hide. The file stays open.
    client.sends("GET /a.php HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(client.message().body, SOURCE.as_bytes());
    running
        .reload(config(format!("servers = [\"fcgi://{address}\"]\nfastcgi = {{ root = \"{root}\" }}")))
        .expect("it is valid");
    client.sends("GET /a.php HTTP/1.1\r\nHost: test\r\n\r\n");
    let asked = Application::from_stream(testkit::ports::accept(&server)).serves(OK);
    assert_eq!(asked.param("SCRIPT_NAME"), Some("/a.php"));
    assert_eq!(client.message().body, b"ran");
}
