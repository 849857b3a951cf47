//! Folders that a value names: no value leaves the folder in which they are.

use testkit::scene::{BOTH, Scene};

use super::scene::{answer_twice, with, write};

const ROUTES: &str = r#"
[values]
site = 'request.query["site"] ?? request.headers["x-site"] ?? ""'

[[route]]
files = { root = "{dir}/sites/${site}/public" }

[[route]]
path = "/docs"
files = { root = "{dir}/sites/site-${site}" }
rewrite = { path = "/" }
"#;

fn scene() -> Scene {
    let scene = Scene::with_files(&[], ROUTES);
    for (name, text) in [
        ("sites/one/public/index.html", "home of one"),
        ("sites/one/public/page.txt", "page of one"),
        ("sites/one/secret.txt", "secret"),
        ("sites/two/public/page.txt", "page of two"),
        ("sites/a b/public/page.txt", "page of a b"),
        ("sites/public/page.txt", "of no site"),
        ("sites/.hidden/public/page.txt", "hidden"),
        ("sites/site-x/page.txt", "docs of x"),
        ("sites/site-x/sub/index.html", "sub of x"),
        ("public/page.txt", "outside"),
    ] {
        write(&scene, name, text);
    }
    scene
}

#[test]
fn a_value_chooses_the_folder() {
    let scene = scene();
    for spoken in BOTH {
        for (target, site, body) in [
            ("/page.txt", "x-site: one\n", "page of one"),
            ("/page.txt?a=b", "x-site: two\n", "page of two"),
            ("/", "x-site: one\n", "home of one"),
            ("/page.txt", "x-site: a b\n", "page of a b"),
            ("/page.txt?site=a%20b", "", "page of a b"),
            ("/docs/page.txt", "x-site: x\n", "docs of x"),
            ("/docs/sub/", "x-site: x\n", "sub of x"),
        ] {
            let got = answer_twice(&scene, spoken, &with(target, site));
            assert_eq!((got.status, got.body.as_str()), (200, body), "{spoken:?} {target} {site}");
        }
        let got = answer_twice(&scene, spoken, &with("/docs/sub", "x-site: x\n"));
        assert_eq!((got.status, got.field("location")), (301, Some("/docs/sub/")), "{spoken:?}");
    }
}

#[test]
fn no_value_leaves_the_folder() {
    let scene = scene();
    for spoken in BOTH {
        for site in [
            "",
            "none",
            ".",
            "..",
            "../sites/one",
            "..%2f..",
            "one/",
            "/one",
            "one/../one",
            "one%5c..",
            "one%00",
            "%00",
            ".hidden",
            "%2e%2e",
            "%252e%252e",
        ] {
            for target in ["/page.txt", "/secret.txt", "/public/page.txt", "/docs/page.txt"] {
                let got = answer_twice(&scene, spoken, &with(&format!("{target}?site={site}"), ""));
                assert_eq!(got.status, 404, "{spoken:?} {target} {site}");
            }
        }
    }
}
