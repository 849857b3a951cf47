//! Active health checks over HTTP/3.

use tempfile::TempDir;
use testkit::admin;
use testkit::http3::H3TestServer;
use testkit::wait::assert_soon;

use super::scene::Scene;

/// A check with short intervals.
fn check(kind: &str) -> String {
    format!("check = {{ {kind}, interval = \"100ms\", rise = 1, fall = 1 }}")
}

/// A proxy with this check, and its admin API.
fn scene(kind: &str) -> (Scene, TempDir) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let admin = format!("admin = {:?}", folder.path().join("admin"));
    // The test answers every check, however busy the machine is.
    let check = check(&format!("{kind}, timeout = \"1h\""));
    (Scene::of(vec![H3TestServer::new()], &format!("tls = {{ verify = false }}\n{check}"), &admin), folder)
}

fn is_up(folder: &TempDir) -> bool {
    let (_, status) = admin::asks(&folder.path().join("admin"), "GET", "/status", "");
    status.split_whitespace().collect::<String>().contains("\"state\":\"up\"")
}

#[test]
fn a_check_asks_over_http3() {
    let (scene, folder) = scene("type = \"http\", path = \"/health\"");
    for (status, is_well) in [(503, false), (200, true), (500, false)] {
        let server = scene.accept();
        let mut stream = server.request();
        let (head, _, _) = stream.response();
        assert!(head.contains(":path: /health\n") && head.contains("user-agent: vanward-check"), "{head}");
        stream.sends_head(&format!(":status: {status}\n"));
        stream.ends();
        assert_soon("the check has no effect", || is_up(&folder) == is_well);
    }
}

#[test]
fn a_check_of_tls_is_a_handshake_of_quic() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let admin = format!("admin = {:?}", folder.path().join("admin"));
    let (scene, relay) = Scene::behind_a_relay(&check("type = \"tls\""), &admin);
    scene.accept().closed();
    assert_soon("it is down", || is_up(&folder));
    drop(relay);
    assert_soon("nobody notices", || !is_up(&folder));
}

#[test]
fn a_check_of_grpc_is_a_call_over_http3() {
    let (scene, folder) = scene("type = \"grpc\", service = \"shop\"");
    for (serving, is_well) in [(2, false), (1, true)] {
        let server = scene.accept();
        let mut stream = server.request();
        let (head, body, _) = stream.response();
        assert!(head.contains(":path: /grpc.health.v1.Health/Check\n"), "{head}");
        assert!(
            head.contains("te: trailers\n") && head.contains("content-type: application/grpc\n"),
            "{head}"
        );
        assert_eq!(body, b"\0\0\0\0\x06\x0a\x04shop");
        stream.sends_head(":status: 200\ncontent-type: application/grpc\n");
        stream.sends_data(&[0, 0, 0, 0, 2, 8, serving]);
        stream.sends_head("grpc-status: 0\n");
        stream.ends();
        assert_soon("the check has no effect", || is_up(&folder) == is_well);
    }
}
