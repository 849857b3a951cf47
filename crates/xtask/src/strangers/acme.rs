//! Automatic certificates from Pebble, a test authority, viewed with the proxy's command line and curl. Checked are
//! all challenges, renewal, revocation, rejected nonces, an unreachable authority, and a hundred names. Processes
//! share a folder, and instances share Redis.

/// The authority, proxies, and access to certificates.
mod scene;
/// Renewals: under load, when the authority suggests, without suggestions.
mod renewals;
/// Proofs by DNS records: by a command, and a permanent one.
mod dns;
/// Proofs by dynamic updates of BIND.
mod bind;
/// Processes that share a folder.
mod several;
/// Instances that share certificates through Redis.
mod redis;

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::process::{Process, free_address};
use super::programs;
use super::subject;
use crate::say;
use crate::scratch::Scratch;
use crate::workspace::{Workspace, text};
use scene::{AcmeScene, BETWEEN_LOOKS, LIMIT, Temper, are_all_issued, serial};

/// Maximum time until the first certificate, without any setup.
const FIRST_LIMIT: Duration = Duration::from_secs(10);

pub(super) fn check(workspace: &Workspace, scratch: &Scratch) -> Result<(), String> {
    let [pebble, dns] = programs::build_authority(workspace)?;
    let vanward = programs::build_vanward(workspace)?;
    let folder = scratch.path();
    let (_origin, server) = subject::origin(&vanward, folder)?;
    let scene = AcmeScene::new(pebble, dns, vanward, folder, server)?;
    from_a_bare_machine(&scene)?;
    by_files_renewed_and_revoked(&scene)?;
    dns::by_command_and_standing(&scene)?;
    bind::by_updates(&scene)?;
    with_an_external_account(&scene)?;
    renewals::under_load(&scene)?;
    renewals::as_suggested(&scene)?;
    renewals::without_suggestions(&scene)?;
    redis::instances(&scene)?;
    several::one_is_killed(&scene)?;
    several::a_hundred_names(&scene)
}

fn from_a_bare_machine(scene: &AcmeScene<'_>) -> Result<(), String> {
    let authority = scene.authority("bare", &Temper::default())?;
    let root = scene.root(&authority)?;
    let began = Instant::now();
    let mut command = Command::new(&scene.vanward);
    command.args(["proxy", "--from", &authority.tls.to_string(), "--domain", "www.example.com"]);
    command.args(["--to", &format!("http://{}", scene.server), "--acme-directory", &authority.directory]);
    command.arg("--acme-ca").arg(scene.folder.join("server.pem"));
    command.arg("--acme-folder").arg(scene.folder.join("bare-acme"));
    let proxy = Process::start("bare-proxy", &mut command, scene.folder)?.listening_on(authority.tls)?;
    loop {
        match scene.page("www.example.com", authority.tls, &root) {
            Ok(status) if status == "200" => break,
            Ok(status) => return Err(format!("the page has status {status}")),
            Err(error) if began.elapsed() > FIRST_LIMIT => {
                return Err(format!("no page within {FIRST_LIMIT:?}: {error}\nit said:\n{}", proxy.said()));
            }
            Err(_) => thread::sleep(BETWEEN_LOOKS),
        }
    }
    say(format_args!(
        "one command: the page over HTTPS after {:.1} s, by TLS-ALPN-01",
        began.elapsed().as_secs_f64()
    ));
    Ok(())
}

const FILES: &str = "\
[[listen]]
address = \"TLS\"
tls = { certificates = \"auto\" }
[[listen]]
address = \"HTTP\"
redirect_to_https = true
[[route]]
host = [\"a.example\", \"b.example\", \"127.0.0.1\"]
upstream = \"app\"
[upstream.app]
servers = [\"http://SERVER\"]
[acme]
directory = \"DIRECTORY\"
ca = \"CA\"
folder = \"DIR/files-acme\"
contact = \"ops@example.com\"
profile = \"shortlived\"
challenges = [\"http-01\"]
";

/// HTTP-01 for two hosts and an address, every third nonce rejected; renewal, revocation, an unreachable authority.
fn by_files_renewed_and_revoked(scene: &AcmeScene<'_>) -> Result<(), String> {
    let temper = Temper {
        environment: &[("PEBBLE_WFE_NONCEREJECT", "30"), ("PEBBLE_AUTHZREUSE", "0")],
        ..Temper::default()
    };
    let ports = [free_address()?, free_address()?, free_address()?, free_address()?];
    let authority = scene.authority_at("files", &temper, ports)?;
    let proxy = scene.proxy("files-proxy", &authority, FILES)?;
    let root = scene.root(&authority)?;
    let first = scene.until(&proxy, "three certificates by HTTP-01", are_all_issued)?;
    if first.len() != 3 || first.iter().any(|certificate| certificate["days_left"] != 5) {
        return Err(format!("not three of six days: {first:?}"));
    }
    for name in ["a.example", "b.example"] {
        scene.page(name, authority.tls, &root)?;
    }
    // Nearly every order meets a rejected nonce, which is no failure.
    let said = proxy.0.said();
    if said.contains("did not issue it") || !authority.process.said().contains("reject 30% of good nonces") {
        return Err(format!("refused nonces must not count as failures:\n{said}"));
    }
    say("HTTP-01 beside a redirect, with nonces refused: two hosts and an address, of six days");

    let renew = |words: &[&str]| {
        let before = serial(&scene.certificates(&proxy.1)?);
        let output = scene.run_vanward(words, &proxy.1)?;
        if !output.status.success() {
            return Err(format!("vanward {words:?}: {}", String::from_utf8_lossy(&output.stderr)));
        }
        let renewed = |certificates: &[Value]| serial(certificates) != before && are_all_issued(certificates);
        scene.until(&proxy, "a renewed certificate", renewed)?;
        Ok(before)
    };
    renew(&["certificates", "renew", "a.example"])?;
    scene.page("a.example", authority.tls, &root)?;
    let revoked = renew(&["certificates", "renew", "a.example", "--revoke"])?;
    let url = format!("https://{}/cert-status-by-serial/{revoked}", authority.management);
    let began = Instant::now();
    while !scene.curl(&["--insecure", &url])?.contains("Revoked") {
        if began.elapsed() > LIMIT {
            return Err(format!("{revoked} was not revoked; it said:\n{}", proxy.0.said()));
        }
        thread::sleep(BETWEEN_LOOKS);
    }
    scene.page("a.example", authority.tls, &root)?;
    say("renewed by command, and again with the old one revoked");

    // The authority is replaced by another one, which does not know the proxy's account.
    drop(authority);
    let before = serial(&scene.certificates(&proxy.1)?);
    scene.run_vanward(&["certificates", "renew", "a.example"], &proxy.1)?;
    let failed = |certificates: &[Value]| certificates[0]["renewal"]["failures"] == 1;
    let told = scene.until(&proxy, "a failure that is reported", failed)?;
    if serial(&told) != before || scene.run_vanward(&["certificates"], &proxy.1)?.status.success() {
        return Err(format!("a failure must change nothing and be reported: {told:?}"));
    }
    let authority = scene.authority_at("files-again", &Temper::default(), ports)?;
    renew(&["certificates", "renew", "a.example"])?;
    scene.page("a.example", authority.tls, &scene.root(&authority)?)?;
    say("an unreachable authority: the certificate stayed, and the next attempt succeeded");
    Ok(())
}

/// An authority that requires an external account.
fn with_an_external_account(scene: &AcmeScene<'_>) -> Result<(), String> {
    let authority = scene.authority("external", &Temper { needs_account: true, ..Temper::default() })?;
    let key = scene.folder.join("eab.key");
    fs::write(&key, "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W\n")
        .map_err(|error| format!("{}: {error}", key.display()))?;
    let file = |account: &str| {
        format!(
            "[[listen]]\naddress = \"TLS\"\ntls = {{ certificates = \"auto\", names = [\"e.example\"] }}\n\
             [[route]]\nupstream = \"app\"\n[upstream.app]\nservers = [\"http://SERVER\"]\n\
             [acme]\ndirectory = \"DIRECTORY\"\nca = \"CA\"\nfolder = \"DIR/external-acme\"\n{account}\n"
        )
    };
    let without = scene.proxy("without-account", &authority, &file(""))?;
    let told = scene.until(&without, "a failure", |all| all[0]["renewal"]["failures"] == 1)?;
    if !text(&told[0]["renewal"], "last_failure").contains("set external_account in [acme]") {
        return Err(format!("the reason has no remedy: {told:?}"));
    }
    drop(without);
    let account = "external_account = { id = \"kid-1\", key_file = \"DIR/eab.key\" }";
    let proxy = scene.proxy("with-account", &authority, &file(account))?;
    scene.until(&proxy, "a certificate", are_all_issued)?;
    say("an external account: without it the reason has the remedy, with it a certificate");
    Ok(())
}
