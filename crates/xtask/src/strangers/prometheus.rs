//! Metrics with Debian's Prometheus: text, OpenMetrics with exemplars, native histograms. Also the rules and their
//! tests, each query of the board, and the symptoms of six faults.

/// Requests, and queries to Prometheus.
mod web;
/// The proxy, its load, and a Prometheus.
mod scene;
/// `vanward top` in a terminal.
mod top;
/// Six faults, and their symptoms.
mod six_faults;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use self::scene::{BOARD, BackgroundLoad, RULES, ScrapedProxy, prometheus, promtool};
use self::web::{Api, encoded, get, until};
use super::programs::{self, PROMTOOL};
use crate::say;
use crate::scratch::Scratch;
use crate::workspace::Workspace;

/// Days until the proxy's certificate expires: far enough that no alert fires.
const DAYS: u32 = 90;

pub(super) fn check(workspace: &Workspace, scratch: &Scratch) -> Result<(), String> {
    promtool(workspace, &["check", "rules", "vanward.rules.yml"])?;
    promtool(workspace, &["test", "rules", "vanward.test.yml"])?;
    let alerts = described(workspace)?;
    let (vanward, folder) = (programs::build_vanward(workspace)?, scratch.path());
    let log = folder.join("access.log").display().to_string();
    let proxy = ScrapedProxy::start(&vanward, folder, &log, DAYS)?;
    let load = BackgroundLoad::on(proxy.address);
    let rules = workspace.root.join(RULES).join("vanward.rules.yml");
    let (_classic, api) = prometheus("classic", folder, &proxy, Some(&rules), "exemplar-storage")?;
    let (_native, native) = prometheus("native", folder, &proxy, None, "native-histograms,exemplar-storage")?;
    lint(&get(proxy.metrics, "/metrics")?.1)?;
    // Prometheus must see the values before the change, too.
    api.has("vanward_build_info")?;
    proxy.says(&["reload"])?;
    let queries = board(workspace)?;
    queries.iter().try_for_each(|query| api.has(query))?;
    let groups = healthy_rules(api)?;
    exemplars(api, "vanward_request_duration_seconds_bucket")?;
    native_histograms(native)?;
    say(format_args!(
        "{} queries of the board have data; {groups} rules are healthy, {alerts} alerts described",
        queries.len()
    ));
    drop((proxy, load));
    let folder = folder.join("faults");
    fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    six_faults::check(workspace, &vanward, &folder)
}

/// Checks that each alert has a paragraph in the docs and is tested. Returns their number.
fn described(workspace: &Workspace) -> Result<usize, String> {
    let read = |path: &str| {
        fs::read_to_string(workspace.root.join(path)).map_err(|error| format!("{path}: {error}"))
    };
    let (rules, tests) =
        (read(&format!("{RULES}/vanward.rules.yml"))?, read(&format!("{RULES}/vanward.test.yml"))?);
    let docs = read("docs/alerts.md")?;
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    for alert in &alerts {
        let parts = [
            (docs.contains(&format!("\n### {alert}\n")), "docs/alerts.md has no paragraph about"),
            (tests.contains(&format!("name: {alert} fires")), "no test has it fire:"),
            (tests.contains(&format!("name: {alert} is quiet")), "no test has it quiet:"),
            (rules.contains(&format!("runbook: docs/alerts.md#{}\n", alert.to_lowercase())), "no runbook:"),
        ];
        for (is_there, what) in parts {
            if !is_there {
                return Err(format!("{what} {alert}"));
            }
        }
    }
    Ok(alerts.len())
}

/// Checks names and units with promtool.
fn lint(page: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("promtool check metrics: {error}");
    let mut command = Command::new(PROMTOOL.find()?);
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    child.stdin.take().ok_or("promtool takes no input")?.write_all(page.as_bytes()).map_err(failed)?;
    let output = child.wait_with_output().map_err(failed)?;
    let said =
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    if output.status.success() && said.trim().is_empty() {
        Ok(())
    } else {
        Err(format!("promtool check metrics:\n{said}"))
    }
}

/// Reads the queries of the board, with its variables replaced.
fn board(workspace: &Workspace) -> Result<Vec<String>, String> {
    let text = fs::read_to_string(workspace.root.join(BOARD)).map_err(|error| format!("{BOARD}: {error}"))?;
    let board: Value = serde_json::from_str(&text).map_err(|error| format!("{BOARD}: {error}"))?;
    let panels = board["panels"].as_array().map(Vec::as_slice).unwrap_or_default();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let annotations = board["annotations"]["list"].as_array().map(Vec::as_slice).unwrap_or_default();
    let queries = targets.chain(annotations).filter_map(|target| target["expr"].as_str());
    let queries: Vec<String> = queries
        .map(|query| {
            let query = query.replace("$job", "vanward").replace("$instance", ".*");
            query.replace("$__rate_interval", "10s")
        })
        .collect();
    if queries.is_empty() { Err(format!("{BOARD} has no queries")) } else { Ok(queries) }
}

/// Waits until each rule was evaluated, and checks that none failed. Returns their number.
fn healthy_rules(api: Api) -> Result<usize, String> {
    let rules = || -> Result<Vec<Value>, String> {
        let groups = api.ask("/api/v1/rules")?["groups"].as_array().cloned().unwrap_or_default();
        Ok(groups.iter().filter_map(|group| group["rules"].as_array()).flatten().cloned().collect())
    };
    until("an evaluation of each rule", || Ok(rules()?.iter().all(|rule| rule["health"] != "unknown")))?;
    let rules = rules()?;
    match rules.iter().find(|rule| rule["health"] != "ok") {
        Some(ill) => Err(format!("rule {}: {}", ill["name"], ill["lastError"])),
        None => Ok(rules.len()),
    }
}

/// Waits for an exemplar of a series, with the ID of a trace.
fn exemplars(api: Api, series: &str) -> Result<(), String> {
    let target = format!("/api/v1/query_exemplars?query={}&start=0&end=9999999999", encoded(series));
    until(&format!("an exemplar of {series}"), || {
        let found = api.ask(&target)?;
        let first = &found[0]["exemplars"][0]["labels"]["trace_id"];
        Ok(first.as_str().is_some_and(|id| id.len() == 32))
    })
}

/// Checks native histograms: they have counts, and quantiles more precise than classic buckets.
fn native_histograms(api: Api) -> Result<(), String> {
    api.has("histogram_count(vanward_request_duration_seconds{route=\"/\"}) > 0")?;
    let quantile = |route: &str| {
        format!("histogram_quantile(0.9, rate(vanward_request_duration_seconds{{route=\"{route}\"}}[10s]))")
    };
    // Buckets are 19% wide. A classic histogram reports 0.7 s only as less than a second.
    api.has(&format!("{} > 0.6 < 0.9", quantile("slow")))?;
    api.has("histogram_quantile(0.5, rate(vanward_request_held_seconds[10s])) > 0")?;
    let classic = api.query("vanward_request_duration_seconds_bucket")?;
    if classic.is_empty() { Ok(()) } else { Err("Prometheus has stored classic buckets".to_owned()) }
}

fn read(workspace: &Workspace, path: &Path) -> Result<String, String> {
    fs::read_to_string(workspace.root.join(path)).map_err(|error| format!("{}: {error}", path.display()))
}
