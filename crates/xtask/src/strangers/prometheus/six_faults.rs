//! Six faults on a running proxy: a server that is dead, one that is slow, a certificate near its end, a full cache, a flood
//! of clients, a full disk. Each is seen where docs/alerts.md says that it is.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use super::read;
use super::scene::{Load, Proxy, RULES, prometheus};
use super::web::{Api, until};
use crate::say;
use crate::strangers::subject::write;
use crate::workspace::Workspace;

/// A disk that is full.
const FULL: &str = "/dev/full";
/// More connections than the proxy accepts.
const CROWD: usize = 400;

/// A fault, and what is seen of it.
struct Fault {
    name: &'static str,
    alert: &'static str,
    /// Part of a series that the metrics have, and what it is at least.
    metric: (&'static str, f64),
    /// A word of a message; empty where there is none.
    message: &'static str,
    /// The command that shows it, and a part of what it says.
    shown: (&'static [&'static str], &'static str),
}

const FAULTS: [Fault; 6] = [
    Fault {
        name: "a dead server",
        alert: "VanwardServerDown",
        metric: ("vanward_upstream_server_state{state=\"down\"}", 1.0),
        message: "down, its first check failed: connection refused",
        shown: (&["status"], "its checks fail: connection refused"),
    },
    Fault {
        name: "a slow server",
        alert: "VanwardServerSlow",
        metric: ("vanward_upstream_first_byte_seconds_bucket{upstream=\"slow\",le=\"+Inf\"}", 1.0),
        message: "",
        shown: (&["status"], "upstream slow"),
    },
    Fault {
        name: "a certificate near its end",
        alert: "VanwardCertificateEnds",
        metric: ("vanward_certificate_not_after_timestamp_seconds", 1.0),
        message: "the certificate of localhost ends in",
        shown: (&["status"], "problem: the certificate of localhost ends in"),
    },
    Fault {
        name: "a full cache",
        alert: "VanwardCacheTooSmall",
        metric: ("vanward_cache_evictions_total", 1.0),
        message: "",
        shown: (&["status"], "evicted"),
    },
    Fault {
        name: "a flood of clients",
        alert: "VanwardClientsRefused",
        metric: ("vanward_client_connections_refused_total", 1.0),
        message: "clients are refused: there are 300 connections",
        shown: (&["status"], "problem: clients are refused"),
    },
    Fault {
        name: "a full disk",
        alert: "VanwardLogLinesLost",
        metric: ("vanward_log_lines_dropped_total", 1.0),
        message: "No space left",
        shown: (&["status"], "lines of the access log are lost"),
    },
];

pub(super) fn check(workspace: &Workspace, vanward: &Path, folder: &Path) -> Result<(), String> {
    let proxy = Proxy::start(vanward, folder, FULL, 3)?;
    let _load = Load::on(proxy.address);
    let rules = folder.join("rules.yml");
    write(&rules, &hasty(&read(workspace, &Path::new(RULES).join("vanward.rules.yml"))?))?;
    let (_prometheus, api) = prometheus("prometheus", folder, &proxy, Some(&rules), "exemplar-storage")?;
    let (flood, others): (Vec<&Fault>, Vec<&Fault>) =
        FAULTS.iter().partition(|fault| fault.name.contains("flood"));
    others.into_iter().try_for_each(|fault| seen(fault, &proxy, api))?;
    let _crowd = crowd(proxy.address);
    flood.into_iter().try_for_each(|fault| seen(fault, &proxy, api))
}

/// The rules with short waits and windows.
fn hasty(rules: &str) -> String {
    let is_wait = |line: &&str| line.trim_start().starts_with("for: ");
    let lines: Vec<&str> = rules.lines().filter(|line| !is_wait(line)).collect();
    lines.join("\n").replace("[5m]", "[5s]").replace("[15m]", "[5s]") + "\n"
}

/// Connections of clients that say nothing. Those beyond the limit are closed.
fn crowd(address: SocketAddr) -> Vec<TcpStream> {
    use std::io::Write;
    let connect = || {
        let mut stream = TcpStream::connect(address).ok()?;
        // An accepted one waits for the rest of this head.
        stream.write_all(b"GET / HTTP/1.1\r\n").ok()?;
        Some(stream)
    };
    (0..CROWD).filter_map(|_| connect()).collect()
}

fn seen(fault: &Fault, proxy: &Proxy, api: Api) -> Result<(), String> {
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
    let (words, part) = fault.shown;
    until(&about(format!("{part:?} in `vanward {}`", words.join(" "))), || {
        Ok(proxy.says(words)?.contains(part))
    })?;
    say(format_args!(
        "{}: seen in the metrics, as {}, and by `vanward {}`",
        fault.name,
        fault.alert,
        words.join(" ")
    ));
    Ok(())
}
