//! Six faults on a running proxy: a dead server, a slow one, an expiring certificate, a full cache, a flood of
//! clients, a full disk. Each must appear in the places that docs/alerts.md names.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use serde_json::Value;

use super::read;
use super::scene::{BackgroundLoad, RULES, ScrapedProxy, prometheus};
use super::top::Top;
use super::web::{Api, until};
use crate::say;
use crate::strangers::subject::write;
use crate::workspace::Workspace;

const FULL: &str = "/dev/full";
/// More connections than the proxy accepts.
const CROWD: usize = 400;

struct AlertFault {
    name: &'static str,
    alert: &'static str,
    /// Part of a metric's series, and its minimum.
    metric: (&'static str, f64),
    /// A word of a message; empty if there is none.
    message: &'static str,
    /// A part of the output of `vanward status`.
    shown: &'static str,
    /// The key of the tab in `vanward top`, and a part of the screen.
    screen: (&'static str, &'static str),
    /// Recognizes a line in the access log, if there is one.
    logged: Option<fn(&Value) -> bool>,
}

const FAULTS: [AlertFault; 6] = [
    AlertFault {
        name: "a dead server",
        alert: "VanwardServerDown",
        metric: ("vanward_upstream_server_state{state=\"down\"}", 1.0),
        message: "down, its first check failed: connection refused",
        shown: "its checks fail: connection refused",
        screen: ("2", "its checks fail: connection refused"),
        logged: Some(|line| {
            let attempt = &line["retried"][0];
            line["cause"] == "upstream-refused"
                || (attempt["cause"] == "upstream-refused" && attempt["server"].is_string())
        }),
    },
    AlertFault {
        name: "a slow server",
        alert: "VanwardServerSlow",
        metric: ("vanward_upstream_first_byte_seconds_bucket{upstream=\"slow\",le=\"+Inf\"}", 1.0),
        message: "",
        shown: "upstream slow",
        screen: ("2", "slow"),
        logged: Some(|line| {
            line["upstream_first_byte_ms"].as_f64() > Some(600.0) && line["server"].is_string()
        }),
    },
    AlertFault {
        name: "a certificate near its end",
        alert: "VanwardCertificateEnds",
        metric: ("vanward_certificate_not_after_timestamp_seconds", 1.0),
        message: "the certificate of localhost ends in",
        shown: "problem: the certificate of localhost ends in",
        screen: ("1", "the certificate of localhost ends in"),
        logged: None,
    },
    AlertFault {
        name: "a full cache",
        alert: "VanwardCacheTooSmall",
        metric: ("vanward_cache_evictions_total", 1.0),
        message: "",
        shown: "evicted",
        screen: ("5", "evicted"),
        logged: Some(|line| line["cache"] == "miss"),
    },
    AlertFault {
        name: "a flood of clients",
        alert: "VanwardClientsRefused",
        metric: ("vanward_client_connections_refused_total", 1.0),
        message: "clients are refused: there are 300 connections",
        shown: "problem: clients are refused",
        screen: ("1", "clients are refused"),
        logged: Some(|line| line["cause"] == "rate-limited" && line["status"] == 429),
    },
    AlertFault {
        name: "a full disk",
        alert: "VanwardLogLinesLost",
        metric: ("vanward_log_lines_dropped_total", 1.0),
        message: "No space left",
        shown: "lines of the access log are lost",
        screen: ("1", "of the access log are lost"),
        logged: None,
    },
];

pub(super) fn check(workspace: &Workspace, vanward: &Path, folder: &Path) -> Result<(), String> {
    let proxy = ScrapedProxy::start(vanward, folder, FULL, 3)?;
    let _load = BackgroundLoad::on(proxy.address);
    let top = Top::start(&proxy, folder)?;
    let rules = folder.join("rules.yml");
    write(&rules, &hasty(&read(workspace, &Path::new(RULES).join("vanward.rules.yml"))?))?;
    let (_prometheus, api) = prometheus("prometheus", folder, &proxy, Some(&rules), "exemplar-storage")?;
    let (flood, others): (Vec<&AlertFault>, Vec<&AlertFault>) =
        FAULTS.iter().partition(|fault| fault.name.contains("flood"));
    others.into_iter().try_for_each(|fault| seen(fault, &proxy, &top, api))?;
    let _crowd = crowd(proxy.address);
    flood.into_iter().try_for_each(|fault| seen(fault, &proxy, &top, api))
}

/// Shortens the waits and windows of the rules.
fn hasty(rules: &str) -> String {
    let is_wait = |line: &&str| line.trim_start().starts_with("for: ");
    let lines: Vec<&str> = rules.lines().filter(|line| !is_wait(line)).collect();
    lines.join("\n").replace("[5m]", "[5s]").replace("[15m]", "[5s]") + "\n"
}

/// Opens connections of silent clients. Those beyond the limit are closed.
fn crowd(address: SocketAddr) -> Vec<TcpStream> {
    use std::io::Write;
    let connect = || {
        let mut stream = TcpStream::connect(address).ok()?;
        // The proxy waits for the rest of this head on an accepted connection.
        stream.write_all(b"GET / HTTP/1.1\r\n").ok()?;
        Some(stream)
    };
    (0..CROWD).filter_map(|_| connect()).collect()
}

fn seen(fault: &AlertFault, proxy: &ScrapedProxy, top: &Top, api: Api) -> Result<(), String> {
    let about = |what: String| format!("{}: {what}", fault.name);
    let (series, least) = fault.metric;
    until(&about(format!("{series} of {least} or more")), || {
        Ok(api.query(series)?.iter().any(|(_, value)| *value >= least))
    })?;
    until(&about(format!("the alert {}", fault.alert)), || {
        Ok(api.firing()?.iter().any(|alert| alert["labels"]["alertname"] == fault.alert))
    })?;
    until(&about(format!("the message {:?}", fault.message)), || {
        Ok(proxy.process.said().contains(fault.message))
    })?;
    until(&about(format!("{:?} in `vanward status`", fault.shown)), || {
        Ok(proxy.says(&["status"])?.contains(fault.shown))
    })?;
    let (key, part) = fault.screen;
    until(&about(format!("{part:?} in tab {key} of `vanward top`")), || Ok(top.tab(key)?.contains(part)))?;
    if let Some(is_logged) = fault.logged {
        until(&about("a line of the access log".to_owned()), || {
            Ok(lines(&proxy.log)?.iter().any(is_logged))
        })?;
    }
    say(format_args!(
        "{}: seen in the metrics, as {}, by `vanward status` and `top`, in messages and the log where it is",
        fault.name, fault.alert
    ));
    Ok(())
}

/// Parses the lines of a log; the last may be incomplete.
fn lines(log: &Path) -> Result<Vec<Value>, String> {
    let text = fs::read_to_string(log).map_err(|error| format!("{}: {error}", log.display()))?;
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}
