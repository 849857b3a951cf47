//! Reads the status of the proxy for the admin API.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api::status::{
    ConfigMistake, FaultStatus, ListenerStatus, RouteStatus, ServerErrorStatus, ServerState, ServerStatus,
    StatusReport, UpstreamStatus,
};
use api::traffic::TrafficStatus;
use balance::{Flow, IneligibleCause, Time};
use config::{ListenAddress, Mistake};
use telemetry::{CAUSES_MAX, RouteCell, Totals, UpstreamCell};

use super::traffic::TrafficTotals;
use super::{maintenance, problems, shaping};
use crate::change::Control;
use crate::runtime_overrides::{Presence, RuntimeOverrides, ServerChange};
use crate::served;
use proxy::cache::{self, Cache};
use proxy::context::plan::{Plan, Stickiness, UpstreamPlan};
use proxy::failure::Failure;
use proxy::faults::LiveFaultRule;

pub(crate) fn mistake(mistake: &Mistake) -> ConfigMistake {
    let Mistake { file, line, column, message, .. } = mistake;
    let (line, column) = (*line, *column);
    ConfigMistake { file: file.clone(), line, column, message: message.clone(), text: mistake.to_string() }
}

pub(crate) fn read(control: &Control) -> StatusReport {
    let plan = control.plan();
    let (now, overrides) = (control.time(), control.overrides());
    let (counted, totals) = (control.metrics.counters(), control.metrics.totals());
    let traffic = control.metrics.traffic(control.epoch.elapsed(), &totals);
    let listeners = plan.config.listeners.iter().zip(control.addresses());
    StatusReport {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        process: std::process::id(),
        uptime_seconds: control.epoch.elapsed().as_secs(),
        reloads: control.reloads(),
        workers: control.workers.len(),
        connections: counted.connections_active,
        requests: counted.requests_active,
        traffic: traffic.whole(),
        last_minute: traffic.last_minute(),
        problems: problems::read(control, &traffic),
        listeners: listeners
            .map(|(listener, address): (_, ListenAddress)| ListenerStatus {
                name: listener.name.clone(),
                address: address.to_string(),
                has_tls: listener.tls.is_some(),
                url: served::url(listener, &address),
                protocols: served::protocols(listener),
            })
            .collect(),
        routes: routes(&plan, &totals, &traffic),
        cache: plan.cache.as_ref().map(Cache::report),
        upstreams: plan
            .upstreams
            .iter()
            .map(|upstream| {
                let cell = totals.upstreams.iter().find(|(name, _)| **name == *upstream.config.name);
                let counted = CountedUpstream { traffic: &traffic, cell: cell.map(|(_, cell)| cell) };
                of_upstream(upstream, &counted, &overrides, now)
            })
            .collect(),
        faults: faults(control),
        maintenance: maintenance::routes(control),
        shaping: shaping::places(control).into_iter().filter(|place| !place.is_plain()).collect(),
        counters: counted.each().map(|row| (row.name.to_owned(), row.value)).collect(),
        failures: by_cause(counted.failures),
    }
}

/// The routes of the plan, and requests without a route, if there are any.
fn routes(plan: &Plan, totals: &Totals, traffic: &TrafficTotals) -> Vec<RouteStatus> {
    let counted: HashMap<&str, &RouteCell> =
        totals.routes.iter().map(|(name, cell)| (&**name, cell)).collect();
    let status = |label: &str| RouteStatus {
        route: label.to_owned(),
        traffic: traffic.route(label),
        cache: counted.get(label).and_then(|cell| cell.cache.look()).map(cache::of_route),
    };
    let own = plan.routes.iter().map(|route| status(&route.label));
    let rest = Totals::REST.into_iter().map(status).filter(|rest| rest.traffic.requests > 0);
    own.chain(rest).collect()
}

/// Counts by cause word, without causes that never occurred.
pub(super) fn by_cause(counts: [u64; CAUSES_MAX]) -> BTreeMap<String, u64> {
    let counts = Failure::WORDS.iter().zip(counts).filter(|(_, count)| *count > 0);
    counts.map(|(word, count)| ((*word).to_owned(), count)).collect()
}

pub(crate) fn faults(control: &Control) -> Vec<FaultStatus> {
    let now_ns = control.time_ns();
    let told = |rule: &Arc<LiveFaultRule>| {
        let (matched, injected) = rule.counts();
        FaultStatus {
            name: rule.settings.name.clone(),
            inject: config::written_fault(&rule.settings.fault),
            probability: config::written_share(&rule.settings.occasion.probability),
            is_on: rule.is_on(now_ns),
            expires_in_seconds: rule.expires_in(now_ns).map(|time| time.as_secs_f64()),
            matched,
            injected,
        }
    };
    control.faults.rules().iter().map(told).collect()
}

/// The counters of an upstream. Without a cell all are zero.
struct CountedUpstream<'c> {
    traffic: &'c TrafficTotals,
    cell: Option<&'c UpstreamCell>,
}

fn of_upstream(
    upstream: &Arc<UpstreamPlan>,
    counted: &CountedUpstream<'_>,
    overrides: &RuntimeOverrides,
    now: Time,
) -> UpstreamStatus {
    let UpstreamPlan { config, fleet, servers, .. } = &**upstream;
    let labels: Vec<&str> = servers.iter().map(|server| server.label.as_str()).collect();
    let (each_traffic, traffic) = counted.traffic.servers(&config.name, &labels);
    let server = |(index, traffic): (usize, TrafficStatus)| {
        let (server, member) = (&servers[index], &fleet.members()[index]);
        let (state, reason) = state(upstream, index, now);
        ServerStatus {
            url: server.config.to_string(),
            label: server.label.clone(),
            state,
            reason,
            weight: weight(upstream, index),
            priority: member.priority,
            requests: member.health.in_flight(),
            traffic,
            response_time_ms: fleet.response_time(index, now).map(|time| time.as_secs_f64() * 1e3),
            last_error: upstream.watches[index].findings().last_error.map(|error| ServerErrorStatus {
                seconds_ago: now.since(error.at).as_secs_f64(),
                cause: error.cause.to_owned(),
                reason: error.reason,
                failures: error.count,
            }),
            changes: overrides.for_upstream(&config.name, &server.config).map(changes).unwrap_or_default(),
        }
    };
    UpstreamStatus {
        name: config.name.clone(),
        balance: config.balance.name.to_owned(),
        sessions: match upstream.stickiness.as_deref() {
            Some(Stickiness::Table { sessions, .. }) => Some(sessions.len()),
            Some(Stickiness::Cookie(..)) | None => None,
        },
        traffic,
        failures: counted.cell.map(|cell| by_cause(cell.failures.values())).unwrap_or_default(),
        retries: counted.cell.map_or(0, |cell| cell.retries.values().iter().sum()),
        queued: counted.cell.map_or(0, |cell| cell.queued.value()),
        servers: each_traffic.into_iter().enumerate().map(server).collect(),
    }
}

/// The weight of a server. One with weight 0 is drained in its fleet, and has another weight there.
fn weight(upstream: &UpstreamPlan, index: usize) -> u32 {
    let member = &upstream.fleet.members()[index];
    let url = || upstream.servers[index].config.to_string();
    let has_none = |url: String| {
        upstream.config.servers.iter().any(|server| server.weight == 0 && server.to_string() == url)
    };
    if member.health.is_stopped_by(IneligibleCause::Drain) && has_none(url()) { 0 } else { member.weight }
}

fn state(upstream: &UpstreamPlan, index: usize, now: Time) -> (ServerState, Option<String>) {
    let health = &upstream.fleet.members()[index].health;
    let rest = |until: Time| seconds(until.since(now));
    let findings = upstream.watches[index].findings();
    match (health.state(), upstream.fleet.flow(index, now)) {
        (balance::HealthState::Down, _) if health.is_stopped_by(IneligibleCause::Disabled) => {
            (ServerState::Down, Some("down in the file".to_owned()))
        }
        (balance::HealthState::Down, _) => {
            let why = findings.failure.map(|failure| format!(": {failure}")).unwrap_or_default();
            (ServerState::Down, Some(format!("its checks fail{why}")))
        }
        (balance::HealthState::Ejected, _) => {
            let until = health.ejected_until();
            let outlier = findings.outlier.filter(|(of, _)| *of == until);
            let why = outlier.map_or_else(|| "too many failures in a row".to_owned(), |(_, why)| why);
            let end = match now >= until && upstream.fleet.awaits_trial(index) {
                true => "the next request tests it".to_owned(),
                false => format!("ejected for {} more", rest(until)),
            };
            (ServerState::Ejected, Some(format!("{why}: {end}")))
        }
        (balance::HealthState::Draining, _) => {
            debug_assert!(health.is_stopped_by(IneligibleCause::Drain));
            let reason = match health.in_flight() {
                0 => "no running requests".to_owned(),
                1 => "1 running request".to_owned(),
                count => format!("{count} running requests"),
            };
            (ServerState::Draining, Some(reason))
        }
        (balance::HealthState::Up, Flow::Closed) => (ServerState::Up, None),
        (balance::HealthState::Up, Flow::Probe) => {
            (ServerState::Open, Some("too many requests failed: the next request tests it".to_owned()))
        }
        (balance::HealthState::Up, Flow::Open(until)) => {
            (ServerState::Open, Some(format!("too many requests failed: tested again in {}", rest(until))))
        }
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

fn changes(change: &ServerChange) -> Vec<String> {
    let each = [
        (change.presence == Presence::Added, "added"),
        (change.is_drained, "drained"),
        (change.is_restored, "restored"),
        (change.weight.is_some(), "weight"),
    ];
    each.into_iter().filter(|(holds, _)| *holds).map(|(_, word)| word.to_owned()).collect()
}
