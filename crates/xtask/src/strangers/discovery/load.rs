//! `vanward load --resolve-every` with BIND: after another answer, the load moves to the other server, over each version
//! of HTTP, without a failed request. Requires root, as `dns` does.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::super::http;
use super::super::process::{Process, free_address};
use super::dns::NameServer;
use crate::say;

const LIMIT: Duration = Duration::from_secs(60);
/// Requests that a server gets before and after the other answer.
const REQUESTS: u64 = 100;

/// A test server: a plain address for its counters, and one for the load.
struct Origin {
    _process: Process,
    counters: SocketAddr,
}

impl Origin {
    fn start(vanward: &Path, folder: &Path, name: &str, at: SocketAddr) -> Result<Self, String> {
        let mut command = Command::new(vanward);
        command.args(["origin", "--workers", "1", "--listen", "127.0.0.1:0", "--self-signed", "--h3"]);
        command.args(["--listen-tls", &at.to_string()]);
        let mut process = Process::start(name, &mut command, folder)?.listening_on(at)?;
        let counters = process.addresses()?.first().copied().ok_or("the origin listens nowhere")?;
        Ok(Self { _process: process, counters })
    }

    fn requests(&self) -> Result<u64, String> {
        let text = http::get(self.counters, "app.example", "/stats")?;
        let body = text.split("\r\n\r\n").nth(1).unwrap_or_default();
        let stats: serde_json::Value =
            serde_json::from_str(body).map_err(|error| format!("/stats: {error}: {text}"))?;
        stats["requests"].as_u64().ok_or_else(|| format!("/stats counts no requests: {text}"))
    }

    /// Waits for more requests.
    fn gets_more(&self, what: &str) -> Result<(), String> {
        let (began, before) = (Instant::now(), self.requests()?);
        while self.requests()? < before + REQUESTS {
            if began.elapsed() > LIMIT {
                return Err(format!("{what}: {} of {REQUESTS} more requests", self.requests()? - before));
            }
        }
        Ok(())
    }
}

pub(super) fn check(vanward: &Path, folder: &Path, names: &mut NameServer<'_>) -> Result<(), String> {
    let port = free_address()?.port();
    let at = |last: u8| SocketAddr::from(([127, 0, 0, last], port));
    let [first, second] = [
        Origin::start(vanward, folder, "origin-1", at(2))?,
        Origin::start(vanward, folder, "origin-2", at(3))?,
    ];
    let serve = |names: &mut NameServer<'_>, last: u8| names.serve(&format!("load IN A 127.0.0.{last}\n"));
    for (version, flag) in [("HTTP/1.1", None), ("HTTP/2", Some("--h2")), ("HTTP/3", Some("--h3"))] {
        serve(names, 2)?;
        names.until_asked("load", "A", "127.0.0.2")?;
        let url = format!("https://load.app.example:{port}/tiny");
        let mut arguments =
            vec!["load", &url, "--insecure", "--resolve-every", "1s", "-c", "2", "-d", "1h", "--json"];
        arguments.extend(flag);
        let name = version.replace('/', "");
        let load = names.start_resolving(&name, vanward, &arguments)?;
        first.gets_more(&format!("{version}: the first server"))?;
        serve(names, 3)?;
        second.gets_more(&format!("{version}: the second server, after another answer"))?;
        // What was on its way to the first has ended.
        let left = first.requests()?;
        second.gets_more(&format!("{version}: the second server goes on"))?;
        let late = first.requests()? - left;
        if late > 8 {
            return Err(format!("{version}: {late} requests reached the first server after the change"));
        }
        load.signal("-INT")?;
        let (_, told) = load.finish(LIMIT)?;
        match failed(&told) {
            Some(0) => {}
            count => return Err(format!("{version}: {count:?} requests failed: {told}")),
        }
    }
    say(
        "a load with --resolve-every follows BIND's answer over HTTP/1.1, HTTP/2 and HTTP/3, without a failure",
    );
    Ok(())
}

/// The number of failed requests in the figures of a load; `None` if there are no figures.
fn failed(told: &str) -> Option<u64> {
    let begin = told.find('{')?;
    let figures =
        serde_json::Deserializer::from_str(&told[begin..]).into_iter::<serde_json::Value>().next()?;
    let figures = figures.ok()?;
    figures["requests"].as_u64().filter(|requests| *requests > 0)?;
    let errors = figures["errors"].as_object()?;
    Some(errors.values().filter_map(serde_json::Value::as_u64).sum())
}
