//! Lines of the access log of requests over HTTP/2, on both sides.

use config::{AccessLog, LogFormat, LogTarget, Protocol};
use serde_json::Value;

use crate::frame::{headers, last_data, last_headers};
use crate::scene::Scene;

const FIELDS: &str = ":method: POST\n:scheme: http\n:authority: test\n:path: /a?b\nreferer: http://from/\n\
                      user-agent: me\n";

#[test]
fn a_stream_is_logged_like_any_request() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("access.log");
    let scene = Scene::with(Protocol::Http2, 1, |config| {
        let target = LogTarget::File(path.clone());
        config.access_log = Some(AccessLog::new(target, LogFormat::Json));
    });
    let mut client = scene.client();
    client.sends([headers(1, FIELDS), last_data(1, "hello")].concat());
    let mut server = scene.accept();
    server.whole(1);
    server.sends([headers(1, ":status: 200\ndate: D\n"), last_data(1, "ok")].concat());
    client.whole(1);
    client.sends(last_headers(3, &FIELDS.replace("POST", "GET")));
    server.whole(3);
    server.sends(last_headers(3, ":status: 204\ndate: D\n"));
    client.whole(3);
    drop((client, server));
    let Scene { running, .. } = scene;
    running.drain();
    running.wait();

    let text = std::fs::read_to_string(&path).expect("the log is there");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("is JSON")).collect();
    assert_eq!(lines.len(), 2, "{text}");
    for (line, method, status) in [(&lines[0], "POST", 200), (&lines[1], "GET", 204)] {
        for (name, value) in [
            ("method", method),
            ("target", "/a?b"),
            ("version", "2.0"),
            ("host", "test"),
            ("referer", "http://from/"),
            ("user_agent", "me"),
            ("upstream", "default"),
        ] {
            assert_eq!(line[name], value, "{name} in {line}");
        }
        assert_eq!(line["status"], status, "{line}");
        assert_eq!(line["cause"], Value::Null, "{line}");
    }
    assert_eq!(
        (&lines[0]["body_bytes_sent"], &lines[1]["body_bytes_sent"]),
        (&2.into(), &0.into()),
        "{text}"
    );
}
