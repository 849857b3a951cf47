//! Processes that share a folder.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Instant;

use serde_json::Value;

use super::scene::{AcmeScene, BETWEEN_LOOKS, LIMIT, Temper, are_all_issued, renewal};
use crate::say;
use crate::workspace::text;

const HUNDRED: usize = 100;

/// A hundred names, ordered by two processes with one folder: each is issued once.
pub(super) fn a_hundred_names(scene: &AcmeScene<'_>) -> Result<(), String> {
    let authority = scene.authority("hundred", &Temper::default())?;
    let names: Vec<String> = (0..HUNDRED).map(|index| format!("\"n{index}.example\"")).collect();
    let file = |address: &str| {
        format!(
            "[[listen]]\naddress = \"{address}\"\ntls = {{ certificates = \"auto\", names = [{}] }}\n\
             [[route]]\nupstream = \"app\"\n[upstream.app]\nservers = [\"http://SERVER\"]\n\
             [acme]\ndirectory = \"DIRECTORY\"\nca = \"CA\"\nfolder = \"DIR/hundred-acme\"\n\
             challenges = [\"tls-alpn-01\"]\n",
            names.join(", ")
        )
    };
    let began = Instant::now();
    let one = scene.proxy("one", &authority, &file("TLS"))?;
    // The authority does not reach this process, so its own orders would fail.
    let other = scene.proxy("other", &authority, &file("127.0.0.1:0"))?;
    let mut serials = Vec::new();
    for proxy in [&one, &other] {
        let certificates = scene.until(proxy, "a hundred certificates", are_all_issued)?;
        serials.push(certificates.iter().map(|each| text(each, "serial").to_owned()).collect::<Vec<_>>());
    }
    if serials[0] != serials[1] || serials[0].len() != HUNDRED {
        return Err("the processes do not have the same hundred certificates".to_owned());
    }
    say(format_args!(
        "{HUNDRED} names, two processes with one folder: {:.1} s",
        began.elapsed().as_secs_f64()
    ));
    Ok(())
}

/// A process is killed during an order. A waiting one continues, whatever the first one has left in the folder.
pub(super) fn one_is_killed(scene: &AcmeScene<'_>) -> Result<(), String> {
    let authority = scene.authority("killed-authority", &Temper::default())?;
    let began = scene.folder.join("killed-began");
    // It prepares a proof until the process is killed.
    let hook = format!("touch {}; while kill -0 $PPID; do sleep 0.1; done", began.display());
    put(&scene.folder.join("killed-hook"), &hook)?;
    // Files left by a process on another host that was killed while writing.
    let folder = scene.folder.join("killed-acme");
    for (place, file) in [("_locks", "k.example"), ("_new_k.example", "privkey.pem")] {
        let place = folder.join(place);
        fs::create_dir_all(&place).map_err(|error| format!("{}: {error}", place.display()))?;
        put(&place.join(file), "of another host")?;
    }
    let file = |address: &str, acme: &str| {
        format!(
            "[[listen]]\naddress = \"{address}\"\ntls = {{ certificates = \"auto\", names = [\"k.example\"] }}\n\
             [[route]]\nupstream = \"app\"\n[upstream.app]\nservers = [\"http://SERVER\"]\n\
             [acme]\ndirectory = \"DIRECTORY\"\nca = \"CA\"\nfolder = \"DIR/killed-acme\"\n{acme}\n"
        )
    };
    let holds = "dns = { command = [\"sh\", \"DIR/killed-hook\"], wait = \"0s\" }";
    let killed = scene.proxy("killed", &authority, &file("127.0.0.1:0", holds))?;
    let since = Instant::now();
    while !began.exists() {
        if since.elapsed() > LIMIT {
            return Err(format!("it asked for nothing; it said:\n{}", killed.0.said()));
        }
        thread::sleep(BETWEEN_LOOKS);
    }
    let other = scene.proxy("waits", &authority, &file("TLS", "challenges = [\"tls-alpn-01\"]"))?;
    let waits = |all: &[Value]| renewal(all)["elsewhere"] == true;
    scene.until(&other, "another process asks for it", waits)?;
    drop(killed);
    scene.until(&other, "a certificate, after the other process was killed", are_all_issued)?;
    say("a process killed while it asked for a certificate: another one with the same folder got it");
    Ok(())
}

fn put(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}
