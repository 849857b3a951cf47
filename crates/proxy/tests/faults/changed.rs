//! Faults that change while the proxy runs: through its admin API, and with its file.

use testkit::admin;
use testkit::scene::{BOTH, Scene, SceneClient, Spoken, get, read, valid};

const ROUTES: &str = "admin = \"{dir}/admin\"\n[[route]]\nname = \"a\"\nrespond = { status = 200 }\n";

/// Returns status and body of the admin API's answer.
pub(crate) fn asks(scene: &Scene, method: &str, path: &str, body: &str) -> (u16, String) {
    admin::asks(&scene.file("admin"), method, path, body)
}

pub(crate) fn clients(scene: &Scene) -> Vec<SceneClient> {
    BOTH.into_iter().map(|spoken| scene.client(spoken)).collect()
}

fn all_get(clients: &mut [SceneClient], status: u16) {
    for client in clients {
        assert_eq!(client.asks_for(&get("/")).status, status);
    }
}

/// Each change applies to the next request of existing connections, which stay open.
#[test]
fn faults_come_and_go_under_connections() {
    let scene =
        Scene::new(&format!("{ROUTES}[[fault]]\nname = \"of the file\"\ninject = \"501\"\nfirst = 1\n"));
    let mut clients = clients(&scene);
    assert_eq!(clients[0].asks_for(&get("/")).status, 501);
    all_get(&mut clients, 200);
    let added = asks(&scene, "POST", "/faults", "[[fault]]\ninject = \"503\"\nexpires = \"1h\"\n");
    assert_eq!(added.0, 200, "{}", added.1);
    all_get(&mut clients, 503);
    let (_, listed) = asks(&scene, "GET", "/faults", "");
    assert!(listed.contains("\"name\": \"of the file\"") && listed.contains("\"injected\": 2"), "{listed}");
    assert!(asks(&scene, "GET", "/status", "").1.contains("\"inject\": \"503\""));
    let (_, configuration) = asks(&scene, "GET", "/configuration", "");
    assert_eq!(read(&configuration).faults.rules.len(), 2, "{configuration}");
    assert_eq!(asks(&scene, "DELETE", "/faults/503", "").0, 200);
    all_get(&mut clients, 200);
    assert_eq!(asks(&scene, "POST", "/faults", "[[fault]]\ninject = \"429\"\nname = \"x\"\n").0, 200);
    all_get(&mut clients, 429);
    let (status, removed) = asks(&scene, "DELETE", "/faults", "");
    assert_eq!((status, removed.contains("\"removed\": 2")), (200, true), "{removed}");
    all_get(&mut clients, 200);
    assert_eq!(asks(&scene, "GET", "/faults", "").1.trim(), "[]");
}

#[test]
fn what_is_wrong_with_a_fault_is_told_with_its_place() {
    let scene = Scene::new(&format!("{ROUTES}[[fault]]\nname = \"x\"\ninject = \"501\"\nfirst = 1\n"));
    for (method, path, body, status, said) in [
        ("POST", "/faults", "[[fault]]\ninject = \"5O3\"\n", 422, "the request's body:2:10: inject: "),
        ("POST", "/faults", "[[fault]]\ninject = \"503\"\nroute = \"b\"\n", 422, "no route is named"),
        ("POST", "/faults", "", 422, "has no fault"),
        (
            "POST",
            "/faults",
            "[[fault]]\nname = \"x\"\ninject = \"503\"\n",
            409,
            "there is a fault \\\"x\\\" already",
        ),
        ("DELETE", "/faults/y", "", 404, "no fault is named"),
    ] {
        let (got, told) = asks(&scene, method, path, body);
        assert_eq!(got, status, "{method} {path} {body}: {told}");
        assert!(told.contains(said), "{method} {path} {body}: {told}");
    }
    assert_eq!(asks(&scene, "GET", "/faults", "").1.matches("\"name\"").count(), 1);
}

/// A reload with the same faults leaves them unchanged, including removed ones; other faults come into force.
#[test]
fn faults_of_a_file_are_read_again_when_they_change() {
    let text = |faults: &str| {
        format!(
            "workers = 2\n[[listen]]\naddress = \"127.0.0.1:0\"\n[[route]]\nname = \"a\"\nrespond = {{ status = 200 }}\n{faults}"
        )
    };
    let scene = Scene::new("admin = \"{dir}/admin\"\n[[route]]\nname = \"a\"\nrespond = { status = 200 }\n");
    let mut client = scene.client(Spoken::Http1);
    let reload = |faults: &str| {
        let mut config = read(&text(faults)).into_settings();
        config.admin = Some(scene.file("admin"));
        scene.running().reload(valid(config)).expect("it is valid");
    };
    let first = "[[fault]]\ninject = \"503\"\nfirst = 1\n";
    reload(first);
    assert_eq!(client.asks_for(&get("/")).status, 503);
    reload(first);
    assert_eq!(client.asks_for(&get("/")).status, 200, "it has had its first request");
    assert_eq!(asks(&scene, "DELETE", "/faults", "").0, 200);
    reload(first);
    assert_eq!(client.asks_for(&get("/")).status, 200, "it was removed");
    reload("[[fault]]\ninject = \"502\"\n");
    assert_eq!(client.asks_for(&get("/")).status, 502);
    reload("");
    assert_eq!(client.asks_for(&get("/")).status, 200);
}
