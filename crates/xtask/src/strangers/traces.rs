//! Traces with OpenTelemetry's own collector: curl's trace continues, a failed request is recorded although it was
//! not sampled, and a temporarily unreachable collector costs no request and no span.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::process::{Process, free_address};
use super::programs::{self, CURL};
use super::subject;
use crate::say;
use crate::scratch::Scratch;
use crate::workspace::Workspace;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";
const LIMIT: Duration = Duration::from_secs(60);
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);
const REQUESTS: usize = 50;

pub(super) fn check(workspace: &Workspace, scratch: &Scratch) -> Result<(), String> {
    let [program] = programs::build_collector(workspace)?;
    let vanward = programs::build_vanward(workspace)?;
    let folder = scratch.path();
    let (_origin, server) = subject::origin(&vanward, folder)?;
    let endpoint = free_address()?;
    let start = |name: &str| collector(&program, name, endpoint, folder);
    let mut first = start("collector")?;
    let proxy = TracedProxy::start(&vanward, server, endpoint, folder)?;

    let context = format!("traceparent: 00-{TRACE}-{PARENT}-01");
    proxy.get("/", &["-H", &context], 1)?;
    until(&mut first, "the trace of curl's request", |said| {
        let spans = spans(said);
        let own = spans.iter().find(|span| span.has("Kind", "Server") && span.has("Trace ID", TRACE));
        let own = own.filter(|span| span.has("Parent ID", PARENT) && span.has("Name", "GET /"));
        let parent = own.and_then(|span| span.value("ID"));
        parent.is_some_and(|id| {
            spans.iter().any(|span| span.has("Kind", "Client") && span.has("Parent ID", id))
        })
    })?;

    proxy.get("/", &[], REQUESTS)?;
    proxy.get("/gone", &[], 1)?;
    until(&mut first, "the failed request, and no other that was not chosen", |said| {
        let spans = spans(said);
        let failed = |span: &&PrintedSpan<'_>| {
            span.has("Kind", "Server") && span.text.contains("-> http.response.status_code: Int(502)")
        };
        // The sampled request, and the failed one.
        spans.iter().filter(failed).count() == 1
            && spans.iter().filter(|span| span.has("Kind", "Server")).count() == 2
    })?;

    // It is ended by a signal, so that it prints all received spans.
    drop(first);
    proxy.get("/", &["-H", &context], REQUESTS)?;
    let mut second = start("collector-again")?;
    until(&mut second, "the spans that waited for the collector", |said| {
        spans(said).iter().filter(|span| span.has("Kind", "Server")).count() == REQUESTS
    })?;
    say(format_args!("{} requests, all answered; each recorded one once", 2 * REQUESTS + 2));
    Ok(())
}

fn collector(program: &Path, name: &str, endpoint: SocketAddr, folder: &Path) -> Result<Process, String> {
    let file = folder.join("collector.yaml");
    let text = format!(
        "receivers: {{ otlp: {{ protocols: {{ http: {{ endpoint: '{endpoint}' }} }} }} }}\n\
         exporters: {{ debug: {{ verbosity: detailed }} }}\n\
         service:\n  telemetry: {{ metrics: {{ level: none }} }}\n\
         \x20 pipelines: {{ traces: {{ receivers: [otlp], exporters: [debug] }} }}\n"
    );
    fs::write(&file, text).map_err(|error| format!("{} cannot be written: {error}", file.display()))?;
    let mut command = Command::new(program);
    command.arg("--config").arg(&file);
    Process::start(name, &mut command, folder)?.listening_on(endpoint)
}

struct TracedProxy {
    curl: PathBuf,
    address: SocketAddr,
    _process: Process,
}

impl TracedProxy {
    /// Starts the proxy: callers decide which traces are recorded, it samples none. `/gone` goes to a missing server.
    fn start(
        vanward: &Path,
        server: SocketAddr,
        collector: SocketAddr,
        folder: &Path,
    ) -> Result<Self, String> {
        let file = folder.join("traced.toml");
        let gone = free_address()?;
        let text = format!(
            "[tracing]\ncollector = \"http://{collector}\"\nsample = \"0%\"\nfollow = \"all\"\nslow = \"off\"\n\
             [[listen]]\naddress = \"127.0.0.1:0\"\n[[route]]\nupstream = \"app\"\n\
             [[route]]\npath = \"/gone\"\nupstream = \"gone\"\n\
             [upstream.app]\nservers = [\"http://{server}\"]\n[upstream.gone]\nservers = [\"http://{gone}\"]\n"
        );
        fs::write(&file, text).map_err(|error| format!("{} cannot be written: {error}", file.display()))?;
        let mut command = Command::new(vanward);
        command.arg("run").arg("--config").arg(&file);
        let mut process = Process::start("traced", &mut command, folder)?;
        let address = process.addresses()?.first().copied().ok_or("the proxy listens nowhere")?;
        Ok(Self { curl: CURL.find()?, address, _process: process })
    }

    /// Sends requests, which must all get a response: from the server, or 502 if it is missing.
    fn get(&self, path: &str, arguments: &[&str], count: usize) -> Result<(), String> {
        let urls = (0..count).map(|_| format!("http://{}{path}", self.address));
        let mut command = Command::new(&self.curl);
        command.args([
            "--silent",
            "--max-time",
            "60",
            "--write-out",
            "%{http_code}\n",
            "--output",
            "/dev/null",
        ]);
        // Each URL has a separate output.
        command.args(std::iter::repeat_n(["--output", "/dev/null"], count - 1).flatten());
        let output = command.args(arguments).args(urls).output();
        let output = output.map_err(|error| format!("curl cannot be run: {error}"))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let expected = if path == "/gone" { "502" } else { "200" };
        let answered = said.lines().filter(|status| *status == expected).count();
        if answered == count {
            return Ok(());
        }
        Err(format!("{answered} of {count} requests for {path} got {expected}:\n{said}"))
    }
}

fn until(collector: &mut Process, what: &str, is_there: impl Fn(&str) -> bool) -> Result<(), String> {
    let began = Instant::now();
    while !is_there(&collector.said()) {
        if began.elapsed() > LIMIT {
            return Err(format!("the collector has not got {what}; it said:\n{}", collector.said()));
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
    Ok(())
}

/// A span as the collector prints it: lines of `Name : value`, and attributes.
struct PrintedSpan<'a> {
    text: &'a str,
}

fn spans(said: &str) -> Vec<PrintedSpan<'_>> {
    said.split("\nSpan #").skip(1).map(|text| PrintedSpan { text }).collect()
}

impl<'a> PrintedSpan<'a> {
    fn value(&self, name: &str) -> Option<&'a str> {
        let lines = self.text.lines().filter_map(|line| line.split_once(" : "));
        lines.filter(|(known, _)| known.trim() == name).map(|(_, value)| value.trim()).next()
    }

    fn has(&self, name: &str, value: &str) -> bool {
        self.value(name) == Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_as_they_are_printed() {
        let said = "x\nSpan #0\n    Trace ID       : 4b\n    ID             : 8c\n    Name           : GET /\n\
                    Attributes:\n     -> url.path: Str(/)\nSpan #1\n    Parent ID      : 8c\n";
        let spans = spans(said);
        assert_eq!(spans.len(), 2);
        assert!(
            spans[0].has("ID", "8c") && spans[0].has("Name", "GET /") && !spans[0].has("Parent ID", "8c")
        );
        assert_eq!(spans[1].value("Parent ID"), Some("8c"));
    }
}
