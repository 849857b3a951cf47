//! Measures changes of a configuration with many routes: time until the command returns, memory during the change,
//! and the latency of concurrent requests. Each route has a different header edit, so that no two are equal.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::say;
use crate::scratch::Scratch;
use crate::step;
use crate::strangers::process::Process;

const ROUTES: [usize; 3] = [1_000, 10_000, 50_000];
/// Upstreams of all routes; each has two servers.
const UPSTREAMS: usize = 100;
/// Changed weights in force while a server is drained.
const OVERRIDES: usize = 10;
/// Measurements of each change. The median counts.
const ROUNDS: usize = 5;
/// Rate of concurrent requests, per second.
const REQUESTS: &str = "200";
const LOAD: &str = "5s";
/// Time for the allocator to return memory after a change.
const SETTLED: Duration = Duration::from_secs(2);

/// Measures each number of routes with this program, and prints a table.
pub(super) fn run(program: &Path) -> Result<(), String> {
    let folder = Scratch::new("edits")?;
    say(format_args!(
        "\n| routes | memory | weigh | drain beside {OVERRIDES} changes | reload that changes one route | most memory \
         | p99 of requests without and with changes |\n|---|---|---|---|---|---|---|"
    ));
    ROUTES.iter().try_for_each(|&routes| EditScene::new(program, folder.path(), routes)?.measure())
}

struct EditScene {
    program: PathBuf,
    routes: usize,
    file: PathBuf,
    socket: PathBuf,
    proxy: Process,
    address: SocketAddr,
}

impl EditScene {
    fn new(program: &Path, folder: &Path, routes: usize) -> Result<Self, String> {
        let (file, socket) = (folder.join(format!("{routes}.toml")), folder.join(format!("{routes}.sock")));
        put(&file, &text(routes, "first"))?;
        let mut command = Command::new(program);
        command.args(["run", "--config"]).arg(&file).arg("--admin").arg(&socket);
        let mut proxy = Process::start(&format!("{routes}"), &mut command, folder)?;
        let address = proxy.addresses()?.first().copied().ok_or("it listens nowhere")?;
        std::thread::sleep(SETTLED);
        Ok(Self { program: program.to_owned(), routes, file, socket, proxy, address })
    }

    fn measure(&self) -> Result<(), String> {
        let rest = self.memory("VmRSS:")?;
        let quiet = self.p99(|| Ok(()))?;
        let mut most = 0;
        let mut weigh = self.median(&mut most, |round| {
            self.order(&["weigh", "--server", &server(0, 0), "--weight", &(round + 2).to_string()])
        })?;
        for upstream in 1..=OVERRIDES {
            self.order(&["weigh", "--server", &server(upstream, 0), "--weight", "7"])?;
        }
        let mut drain = self.median(&mut most, |round| {
            self.order(&[["drain", "restore"][round % 2], "--server", &server(0, 1)])
        })?;
        let mut reload = self.median(&mut most, |round| {
            put(&self.file, &text(self.routes, &format!("round-{round}")))?;
            let began = Instant::now();
            self.order(&["reload"])?;
            Ok(began.elapsed())
        })?;
        let busy = self.p99(|| {
            for round in 0..4 {
                self.order(&["weigh", "--server", &server(0, 0), "--weight", &(round + 2).to_string()])?;
                self.order(&[["drain", "restore"][round % 2], "--server", &server(0, 1)])?;
            }
            self.order(&["reload"]).map(drop)
        })?;
        let ms = |time: &mut Duration| format!("{:.0} ms", time.as_secs_f64() * 1000.0);
        say(format_args!(
            "| {} | {} MiB | {} | {} | {} | {} MiB, {:.2} times | {quiet:.1} and {busy:.1} ms |",
            self.routes,
            rest >> 10,
            ms(&mut weigh),
            ms(&mut drain),
            ms(&mut reload),
            most >> 10,
            most as f64 / rest as f64,
        ));
        Ok(())
    }

    /// Returns the median of several rounds, and raises `most` to the maximum memory.
    fn median(
        &self,
        most: &mut u64,
        round: impl Fn(usize) -> Result<Duration, String>,
    ) -> Result<Duration, String> {
        // Resets the peak (proc(5)).
        put(Path::new(&format!("/proc/{}/clear_refs", self.proxy.id())), "5")?;
        let mut times = (0..ROUNDS).map(round).collect::<Result<Vec<_>, _>>()?;
        times.sort_unstable();
        *most = self.memory("VmHWM:")?.max(*most);
        std::thread::sleep(SETTLED);
        Ok(times[ROUNDS / 2])
    }

    fn order(&self, words: &[&str]) -> Result<Duration, String> {
        let mut command = Command::new(&self.program);
        command.args(words).arg("--socket").arg(&self.socket);
        let began = Instant::now();
        let output = command.output().map_err(|error| error.to_string())?;
        let took = began.elapsed();
        if output.status.success() {
            return Ok(took);
        }
        Err(format!("`{}`: {}", step::shown(&command), String::from_utf8_lossy(&output.stderr)))
    }

    /// Returns the 99th percentile of the latency of requests, in milliseconds, during an action.
    fn p99(&self, beside: impl FnOnce() -> Result<(), String>) -> Result<f64, String> {
        let mut command = Command::new(&self.program);
        command.args(["load", "-c", "8", "-R", REQUESTS, "-d", LOAD, "--json", "-H", "Host: first.example"]);
        command.arg(format!("http://{}/", self.address)).stdout(std::process::Stdio::piped());
        let load = command.spawn().map_err(|error| error.to_string())?;
        let done = beside();
        let output = load.wait_with_output().map_err(|error| error.to_string())?;
        done?;
        let told: serde_json::Value =
            serde_json::from_slice(&output.stdout).map_err(|error| format!("vanward load: {error}"))?;
        let p99 = told["latency"]["p99_us"].as_f64();
        p99.map(|us| us / 1000.0).ok_or_else(|| format!("vanward load prints no p99: {told}"))
    }

    /// Reads a line of the process's status, in KiB.
    fn memory(&self, line: &str) -> Result<u64, String> {
        let path = format!("/proc/{}/status", self.proxy.id());
        let status = fs::read_to_string(path).map_err(|error| error.to_string())?;
        let found =
            status.lines().find_map(|text| text.strip_prefix(line)?.trim().strip_suffix(" kB")?.parse().ok());
        found.ok_or_else(|| format!("the process has no {line}"))
    }
}

/// The configuration; `first` is the response of the first route, which needs no server.
fn text(routes: usize, first: &str) -> String {
    let mut text = "workers = 1\n[[listen]]\naddress = \"127.0.0.1:0\"\n".to_owned();
    let _ =
        writeln!(text, "[[route]]\nhost = \"first.example\"\nrespond = {{ status = 200, body = {first:?} }}");
    for route in 1..routes {
        let _ = writeln!(
            text,
            "[[route]]\nhost = \"h{route}.example\"\nupstream = \"u{}\"\nrequest_headers = {{ set = {{ X-Route = \"{route}\" }} }}",
            route % UPSTREAMS
        );
    }
    for upstream in 0..UPSTREAMS {
        let (one, other) = (server(upstream, 0), server(upstream, 1));
        let _ = writeln!(text, "[upstream.u{upstream}]\nservers = [{one:?}, {other:?}]");
    }
    text
}

/// A server, without a listener at its port.
fn server(upstream: usize, number: usize) -> String {
    format!("http://127.0.0.1:{}", 20_000 + 2 * upstream + number)
}

fn put(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
