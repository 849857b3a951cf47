//! For tests: a proxy with two routes, three servers, a fault, and requests under way.

use std::time::Instant;

use api::live::LiveStatus;
use api::status::StatusReport;
use serde_json::{Value, json};

use super::feed::Fresh;

fn traffic(requests: u64, rate: f64, failed: f64) -> Value {
    json!({
        "requests": requests, "classes": {},
        "last_minute": {
            "seconds": 60.0, "requests_per_second": rate, "client_errors_per_second": 0.5,
            "server_errors_per_second": failed, "p50_ms": 1.25, "p90_ms": 3.0, "p99_ms": 20.0,
        },
    })
}

fn server(port: u16, state: &str, rate: f64, reason: Option<&str>) -> Value {
    json!({
        "url": format!("http://10.0.0.1:{port}"), "label": format!("10.0.0.1:{port}"), "state": state,
        "reason": reason, "weight": 1, "priority": 0, "requests": 2, "traffic": traffic(1000, rate, 0.0),
        "response_time_ms": null, "changes": [],
    })
}

pub(super) fn fresh(requests: u64, at: Instant) -> Fresh {
    let status = json!({
        "version": "1.2.3", "process": 77, "uptime_seconds": 3661, "reloads": 1, "workers": 2, "connections": 10,
        "requests": 3, "traffic": traffic(requests, 50.0, 0.0),
        "last_minute": {
            "received_bytes_per_second": 1200.0, "sent_bytes_per_second": 3.4e6, "connections_per_second": 1.0,
            "failures": {"bad-request": 3, "upstream-refused": 12},
        },
        "listeners": [{"name": "front", "address": "127.0.0.1:8080", "has_tls": false}],
        "routes": [
            {"route": "/shop", "traffic": traffic(900, 10.0, 1.0), "cache": {
                "hits": 75, "stale": 0, "waits": 0, "misses": {"miss": 25}, "stored": 20, "not_stored": {},
                "sent_bytes": 1500,
            }},
            {"route": "/", "traffic": traffic(100, 40.0, 0.0), "cache": null},
        ],
        "cache": null,
        "upstreams": [{
            "name": "app", "balance": "least-connections", "sessions": null, "traffic": traffic(1000, 50.0, 0.0),
            "failures": {}, "retries": 0, "queued": 4,
            "servers": [
                server(9001, "up", 30.0, None),
                server(9002, "down", 0.0, Some("its checks fail: connection refused")),
            ],
        }],
        "faults": [{
            "name": "slow", "inject": "delay 2s", "probability": "5%", "is_on": true,
            "expires_in_seconds": 90.0, "matched": 40, "injected": 2,
        }],
        "maintenance": [], "shaping": [], "counters": {}, "failures": {},
    });
    let status: StatusReport = serde_json::from_value(status).expect("it is a status");
    let live = json!({
        "clients": {
            "seconds": 20.0, "requests": 1000, "error": 0,
            "clients": [{"address": "192.0.2.7", "requests": 600}, {"address": "2001:db8::1", "requests": 400}],
        },
        "requests": [{
            "seconds": 12.5, "client": "192.0.2.7", "line": "GET /shop/slow", "route": "/shop",
            "upstream": "app", "server": "10.0.0.1:9001", "stage": "server",
        }],
    });
    let live: LiveStatus = serde_json::from_value(live).expect("it is live");
    Fresh { status, live, at }
}
