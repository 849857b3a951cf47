//! Ten thousand routes and a thousand servers.

use std::fmt::Write;

use testkit::scene::{BodylessRequest, Scene, Spoken, get};
use testkit::text::OK;

/// Routes with a host and a path each; the last one leads to `{0}`.
pub(crate) fn routes() -> String {
    const ROUTES: usize = 10_000;
    const SERVERS: usize = 1000;
    let mut text = String::new();
    for route in 0..ROUTES {
        let (host, path) = (route % 500, route / 500);
        let upstream = route % (SERVERS / 10);
        write!(
            text,
            "[[route]]\nhost = \"host-{host}.example\"\npath = \"/p/{path}\"\nupstream = \"u{upstream}\"\n"
        )
        .expect("is written");
    }
    for upstream in 0..SERVERS / 10 {
        let server = |number: usize| format!("\"http://127.1.{upstream}.{number}:9\"");
        let servers: Vec<String> = (0..10).map(server).collect();
        write!(text, "[upstream.u{upstream}]\nservers = [{}]\n", servers.join(", ")).expect("is written");
    }
    text + "[[route]]\nupstream = \"app\"\n[upstream.app]\nservers = [\"http://{0}\"]\n"
}

#[test]
fn each_of_ten_thousand_routes_is_found() {
    let text = routes();
    let scene = Scene::new(&format!(
        "{text}\n[[route]]\nhost = \"host-499.example\"\npath = \"/p/19/x\"\nupstream = \"app\"\n"
    ));
    for (host, target) in
        [("host-499.example", "/p/19/x/y"), ("other.example", "/p/19/x"), ("host-1.example", "/q")]
    {
        let (seen, got) = scene.exchange(
            Spoken::Http1,
            &BodylessRequest { host, ..get(target) },
            &OK.replace("OK\r\n", "OK\r\nConnection: close\r\n"),
        );
        assert!(seen.starts_with(&format!("GET {target} ")), "{seen}");
        assert_eq!(got.status, 200);
    }
}
