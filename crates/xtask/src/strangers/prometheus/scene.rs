//! The proxy with every kind of metric, its servers, and a Prometheus.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::web::{Api, get};
use crate::step;
use crate::strangers::process::{Process, free_address};
use crate::strangers::programs::{PROMETHEUS, PROMTOOL};
use crate::strangers::subject::{self, PairFiles, write};
use crate::workspace::Workspace;

/// Folder of the rules, their tests and the board.
pub(super) const RULES: &str = "contrib/prometheus";
pub(super) const BOARD: &str = "contrib/grafana/vanward.json";

const LATE: Duration = Duration::from_millis(700);

pub(super) struct ScrapedProxy {
    pub(super) vanward: PathBuf,
    pub(super) address: SocketAddr,
    pub(super) metrics: SocketAddr,
    pub(super) admin: PathBuf,
    /// A second log that shows faults, and is always writable.
    pub(super) log: PathBuf,
    pub(super) process: Process,
    _origin: Process,
}

impl ScrapedProxy {
    /// Starts the proxy with `log` as the target of its access log, and a certificate that expires in `days`.
    pub(super) fn start(vanward: &Path, folder: &Path, log: &str, days: u32) -> Result<Self, String> {
        let (origin_process, origin) = subject::origin(vanward, folder)?;
        let (metrics, gone, collector, slow) = (free_address()?, free_address()?, free_address()?, slow()?);
        let PairFiles { cert, key } = PairFiles::ending_in(folder, days)?;
        let admin = folder.join("admin.sock");
        let (file, shown) = (folder.join("vanward.toml"), folder.join("shown.log"));
        let text = format!(
            "metrics = \"{metrics}\"\nadmin = {admin:?}\n\
             [[listen]]\naddress = \"127.0.0.1:0\"\n\
             [[listen]]\naddress = \"127.0.0.1:0\"\nname = \"web\"\ntls = {{ cert = {cert:?}, key = {key:?} }}\n\
             [limits]\nconnections = 300\n\
             [cache]\nmemory = \"1MiB\"\n\
             [[log]]\ntarget = {log:?}\nformat = \"json\"\n\
             [[log]]\ntarget = {shown:?}\nformat = \"json\"\n\
             fields = [\"route\", \"status\", \"cause\", \"retried\", \"server\", \"upstream_first_byte_ms\", \"cache\"]\n\
             [tracing]\ncollector = \"http://{collector}\"\nsample = \"100%\"\n\
             [[route]]\nupstream = \"app\"\n\
             [[route]]\npath = \"/varnish\"\nupstream = \"app\"\ncache = {{}}\n\
             [[route]]\nname = \"retried\"\npath = \"/retried\"\nupstream = \"half\"\n\
             [[route]]\nname = \"slow\"\npath = \"/slow\"\nupstream = \"slow\"\n\
             [[route]]\nname = \"limited\"\npath = \"/limited\"\nupstream = \"app\"\n\
             rate_limit = {{ rate = \"1/s\", key = \"client\" }}\n\
             [[route]]\nname = \"alone\"\npath = \"/alone\"\nupstream = \"gone\"\n\
             [upstream.app]\nservers = [\"http://{origin}\"]\n\
             [upstream.gone]\nservers = [\"http://{gone}\"]\n\
             [upstream.half]\nservers = [\"http://{origin}\", \"http://{gone}\"]\neject = \"off\"\npool = {{ idle = 0 }}\n\
             [upstream.slow]\nservers = [\"http://{origin}\", \"http://{slow}\"]\neject = \"off\"\n\
             [upstream.checked]\nservers = [\"http://{origin}\", \"http://{gone}\"]\n\
             check = {{ type = \"http\", path = \"/\", interval = \"1s\", rise = 1, fall = 1 }}\n\
             [[route]]\npath = \"/checked\"\nupstream = \"checked\"\n"
        );
        write(&file, &text)?;
        let mut command = Command::new(vanward);
        command.arg("run").arg("--config").arg(&file);
        let mut process = Process::start("vanward", &mut command, folder)?;
        let address = process.addresses()?.first().copied().ok_or("the proxy listens nowhere")?;
        let vanward = vanward.to_owned();
        Ok(Self { vanward, address, metrics, admin, log: shown, process, _origin: origin_process })
    }

    /// Returns the output of a command over the admin socket.
    pub(super) fn says(&self, words: &[&str]) -> Result<String, String> {
        let mut command = Command::new(&self.vanward);
        command.args(words).arg("--socket").arg(&self.admin);
        let output = command.output().map_err(|error| format!("{}: {error}", step::shown(&command)))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(format!("{}: {}", step::shown(&command), String::from_utf8_lossy(&output.stderr)))
    }
}

/// Starts a server that delays each response. It runs as long as this process.
fn slow() -> Result<SocketAddr, String> {
    let failed = |error: std::io::Error| format!("no port on 127.0.0.1 is free: {error}");
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                while stream.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {
                    thread::sleep(LATE);
                    if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                        return;
                    }
                }
            });
        }
    });
    Ok(address)
}

/// A few requests a second to everything, until it is dropped.
pub(super) struct BackgroundLoad(Arc<AtomicBool>);

impl BackgroundLoad {
    pub(super) fn on(address: SocketAddr) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let paths = [
            "/tiny",
            "/retried",
            "/alone",
            "/slow",
            "/limited",
            "/status/404",
            "/events?rate=50&count=10",
            "/nowhere",
        ];
        for path in paths {
            let ends = Arc::clone(&ends);
            thread::spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    // The metrics show whether it succeeds.
                    drop(get(address, path));
                    thread::sleep(Duration::from_millis(20));
                }
            });
        }
        let ends_too = Arc::clone(&ends);
        thread::spawn(move || {
            let mut number = 0;
            while !ends_too.load(Ordering::Relaxed) {
                // Each is requested twice, and together they exceed the cache.
                drop(get(address, &format!("/varnish/gen/40?as={}", number / 2 % 100)));
                number += 1;
                thread::sleep(Duration::from_millis(10));
            }
        });
        Self(ends)
    }
}

impl Drop for BackgroundLoad {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Starts a Prometheus that scrapes the proxy every second, with a file of rules, and values of its flag for features.
pub(super) fn prometheus(
    name: &str,
    folder: &Path,
    proxy: &ScrapedProxy,
    rules: Option<&Path>,
    features: &str,
) -> Result<(Process, Api), String> {
    let address = free_address()?;
    let (config, data) = (folder.join(format!("{name}.yml")), folder.join(name));
    let rules = rules.map(|rules| format!("rule_files: [{rules:?}]\n")).unwrap_or_default();
    let metrics = proxy.metrics;
    let text = format!(
        "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n{rules}\
         scrape_configs:\n  - {{ job_name: vanward, static_configs: [{{ targets: ['{metrics}'] }}] }}\n"
    );
    write(&config, &text)?;
    let mut command = Command::new(PROMETHEUS.find()?);
    command.arg(format!("--config.file={}", config.display()));
    command.arg(format!("--storage.tsdb.path={}", data.display()));
    command.arg(format!("--web.listen-address={address}"));
    command.arg(format!("--enable-feature={features}"));
    let process = Process::start(name, &mut command, folder)?.listening_on(address)?;
    Ok((process, Api(address)))
}

/// Runs promtool in the folder of the rules.
pub(super) fn promtool(workspace: &Workspace, words: &[&str]) -> Result<(), String> {
    let mut command = Command::new(PROMTOOL.find()?);
    step::run(command.args(words).current_dir(workspace.root.join(RULES)))
}
