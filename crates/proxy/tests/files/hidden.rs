//! Paths that must not lead to a file: hidden files, and files outside of the root.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::process::Command;

use testkit::scene::{BOTH, Scene, get};

use super::scene::{answer_twice, scene};

/// Known forms of path traversal.
fn traversals() -> Vec<(String, &'static [u16])> {
    const REFUSED: &[u16] = &[400];
    const NOT_FOUND: &[u16] = &[404];
    let mut rows: Vec<(String, &[u16])> = [
        ("/../outside/secret.txt", REFUSED),
        ("/../../../../../../../../etc/passwd", REFUSED),
        ("/docs/../../outside/secret.txt", REFUSED),
        ("/docs/..", REFUSED),
        ("/docs/../index.html", REFUSED),
        ("/./page.txt", REFUSED),
        ("/%2e%2e/outside/secret.txt", REFUSED),
        ("/%2E%2E/outside/secret.txt", REFUSED),
        ("/.%2e/outside/secret.txt", REFUSED),
        ("/%2e./outside/secret.txt", REFUSED),
        ("/..%2foutside%2fsecret.txt", REFUSED),
        ("/%2e%2e%2foutside/secret.txt", REFUSED),
        ("/..%5coutside%5csecret.txt", REFUSED),
        ("/..\\outside\\secret.txt", REFUSED),
        ("/docs%2f..%2f..%2foutside/secret.txt", REFUSED),
        ("/page.txt%00.html", REFUSED),
        ("/%00", REFUSED),
        ("/%", REFUSED),
        ("/%2", REFUSED),
        ("/%g0", REFUSED),
        ("/%u002e%u002e/outside/secret.txt", REFUSED),
        // Decoded once only; bytes are not interpreted as characters.
        ("/%252e%252e/outside/secret.txt", NOT_FOUND),
        ("/%252e%252e%252foutside/secret.txt", NOT_FOUND),
        ("/%c0%ae%c0%ae/outside/secret.txt", NOT_FOUND),
        ("/%e0%80%ae%e0%80%ae/outside/secret.txt", NOT_FOUND),
        ("/..%c0%af../outside/secret.txt", NOT_FOUND),
        ("/%c0%2e%c0%2e/outside/secret.txt", NOT_FOUND),
        ("/..;/outside/secret.txt", NOT_FOUND),
        ("/.../outside/secret.txt", NOT_FOUND),
        ("/....//outside/secret.txt", NOT_FOUND),
        ("//etc/passwd", NOT_FOUND),
        ("/etc/passwd", NOT_FOUND),
        ("/~root/", NOT_FOUND),
        ("/file:///etc/passwd", NOT_FOUND),
        ("/.secret", NOT_FOUND),
        ("/%2esecret", NOT_FOUND),
        ("/plain/.secret", NOT_FOUND),
        ("/.git/config", NOT_FOUND),
        ("/.well-known/../.git/config", REFUSED),
        ("/link-out", NOT_FOUND),
        ("/link-up/outside/secret.txt", NOT_FOUND),
        ("/link-absolute", NOT_FOUND),
        ("/link-loop", NOT_FOUND),
        ("/link-proc/root/etc/passwd", NOT_FOUND),
        ("/fifo", NOT_FOUND),
        ("/socket", NOT_FOUND),
    ]
    .into_iter()
    .map(|(target, statuses)| (target.to_owned(), statuses))
    .collect();
    rows.push((format!("/{}", "n".repeat(255)), NOT_FOUND));
    rows.push((format!("/{}", "n".repeat(256)), NOT_FOUND));
    rows.push((format!("/{}", "d/".repeat(2000)), NOT_FOUND));
    rows.push((format!("/{}x", "dddd/".repeat(1000)), NOT_FOUND));
    rows
}

fn with_traps(options: &str) -> (Scene, UnixListener) {
    let scene = scene(options, "");
    for (target, link) in [
        ("../outside/secret.txt", "link-out"),
        ("..", "link-up"),
        ("/etc/passwd", "link-absolute"),
        ("link-loop", "link-loop"),
        ("/proc/self", "link-proc"),
        ("page.txt", "link-within"),
        ("docs", "link-directory"),
    ] {
        symlink(target, scene.file("root").join(link)).expect("it can be linked");
    }
    let socket = UnixListener::bind(scene.file("root/socket")).expect("a path for a socket");
    let made = Command::new("mkfifo").arg(scene.file("root/fifo")).status().expect("mkfifo starts");
    assert!(made.success());
    (scene, socket)
}

#[test]
fn nothing_leads_out_of_the_root_nor_to_what_is_hidden() {
    for options in ["", ", symlinks = true", ", listing = true, precompressed = true"] {
        let (scene, _socket) = with_traps(options);
        for spoken in BOTH {
            for (target, statuses) in traversals() {
                // A rejected request ends its connection.
                let got = scene.answer(spoken, &get(&target));
                assert!(statuses.contains(&got.status), "{target}: {} {}", got.status, got.body);
                assert!(
                    !got.body.contains("secret") && !got.body.contains("root:"),
                    "{target}: {}",
                    got.body
                );
            }
        }
    }
}

#[test]
fn links_that_stay_within_are_followed_only_where_that_is_wanted() {
    for (options, status) in [("", 404), (", symlinks = true", 200)] {
        let (scene, _socket) = with_traps(options);
        for spoken in BOTH {
            for target in ["/link-within", "/link-directory/index.html", "/link-directory/"] {
                assert_eq!(answer_twice(&scene, spoken, &get(target)).status, status, "{target}{options}");
            }
        }
    }
}

#[test]
fn a_root_may_be_reached_over_links_and_may_come_later() {
    let scene = scene("", "");
    fs::rename(scene.file("root"), scene.file("release-1")).expect("it is there");
    for spoken in BOTH {
        assert_eq!(scene.answer(spoken, &get("/page.txt")).status, 404);
    }
    symlink("release-1", scene.file("root")).expect("it can be linked");
    for spoken in BOTH {
        assert_eq!(scene.answer(spoken, &get("/page.txt")).body, "0123456789");
    }
}

#[test]
fn a_listing_shows_what_may_be_asked_for() {
    let (scene, _socket) = with_traps(", listing = true, index = []");
    let got = scene.answer(BOTH[0], &get("/"));
    assert_eq!(got.status, 200);
    let links: Vec<&str> = got.body.split("href=\"").skip(1).filter_map(|it| it.split('"').next()).collect();
    let files = ["./a%20b%26c.txt", "./empty.css", "./index.html", "./page.txt"];
    assert_eq!(links, [&["./docs/", "./plain/"][..], &files].concat());
}
