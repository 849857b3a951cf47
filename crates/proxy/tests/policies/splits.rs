//! Clients that stay on their side of a split, and routes by cookie.

use testkit::http1::Http1Peer;
use testkit::scene::{BOTH, BodylessRequest, Got, Scene, Spoken, get, read};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

fn routes(sticky: &str, app: u32, canary: u32) -> String {
    format!(
        "trusted_proxies = [\"127.0.0.1\"]\n[[route]]\nsplit = {{ app = {app}, canary = {canary} }}\nsticky = {sticky}\n\
         [upstream.app]\nservers = [\"http://{{0}}\"]\n[upstream.canary]\nservers = [\"http://{{1}}\"]\n"
    )
}

/// Returns which side a request goes to, and the client's response.
fn side(scene: &Scene, spoken: Spoken, fields: &str) -> (usize, Got) {
    let mut client = scene.client(spoken).asking(&BodylessRequest { fields, ..get("/") });
    let patience = testkit::wait::PATIENCE;
    let began = std::time::Instant::now();
    loop {
        for side in 0..2 {
            if let Some(mut server) = scene.try_accept(side) {
                answer(&mut server);
                return (side, client.gets());
            }
        }
        assert!(began.elapsed() < patience, "no server is asked");
        std::thread::yield_now();
    }
}

fn answer(server: &mut Http1Peer) {
    server.head();
    server.sends(OK);
}

fn reload(scene: &Scene, routes: &str) {
    let text = format!("workers = 2\n{routes}\n[[listen]]\naddress = \"127.0.0.1:0\"\n");
    let [app, canary] = [0, 1].map(|server| scene.server_address(server));
    scene.running().reload(read(&text.replace("{0}", &app).replace("{1}", &canary))).expect("is valid");
}

#[test]
fn clients_keep_to_their_side_by_address() {
    let scene = Scene::new(&routes("{ by = \"client\" }", 1, 1));
    let fields: Vec<String> = (0..16).map(|host| format!("x-forwarded-for: 192.0.2.{host}\n")).collect();
    let sides =
        |spoken| -> Vec<usize> { fields.iter().map(|fields| side(&scene, spoken, fields).0).collect() };
    let before = sides(Spoken::Http1);
    assert!(before.contains(&0) && before.contains(&1), "{before:?}");
    assert_eq!(sides(Spoken::Http2), before);
    // A larger share for the first side: some clients move there, and none away.
    reload(&scene, &routes("{ by = \"client\" }", 3, 1));
    let after = sides(Spoken::Http2);
    assert!(
        before.iter().zip(&after).all(|(before, after)| before == after || *after == 0),
        "{before:?} {after:?}"
    );
    let (_, got) = side(&scene, Spoken::Http1, "");
    assert_eq!(got.field("set-cookie"), None);
}

#[test]
fn clients_keep_to_their_side_by_a_signed_cookie() {
    for spoken in BOTH {
        let scene = Scene::new(&routes("{ by = \"cookie\" }", 1, 1));
        let mut cookies: Vec<(String, usize)> = Vec::new();
        while !(0..2).all(|side| cookies.iter().any(|(_, of)| *of == side)) || cookies.len() < 8 {
            let (side, got) = side(&scene, spoken, "");
            let set = got.field("set-cookie").expect("it gets a number").to_owned();
            assert!(set.starts_with("vanward_split=") && set.contains("; HttpOnly"), "{set}");
            cookies.push((set.split(';').next().unwrap_or_default().to_owned(), side));
        }
        // Its cookie among others; also across a reload that enlarges the first side's share.
        for round in 0..2 {
            for (cookie, of) in &cookies {
                let (found, got) = side(&scene, spoken, &format!("cookie: a=b; {cookie}\n"));
                assert!(found == *of || (round == 1 && found == 0), "{spoken:?} {round} {cookie}");
                assert_eq!(got.field("set-cookie"), None, "{spoken:?} {round}");
            }
            reload(&scene, &routes("{ by = \"cookie\" }", 2, 1));
        }
        // An unsigned number is ignored, and a new one is set.
        let (cookie, _) = &cookies[0];
        let forged =
            format!("{}{}", &cookie[..cookie.len() - 1], if cookie.ends_with('A') { "B" } else { "A" });
        for wrong in [forged.as_str(), "vanward_split=", "vanward_split=AAAA"] {
            let (_, got) = side(&scene, spoken, &format!("cookie: {wrong}\n"));
            assert!(got.field("set-cookie").is_some(), "{spoken:?} {wrong}");
        }
    }
}

const CANARY: &str = r#"
[[route]]
respond = { status = 200, body = "app" }
[[route]]
cookie = { canary = "1" }
respond = { status = 200, body = "canary" }
[[route]]
cookie = { canary = "1", session = true }
respond = { status = 200, body = "session" }
[[route]]
cookie = { tier = "gold*" }
respond = { status = 200, body = "tier" }
"#;

/// RFC 6265 §5.4.
#[test]
fn cookies_choose_routes() {
    let scene = Scene::new(CANARY);
    for spoken in BOTH {
        let mut client = scene.client(spoken);
        for (fields, expected) in [
            ("", "app"),
            ("cookie: canary=1\n", "canary"),
            ("cookie: a=b; canary=1; c=d\n", "canary"),
            ("cookie: a=b;canary=1\n", "canary"),
            // A field per cookie, as HTTP/2 clients may send.
            ("cookie: a=b\ncookie: canary=1\n", "canary"),
            ("cookie: canary=1; session=\n", "session"),
            ("cookie: canary=2\n", "app"),
            ("cookie: canary=11\n", "app"),
            ("cookie: Canary=1\n", "app"),
            ("cookie: xcanary=1\n", "app"),
            ("cookie: canary\n", "app"),
            ("cookie: canary =1\n", "app"),
            ("cookie: canary=\"1\"\n", "app"),
            ("cookie: a=canary=1\n", "app"),
            ("cookie: a=b, canary=1\n", "app"),
            // The first one counts.
            ("cookie: canary=0; canary=1\n", "app"),
            ("x-cookie: canary=1\n", "app"),
            ("cookie: tier=golden\n", "tier"),
            ("cookie: tier=gol\n", "app"),
        ] {
            let got = client.asks_for(&BodylessRequest { fields, ..get("/") });
            assert_eq!(got.body, expected, "{spoken:?} {fields:?}");
        }
    }
}
