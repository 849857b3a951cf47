//! Proofs by DNS: records by a command, and a permanent one.

use std::fs;

use serde_json::{Value, json};

use super::scene::{AcmeScene, Temper, are_all_issued};
use crate::say;

/// DNS-01 by a command for a wildcard, and a permanent record.
pub(super) fn by_command_and_standing(scene: &AcmeScene<'_>) -> Result<(), String> {
    let authority = scene.authority("dns-authority", &Temper::default())?;
    let hook = scene.folder.join("hook");
    let script = format!(
        "case $1 in\n\
         present) curl -sf -d '{{\"host\":\"'$2'.\",\"value\":\"'$ACME_VALUE'\"}}' http://{0}/set-txt ;;\n\
         cleanup) curl -sf -d '{{\"host\":\"'$2'.\"}}' http://{0}/clear-txt ;;\nesac\n",
        scene.dns_management
    );
    fs::write(&hook, script).map_err(|error| format!("{}: {error}", hook.display()))?;
    let file = |dns: &str| {
        format!(
            "[[listen]]\naddress = \"TLS\"\ntls = {{ certificates = \"auto\" }}\n\
             [[route]]\nhost = \"*.w.example\"\nupstream = \"app\"\n\
             [upstream.app]\nservers = [\"http://SERVER\"]\n\
             [acme]\ndirectory = \"DIRECTORY\"\nca = \"CA\"\nkey_type = \"rsa-2048\"\n{dns}\n"
        )
    };
    let root = scene.root(&authority)?;
    let command =
        file("folder = \"DIR/dns-acme\"\ndns = { command = [\"sh\", \"DIR/hook\"], wait = \"0s\" }");
    let proxy = scene.proxy("dns-proxy", &authority, &command)?;
    scene.until(&proxy, "a wildcard by DNS-01", are_all_issued)?;
    scene.page("any.w.example", authority.tls, &root)?;
    drop(proxy);
    say("DNS-01 by a command: a wildcard, with an RSA key");

    let persistent = file("folder = \"DIR/persist-acme\"\ndns = { persist = true }");
    let proxy = scene.proxy("persist-proxy", &authority, &persistent)?;
    let failed = |certificates: &[Value]| certificates[0]["renewal"]["failures"] == 1;
    scene.until(&proxy, "a failure, since the record is missing", failed)?;
    let said = proxy.0.said();
    let record = said.split_once("IN TXT \"").and_then(|(_, rest)| rest.split_once('"'));
    let (record, _) = record.ok_or_else(|| format!("the log does not say which record to make:\n{said}"))?;
    let wanted = json!({ "host": "_validation-persist.w.example.", "value": record }).to_string();
    scene.curl(&["--data", &wanted, &format!("http://{}/set-txt", scene.dns_management)])?;
    scene.run_vanward(&["certificates", "renew", "*.w.example"], &proxy.1)?;
    scene.until(&proxy, "a wildcard by DNS-PERSIST-01", are_all_issued)?;
    say("DNS-PERSIST-01: the record that the log names is the right one");
    Ok(())
}
