//! Current requests and clients, and the last hour, for `vanward top` and the dashboard. Workers report what is
//! under way only on request.

use std::sync::Weak;
use std::time::{Duration, SystemTime};

use api::live::{ClientStatus, ClientsStatus, HourStatus, LiveStatus};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use proxy::context::under_way::WorkerView;
use proxy::context::worker::WorkerMessage;
use telemetry::{Busiest, SamplePoint};
use tokio::sync::mpsc::unbounded_channel;

use super::{ending, json};
use crate::change::Control;

const ROWS_MAX: usize = 50;
/// Maximum time for the workers' reports. Slower workers are left out.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);

/// Returns the clients with the most requests, and the longest requests.
pub(super) async fn live(State(control): State<Weak<Control>>) -> Response {
    let (sender, mut views) = unbounded_channel();
    {
        let Some(control) = control.upgrade() else { return ending() };
        control.tell_workers(|| WorkerMessage::Look(ROWS_MAX, sender.clone()));
        drop(sender);
    }
    let mut all = Vec::new();
    let gather = async {
        while let Some(view) = views.recv().await {
            all.push(view);
        }
    };
    // Late reports come from busier workers.
    let _ = tokio::time::timeout(ANSWER_TIME_MAX, gather).await;
    json(StatusCode::OK, &together(all))
}

fn together(views: Vec<WorkerView>) -> LiveStatus {
    let (mut requests, mut errors) = (Vec::new(), Vec::new());
    let (mut clients, mut time) = (Busiest::default(), Duration::ZERO);
    for view in views {
        requests.extend(view.requests);
        errors.extend(view.errors);
        clients.add(&view.clients);
        time = time.max(view.clients_time);
    }
    requests.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
    requests.truncate(ROWS_MAX);
    errors.sort_by(|one, other| other.at_seconds.total_cmp(&one.at_seconds));
    errors.truncate(ROWS_MAX);
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
    LiveStatus { clients, requests, errors }
}

/// Returns the last hour in points of five seconds.
pub(super) async fn hour(State(control): State<Weak<Control>>) -> Response {
    let Some(control) = control.upgrade() else { return ending() };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let start = now.saturating_sub(control.epoch.elapsed()).as_secs_f64();
    json(StatusCode::OK, &listed(&control.metrics.hour(), start))
}

/// Converts the points to lists; `start` is the start of the process, in seconds since 1970.
fn listed(points: &[SamplePoint], start: f64) -> HourStatus {
    fn list<T>(points: &[SamplePoint], of: impl Fn(&SamplePoint) -> T) -> Vec<T> {
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
