//! What happens now and happened in the last hour, for `vanward top` and the dashboard. Workers are asked for what is
//! under way; nothing is prepared for it.

use std::sync::Weak;
use std::time::{Duration, SystemTime};

use api::live::{ClientStatus, ClientsStatus, HourStatus, LiveStatus};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use proxy::context::under_way::View;
use proxy::context::worker::Message;
use telemetry::{Busiest, Point};
use tokio::sync::mpsc::unbounded_channel;

use super::{ending, json};
use crate::change::Control;

/// The requests under way that are told, and the clients.
const ROWS_MAX: usize = 50;
/// How long workers have to answer. One that is slower is left out.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);

/// The clients with the most requests, and the requests that take longest.
pub(super) async fn live(State(control): State<Weak<Control>>) -> Response {
    let (sender, mut views) = unbounded_channel();
    {
        let Some(control) = control.upgrade() else { return ending() };
        control.tell_workers(|| Message::Look(ROWS_MAX, sender.clone()));
        drop(sender);
    }
    let mut all = Vec::new();
    let gather = async {
        while let Some(view) = views.recv().await {
            all.push(view);
        }
    };
    // Late answers are those of a worker that has more to do.
    let _ = tokio::time::timeout(ANSWER_TIME_MAX, gather).await;
    json(StatusCode::OK, &together(all))
}

fn together(views: Vec<View>) -> LiveStatus {
    let (mut requests, mut clients, mut time) = (Vec::new(), Busiest::default(), Duration::ZERO);
    for view in views {
        requests.extend(view.requests);
        clients.add(&view.clients);
        time = time.max(view.clients_time);
    }
    requests.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
    requests.truncate(ROWS_MAX);
    let client = |(address, requests): (std::net::IpAddr, u64)| ClientStatus {
        address: address.to_string(),
        requests,
    };
    let clients = ClientsStatus {
        seconds: time.as_secs_f64(),
        requests: clients.total(),
        error: clients.error(),
        clients: clients.first(ROWS_MAX).into_iter().map(client).collect(),
    };
    LiveStatus { clients, requests }
}

/// The last hour in points of five seconds.
pub(super) async fn hour(State(control): State<Weak<Control>>) -> Response {
    let Some(control) = control.upgrade() else { return ending() };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let start = now.saturating_sub(control.epoch.elapsed()).as_secs_f64();
    json(StatusCode::OK, &listed(&control.metrics.hour(), start))
}

/// The points as lists; `start` is that of the process, in seconds since 1970.
fn listed(points: &[Point], start: f64) -> HourStatus {
    fn list<T>(points: &[Point], of: impl Fn(&Point) -> T) -> Vec<T> {
        points.iter().map(of).collect()
    }
    let known = |value: f32| (!value.is_nan()).then_some(value);
    HourStatus {
        at_seconds: list(points, |point| start + point.at_ms as f64 / 1e3),
        requests_per_second: list(points, |point| point.requests_per_second),
        client_errors_per_second: list(points, |point| point.client_errors_per_second),
        server_errors_per_second: list(points, |point| point.server_errors_per_second),
        p50_ms: list(points, |point| known(point.p50_ms)),
        p90_ms: list(points, |point| known(point.p90_ms)),
        p99_ms: list(points, |point| known(point.p99_ms)),
        received_bytes_per_second: list(points, |point| point.received_bytes_per_second),
        sent_bytes_per_second: list(points, |point| point.sent_bytes_per_second),
        connections_per_second: list(points, |point| point.connections_per_second),
        connections: list(points, |point| point.connections),
        requests: list(points, |point| point.requests),
        retries_per_second: list(points, |point| point.retries_per_second),
        faults_per_second: list(points, |point| point.faults_per_second),
    }
}
