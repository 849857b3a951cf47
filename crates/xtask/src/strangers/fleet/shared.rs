//! Three instances that share limits and purges through Redis: their total of admitted requests while Redis is
//! well, slow, unreachable, and back without its data, and purges at all instances. They reach Redis through
//! Vanward's own chaos proxy.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::process::{Process, free_address};
use super::super::programs::{CURL, REDIS};
use super::super::subject;
use super::{PASSWORD, Trust, USER, said, until};
use crate::say;

/// The limit of each route: requests per second, and burst.
const RATE: u64 = 300;
const SECONDS: u64 = 3;
/// Requests per second to the instances: far above the limit, near it, and far below.
const UNEVEN: [u64; 3] = [1500, 290, 30];
const EVEN: [u64; 3] = [200, 200, 200];
const SPARSE: [u64; 3] = [120, 60, 20];
/// Maximum deviation of the total of admitted requests, in percent.
const OFF_MAX: f64 = 5.0;
/// Maximum deviation in percent while Redis takes 100 ms: that long, instances do not know of each other.
const OFF_MAX_SLOW: f64 = 10.0;
/// Number of attempts until a figure is within its bounds.
const ATTEMPTS: usize = 3;
const HOST: &str = "Host: site.example";
const LIMIT: Duration = Duration::from_secs(60);

pub(super) fn check(vanward: &Path, folder: &Path, trust: &Trust) -> Result<(), String> {
    let mut scene = SharedScene::start(vanward, folder, trust)?;
    for (what, loads) in [("even", EVEN), ("uneven", UNEVEN)] {
        scene.admit_together(what, loads, OFF_MAX)?;
    }
    let counted = scene.load("closed", "sparse", SPARSE)?;
    if counted.refused > 0 {
        return Err(format!("{} requests of a load below the limit were refused", counted.refused));
    }
    say(format_args!("a load below the limit: none of {} requests refused", counted.admitted));

    scene.decisions()?;
    scene.toxic("POST", "/toxics", r#"{"name":"late","type":"latency","attributes":{"latency":100}}"#)?;
    scene.admit_together("Redis slow, 100 ms", UNEVEN, OFF_MAX_SLOW)?;
    scene.toxic("DELETE", "/toxics/late", "")?;

    scene.redis = None;
    scene.until_told("cannot be reached")?;
    let counted = scene.load("open", "gone", UNEVEN)?;
    if counted.refused > 0 {
        return Err(format!("without Redis, `open` refused {} requests", counted.refused));
    }
    scene.admit_together("Redis gone, local shares", [RATE; 3], OFF_MAX)?;
    let counted = scene.load("closed", "gone", SPARSE)?;
    if counted.admitted > 0 {
        return Err(format!("without Redis, `closed` admitted {} requests", counted.admitted));
    }
    say(format_args!("Redis gone: `open` refused none, `closed` admitted none"));

    scene.start_redis()?;
    scene.until_told("is back after")?;
    scene.until_told("Redis has lost its data")?;
    scene.admit_together("Redis back, empty", UNEVEN, OFF_MAX)?;
    scene.purges()
}

#[derive(Debug, Default, Clone, Copy)]
struct AdmittedCounts {
    admitted: u64,
    refused: u64,
}

struct SharedScene<'t> {
    trust: &'t Trust,
    vanward: PathBuf,
    folder: PathBuf,
    redis: Option<Process>,
    redis_at: SocketAddr,
    chaos: SocketAddr,
    _chaos: Process,
    _origin: Process,
    /// Address of each instance, and of its metrics.
    instances: Vec<(SocketAddr, SocketAddr, Process)>,
}

impl<'t> SharedScene<'t> {
    fn start(vanward: &Path, folder: &Path, trust: &'t Trust) -> Result<Self, String> {
        let (redis_at, between) = (free_address()?, free_address()?);
        let file = folder.join("chaos.json");
        let proxy = format!(r#"[{{"name":"redis","listen":"{between}","upstream":"{redis_at}"}}]"#);
        fs::write(&file, proxy).map_err(|error| error.to_string())?;
        let mut command = Command::new(vanward);
        command.args(["chaos", "--listen", "127.0.0.1:0", "--config"]).arg(&file);
        let mut chaos = Process::start("chaos-redis", &mut command, folder)?;
        let api = chaos.addresses()?.first().copied().ok_or("the chaos proxy listens nowhere")?;
        let (origin, server) = subject::origin(vanward, folder)?;
        let mut scene = Self {
            trust,
            vanward: vanward.to_owned(),
            folder: folder.to_owned(),
            redis: None,
            redis_at,
            chaos: api,
            _chaos: chaos,
            _origin: origin,
            instances: Vec::new(),
        };
        scene.start_redis()?;
        let file = folder.join("shared.toml");
        let secret = folder.join("shared.secret");
        fs::write(&secret, "0123456789abcdef0123456789abcdef").map_err(|error| error.to_string())?;
        let text = configuration(between, (trust, &secret), server);
        fs::write(&file, text).map_err(|error| error.to_string())?;
        for index in 0..UNEVEN.len() {
            let (mut command, metrics) = (Command::new(vanward), free_address()?);
            command.args(["run", "--config"]).arg(&file);
            command.env("INSTANCE", format!("edge-{index}")).env("METRICS", metrics.to_string());
            let mut process = Process::start(&format!("shared-{index}"), &mut command, folder)?;
            let address = process.addresses()?.first().copied().ok_or("an instance listens nowhere")?;
            scene.instances.push((address, metrics, process));
        }
        scene.until_told("is in use by")?;
        // Instances know each other once all have reported to Redis.
        until("all instances know of each other", || {
            let all = scene.instances.iter().map(|(_, metrics, _)| scene.get(*metrics, "/metrics"));
            let metrics: Vec<String> = all.collect::<Result<_, String>>()?;
            Ok(metrics.iter().all(|text| text.contains("vanward_redis_instances 3")))
        })?;
        Ok(scene)
    }

    fn start_redis(&mut self) -> Result<(), String> {
        let mut command = Command::new(REDIS.find()?);
        let port = self.redis_at.port().to_string();
        let Trust { pair, .. } = self.trust;
        command.args(["--bind", "127.0.0.1", "--port", "0", "--save", "", "--appendonly", "no"]);
        command.args(["--tls-port", &port, "--tls-auth-clients", "no", "--tls-cert-file"]).arg(&pair.cert);
        command.arg("--tls-key-file").arg(&pair.key).arg("--tls-ca-cert-file").arg(&pair.cert);
        command.args(["--user", "default", "off", "--user", USER, "on", &format!(">{PASSWORD}")]);
        command.args(["~*", "&*", "+@all"]);
        let process = Process::start("redis", &mut command, &self.folder)?;
        self.redis = Some(process.listening_on(self.redis_at)?);
        Ok(())
    }

    /// Sends load to all instances at the same time, each with its rate, and with one key.
    fn load(&self, limit: &str, key: &str, rates: [u64; 3]) -> Result<AdmittedCounts, String> {
        let mut loads = Vec::new();
        for (index, ((address, ..), rate)) in self.instances.iter().zip(rates).enumerate() {
            let url = format!("http://{address}/{limit}?key={key}");
            let mut command = Command::new(&self.vanward);
            let seconds = format!("{SECONDS}s");
            command.args(["load", "-q", "--json", "-c", "4", "-d", &seconds, "-R", &rate.to_string(), &url]);
            loads.push(Process::start(&format!("load-{limit}-{key}-{index}"), &mut command, &self.folder)?);
        }
        let mut counted = AdmittedCounts::default();
        for load in loads {
            let (_, said) = load.finish(LIMIT)?;
            let json = said.find('{').map(|at| &said[at..]).unwrap_or_default();
            let mut values = serde_json::Deserializer::from_str(json).into_iter::<Value>();
            let told = values
                .next()
                .and_then(Result::ok)
                .ok_or_else(|| format!("`vanward load` printed: {said}"))?;
            let statuses = told["statuses"].as_object().ok_or("a load counts no statuses")?;
            for (status, count) in statuses {
                let count = count.as_u64().unwrap_or_default();
                match status.as_str() {
                    "200" => counted.admitted += count,
                    "429" => counted.refused += count,
                    other => return Err(format!("{count} requests of {limit}?key={key} got {other}")),
                }
            }
            let errors = ["connect", "read", "write", "timeout", "malformed", "reset"];
            if let Some(error) = errors.iter().find(|error| told["errors"][*error].as_u64() != Some(0)) {
                return Err(format!("requests of {limit}?key={key} failed: {error}"));
            }
        }
        Ok(counted)
    }

    /// An authentication server's decision for one instance holds for all; without Redis each instance asks the server.
    fn decisions(&self) -> Result<(), String> {
        let counted = |index: usize, what: &str| {
            let text = self.get(self.instances[index].1, "/metrics")?;
            let of =
                |line: &str| line.starts_with(what).then(|| line.rsplit(' ').next()?.parse::<u64>().ok())?;
            Ok::<u64, String>(text.lines().filter_map(of).sum())
        };
        self.ask(0)?;
        until("the first instance has shared a decision", || {
            Ok(counted(0, "vanward_redis_decisions_kept")? == 1)
        })?;
        self.ask(1)?;
        self.ask(2)?;
        let mut asked = [0; 3];
        for (index, asked) in asked.iter_mut().enumerate() {
            *asked = counted(index, "vanward_forward_auth_requests_total")?;
        }
        if asked != [1, 0, 0] {
            return Err(format!(
                "instead of the first instance alone, {asked:?} have asked the authentication server"
            ));
        }
        say(format_args!("a decision of an authentication server: asked for by one instance, known to all"));
        Ok(())
    }

    fn ask(&self, index: usize) -> Result<(), String> {
        let mut command = Command::new(CURL.find()?);
        let url = format!("http://{}/private", self.instances[index].0);
        command.args([
            "--silent",
            "--fail",
            "--output",
            "/dev/null",
            "-H",
            HOST,
            "-H",
            "Cookie: session=1",
            &url,
        ]);
        let output = command.output().map_err(|error| error.to_string())?;
        if output.status.success() { Ok(()) } else { Err(format!("GET {url}: {}", said(&output))) }
    }

    /// All instances perform a purge before its response. One that does not run performs it at its start, and
    /// without Redis all do once it is back.
    fn purges(&mut self) -> Result<(), String> {
        let wanted =
            |told: &Value, missing: &[&str]| told["instances"] == 3 && told["missing"] == json!(missing);
        self.store()?;
        let began = Instant::now();
        let told = self.purge()?;
        let took_ms = began.elapsed().as_millis();
        if !wanted(&told, &[]) || self.stored()? != [false; 3] {
            return Err(format!("a purge was not done by all: {told}, {:?}", self.stored()?));
        }
        say(format_args!("a purge: done by all instances when it is answered, after {took_ms} ms"));

        self.store()?;
        self.instances[2].2.signal("-STOP")?;
        let told = self.purge();
        self.instances[2].2.signal("-CONT")?;
        let told = told?;
        if !wanted(&told, &["edge-2"]) {
            return Err(format!("a purge with a paused instance: {told}"));
        }
        until("the one that was stopped has purged", || Ok(self.stored()? == [false; 3]))?;
        say(format_args!("a purge names a paused instance, which runs it when it continues"));

        self.store()?;
        self.change()?;
        let began = Instant::now();
        until("all fetch again what a POST has changed", || Ok(self.stored()? == [false; 3]))?;
        say(format_args!(
            "a POST: what it changed is invalid everywhere, after {} ms",
            began.elapsed().as_millis()
        ));

        self.store()?;
        self.redis = None;
        let told = self.purge()?;
        if told["problem"].is_null() || self.stored()? != [false, true, true] {
            return Err(format!("a purge without Redis: {told}, {:?}", self.stored()?));
        }
        self.start_redis()?;
        until("all have purged once Redis is back", || Ok(self.stored()? == [false; 3]))?;
        say(format_args!("a purge without Redis says so, and is done by the others once it is back"));

        self.store()?;
        self.redis = None;
        self.change()?;
        if self.stored()? != [false, true, true] {
            return Err(format!("a POST without Redis: {:?}", self.stored()?));
        }
        self.start_redis()?;
        until("all fetch again once Redis is back", || Ok(self.stored()? == [false; 3]))?;
        say(format_args!("a POST without Redis: invalid here at once, and by the others once it is back"));
        Ok(())
    }

    fn store(&self) -> Result<(), String> {
        for (address, ..) in &self.instances {
            self.get(*address, "/small")?;
        }
        until("all have stored the response", || Ok(self.stored()? == [true; 3]))
    }

    fn stored(&self) -> Result<Vec<bool>, String> {
        let stored = |(address, ..): &(SocketAddr, SocketAddr, Process)| {
            let url = format!("http://{address}/small");
            let mut command = Command::new(CURL.find()?);
            command.args(["--silent", "--fail", "-H", HOST, "-H", "Cache-Control: only-if-cached", &url]);
            Ok(command.output().map_err(|error| error.to_string())?.status.success())
        };
        self.instances.iter().map(stored).collect()
    }

    /// Sends an unsafe request to the first instance, which invalidates the response.
    fn change(&self) -> Result<(), String> {
        let mut command = Command::new(CURL.find()?);
        let url = format!("http://{}/small", self.instances[0].0);
        command.args(["--silent", "--fail", "--output", "/dev/null", "-H", HOST, "--data", "x", &url]);
        let output = command.output().map_err(|error| error.to_string())?;
        if output.status.success() { Ok(()) } else { Err(format!("POST {url}: {}", said(&output))) }
    }

    /// Purges the response at the first instance. Returns its report about all.
    fn purge(&self) -> Result<Value, String> {
        let url = format!("http://{}/small", self.instances[0].0);
        let mut command = Command::new(CURL.find()?);
        let output = command
            .args(["--silent", "-X", "PURGE", "-H", HOST, &url])
            .output()
            .map_err(|error| error.to_string())?;
        let told: Value = serde_json::from_slice(&output.stdout)
            .map_err(|error| format!("PURGE said {}: {error}", said(&output)))?;
        Ok(told["elsewhere"].clone())
    }

    /// The total of admitted requests is near the limit. On a busy machine instances learn of each other late, so
    /// each figure may be measured again with an unused key.
    fn admit_together(&self, what: &str, rates: [u64; 3], most: f64) -> Result<(), String> {
        let expected = RATE * (SECONDS + 1);
        let mut off = 0.0;
        for attempt in 0..ATTEMPTS {
            let key = format!("{}-{attempt}", what.replace([' ', ','], ""));
            let AdmittedCounts { admitted, refused } = self.load("local", &key, rates)?;
            off = (admitted as f64 / expected as f64 - 1.0) * 100.0;
            let all = admitted + refused;
            say(format_args!("{what}: {admitted} admitted of {all}, {off:+.1}% of {expected}"));
            if off.abs() <= most {
                return Ok(());
            }
        }
        Err(format!("{what}: {off:+.1}% is more than {most}%, {ATTEMPTS} times in a row"))
    }

    fn until_told(&self, what: &str) -> Result<(), String> {
        until(&format!("all instances have said {what:?}"), || {
            Ok(self.instances.iter().all(|(_, _, process)| process.said().contains(what)))
        })
    }

    fn toxic(&self, method: &str, path: &str, body: &str) -> Result<(), String> {
        let url = format!("http://{}/proxies/redis{path}", self.chaos);
        let mut command = Command::new(CURL.find()?);
        let output = command.args(["--silent", "--fail", "-X", method, "--data", body, &url]).output();
        let output = output.map_err(|error| error.to_string())?;
        if output.status.success() { Ok(()) } else { Err(format!("{method} {url}: {}", said(&output))) }
    }

    fn get(&self, address: SocketAddr, path: &str) -> Result<String, String> {
        let mut command = Command::new(CURL.find()?);
        let url = format!("http://{address}{path}");
        let output =
            command.args(["--silent", "-H", HOST, &url]).output().map_err(|error| error.to_string())?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn configuration(redis: SocketAddr, (trust, secret): (&Trust, &Path), origin: SocketAddr) -> String {
    let Trust { pair, password_file } = trust;
    let route = |shared: &str| {
        format!(
            "[[route]]\npath = \"/{shared}\"\nrespond = {{ status = 200, body = \"x\" }}\n\
             rate_limit = {{ rate = \"{RATE}/s\", key = \"query:key\", shared = \"{shared}\" }}\n"
        )
    };
    let routes: String = ["open", "local", "closed"].map(route).concat();
    format!(
        "metrics = \"${{METRICS}}\"\n\
         [redis]\nurl = \"rediss://{redis}\"\nca = {:?}\nuser = \"{USER}\"\npassword_file = {password_file:?}\n\
         instance = \"${{INSTANCE}}\"\ninstances = 3\nsecret_file = {secret:?}\n\
         [cache]\nmemory = \"16MB\"\npurge_from = [\"127.0.0.1\"]\n\
         [[listen]]\naddress = \"127.0.0.1:0\"\n{routes}\
         [[route]]\npath = \"/private\"\nrespond = {{ status = 200, body = \"x\" }}\n\
         forward_auth = {{ upstream = \"origin\", path = \"/small\", cache = {{ key = \"cookie:session\", shared = true }} }}\n\
         [[route]]\nupstream = \"origin\"\ncache = {{ default_ttl = \"1h\" }}\n\
         [upstream.origin]\nservers = [\"http://{origin}\"]\n",
        pair.cert
    )
}
