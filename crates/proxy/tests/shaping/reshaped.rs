//! Rates and delays that operators change at run time, through the admin API.

use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use control::Running;
use tempfile::TempDir;
use testkit::admin;
use testkit::wait::assert_soon;

use super::scene::{ask, client, in_pieces, origin, read_head, read_response};

const BODY_BYTES: usize = 100_000;

/// A proxy with an admin API, and its folder.
struct Scene {
    running: Running,
    folder: TempDir,
}

impl Scene {
    fn new(origin: SocketAddr) -> Self {
        Self::with_route(origin, "")
    }

    fn with_route(origin: SocketAddr, route: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let running = control::start(config(folder.path(), origin, route)).expect("it starts");
        Self { running, folder }
    }

    /// Returns status and body of the admin API's answer.
    fn asks(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        admin::asks(&self.folder.path().join("admin"), method, path, body)
    }

    fn set(&self, order: &str) {
        let (status, told) = self.asks("POST", "/shaping", order);
        assert_eq!(status, 200, "{order}: {told}");
    }
}

fn config(folder: &Path, origin: SocketAddr, route: &str) -> config::Config {
    let admin = folder.join("admin");
    let text = format!(
        "workers = 2\nadmin = \"{}\"\n[[listen]]\naddress = \"127.0.0.1:0\"\nname = \"front\"\n\
         [[route]]\nname = \"all\"\nupstream = \"app\"\n{route}\n[upstream.app]\nservers = [\"http://{origin}\"]\n",
        admin.display()
    );
    config::parse(&text, "test").unwrap_or_else(|mistakes| panic!("{mistakes:?}"))
}

#[test]
fn a_download_that_is_under_way_goes_on_at_each_rate_that_is_set() {
    for place in ["listener", "route", "upstream"] {
        let (origin, pieces) = in_pieces(3 * BODY_BYTES);
        let scene = Scene::new(origin);
        // At a byte per second the body would take days.
        scene.set(&format!(r#"{{"place":"{place}","rate":"1B/s"}}"#));
        let mut client = client(&scene.running);
        ask(&mut client);
        pieces.send(3 * BODY_BYTES).expect("a server");
        read_head(&mut client).expect("a head");
        client.read_exact(&mut [0]).expect("a byte");
        let began = Instant::now();
        scene.set(&format!(r#"{{"place":"{place}","rate":["1MB/s"]}}"#));
        client.read_exact(&mut vec![0; BODY_BYTES]).unwrap_or_else(|error| panic!("{place}: {error}"));
        // A late timer is made up for, by at most 32 ms.
        assert!(began.elapsed() >= Duration::from_millis(60), "{place}: {:?}", began.elapsed());
        scene.set(&format!(r#"{{"place":"{place}","rate":"1B/s"}}"#));
        scene.set(&format!(r#"{{"place":"{place}","rate":"none"}}"#));
        client
            .read_exact(&mut vec![0; 2 * BODY_BYTES - 1])
            .unwrap_or_else(|error| panic!("{place}: {error}"));
    }
}

#[test]
fn what_is_stored_goes_on_at_a_rate_that_is_set_as_well() {
    // More than the kernel takes at once.
    const BODY_BYTES: usize = 30_000_000;
    let cache = "cache = { default_ttl = \"1m\" }\n[cache]\nmemory = \"1GB\"\nobject = \"32MB\"";
    let scene = Scene::with_route(origin(BODY_BYTES), cache);
    let begin = || {
        let mut client = client(&scene.running);
        ask(&mut client);
        assert_eq!(read_head(&mut client), Some(BODY_BYTES));
        client
    };
    let mut body = vec![0; BODY_BYTES];
    begin().read_exact(&mut body).expect("it is fetched");
    let mut client = begin();
    let began = Instant::now();
    scene.set(r#"{"place":"listener","rate":"20MB/s"}"#);
    client.read_exact(&mut body).expect("it comes");
    // Buffers may hold 10 MB; the rest takes twice this time.
    assert!(began.elapsed() >= Duration::from_millis(500), "{:?}", began.elapsed());
}

#[test]
fn whatever_ends_a_change_ends_it_for_what_is_under_way() {
    for (expires, ends) in [
        ("", Some(("DELETE", "/shaping/route/all"))),
        ("", Some(("DELETE", "/shaping"))),
        ("", Some(("DELETE", "/faults"))),
        (r#","expires":"80ms""#, None),
    ] {
        let scene = Scene::new(origin(BODY_BYTES));
        let mut client = client(&scene.running);
        scene.set(&format!(r#"{{"place":"route","name":"all","rate":"1B/s"{expires}}}"#));
        ask(&mut client);
        let length = read_head(&mut client).expect("a head");
        if let Some((method, path)) = ends {
            client.read_exact(&mut [0]).expect("a byte");
            let (status, told) = scene.asks(method, path, "");
            assert!(status == 200 && told.contains("cleared\": 1"), "{path}: {told}");
            client.read_exact(&mut vec![0; length - 1]).unwrap_or_else(|error| panic!("{path}: {error}"));
        } else {
            client.read_exact(&mut vec![0; length]).expect("it expires");
            // The API shows the end of the change a moment later.
            assert_soon("the change does not expire", || {
                !scene.asks("GET", "/shaping", "").1.contains("\"is_changed\": true")
            });
        }
        assert_eq!(scene.asks("GET", "/shaping", "").1.matches("\"is_changed\": false").count(), 3);
        assert!(scene.asks("GET", "/status", "").1.contains("\"shaping\": []"));
    }
}

#[test]
fn delays_come_and_go_under_a_connection() {
    const MS: Duration = Duration::from_millis(1);
    let scene = Scene::new(origin(100));
    let mut client = client(&scene.running);
    let time_of_request = |client: &mut _| {
        let began = Instant::now();
        ask(client);
        read_response(client);
        began.elapsed()
    };
    time_of_request(&mut client);
    for (order, least) in [
        (r#"{"place":"listener","latency":"60ms"}"#, 120 * MS),
        (r#"{"place":"route","delay":"50ms","response_delay":"50ms"}"#, 220 * MS),
        (r#"{"place":"upstream","latency":"40ms"}"#, 300 * MS),
        (r#"{"place":"listener","latency":"none"}"#, 180 * MS),
        (r#"{"place":"listener","profile":"slow-3g","rate":"1MB/s"}"#, 500 * MS),
        (r#"{"place":"route","delay":"none"}"#, 400 * MS),
    ] {
        scene.set(order);
        let took = time_of_request(&mut client);
        assert!(took >= least, "{order}: {took:?}");
    }
    assert_eq!(scene.asks("DELETE", "/shaping", "").0, 200);
    time_of_request(&mut client);
}

/// Links of the file are referenced by name, with the file's settings.
#[test]
fn a_listener_is_given_a_link_of_the_file() {
    let profile = |latency: u32| format!("[profile.far]\nlatency = \"{latency}ms\"\nrate = \"9MB/s\"\n");
    let origin = origin(100);
    let scene = Scene::with_route(origin, &profile(60));
    let mut client = client(&scene.running);
    let mut takes = |least: u64| {
        let began = Instant::now();
        ask(&mut client);
        read_response(&mut client);
        assert!(began.elapsed() >= Duration::from_millis(least), "{:?}", began.elapsed());
    };
    takes(0);
    scene.set(r#"{"place":"listener","profile":"far","upload_rate":"3MB/s"}"#);
    takes(120);
    let (_, told) = scene.asks("GET", "/shaping", "");
    let told: String = told.split_whitespace().collect();
    assert!(told.contains(r#""rate":["9MB/s"],"upload_rate":["3MB/s"]"#), "{told}");
    let reload = |route: &str| {
        scene.running.reload(config(scene.folder.path(), origin, route)).expect("it is valid");
    };
    reload(&profile(80));
    takes(160);
    reload("");
    let (_, told) = scene.asks("GET", "/shaping", "");
    assert!(!told.contains("ms\""), "the file has no such link: {told}");
    reload(&profile(100));
    takes(200);
}

#[test]
fn a_change_is_kept_over_a_reload_and_told() {
    let origin = origin(100);
    let scene = Scene::new(origin);
    scene.set(r#"{"place":"route","rate":["1MB/s","5KB/s per client"],"expires":"1h"}"#);
    let next = config(scene.folder.path(), origin, "rate = \"9MB/s\"\nupload_rate = \"3MB/s\"");
    scene.running.reload(next).expect("it is valid");
    for path in ["/shaping", "/status"] {
        let (_, told) = scene.asks("GET", path, "");
        let told: String = told.split_whitespace().collect();
        let rates = r#""rate":["1MB/s","5KB/sperclient"],"upload_rate":["3MB/s"]"#;
        assert!(told.contains(rates) && told.contains("\"is_changed\":true"), "{told}");
        assert!(told.contains("\"expires_in_seconds\":3"), "{told}");
    }
    let (_, configuration) = scene.asks("GET", "/configuration", "");
    assert!(configuration.contains("5KB/s per client"), "{configuration}");
}

#[test]
fn what_is_wrong_with_a_change_is_told_with_the_remedy() {
    let scene = Scene::new(origin(100));
    for (method, path, body, status, said) in [
        ("POST", "/shaping", "rate = 1", 400, "the body is invalid"),
        (
            "POST",
            "/shaping",
            r#"{"place":"route","rte":"1MB/s"}"#,
            400,
            "unknown field `rte`; expected one of",
        ),
        ("POST", "/shaping", r#"{"place":"route","rate":5}"#, 400, "a rate such as"),
        (
            "POST",
            "/shaping",
            r#"{"place":"cache","rate":"1MB/s"}"#,
            400,
            "unknown variant `cache`; expected one of",
        ),
        ("POST", "/shaping", r#"{"place":"route","rate":"1mb/s"}"#, 422, "did you mean"),
        (
            "POST",
            "/shaping",
            r#"{"place":"listener","profile":"far"}"#,
            422,
            "profile: no link is named \\\"far\\\"; there are dial-up, ",
        ),
        ("POST", "/shaping", r#"{"place":"route","name":"x","rate":"1MB/s"}"#, 404, "no route is named"),
        ("POST", "/shaping", r#"{"place":"route"}"#, 422, "the change is empty"),
        ("POST", "/shaping", r#"{"place":"route","latency":"1s"}"#, 422, "it is for listeners and upstreams"),
        ("DELETE", "/shaping/route/all", "", 404, "has no change to remove"),
    ] {
        let (got, told) = scene.asks(method, path, body);
        assert!(got == status && told.contains(said), "{method} {path} {body}: {got} {told}");
    }
    assert_eq!(scene.asks("GET", "/shaping", "").1.matches("\"is_changed\": false").count(), 3);
}
