//! Renewals: under load, as suggested by the authority, and with an authority without suggestions.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::super::process::{Process, free_address};
use super::super::programs::OPENSSL;
use super::scene::{AcmeScene, AcmeServer, LIMIT, Temper, are_all_issued, renewal, serial};
use crate::say;

const NAME: &str = "renewed.example";
/// Total requests per second. The loads share it by kind of connection.
const RATE: u32 = 500;
const LOADS: [(&str, u32, &[&str]); 3] = [
    ("kept", 300, &[]),
    ("new", 100, &["--no-keepalive", "--no-resume"]),
    ("resumed", 100, &["--no-keepalive"]),
];
const LOAD_SECONDS: u32 = 8;
/// Fewer renewals during the load prove little.
const RENEWALS_MIN: usize = 3;

fn file(folder: &str) -> String {
    format!(
        "[[listen]]\naddress = \"TLS\"\ntls = {{ certificates = \"auto\" }}\n\
         [[route]]\nhost = \"{NAME}\"\nupstream = \"app\"\n[upstream.app]\nservers = [\"http://SERVER\"]\n\
         [acme]\ndirectory = \"DIRECTORY\"\nca = \"CA\"\nfolder = \"DIR/{folder}\"\n"
    )
}

/// A constant rate of requests during renewals: none fails, and handshakes after a renewal get the new certificate.
pub(super) fn under_load(scene: &AcmeScene<'_>) -> Result<(), String> {
    let authority = scene.authority("load-authority", &Temper::default())?;
    let proxy = scene.proxy("load-proxy", &authority, &file("load-acme"))?;
    let root = scene.root(&authority)?;
    let mut before = serial(&scene.until(&proxy, "a certificate", are_all_issued)?);
    let loads = LOADS.map(|(name, rate, flags)| load(scene, (name, rate, flags), authority.tls, &root));
    let mut loads = loads.into_iter().collect::<Result<Vec<_>, String>>()?;
    let mut renewals = 0;
    while loads.iter_mut().all(Process::is_running) {
        scene.renew(NAME, &proxy.1)?;
        let renewed = |all: &[Value]| serial(all) != before && are_all_issued(all);
        let after = serial(&scene.until(&proxy, "a renewed certificate", renewed)?);
        let shown = shown(scene, authority.tls)?;
        if shown.trim_start_matches('0') != after.trim_start_matches('0') {
            return Err(format!("a new handshake gets {shown}, but {after} took the place of {before}"));
        }
        before = after;
        renewals += 1;
    }
    let mut requests = 0;
    for (load, (name, rate, _)) in loads.into_iter().zip(LOADS) {
        // Its exit status and its last line tell whether the machine was fast enough, which is not tested here.
        let (_, said) = load.finish(LIMIT)?;
        let outcome: Option<Value> = said.lines().find_map(|line| serde_json::from_str(line).ok());
        let outcome = outcome
            .ok_or_else(|| format!("the load over {name} connections has no figures; it said:\n{said}"))?;
        let (answered, examples) = (outcome["requests"].as_u64().unwrap_or(0), &outcome["error_examples"]);
        let is_lossless = examples.as_object().is_some_and(serde_json::Map::is_empty);
        if !is_lossless || answered * 10 < u64::from(rate * LOAD_SECONDS * 9) {
            return Err(format!("{name} connections: {answered} answers at {rate}/s, failed: {examples}"));
        }
        requests += answered;
    }
    if renewals < RENEWALS_MIN {
        return Err(format!("only {renewals} renewals within {LOAD_SECONDS} s"));
    }
    say(format_args!(
        "{renewals} renewals under {RATE} requests/s, over kept connections, full and resumed handshakes: {requests} answered, \
         none failed"
    ));
    Ok(())
}

fn load(
    scene: &AcmeScene<'_>,
    (name, rate, flags): (&str, u32, &[&str]),
    address: SocketAddr,
    root: &Path,
) -> Result<Process, String> {
    let port = address.port();
    let mut command = Command::new(&scene.vanward);
    command.args(["load", "--quiet", "--json", "-c", "16", "-R", &rate.to_string()]);
    command.args([
        "-d",
        &format!("{LOAD_SECONDS}s"),
        "--resolve",
        &format!("{NAME}:{port}:127.0.0.1"),
        "--ca",
    ]);
    command.arg(root).args(flags).arg(format!("https://{NAME}:{port}/tiny"));
    Process::start(&format!("load-{name}"), &mut command, scene.folder)
}

/// The serial number of the certificate on a new connection, from OpenSSL.
fn shown(scene: &AcmeScene<'_>, address: SocketAddr) -> Result<String, String> {
    let openssl = |words: &[&str]| {
        let output = Command::new(OPENSSL.find()?).args(words).stdin(Stdio::null()).output();
        let output = output.map_err(|error| format!("openssl {words:?} cannot be run: {error}"))?;
        Ok::<_, String>(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let file = scene.folder.join("shown.pem");
    let said = openssl(&["s_client", "-connect", &address.to_string(), "-servername", NAME])?;
    fs::write(&file, &said).map_err(|error| format!("{}: {error}", file.display()))?;
    let serial = openssl(&["x509", "-in", &file.display().to_string(), "-noout", "-serial"])?;
    let serial = serial.trim().strip_prefix("serial=");
    Ok(serial.ok_or_else(|| format!("openssl sees no certificate:\n{said}"))?.to_ascii_lowercase())
}

/// The authority suggests a window, which operators see; then one in the past, which triggers a renewal at once.
pub(super) fn as_suggested(scene: &AcmeScene<'_>) -> Result<(), String> {
    let authority = scene.authority("ari-authority", &Temper::default())?;
    let file = file("ari-acme");
    let proxy = scene.proxy("ari-first", &authority, &file)?;
    scene.until(&proxy, "a certificate", are_all_issued)?;
    drop(proxy);
    let now = now();
    let (start, end) = (now + 2 * DAY, now + 3 * DAY);
    suggest(scene, &authority, (start, end))?;
    let proxy = scene.proxy("ari-later", &authority, &file)?;
    let suggested = |all: &[Value]| renewal(all)["suggested"]["from_seconds"] == start;
    let all = scene.until(&proxy, "the window of the authority", suggested)?;
    let renewal = renewal(&all);
    let next = renewal["next_seconds"].as_i64().unwrap_or(0);
    if !(start..end).contains(&next) || renewal["suggested"]["why"] != WHY {
        return Err(format!("the renewal is not within the window {start} to {end}: {renewal}"));
    }
    let told = scene.run_vanward(&["certificates"], &proxy.1)?;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    if !told.contains("suggested by the authority") || !told.contains(WHY) {
        return Err(format!("`vanward certificates` does not show the window:\n{told}"));
    }
    drop(proxy);

    suggest(scene, &authority, (now - DAY, now - DAY + 60))?;
    let before = serial(&all);
    let proxy = scene.proxy("ari-at-once", &authority, &file)?;
    scene.until(&proxy, "a certificate before its time", |all| serial(all) != before)?;
    // RFC 9773 §5: the order names the replaced certificate.
    if !authority.process.said().contains("is a replacement of") {
        return Err("the authority was not told which certificate is replaced".to_owned());
    }
    say(
        "ARI: the renewal is in the window of the authority, at once if that is past, and names what it replaces",
    );
    Ok(())
}

const DAY: i64 = 24 * 3600;
const WHY: &str = "https://example.com/why";

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// Sets the authority's suggested window for the certificate in the folder.
fn suggest(scene: &AcmeScene<'_>, authority: &AcmeServer, (start, end): (i64, i64)) -> Result<(), String> {
    let chain = scene.folder.join("ari-acme").join(NAME).join("fullchain.pem");
    let chain = fs::read_to_string(&chain).map_err(|error| format!("{}: {error}", chain.display()))?;
    let window = json!({ "start": written(start)?, "end": written(end)? });
    let answer = json!({ "suggestedWindow": window, "explanationURL": WHY }).to_string();
    let wanted = json!({ "Certificate": chain, "ARIResponse": answer }).to_string();
    let url = format!("https://{}/set-renewal-info/", authority.management);
    scene.curl(&["--insecure", "--fail", "--data", &wanted, &url])?;
    Ok(())
}

/// Formats a time as in RFC 3339.
fn written(seconds: i64) -> Result<String, String> {
    let date = Command::new("date").args(["-u", &format!("-d@{seconds}"), "+%Y-%m-%dT%H:%M:%SZ"]).output();
    let date = date.map_err(|error| format!("date cannot be run: {error}"))?;
    Ok(String::from_utf8_lossy(&date.stdout).trim().to_owned())
}

/// An authority without renewal information, as most private ones.
pub(super) fn without_suggestions(scene: &AcmeScene<'_>) -> Result<(), String> {
    let authority = scene.authority("plain-authority", &Temper::default())?;
    let directory = scene.curl(&["--insecure", &authority.directory])?;
    let mut directory: Value = serde_json::from_str(&directory).map_err(|error| error.to_string())?;
    directory.as_object_mut().and_then(|fields| fields.remove("renewalInfo"));
    // A web server for the changed directory; all other URLs lead to the authority itself.
    let folder = scene.folder.join("plain-directory");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    fs::write(folder.join("dir"), directory.to_string()).map_err(|error| error.to_string())?;
    let front = free_address()?;
    let served = format!(
        "[[listen]]\naddress = \"{front}\"\ntls = {{ cert = \"DIR/server.pem\", key = \"DIR/server.key\" }}\n\
         [[route]]\nfiles = {{ root = \"DIR/plain-directory\" }}\n"
    );
    let _front = scene.proxy("plain-front", &authority, &served)?;
    let file = file("plain-acme").replace("DIRECTORY", &format!("https://localhost:{}/dir", front.port()));
    let proxy = scene.proxy("plain-proxy", &authority, &file)?;
    let before = serial(&scene.until(&proxy, "a certificate", are_all_issued)?);
    scene.renew(NAME, &proxy.1)?;
    scene.until(&proxy, "a renewed certificate", |all| serial(all) != before && are_all_issued(all))?;
    say("an authority without ARI: a certificate, and its renewal");
    Ok(())
}
