//! Paths and their scripts: no file outside of the root, and no file that is not a script, ever runs.

use std::fs;
use std::os::unix::fs::symlink;

use testkit::scene::{BodylessRequest, Scene, Spoken, get};

use super::application::{Application, FILES, configuration, scene};

const OK: &str = "Content-Type: text/plain\r\n\r\nok";

/// No connection is kept: each client may meet another worker.
const UNKEPT: &str = "pool = { idle = 0 }";

/// A path, with its script and path info, or the status of the proxy.
type Row<'a> = (&'a str, Result<(&'a str, &'a str), u16>);

/// Checks the script and the path info that an application gets for each path, or the status of the proxy.
fn outcomes(scene: &Scene, rows: &[Row<'_>]) {
    for (path, expected) in rows {
        let mut client = scene.client(Spoken::Http1);
        client.asks(&get(path));
        if let Ok((script, info)) = expected {
            let asked = Application::accept(scene, 0).serves(OK);
            let name = asked.param("SCRIPT_NAME").expect("there is a script");
            let file = asked.param("SCRIPT_FILENAME").expect("there is a script");
            assert!(file.ends_with(name), "{file}");
            assert_eq!((name, asked.param("PATH_INFO").unwrap_or_default()), (*script, *info), "{path}");
        }
        let got = client.gets();
        assert_eq!(got.status, expected.err().unwrap_or(200), "{path}");
    }
}

#[test]
fn a_path_names_its_script_or_the_front_controller() {
    let scene = scene(UNKEPT);
    outcomes(
        &scene,
        &[
            ("/", Ok(("/index.php", ""))),
            ("/a.php", Ok(("/a.php", ""))),
            ("/a.php/b/c", Ok(("/a.php", "/b/c"))),
            ("/index.php/b", Ok(("/index.php", "/b"))),
            ("/blog/a-post", Ok(("/index.php", ""))),
            ("/missing.php", Ok(("/index.php", ""))),
            // The upload is no script, and neither is what follows it.
            ("/x.jpg/a.php", Ok(("/index.php", ""))),
            ("/x.jpg", Ok(("/index.php", ""))),
            ("/a.php%00.jpg", Err(400)),
            ("/b%2f..%2fa.php", Err(400)),
            ("/x.jpg%2fa.php", Err(400)),
            ("/%2e%2e/a.php", Err(400)),
            ("/a.PHP", Ok(("/index.php", ""))),
            ("/.hidden.php", Ok(("/index.php", ""))),
        ],
    );
}

#[test]
fn without_a_front_controller_other_paths_are_404() {
    let text =
        configuration(UNKEPT).replace("root = \"{dir}\"", "root = \"{dir}\", front_controller = false");
    let scene = Scene::with_files(FILES, &text);
    outcomes(
        &scene,
        &[
            ("/", Ok(("/index.php", ""))),
            ("/a.php/b", Ok(("/a.php", "/b"))),
            ("/missing.php", Err(404)),
            ("/x.jpg/a.php", Err(404)),
            ("/x.jpg", Err(404)),
        ],
    );
}

#[test]
fn links_and_directories_below_the_root() {
    let scene = scene(UNKEPT);
    let at = |name: &str| scene.file(name);
    let outside = tempfile::tempdir().expect("a directory");
    fs::write(outside.path().join("secret.php"), "").expect("it can be written");
    symlink(outside.path().join("secret.php"), at("out.php")).expect("a link");
    symlink(outside.path(), at("elsewhere")).expect("a link");
    symlink("a.php", at("within.php")).expect("a link");
    fs::create_dir(at("admin")).expect("a directory");
    fs::write(at("admin/index.php"), "").expect("it can be written");
    fs::create_dir(at("folder.php")).expect("a directory");
    fs::create_dir(at("empty")).expect("a directory");
    outcomes(
        &scene,
        &[
            ("/out.php", Ok(("/index.php", ""))),
            ("/elsewhere/secret.php", Ok(("/index.php", ""))),
            ("/within.php", Ok(("/within.php", ""))),
            ("/admin/", Ok(("/admin/index.php", ""))),
            ("/admin/index.php/x", Ok(("/admin/index.php", "/x"))),
            ("/folder.php", Ok(("/index.php", ""))),
            ("/empty/", Ok(("/index.php", ""))),
            ("/empty", Ok(("/index.php", ""))),
        ],
    );
    let mut client = scene.client(Spoken::Http1);
    let got = client.asks_for(&get("/admin?a=b"));
    assert_eq!((got.status, got.field("location")), (301, Some("/admin/?a=b")));
}

#[test]
fn scripts_of_another_machine_are_not_looked_for() {
    let text =
        configuration(UNKEPT).replace("root = \"{dir}\"", "root = \"/srv/there\", check_files = false");
    let scene = Scene::new(&text);
    outcomes(
        &scene,
        &[
            ("/", Ok(("/index.php", ""))),
            ("/a.php/b", Ok(("/a.php", "/b"))),
            ("/blog/", Ok(("/index.php", ""))),
            ("/blog", Ok(("/index.php", ""))),
            ("/%2e%2e/a.php", Err(400)),
        ],
    );
}

#[test]
fn a_script_that_appears_is_found() {
    let text =
        configuration(UNKEPT).replace("root = \"{dir}\"", "root = \"{dir}\", front_controller = false");
    let scene = Scene::with_files(FILES, &text);
    let mut client = scene.client(Spoken::Http1);
    assert_eq!(client.asks_for(&get("/new.php")).status, 404);
    fs::write(scene.file("new.php"), "").expect("it can be written");
    // Asked again until the look-up is repeated, after a second.
    let mut status = 404;
    let listener = scene.listener(0);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let stream = testkit::ports::accept(&listener);
            Application::from_stream(stream).serves(OK);
        });
        testkit::wait::assert_soon("the script is not found", || {
            status = client.asks_for(&get("/new.php")).status;
            status == 200
        });
    });
}

#[test]
fn a_target_that_is_no_path_names_no_script() {
    let scene = scene(UNKEPT);
    let mut client = scene.client(Spoken::Http1);
    let got = client.asks_for(&BodylessRequest { method: "OPTIONS", ..get("*") });
    assert_eq!(got.status, 400);
}
