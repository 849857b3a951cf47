//! The counters of routes, servers and causes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::num::NonZeroU32;
use std::time::Duration;

use balance::{CheckSettings, EjectionSettings};
use config::{Check, Listener, Probe};
use route::Split;

use super::scene::{Scene, config, loopback, name, nobody, server};

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn requests_by_route_server_and_class() {
    let (first, second) = (server(), server());
    let scene = Scene::with(config(
        &[("/a", 0), ("/b", 1), ("/unused", 1)],
        &[("app", &[&first]), ("other", &[&second])],
    ));
    for (path, times, expected) in
        [("/a", 3, 200), ("/a/404", 2, 404), ("/b/503", 1, 503), ("/nowhere", 1, 404)]
    {
        for _ in 0..times {
            assert_eq!(scene.get(path), expected, "{path}");
        }
    }
    assert_eq!(scene.ask("NOT HTTP"), 400);
    let (first, second) = (name(&first), name(&second));
    let of = |upstream, server, rest| format!("{{upstream=\"{upstream}\",server=\"{server}\"{rest}}}");
    let app = |rest| of("app", &first, rest);
    scene.assert_told(&[
        ("vanward_requests_total{route=\"/a\",class=\"2xx\"}", 3.0),
        ("vanward_requests_total{route=\"/a\",class=\"4xx\"}", 2.0),
        ("vanward_requests_total{route=\"/b\",class=\"5xx\"}", 1.0),
        ("vanward_requests_total{route=\"/unused\",class=\"2xx\"}", 0.0),
        ("vanward_requests_total{route=\"(none)\",class=\"4xx\"}", 2.0),
        ("vanward_request_duration_seconds_count{route=\"/a\"}", 5.0),
        ("vanward_request_duration_seconds_bucket{route=\"/a\",le=\"+Inf\"}", 5.0),
        (&format!("vanward_upstream_requests_total{}", app(",class=\"2xx\"")), 3.0),
        (&format!("vanward_upstream_requests_total{}", app(",class=\"4xx\"")), 2.0),
        (&format!("vanward_upstream_requests_total{}", app(",class=\"none\"")), 0.0),
        (&format!("vanward_upstream_first_byte_seconds_count{}", app("")), 5.0),
        (&format!("vanward_upstream_requests_total{}", of("other", &second, ",class=\"5xx\"")), 1.0),
        // Each client has a new connection; the server's is reused.
        ("vanward_upstream_connect_duration_seconds_count{upstream=\"app\"}", 1.0),
        (&format!("vanward_upstream_connections{}", app(",state=\"idle\"")), 1.0),
        (&format!("vanward_upstream_server_state{}", app(",state=\"up\"")), 1.0),
        (&format!("vanward_upstream_server_state{}", app(",state=\"down\"")), 0.0),
        (&format!("vanward_upstream_server_requests_active{}", app("")), 0.0),
        ("vanward_failures_total{cause=\"no-route\"}", 1.0),
        ("vanward_failures_total{cause=\"bad-request\"}", 1.0),
        ("vanward_client_connections_accepted_total", 8.0),
        ("vanward_workers", 1.0),
    ]);
    let told = scene.series();
    assert!(!told.contains_key("vanward_request_duration_seconds_count{route=\"/unused\"}"), "{told:#?}");
    assert!(told["process_resident_memory_bytes"] > 1e6 && told["process_start_time_seconds"] > 1e9);
}

#[test]
fn checks_and_ejections() {
    let (good, gone) = (server(), nobody());
    let mut config =
        config(&[("/a", 0), ("/b", 1)], &[("app", &[&good, &gone]), ("checked", &[&good, &gone])]);
    config.upstreams[0].settings.ejection =
        Some(EjectionSettings { failures_in_a_row: NonZeroU32::new(1), ..EjectionSettings::default() });
    config.upstreams[1].check = Some(Check {
        settings: CheckSettings {
            interval: HOUR,
            interval_in_doubt: Duration::from_millis(10),
            jitter_percent: 0,
            rise: 1,
            fall: 1,
        },
        timeout: HOUR,
        port: None,
        probe: Probe::Tcp,
    });
    let scene = Scene::with(config);
    let of = |family: &str, upstream: &str, server, rest: &str| {
        format!("vanward_upstream_{family}{{upstream=\"{upstream}\",server=\"{}\"{rest}}}", name(server))
    };
    for _ in 0..4 {
        assert_eq!(scene.get("/a"), 200);
    }
    scene.assert_told(&[
        (&of("ejections_total", "app", &gone, ""), 1.0),
        (&of("ejections_total", "app", &good, ""), 0.0),
        (&of("server_state", "app", &gone, ",state=\"ejected\""), 1.0),
        (&of("checks_total", "app", &good, ",result=\"passed\""), 0.0),
        // The next check is an hour away.
        (&of("checks_total", "checked", &good, ",result=\"passed\""), 1.0),
        (&of("checks_total", "checked", &good, ",result=\"failed\""), 0.0),
        (&of("server_state", "checked", &gone, ",state=\"down\""), 1.0),
        (&of("checks_total", "checked", &gone, ",result=\"passed\""), 0.0),
    ]);
    assert!(scene.series()[&of("checks_total", "checked", &gone, ",result=\"failed\"")] >= 1.0);
}

#[test]
fn failures_and_retries_by_cause() {
    let (good, gone) = (server(), nobody());
    let scene = Scene::with(config(&[("/a", 0), ("/b", 1)], &[("app", &[&gone, &good]), ("gone", &[&gone])]));
    // A request for the missing server is retried with the other one.
    for _ in 0..4 {
        assert_eq!(scene.get("/a"), 200);
    }
    let retries = scene.running.counters().upstream_retries as f64;
    assert!(retries > 0.0);
    assert_eq!(scene.get("/b"), 502);
    let refused = |family, upstream| {
        format!("vanward_upstream_{family}_total{{upstream=\"{upstream}\",cause=\"upstream-refused\"}}")
    };
    let of_gone = format!("{{upstream=\"app\",server=\"{}\",class=\"none\"}}", name(&gone));
    scene.assert_told(&[
        ("vanward_requests_total{route=\"/a\",class=\"2xx\"}", 4.0),
        ("vanward_requests_total{route=\"/b\",class=\"5xx\"}", 1.0),
        (&refused("failures", "app"), retries),
        (&refused("retries", "app"), retries),
        (&refused("failures", "gone"), 3.0),
        (&refused("retries", "gone"), 2.0),
        (&format!("vanward_upstream_requests_total{of_gone}"), retries),
        ("vanward_failures_total{cause=\"upstream-refused\"}", 1.0),
        ("vanward_upstream_connect_failures_total", retries + 3.0),
    ]);
}

#[test]
fn connections_that_are_passed_on_by_listener_and_server() {
    let (good, gone) = (server(), nobody());
    let mut config = config(&[("/", 0)], &[("app", &[&good]), ("gone", &[&gone])]);
    for upstream in [0, 1] {
        let name = format!("tcp {upstream}");
        config.listeners.push(Listener {
            name,
            tcp: Split::new([(upstream, "", 1)]),
            ..Listener::plain(loopback())
        });
    }
    let scene = Scene::with(config);
    let request = "GET / HTTP/1.1\r\nHost: test\r\n\r\n";
    let response = "HTTP/1.1 200 Said\r\nContent-Length: 2\r\n\r\nok";
    for _ in 0..3 {
        let mut client = TcpStream::connect(scene.running.addresses()[1]).expect("it listens");
        client.write_all(request.as_bytes()).expect("it is taken");
        let mut got = vec![0; response.len()];
        client.read_exact(&mut got).expect("it is answered");
    }
    let mut client = TcpStream::connect(scene.running.addresses()[2]).expect("it listens");
    assert!(client.read(&mut [0]).is_err(), "it is let go with a reset");
    let of = |family: &str, rest: &str| format!("vanward_listener_{family}{{listener=\"tcp {rest}}}");
    scene.assert_told(&[
        (&of("connections_total", "0\""), 3.0),
        (&of("bytes_total", "0\",direction=\"received\""), 3.0 * request.len() as f64),
        (&of("bytes_total", "0\",direction=\"sent\""), 3.0 * response.len() as f64),
        (&of("connection_duration_seconds_count", "0\""), 3.0),
        (&of("connections_total", "1\""), 1.0),
        (&of("failures_total", "1\",cause=\"upstream-refused\""), 1.0),
        (
            &format!(
                "vanward_upstream_connections_passed_on_total{{upstream=\"app\",server=\"{}\"}}",
                name(&good)
            ),
            3.0,
        ),
        ("vanward_upstream_connect_duration_seconds_count{upstream=\"app\"}", 3.0),
        ("vanward_upstream_failures_total{upstream=\"gone\",cause=\"upstream-refused\"}", 3.0),
        ("vanward_requests_total{route=\"/\",class=\"2xx\"}", 0.0),
    ]);
}

#[test]
fn gauges_of_servers_without_a_name_of_their_own_add_up() {
    let (first, second, nobody) = (server(), server(), nobody());
    let many = vec![&nobody; 1000];
    let upstreams = [("many", &many[..]), ("first", &[&first]), ("second", &[&second])];
    let scene = Scene::with(config(&[("/first", 1), ("/second", 2)], &upstreams));
    assert_eq!((scene.get("/first"), scene.get("/second")), (200, 200));
    let idle = "vanward_upstream_connections{upstream=\"(other)\",server=\"(other)\",state=\"idle\"}";
    scene.assert_told(&[(idle, 2.0)]);
}
