//! Resources of a fleet: memory of an instance with many routes, and traffic of many instances with etcd and Redis.
//! One process simulates the instances (`crates/vanward/examples/instances.rs`). All runs in a separate network
//! namespace, whose loopback interface counts every byte. Takes a few minutes, and requires root.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::super::http;
use super::super::process::{Process, free_address};
use super::super::programs::{ETCD, REDIS};
use super::within;
use crate::say;
use crate::step;
use crate::workspace::Workspace;

const ROUTES: [usize; 4] = [100, 1_000, 10_000, 100_000];
const INSTANCES: [usize; 3] = [10, 100, 1_000];
/// Upstreams of all routes; each has one server.
const UPSTREAMS: usize = 100;
/// Duration of counting, and the time before in which traffic becomes steady.
const COUNTED: Duration = Duration::from_secs(15);
const SETTLED: Duration = Duration::from_secs(6);
/// Total requests per second while limits are counted.
const REQUESTS: usize = 1_000;
const LIMIT: Duration = Duration::from_secs(120);
/// etcd's default limit of a request, 1.5 MiB, is too low for 100,000 routes.
const REQUEST_BYTES: usize = 64 << 20;

/// Builds the programs, and runs itself in a separate network namespace.
pub(super) fn outside(workspace: &Workspace) -> Result<(), String> {
    let mut command = Command::new("cargo");
    command.args([
        "build",
        "--profile",
        "quick",
        "-p",
        "vanward",
        "--bin",
        "vanward",
        "--example",
        "instances",
        "--all-features",
    ]);
    step::run(command.current_dir(&workspace.root))?;
    let itself = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new("unshare");
    command
        .args(["--net", "sh", "-c", "ip link set lo up && exec \"$0\" fleet --sizes --inside"])
        .arg(itself);
    step::run(&mut command)
}

pub(super) fn inside(workspace: &Workspace, folder: &Path) -> Result<(), String> {
    let built = workspace.target_directory()?.join("quick");
    let scene = SizeScene {
        vanward: built.join("vanward"),
        instances: built.join("examples/instances"),
        folder: folder.to_owned(),
    };
    ROUTES.iter().try_for_each(|&count| scene.routes(count))?;
    scene.etcd()?;
    scene.redis()
}

struct SizeScene {
    vanward: PathBuf,
    instances: PathBuf,
    folder: PathBuf,
}

impl SizeScene {
    /// Measures an instance with this number of routes: its start, its memory, a reload, and the cost of a request.
    fn routes(&self, count: usize) -> Result<(), String> {
        let file = self.folder.join(format!("routes-{count}.toml"));
        let text = format!("workers = 1\n[[listen]]\naddress = \"127.0.0.1:0\"\n{}", routes(count));
        put(&file, &text)?;
        let mut command = Command::new(&self.vanward);
        let began = Instant::now();
        let mut proxy = Process::start(
            &format!("routes-{count}"),
            command.args(["run", "--config"]).arg(&file),
            &self.folder,
        )?;
        let address = proxy.addresses()?.first().copied().ok_or("it listens nowhere")?;
        let started = began.elapsed();
        std::thread::sleep(Duration::from_secs(1));
        let memory = memory_kib(proxy.id())?;
        let cpu = self.cpu_per_request(&proxy, address)?;
        put(&file, &text.replace("body = \"first\"", "body = \"second\""))?;
        let began = Instant::now();
        proxy.signal("-HUP")?;
        until(
            "the file is read again",
            || Ok(http::get(address, "first.example", "/")?.ends_with("second")),
        )?;
        let reloaded = began.elapsed();
        std::thread::sleep(Duration::from_secs(1));
        say(format_args!(
            "{count} routes ({} kB): starts in {} ms, {} MiB, {} MiB after a reload, which takes {} ms; a request takes {cpu:.1} µs of CPU",
            text.len() / 1000,
            started.as_millis(),
            memory >> 10,
            memory_kib(proxy.id())? >> 10,
            reloaded.as_millis(),
        ));
        Ok(())
    }

    /// Returns the CPU time of a request without a server, in microseconds.
    fn cpu_per_request(&self, proxy: &Process, address: SocketAddr) -> Result<f64, String> {
        let before = cpu_ms(proxy.id())?;
        let mut command = Command::new(&self.vanward);
        command.args(["load", "-c", "8", "-d", "3s", "--json", "-H", "Host: first.example"]);
        let output = command.arg(format!("http://{address}/")).output().map_err(|error| error.to_string())?;
        let spent = cpu_ms(proxy.id())? - before;
        let told: serde_json::Value =
            serde_json::from_slice(&output.stdout).map_err(|error| format!("vanward load: {error}"))?;
        let requests = told["requests"].as_f64().filter(|requests| *requests > 0.0);
        let requests = requests.ok_or_else(|| format!("vanward load prints no requests: {told}"))?;
        Ok(spent * 1000.0 / requests)
    }

    fn etcd(&self) -> Result<(), String> {
        let (client, peer) = (free_address()?, free_address()?);
        let urls = |address: SocketAddr| format!("http://{address}");
        let mut command = Command::new(ETCD.find()?);
        command.args(["--listen-client-urls", &urls(client), "--advertise-client-urls", &urls(client)]);
        command.args(["--listen-peer-urls", &urls(peer), "--initial-advertise-peer-urls", &urls(peer)]);
        command.args(["--initial-cluster", &format!("default={}", urls(peer)), "--logger", "zap"]);
        command.args(["--max-request-bytes", &REQUEST_BYTES.to_string(), "--log-level", "error"]);
        command.arg("--data-dir").arg(self.folder.join("etcd"));
        let etcd = Process::start("etcd", &mut command, &self.folder)?.listening_on(client)?;
        let url = format!("etcd+http://{client}/edge");
        let mut version = 0;
        for count in INSTANCES {
            self.push(&url, 100, version)?;
            version += 1;
            let mut command = Command::new(&self.instances);
            command.args(["etcd", &url, &count.to_string()]).arg(self.folder.join(format!("fleet-{count}")));
            let instances = Process::start(&format!("etcd-{count}"), &mut command, &self.folder)?;
            until("all instances follow", || Ok(instances.said().contains("ready")))?;
            let counts = || Ok(handled(&http::get(client, "etcd", "/metrics")?));
            let idle = self.count(&etcd, counts)?;
            say(format_args!("etcd, {count} instances: {idle}; {} MiB", memory_kib(etcd.id())? >> 10));
            let (began, bytes) = (Instant::now(), received()?.0);
            self.push(&url, 100, version)?;
            let all = count.to_string();
            until("all have a new version", || Ok(instances.said().lines().any(|line| line == all)))?;
            let took = began.elapsed();
            say(format_args!(
                "etcd, {count} instances: all have a new version of 100 routes {} ms after the push began, {} kB",
                took.as_millis(),
                (received()?.0 - bytes) / 1000
            ));
        }
        self.many_routes_in_etcd(&url)
    }

    /// Measures a version of 100,000 routes through etcd to one instance.
    fn many_routes_in_etcd(&self, url: &str) -> Result<(), String> {
        let mut command = Command::new(&self.vanward);
        command.args(["run", "--config", url, "--fleet-dir"]).arg(self.folder.join("fleet-many"));
        let mut proxy = Process::start("etcd-many", &mut command, &self.folder)?;
        let address = proxy.addresses()?.first().copied().ok_or("it listens nowhere")?;
        let (began, bytes) = (Instant::now(), received()?.0);
        let size = self.push(url, 100_000, 0)?;
        let pushed = began.elapsed();
        until("the instance has 100,000 routes", || {
            Ok(http::get(address, "a99999.example", "/")?.starts_with("HTTP/1.1 502"))
        })?;
        say(format_args!(
            "etcd, 100000 routes ({size} kB): pushed in {} ms, in force in an instance after {} ms, {} kB",
            pushed.as_millis(),
            began.elapsed().as_millis(),
            (received()?.0 - bytes) / 1000
        ));
        Ok(())
    }

    /// Pushes a version to etcd. Returns its size in kilobytes.
    fn push(&self, url: &str, count: usize, version: usize) -> Result<usize, String> {
        let file = self.folder.join("pushed.toml");
        let text =
            format!("workers = 1\n[[listen]]\naddress = \"127.0.0.1:0\"\n# {version}\n{}", routes(count));
        put(&file, &text)?;
        let mut command = Command::new(&self.vanward);
        let output = command.args(["fleet", "push", "--config", url]).arg(&file).output();
        let output = output.map_err(|error| error.to_string())?;
        if output.status.success() { Ok(text.len() / 1000) } else { Err(super::said(&output)) }
    }

    fn redis(&self) -> Result<(), String> {
        let address = free_address()?;
        let mut command = Command::new(REDIS.find()?);
        command.args(["--port", &address.port().to_string(), "--save", "", "--bind", "127.0.0.1"]);
        let redis = Process::start("redis", &mut command, &self.folder)?.listening_on(address)?;
        let file = self.folder.join("limited.toml");
        let text = format!(
            "workers = 1\n[[listen]]\naddress = \"127.0.0.1:0\"\n\
             [redis]\nurl = \"redis://{address}\"\ninstance = \"edge-NUMBER\"\n[[route]]\n\
             rate_limit = {{ rate = \"1000/s\", burst = 2000, key = \"header:X-Key\", shared = \"local\" }}\n\
             respond = {{ status = 204 }}\n"
        );
        put(&file, &text)?;
        for (count, rate) in INSTANCES.into_iter().flat_map(|count| [(count, 0), (count, REQUESTS)]) {
            let mut command = Command::new(&self.instances);
            command.arg("redis").arg(&file).args([count, rate].map(|number| number.to_string()));
            let instances = Process::start(&format!("redis-{count}-{rate}"), &mut command, &self.folder)?;
            until("all instances run", || Ok(instances.said().contains("ready")))?;
            let counts = || commands(address);
            let counted = self.count(&redis, counts)?;
            let memory = memory_kib(instances.id())? / count as u64;
            say(format_args!(
                "Redis, {count} instances, {rate} requests/s: {counted}; {memory} KiB an instance"
            ));
        }
        Ok(())
    }

    /// Counts traffic, requests to an engine, and its CPU time, once they are steady.
    fn count(&self, engine: &Process, requests: impl Fn() -> Result<u64, String>) -> Result<String, String> {
        std::thread::sleep(SETTLED);
        let all = || Ok::<_, String>((received()?, requests()?, cpu_ms(engine.id())?));
        let (began, before) = (Instant::now(), all()?);
        std::thread::sleep(COUNTED);
        let (after, seconds) = (all()?, began.elapsed().as_secs_f64());
        let per_second = |after: u64, before: u64| (after - before) as f64 / seconds;
        Ok(format!(
            "{:.1} kB/s in {:.0} packets/s, {:.0} calls/s, {:.1}% of a core",
            per_second(after.0.0, before.0.0) / 1000.0,
            per_second(after.0.1, before.0.1),
            per_second(after.1, before.1),
            (after.2 - before.2) / seconds / 10.0
        ))
    }
}

/// Routes by host to servers that refuse connections, and one with a fixed response.
fn routes(count: usize) -> String {
    let mut text =
        "[[route]]\nhost = \"first.example\"\nrespond = { status = 200, body = \"first\" }\n".to_owned();
    for number in 1..count {
        let _ =
            write!(text, "[[route]]\nhost = \"a{number}.example\"\nupstream = \"u{}\"\n", number % UPSTREAMS);
    }
    for number in 0..UPSTREAMS {
        let _ = write!(text, "[upstream.u{number}]\nservers = [\"http://127.0.0.1:{}\"]\n", number + 1);
    }
    text
}

/// Reads the number of handled requests in etcd's metrics.
fn handled(metrics: &str) -> u64 {
    let of_requests = metrics.lines().filter(|line| line.starts_with("grpc_server_handled_total{"));
    of_requests.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>() as u64
}

/// Reads the number of commands that Redis has processed.
fn commands(address: SocketAddr) -> Result<u64, String> {
    let failed = |error: std::io::Error| format!("Redis does not answer: {error}");
    let mut stream = TcpStream::connect(address).map_err(failed)?;
    stream.write_all(b"INFO stats\r\nQUIT\r\n").map_err(failed)?;
    let mut text = String::new();
    stream.read_to_string(&mut text).map_err(failed)?;
    let count =
        text.lines().find_map(|line| line.strip_prefix("total_commands_processed:")?.trim().parse().ok());
    count.ok_or_else(|| format!("Redis reports no commands:\n{text}"))
}

/// Bytes and packets received by the loopback interface, which counts each once.
fn received() -> Result<(u64, u64), String> {
    let text = fs::read_to_string("/proc/net/dev").map_err(|error| error.to_string())?;
    let line = text.lines().find_map(|line| line.trim().strip_prefix("lo:"));
    let mut numbers = line.unwrap_or_default().split_whitespace().map_while(|number| number.parse().ok());
    numbers.next().zip(numbers.next()).ok_or_else(|| "there is no loopback interface".to_owned())
}

fn memory_kib(process: u32) -> Result<u64, String> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).map_err(|error| error.to_string())?;
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok());
    line.ok_or_else(|| "a process has no memory".to_owned())
}

/// CPU time of a process in milliseconds, in ticks of 10 ms.
fn cpu_ms(process: u32) -> Result<f64, String> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).map_err(|error| error.to_string())?;
    let (_, fields) = stat.rsplit_once(')').ok_or("a process has no figures")?;
    let ticks = fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok());
    Ok(ticks.sum::<f64>() * 10.0)
}

fn put(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}

fn until(what: &str, is_so: impl Fn() -> Result<bool, String>) -> Result<(), String> {
    within(LIMIT, what, is_so)
}
