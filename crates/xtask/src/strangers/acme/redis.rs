//! Instances with separate folders that share certificates through Redis.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::super::process::{Process, free_address};
use super::super::programs::REDIS;
use super::scene::{AcmeScene, AcmeServer, BETWEEN_LOOKS, LIMIT, Temper, are_all_issued};
use crate::say;
use crate::workspace::text;

/// The file that Redis writes at its end.
const DUMP: &str = "redis-acme.rdb";

/// The authority reaches only one instance, which responds for the others. All get each certificate, and Redis
/// contains no readable key. Without Redis, an operator's order is executed at once, and all get the certificate
/// once Redis is back.
pub(super) fn instances(scene: &AcmeScene<'_>) -> Result<(), String> {
    let authority = scene.authority("shared-authority", &Temper::default())?;
    let address = free_address()?;
    let mut redis = Some(start(scene, address)?);
    put(scene, "shared.secret", "0123456789abcdef0123456789abcdef")?;
    let began = Instant::now();
    let reached = RedisInstance::start(scene, &authority, (address, "reached"), "[\"http-01\"]", &["a"])?;
    reached.until(scene, "its certificate", are_all_issued)?;
    let by_handshakes = RedisInstance::start(
        scene,
        &authority,
        (address, "handshakes"),
        "[\"tls-alpn-01\"]",
        &["a", "b", "c"],
    )?;
    let by_files =
        RedisInstance::start(scene, &authority, (address, "files"), "[\"http-01\"]", &["a", "d", "e"])?;
    let first = reached.serial(scene, "a.example")?;
    for instance in [&by_handshakes, &by_files] {
        instance.until(scene, "three certificates by the answers of another instance", are_all_issued)?;
        if instance.serial(scene, "a.example")? != first {
            return Err("an instance requested a certificate that another one already had".to_owned());
        }
    }
    say(format_args!(
        "instances with Redis: certificates by TLS-ALPN-01 and HTTP-01 that another instance answered, {:.1} s",
        began.elapsed().as_secs_f64()
    ));

    in_another_second();
    scene.renew("a.example", &by_files.proxy.1)?;
    let renewed = by_files.until_other(scene, "a.example", &first)?;
    for instance in [&reached, &by_handshakes] {
        instance.until_other(scene, "a.example", &first)?;
        if instance.serial(scene, "a.example")? != renewed {
            return Err("a certificate was renewed more than once".to_owned());
        }
    }
    say("a renewal: once, and all instances have it");

    let Some(process) = redis.take() else { return Ok(()) };
    process.signal("-TERM")?;
    process.finish(LIMIT)?;
    let dump = fs::read(scene.folder.join(DUMP)).map_err(|error| format!("{DUMP}: {error}"))?;
    let has = |what: &[u8]| dump.windows(what.len()).any(|part| part == what);
    if !has(b"acme:certificate:a.example") || has(b"PRIVATE KEY") || has(b"BEGIN CERTIFICATE") {
        return Err("Redis does not have the certificate sealed".to_owned());
    }
    fs::remove_file(scene.folder.join(DUMP)).map_err(|error| format!("{DUMP}: {error}"))?;
    in_another_second();
    scene.renew("a.example", &reached.proxy.1)?;
    let alone = reached.until_other(scene, "a.example", &renewed)?;
    if !reached.proxy.0.said().contains("Redis cannot be reached, so this instance requests one itself") {
        return Err(format!("it does not report that it requests one itself:\n{}", reached.proxy.0.said()));
    }
    redis = Some(start(scene, address)?);
    for instance in [&by_handshakes, &by_files] {
        if instance.until_other(scene, "a.example", &renewed)? != alone {
            return Err("a certificate was asked for again once Redis was back".to_owned());
        }
    }
    drop(redis);
    say(
        "without Redis: renewed by order, and all instances have it once Redis is back, empty; no key in Redis in the clear",
    );
    Ok(())
}

/// Starts a Redis that writes its data to a file at its end.
fn start(scene: &AcmeScene<'_>, address: SocketAddr) -> Result<Process, String> {
    let mut command = Command::new(REDIS.find()?);
    command.args(["--bind", "127.0.0.1", "--port", &address.port().to_string(), "--save", "3600 1"]);
    command.args(["--rdbcompression", "no", "--dbfilename", DUMP, "--dir"]).arg(scene.folder);
    Process::start("redis-acme", &mut command, scene.folder)?.listening_on(address)
}

/// A certificate's validity starts at a whole second, and instances take only newer ones. One renewed within the
/// second of its issue would not count as newer.
fn in_another_second() {
    thread::sleep(Duration::from_secs(1));
}

fn put(scene: &AcmeScene<'_>, file: &str, text: &str) -> Result<(), String> {
    fs::write(scene.folder.join(file), text).map_err(|error| format!("{file}: {error}"))
}

struct RedisInstance {
    proxy: (Process, PathBuf),
}

impl RedisInstance {
    /// Starts an instance. The authority reaches the one with this name.
    fn start(
        scene: &AcmeScene<'_>,
        authority: &AcmeServer,
        (redis, name): (SocketAddr, &str),
        challenges: &str,
        names: &[&str],
    ) -> Result<Self, String> {
        let [tls, http] = if name == "reached" { ["TLS", "HTTP"] } else { ["127.0.0.1:0"; 2] };
        let names: Vec<String> = names.iter().map(|name| format!("\"{name}.example\"")).collect();
        let file = format!(
            "[[listen]]\naddress = \"{tls}\"\ntls = {{ certificates = \"auto\", names = [{}] }}\n\
             [[listen]]\naddress = \"{http}\"\n\
             [[route]]\nupstream = \"app\"\n[upstream.app]\nservers = [\"http://SERVER\"]\n\
             [acme]\ndirectory = \"DIRECTORY\"\nca = \"CA\"\nfolder = \"DIR/shared-{name}\"\nchallenges = {challenges}\n\
             [redis]\nurl = \"redis://{redis}\"\ninstance = \"{name}\"\nsecret_file = \"DIR/shared.secret\"\n",
            names.join(", ")
        );
        Ok(Self { proxy: scene.proxy(&format!("shared-{name}"), authority, &file)? })
    }

    fn until(
        &self,
        scene: &AcmeScene<'_>,
        what: &str,
        is_so: impl Fn(&[Value]) -> bool,
    ) -> Result<(), String> {
        scene.until(&self.proxy, what, is_so).map(drop)
    }

    fn serial(&self, scene: &AcmeScene<'_>, name: &str) -> Result<String, String> {
        let all = scene.certificates(&self.proxy.1)?;
        let is_its =
            |one: &&Value| one["names"].as_array().is_some_and(|names| names.iter().any(|its| its == name));
        all.iter()
            .find(is_its)
            .map(|one| text(one, "serial").to_owned())
            .ok_or(format!("no certificate of {name}"))
    }

    fn until_other(&self, scene: &AcmeScene<'_>, name: &str, before: &str) -> Result<String, String> {
        let began = Instant::now();
        loop {
            let serial = self.serial(scene, name)?;
            if serial != before {
                return Ok(serial);
            }
            if began.elapsed() > LIMIT.min(Duration::from_secs(60)) {
                return Err(format!("{name} is still {before}; it said:\n{}", self.proxy.0.said()));
            }
            thread::sleep(BETWEEN_LOOKS);
        }
    }
}
