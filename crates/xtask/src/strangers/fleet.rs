//! Several instances with one configuration in etcd: its three nodes are killed or stopped in turn, while the
//! configuration changes and requests flow. Then all of etcd fails, and a bad version is rolled back. Limits shared
//! through Redis are in `shared`, shared caches in `peers`. Both engines require TLS and a password.

/// Limits that instances share through Redis.
mod shared;
/// Sessions that instances share through Redis.
mod sessions;
/// A cache that instances share.
mod peers;
/// Maps that instances share.
mod maps;
/// Versions that replace each other during a trial, and an etcd without any.
mod trials;
/// Memory and traffic of many instances and routes.
mod sizes;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use super::http;
use super::process::{Process, free_address};
use super::programs::{self, CURL, ETCD, ETCDCTL};
use super::subject::PairFiles;
use crate::say;
use crate::scratch::Scratch;
use crate::workspace::Workspace;

pub(super) const NEEDED: [programs::Needed; 5] = [ETCD, ETCDCTL, programs::REDIS, CURL, programs::OPENSSL];

const NODES: usize = 3;
const INSTANCES: usize = 3;
const LIMIT: Duration = Duration::from_secs(30);
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);
const USER: &str = "vanward";
const PASSWORD: &str = "a-password-of-tests";
/// Far longer than the check takes; the load ends with it.
const LOAD_SECONDS: u32 = 600;

pub(super) fn measure(workspace: &Workspace, is_inside: bool) -> Result<(), String> {
    if is_inside {
        sizes::inside(workspace, Scratch::new("sizes")?.path())
    } else {
        sizes::outside(workspace)
    }
}

pub(super) fn check(workspace: &Workspace, scratch: &Scratch) -> Result<(), String> {
    let vanward = programs::build_vanward(workspace)?;
    let trust = Trust::make(scratch.path())?;
    sessions::check(&vanward, scratch.path())?;
    shared::check(&vanward, scratch.path(), &trust)?;
    let mut scene = FleetScene::start(vanward, scratch.path(), trust)?;
    scene.strangers_are_refused()?;
    peers::check(&scene)?;
    maps::check(&mut scene)?;
    let mut load = scene.load()?;

    for node in 0..NODES {
        scene.etcd[node].process = None;
        let took = scene.change(&format!("without node {node}"))?;
        say(format_args!(
            "node {node} killed: all instances have the new version after {} ms",
            took.as_millis()
        ));
        scene.etcd[node].start(&scene.folder, &scene.trust)?;
        scene.etcd[node].until_healthy(&scene.trust)?;
    }
    for node in 0..NODES {
        scene.etcd[node].signal("-STOP")?;
        let took = scene.change(&format!("node {node} is silent"))?;
        say(format_args!(
            "node {node} silent: all instances have the new version after {} ms",
            took.as_millis()
        ));
        scene.etcd[node].signal("-CONT")?;
        scene.etcd[node].until_healthy(&scene.trust)?;
    }

    let last = scene.change("before etcd goes").and_then(|_| scene.served(0))?;
    scene.etcd.iter_mut().for_each(|node| node.process = None);
    scene.restart(0)?;
    scene.shows_etcd(false)?;
    for instance in 0..INSTANCES {
        let served = scene.served(instance)?;
        if served != last {
            return Err(format!("without etcd, instance {instance} serves {served:?} instead of {last:?}"));
        }
    }
    for node in &mut scene.etcd {
        node.start(&scene.folder, &scene.trust)?;
    }
    scene.etcd.iter_mut().try_for_each(|node| node.until_healthy(&scene.trust))?;
    let took = scene.change("etcd is back")?;
    scene.shows_etcd(true)?;
    say(format_args!(
        "etcd gone, an instance restarted without it, etcd back: all converge after {} ms",
        took.as_millis()
    ));

    scene.mistakes()?;
    scene.bad_version()?;
    trials::check(&mut scene)?;
    if !load.is_running() {
        return Err(format!("requests failed meanwhile:\n{}", load.said()));
    }
    scene.farewell()?;
    load.signal("-INT")?;
    let (_, said) = load.finish(LIMIT)?;
    // The load is interrupted, so it ends with 1. It prints a line of errors only if requests failed.
    if !said.contains("vanward: interrupted: ") || said.contains("\n  Errors ") {
        return Err(format!("requests failed meanwhile:\n{said}"));
    }
    say(format_args!("no request failed:\n{}", said.lines().take(8).collect::<Vec<_>>().join("\n")));
    Ok(())
}

/// The certificate of both engines, and the file with the password.
struct Trust {
    pair: PairFiles,
    password_file: PathBuf,
}

impl Trust {
    fn make(folder: &Path) -> Result<Self, String> {
        let password_file = folder.join("password");
        fs::write(&password_file, PASSWORD).map_err(|error| error.to_string())?;
        Ok(Self { pair: PairFiles::of_no_authority(folder)?, password_file })
    }
}

struct EtcdNode {
    index: usize,
    client: SocketAddr,
    peer: SocketAddr,
    /// All nodes, as in `--initial-cluster`.
    cluster: String,
    process: Option<Process>,
}

impl EtcdNode {
    fn start(&mut self, folder: &Path, trust: &Trust) -> Result<(), String> {
        let Self { index, client, peer, cluster, .. } = &*self;
        let (url, client_url) = (format!("http://{peer}"), format!("https://{client}"));
        let mut command = Command::new(ETCD.find()?);
        command
            .args(["--name", &format!("node{index}"), "--initial-cluster", cluster, "--logger", "zap"])
            .arg("--data-dir")
            .arg(folder.join(format!("etcd-{index}")))
            .args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url])
            .args(["--listen-peer-urls", &url, "--initial-advertise-peer-urls", &url])
            .arg("--cert-file")
            .arg(&trust.pair.cert)
            .arg("--key-file")
            .arg(&trust.pair.key);
        let process = Process::start(&format!("node{index}"), &mut command, folder)?;
        self.process = Some(process.listening_on(self.client)?);
        Ok(())
    }

    fn signal(&mut self, signal: &str) -> Result<(), String> {
        self.process.as_ref().map_or(Ok(()), |process| process.signal(signal))
    }

    /// Waits until the node knows a leader.
    fn until_healthy(&self, trust: &Trust) -> Result<(), String> {
        let url = format!("https://{}/health", self.client);
        let curl = CURL.find()?;
        until(&format!("node {} is healthy", self.index), || {
            let mut command = Command::new(&curl);
            command.args(["--silent", "--max-time", "1", &url, "--cacert"]).arg(&trust.pair.cert);
            let output = command.output();
            Ok(output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("\"true\"")))
        })
    }
}

struct StartedInstance {
    address: SocketAddr,
    metrics: SocketAddr,
    process: Option<Process>,
}

struct FleetScene {
    vanward: PathBuf,
    folder: PathBuf,
    etcd: Vec<EtcdNode>,
    trust: Trust,
    instances: Vec<StartedInstance>,
    url: String,
    changes: usize,
}

impl FleetScene {
    fn start(vanward: PathBuf, folder: &Path, trust: Trust) -> Result<Self, String> {
        let mut nodes = Vec::new();
        for _ in 0..NODES {
            nodes.push((free_address()?, free_address()?));
        }
        let names: Vec<String> =
            nodes.iter().enumerate().map(|(index, (_, peer))| format!("node{index}=http://{peer}")).collect();
        let mut etcd = Vec::new();
        for (index, (client, peer)) in nodes.into_iter().enumerate() {
            let mut node = EtcdNode { index, client, peer, cluster: names.join(","), process: None };
            node.start(folder, &trust)?;
            etcd.push(node);
        }
        etcd.iter().try_for_each(|node| node.until_healthy(&trust))?;
        let hosts: Vec<String> = etcd.iter().map(|node| node.client.to_string()).collect();
        let url = format!("etcd://{}/edge", hosts.join(","));
        let mut scene =
            Self { vanward, folder: folder.to_owned(), etcd, trust, instances: Vec::new(), url, changes: 0 };
        scene.let_in_only_the_user()?;
        scene.push("first", "")?;
        for index in 0..INSTANCES {
            let (address, metrics) = (free_address()?, free_address()?);
            scene.instances.push(StartedInstance { address, metrics, process: None });
            let mut process = scene.instance(index)?;
            process.addresses()?;
            scene.instances[index].process = Some(process);
        }
        Ok(scene)
    }

    /// Makes etcd require a password, and grants the user only the keys of the configuration.
    fn let_in_only_the_user(&self) -> Result<(), String> {
        for words in [
            &["user", "add", &format!("root:{PASSWORD}")][..],
            &["user", "grant-role", "root", "root"],
            &["role", "add", "edge"],
            &["role", "grant-permission", "edge", "readwrite", "/edge", "--prefix"],
            &["user", "add", &format!("{USER}:{PASSWORD}")],
            &["user", "grant-role", USER, "edge"],
            &["auth", "enable"],
        ] {
            self.etcdctl(words)?;
        }
        Ok(())
    }

    fn identify(&self, command: &mut Command) {
        command.arg("--etcd-ca").arg(&self.trust.pair.cert).args(["--etcd-user", USER]);
        command.arg("--etcd-password-file").arg(&self.trust.password_file);
    }

    /// A wrong password, and a CA other than etcd's, are rejected with a message.
    fn strangers_are_refused(&self) -> Result<(), String> {
        let wrong = self.folder.join("wrong-password");
        fs::write(&wrong, "wrong").map_err(|error| error.to_string())?;
        let ask = |ca: Option<&Path>, password: &Path| {
            let mut command = Command::new(&self.vanward);
            command.args(["fleet", "--config", &self.url, "--etcd-user", USER]);
            ca.iter().for_each(|ca| _ = command.arg("--etcd-ca").arg(ca));
            command.arg("--etcd-password-file").arg(password).output().map_err(|error| error.to_string())
        };
        for (ca, password, expected) in [
            (Some(self.trust.pair.cert.as_path()), &wrong, "password"),
            (None, &self.trust.password_file, "certificate"),
        ] {
            let output = ask(ca, password)?;
            let said = said(&output);
            if output.status.success() || !said.contains(expected) || said.contains(PASSWORD) {
                return Err(format!("{expected} should have been refused:\n{said}"));
            }
        }
        say(format_args!("etcd asks for TLS and a password: a wrong one and another authority are refused"));
        Ok(())
    }

    fn instance(&self, index: usize) -> Result<Process, String> {
        let mut command = Command::new(&self.vanward);
        command
            .args(["run", "--config", &self.url, "--instance", &format!("edge-{index}"), "--fleet-dir"])
            .arg(self.folder.join(format!("fleet-{index}")))
            // The configuration is the same for all; these variables are not.
            .env("PORT", self.instances[index].address.port().to_string())
            .env("METRICS", self.instances[index].metrics.to_string())
            .env("ADMIN", self.admin(index));
        self.identify(&mut command);
        Process::start(&format!("edge-{index}-{}", self.changes), &mut command, &self.folder)
    }

    fn admin(&self, index: usize) -> PathBuf {
        self.folder.join(format!("admin-{index}"))
    }

    /// Waits until status and metrics of an instance report whether etcd responds, and checks the version in them.
    fn shows_etcd(&self, is_up: bool) -> Result<(), String> {
        let metrics = self.instances[1].metrics;
        let up = format!("vanward_etcd_up {}", u8::from(is_up));
        until(&format!("the metrics report {up}"), || {
            Ok(http::get(metrics, "edge", "/metrics")?.contains(&up))
        })?;
        let told = http::get(metrics, "edge", "/metrics")?;
        if !told.contains("vanward_configuration_info{version=\"") {
            return Err(format!("the metrics name no version:\n{told}"));
        }
        let mut command = Command::new(&self.vanward);
        let output = command.arg("status").arg("--socket").arg(self.admin(1)).output();
        let shown = said(&output.map_err(|error| error.to_string())?);
        let has_problem = shown.contains("problem: etcd does not answer, version ");
        if has_problem == is_up {
            return Err(format!("etcd is up: {is_up}, and the status says:\n{shown}"));
        }
        Ok(())
    }

    /// Kills an instance, and starts it again at its address.
    fn restart(&mut self, index: usize) -> Result<(), String> {
        self.instances[index].process = None;
        let mut process = self.instance(index)?;
        process.addresses()?;
        self.instances[index].process = Some(process);
        Ok(())
    }

    fn load(&self) -> Result<Process, String> {
        // The first one restarts during the load, and tries bad versions.
        let urls: Vec<String> =
            self.instances[1..].iter().map(|instance| format!("http://{}/\n", instance.address)).collect();
        let file = self.folder.join("urls");
        fs::write(&file, urls.concat()).map_err(|error| error.to_string())?;
        let mut command = Command::new(&self.vanward);
        let duration = format!("{LOAD_SECONDS}s");
        // Pages change with the configuration.
        command.args([
            "load",
            "-c",
            "4",
            "--responses",
            "any",
            "--think-time",
            "10ms",
            "-d",
            &duration,
            "--urls",
        ]);
        command.arg(&file);
        Process::start("load", &mut command, &self.folder)
    }

    /// Pushes a version that responds with a text; `more` are further routes.
    fn push(&self, text: &str, more: &str) -> Result<(), String> {
        let file = self.folder.join("pushed.toml");
        let config = format!(
            "admin = \"${{ADMIN}}\"\nmetrics = \"${{METRICS}}\"\n[[listen]]\naddress = \"127.0.0.1:${{PORT}}\"\n{more}\
             [[route]]\nrespond = {{ status = 200, body = \"{text}\" }}\n"
        );
        fs::write(&file, config).map_err(|error| error.to_string())?;
        let output = self.fleet(&["push", &file.display().to_string()], true)?;
        if output.status.success() { Ok(()) } else { Err(said(&output)) }
    }

    fn fleet(&self, arguments: &[&str], is_checked: bool) -> Result<Output, String> {
        let mut command = Command::new(&self.vanward);
        // Without the variables of the instances.
        command.arg("fleet").args(arguments).args(["--config", &self.url]);
        self.identify(&mut command);
        let output = command.output().map_err(|error| error.to_string())?;
        if is_checked && !output.status.success() {
            return Err(format!("vanward fleet {}: {}", arguments.join(" "), said(&output)));
        }
        Ok(output)
    }

    /// Changes the configuration, and waits until all instances serve it. Returns the duration.
    fn change(&mut self, what: &str) -> Result<Duration, String> {
        self.changes += 1;
        let text = format!("{} {what}", self.changes);
        self.push(&text, "")?;
        let began = Instant::now();
        self.is_no_gate_before(&text)?;
        for instance in 0..INSTANCES {
            until(&format!("instance {instance} serves {text:?}"), || Ok(self.served(instance)? == text))?;
        }
        let took = began.elapsed();
        self.fleet(&["--wait", "30s"], true)?;
        Ok(took)
    }

    /// Right after a push, `vanward fleet` succeeds only if all instances serve the pushed version.
    fn is_no_gate_before(&self, text: &str) -> Result<(), String> {
        if !self.fleet(&[], false)?.status.success() {
            return Ok(());
        }
        for instance in 0..self.instances.len() {
            let served = self.served(instance)?;
            if served != text {
                return Err(format!("`vanward fleet` has succeeded, but {served:?} is served"));
            }
        }
        Ok(())
    }

    fn served(&self, instance: usize) -> Result<String, String> {
        self.get(instance, "/").map(|(_, body)| body)
    }

    fn get(&self, instance: usize, path: &str) -> Result<(String, String), String> {
        let url = format!("http://{}{path}", self.instances[instance].address);
        let mut command = Command::new(CURL.find()?);
        command.args(["--silent", "--max-time", "10", "--write-out", "\n%{http_code}", &url]);
        let output = command.output().map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (body, status) = text.rsplit_once('\n').unwrap_or_default();
        Ok((status.to_owned(), body.to_owned()))
    }

    /// `push` rejects invalid versions, and so do the instances if they arrive another way.
    fn mistakes(&mut self) -> Result<(), String> {
        let file = self.folder.join("wrong.toml");
        fs::write(&file, "[[listen]]\nadress = \"127.0.0.1:1\"\n").map_err(|error| error.to_string())?;
        let refused = self.fleet(&["push", &file.display().to_string()], false)?;
        if refused.status.success() || !said(&refused).contains("adress") {
            return Err(format!("a file with a mistake was pushed: {}", said(&refused)));
        }
        let before = self.served(1)?;
        self.put("/edge/vanward.toml", "[[listen]]\nadress = \"127.0.0.1:1\"\n")?;
        until("all instances refuse the mistake", || {
            let shown = self.fleet(&["--json"], false)?;
            Ok(!shown.status.success() && said(&shown).matches("\"refusing\"").count() == INSTANCES)
        })?;
        let after = self.served(1)?;
        if after != before {
            return Err(format!("after a mistake, {after:?} is served instead of {before:?}"));
        }
        self.fleet(&["rollback"], true)?;
        until("all instances are well again", || Ok(self.fleet(&[], false)?.status.success()))?;
        say(format_args!("a mistake is refused by push and by all instances, and rolled back"));
        Ok(())
    }

    /// A single instance tries a version whose requests fail, and no other applies it.
    fn bad_version(&mut self) -> Result<(), String> {
        let good = self.served(1)?;
        self.fleet(&["canary", "--time", "60s", "--errors", "5", "--instance", "edge-0"], true)?;
        let gone = free_address()?;
        let more = format!(
            "[upstream.gone]\nservers = [\"http://{gone}\"]\n[[route]]\npath = \"/gone\"\nupstream = \"gone\"\n"
        );
        self.push("bad", &more)?;
        until("edge-0 tries the bad version", || Ok(self.served(0)? == "bad"))?;
        for _ in 0..20 {
            let (status, body) = self.get(0, "/gone")?;
            // It may have been given up by now.
            if status != "502" && body != good {
                return Err(format!("a request to a stopped server got status {status}"));
            }
            if self.served(1)? != good || self.served(2)? != good {
                return Err("a version that was being tried reached other instances".to_owned());
            }
        }
        until("the bad version is given up", || Ok(self.served(0)? == good))?;
        let shown = said(&self.fleet(&[], false)?);
        if !shown.contains("found bad by edge-0") {
            return Err(format!("vanward fleet does not say that the version is bad:\n{shown}"));
        }
        self.fleet(&["rollback"], true)?;
        until("all instances are well again", || Ok(self.fleet(&[], false)?.status.success()))?;
        self.fleet(&["canary", "--time", "1s"], true)?;
        let took = self.change("a good version")?;
        say(format_args!(
            "a bad version stays with the one that tries it; a good one reaches all after {} ms, 1 s of trial included",
            took.as_millis()
        ));
        Ok(())
    }

    /// An instance that ends disappears at once, not after its lease.
    fn farewell(&mut self) -> Result<(), String> {
        let Some(process) = self.instances[0].process.take() else { return Ok(()) };
        process.signal("-TERM")?;
        process.finish(LIMIT)?;
        let shown = said(&self.fleet(&[], false)?);
        if shown.contains("\n  edge-0 ") {
            Err(format!("an instance that has ended is there:\n{shown}"))
        } else {
            Ok(())
        }
    }

    /// Writes a key as another program would.
    fn put(&self, key: &str, value: &str) -> Result<(), String> {
        self.etcdctl_as_user(&["put", key, value])
    }

    fn etcdctl_as_user(&self, words: &[&str]) -> Result<(), String> {
        self.etcdctl(&[words, &["--user", &format!("{USER}:{PASSWORD}")]].concat())
    }

    fn etcdctl(&self, words: &[&str]) -> Result<(), String> {
        let hosts: Vec<String> = self.etcd.iter().map(|node| format!("https://{}", node.client)).collect();
        let mut command = Command::new(ETCDCTL.find()?);
        command.env("ETCDCTL_API", "3").args(["--endpoints", &hosts.join(",")]);
        command.arg("--cacert").arg(&self.trust.pair.cert).args(words);
        let output = command.output().map_err(|error| error.to_string())?;
        if output.status.success() { Ok(()) } else { Err(said(&output)) }
    }
}

fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

pub(super) fn until(what: &str, is_so: impl Fn() -> Result<bool, String>) -> Result<(), String> {
    within(LIMIT, what, is_so)
}

fn within(limit: Duration, what: &str, is_so: impl Fn() -> Result<bool, String>) -> Result<(), String> {
    let began = Instant::now();
    while !is_so()? {
        if began.elapsed() > limit {
            return Err(format!("not within {} s: {what}", limit.as_secs()));
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
    Ok(())
}
