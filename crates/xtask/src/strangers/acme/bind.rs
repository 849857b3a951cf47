//! Proofs by dynamic updates (RFC 2136) of BIND, which the authority queries: with the right key, and with mistakes.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use serde_json::Value;

use super::super::named;
use super::super::process::{Process, free_address};
use super::super::programs::DIG;
use super::scene::{AcmeScene, AcmeServer, Temper, are_all_issued, renewal};
use crate::say;
use crate::workspace::text;

const SECRET: &str = "bWFueSB3b3JkcywgYnV0IG5vIHJhbmRvbSBvbmVzISE=";
const OTHER_SECRET: &str = "b3RoZXIgd29yZHMsIGJ1dCBubyByYW5kb20gb25lcyE=";
const CHALLENGE: &str = "_acme-challenge.bind.example";

/// A key that may change the records of challenges, one that may change nothing, and two zones.
const CONFIG: &str = "\
options {
    directory \"DIR\"; pid-file none; listen-on port PORT { ADDRESS; }; listen-on-v6 { none; };
    recursion no; dnssec-validation no; notify no;
};
controls { };
key \"acme-key\" { algorithm hmac-sha256; secret \"SECRET\"; };
key \"idle-key\" { algorithm hmac-sha256; secret \"SECRET\"; };
zone \"bind.example\" {
    type primary; file \"bind.zone\"; update-policy { grant acme-key name _acme-challenge.bind.example TXT; };
};
zone \"else.example\" { type primary; file \"else.zone\"; allow-update { key acme-key; }; };
";
const ZONE: &str = "\
$TTL 60
@ IN SOA ns.invalid. admin.invalid. 1 3600 600 86400 60
@ IN NS ns.invalid.
@ IN A 127.0.0.1
";

/// Mistakes, and the expected reasons.
const WRONG: [(&str, &str); 7] = [
    ("key_name = \"acme-key\", key_file = \"DIR/other.key\"", "the secret differs from the server's"),
    ("key_name = \"no-key\", key_file = \"DIR/tsig.key\"", "the server does not have this key"),
    (
        "key_name = \"acme-key\", key_file = \"DIR/tsig.key\", algorithm = \"hmac-sha512\"",
        "the server does not have this key",
    ),
    ("key_name = \"idle-key\", key_file = \"DIR/tsig.key\"", "REFUSED: permit this key"),
    ("wait = \"0s\"", "REFUSED: permit this key"),
    (
        "key_name = \"acme-key\", key_file = \"DIR/tsig.key\", zone = \"else.example\"",
        "zone else.example: NOTZONE: the record is outside of this zone",
    ),
    (
        "key_name = \"acme-key\", key_file = \"DIR/tsig.key\", zone = \"nowhere.example\"",
        "zone nowhere.example: NOTAUTH: the server is not the primary of this zone",
    ),
];

pub(super) fn by_updates(scene: &AcmeScene<'_>) -> Result<(), String> {
    let address = free_address()?;
    let named = start(scene, address)?;
    let authority = scene.authority("bind-authority", &Temper { dns: Some(address), ..Temper::default() })?;
    let right = "key_name = \"acme-key.\", key_file = \"DIR/tsig.key\", wait = \"0s\"";
    let proxy = scene.proxy("bind-proxy", &authority, &file(address, "bind-acme", right))?;
    scene.until(&proxy, "a wildcard and its domain, by dynamic updates", are_all_issued)?;
    for name in ["any.bind.example", "bind.example"] {
        scene.page(name, authority.tls, &scene.root(&authority)?)?;
    }
    let changes = |what: &str| named.said().matches(&format!("{what} at '{CHALLENGE}' TXT")).count();
    let (added, left) = (changes("adding an RR"), records(address)?);
    if added < 2 || !left.is_empty() {
        return Err(format!("{added} records were added; left are {left:?}; named said:\n{}", named.said()));
    }
    drop(proxy);
    say("DNS-01 by updates of BIND: a wildcard and its domain at once; the records are removed");
    for (index, (wrong, expected)) in WRONG.into_iter().enumerate() {
        refused(
            scene,
            &authority,
            (&format!("bind-wrong-{index}"), &file(address, "bind-wrong", wrong)),
            expected,
        )?;
    }
    say(format_args!("{} mistakes with keys and zones: each reason has what to do", WRONG.len()));
    Ok(())
}

fn refused(
    scene: &AcmeScene<'_>,
    authority: &AcmeServer,
    (name, file): (&str, &str),
    expected: &str,
) -> Result<(), String> {
    let proxy = scene.proxy(name, authority, file)?;
    let all = scene.until(&proxy, "a failure", |all: &[Value]| renewal(all)["failures"] == 1)?;
    let why = text(renewal(&all), "last_failure");
    if why.contains(expected) {
        Ok(())
    } else {
        Err(format!("{expected:?} is not in the reason: {why}\n{file}"))
    }
}

fn file(server: SocketAddr, folder: &str, dns: &str) -> String {
    format!(
        "[[listen]]\naddress = \"TLS\"\ntls = {{ certificates = \"auto\" }}\n\
         [[route]]\nhost = [\"*.bind.example\", \"bind.example\"]\nupstream = \"app\"\n\
         [upstream.app]\nservers = [\"http://SERVER\"]\n\
         [acme]\ndirectory = \"DIRECTORY\"\nca = \"CA\"\nfolder = \"DIR/{folder}\"\n\
         dns = {{ server = \"{server}\", {dns} }}\n"
    )
}

fn start(scene: &AcmeScene<'_>, address: SocketAddr) -> Result<Process, String> {
    let put = |name: &str, text: &str| {
        let file = scene.folder.join(name);
        fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))
    };
    put("tsig.key", SECRET)?;
    put("other.key", OTHER_SECRET)?;
    let config = CONFIG.replace("SECRET", SECRET);
    named::start(scene.folder, address, &config, &[("bind.zone", ZONE), ("else.zone", ZONE)])
}

fn records(server: SocketAddr) -> Result<Vec<String>, String> {
    let mut command = Command::new(DIG.find()?);
    command.args(["@127.0.0.1", "-p", &server.port().to_string(), "+noall", "+answer", CHALLENGE, "TXT"]);
    let output = command.output().map_err(|error| format!("dig cannot be run: {error}"))?;
    if !output.status.success() {
        return Err(format!("dig: {}", String::from_utf8_lossy(&output.stdout)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}
