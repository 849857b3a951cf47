//! A proxy with files, and requests for them.

use std::fs;
use std::path::PathBuf;

use testkit::scene::{BodylessRequest, Got, Scene, Spoken, get};

/// The modification date of all files.
pub(crate) const MODIFIED: &str = "Tue, 01 Oct 2024 10:00:00 GMT";

/// A page, a directory with an index, one without, and files that must not be served. Their date is [`MODIFIED`].
pub(crate) const TREE: &[(&str, &str)] = &[
    ("root/index.html", "<p>home"),
    ("root/page.txt", "0123456789"),
    ("root/empty.css", ""),
    ("root/a b&c.txt", "spaces"),
    ("root/docs/index.html", "<p>docs"),
    ("root/plain/one.txt", "1"),
    ("root/plain/two.txt", "22"),
    ("root/plain/sub/x", "x"),
    ("root/.secret", "secret"),
    ("root/plain/.secret", "secret"),
    ("root/.git/config", "secret"),
    ("root/.well-known/security.txt", "Contact: mailto:a@example.com"),
    ("outside/secret.txt", "secret"),
    ("errors/404.html", "<h1>lost</h1>"),
];

/// A proxy whose only route serves the files beneath `root`. `options` are further options of `files`; `more` is the
/// rest of the route and of the configuration.
pub(crate) fn scene(options: &str, more: &str) -> Scene {
    let route = format!("[[route]]\npath = \"/\"\nfiles = {{ root = \"{{dir}}/root\"{options} }}\n{more}");
    // The configuration may name files of the tree.
    let flat: Vec<(&str, &str)> = vec![("404.html", "<h1>lost</h1>")];
    let scene = Scene::with_files(&flat, &route);
    for (name, text) in TREE {
        write(&scene, name, text);
    }
    scene
}

/// Writes a file with the common date.
pub(crate) fn write(scene: &Scene, name: &str, text: &str) -> PathBuf {
    let path = scene.file(name);
    fs::create_dir_all(path.parent().expect("is in a directory")).expect("it can be made");
    fs::write(&path, text).expect("it can be written");
    let file = fs::File::options().write(true).open(&path).expect("it was written");
    let modified = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_727_776_800);
    file.set_modified(modified).expect("it has a date");
    path
}

pub(crate) fn with<'a>(target: &'a str, fields: &'a str) -> BodylessRequest<'a> {
    BodylessRequest { fields, ..get(target) }
}

/// Returns the response to a request that is sent twice on one connection: the file is first looked up, then open.
pub(crate) fn answer_twice(scene: &Scene, spoken: Spoken, asked: &BodylessRequest<'_>) -> Got {
    let mut client = scene.client(spoken);
    let mut got = || {
        client.asks(asked);
        if asked.method == "HEAD" { client.gets_head_alone() } else { client.gets() }
    };
    let first = got();
    let second = got();
    let without_date = |got: &Got| {
        let lines = got.fields.lines().filter(|line| !line.starts_with("date: "));
        // Each multipart has a different boundary.
        lines.filter(|line| !line.contains("boundary=")).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(without_date(&first), without_date(&second), "{asked:?}");
    assert_eq!(first.status, second.status, "{asked:?}");
    if !first.fields.contains("boundary=") {
        assert_eq!(first.body, second.body, "{asked:?}");
    }
    second
}
