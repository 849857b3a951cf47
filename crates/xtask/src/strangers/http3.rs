//! HTTP/3 with other implementations: aioquic (Python) and quic-go (Go), each as client and server, and Chromium,
//! which follows Alt-Svc. They run with the proxy, the origin and the load generator. The cases are in
//! `strangers/http3` and `strangers/quic`. Servers behind the proxy are in `http3_servers`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::http3_servers;
use super::process::Process;
use super::programs::{self, CHROMIUM, MODULE, NODE, run};
use super::subject;
use super::{dashboard, paced};
use crate::say;
use crate::scratch::Scratch;
use crate::workspace::Workspace;

pub(super) const NEEDED: [programs::Needed; 8] = [
    programs::PYTHON,
    programs::OPENSSL,
    programs::GO,
    NODE,
    programs::NPM,
    CHROMIUM,
    programs::CADDY,
    programs::NGINX,
];
const PACKAGE: &str = "aioquic==1.7.2";
/// Timeout of all cases: they take a few seconds, or longer on a busy machine.
const CLIENT_LIMIT: Duration = Duration::from_secs(120);
/// Seconds and rounds of the comparison between the load generator and quic-go's client.
const PACED: (u64, usize) = (1, 3);

pub(super) fn check(workspace: &Workspace, scratch: &Scratch) -> Result<(), String> {
    let folder = scratch.path();
    let python = programs::from_pip(workspace, "aioquic", &[PACKAGE], folder)?;
    let [go] = programs::build_quic(workspace)?;
    let driver = programs::from_npm(workspace, &dashboard::PACKAGES, folder)?;
    let vanward = programs::build_vanward(workspace)?;
    let pair = subject::PairFiles::make(folder)?;
    let (_origin, server) = subject::origin(&vanward, folder)?;
    let (file, log) = (folder.join("vanward.toml"), folder.join("access.log"));
    let subject::PairFiles { cert, key } = &pair;
    let text = format!(
        // A single worker gets all clients of the flood.
        "workers = 1\n[[listen]]\naddress = \"127.0.0.1:0\"\ntls = {{ cert = {cert:?}, key = {key:?} }}\nhttp3 = true\n\n\
         [[route]]\nupstream = \"app\"\n\n[upstream.app]\nservers = [\"http://{server}\"]\n\n[log]\ntarget = {log:?}\n"
    );
    subject::write(&file, &text)?;
    let mut command = Command::new(&vanward);
    command.arg("run").arg("--config").arg(&file);
    let mut proxy = Process::start("vanward", &mut command, folder)?;
    let address = proxy.addresses()?.into_iter().next().ok_or("vanward listens nowhere")?;
    let port = address.port().to_string();

    let mut chromium = Command::new(NODE.find()?);
    chromium.arg(workspace.root.join(MODULE).join("http3/chromium.mjs"));
    run("chromium", chromium.arg(driver).arg(CHROMIUM.find()?).arg(&port).arg(cert), folder, CLIENT_LIMIT)?;
    say("Chromium: from HTTP/2 by Alt-Svc, 150 requests at once, a long download and an upload");
    run("quic-go", Command::new(&go).arg("client").arg(address.to_string()), folder, CLIENT_LIMIT)?;
    say("quic-go: pages, uploads, downloads, cancelled requests, early data and a client that moves");
    let mut hostile = Command::new(&python);
    hostile.arg(workspace.root.join(MODULE).join("http3/hostile.py")).arg(address.ip().to_string());
    run("hostile", hostile.arg(&port).arg(proxy.id().to_string()).arg(&log), folder, CLIENT_LIMIT)?;
    say(
        "aioquic, hostile: challenges, IDs, limits, padding, streams and bytes beyond what is permitted are bounded",
    );
    let mut client = Command::new(&python);
    client.arg(workspace.root.join(MODULE).join("http3/client.py")).args([&address.ip().to_string(), &port]);
    run("aioquic", &mut client, folder, CLIENT_LIMIT)?;
    say("aioquic: pages, uploads, downloads, keys, versions, sessions and Retry, each as it should be");
    drop(proxy);
    let programs = Programs { vanward, python, go };
    let Programs { vanward, python, go } = &programs;
    http3_servers::check(workspace, &http3_servers::Programs { vanward, python, go }, folder)?;
    lab(workspace, &programs, &pair, folder)
}

struct Programs {
    vanward: PathBuf,
    python: PathBuf,
    go: PathBuf,
}

/// Runs the origin with other clients, and the generator with other servers.
fn lab(
    workspace: &Workspace,
    programs: &Programs,
    subject::PairFiles { cert, key }: &subject::PairFiles,
    folder: &Path,
) -> Result<(), String> {
    let Programs { vanward, python, go } = programs;
    let mut command = Command::new(vanward);
    command.args(["origin", "--listen", "127.0.0.1:0", "--self-signed", "--h3"]);
    let mut origin = Process::start("origin-h3", &mut command, folder)?;
    let address = origin.addresses()?.into_iter().next().ok_or("the origin listens nowhere")?;
    let scripts = workspace.root.join(MODULE).join("http3");
    let mut aioquic = Command::new(python);
    aioquic.arg(scripts.join("client.py")).arg(address.ip().to_string()).arg(address.port().to_string());
    run("aioquic-origin", aioquic.arg("origin"), folder, CLIENT_LIMIT)?;
    let mut client = Command::new(go);
    client.arg("client").arg(address.to_string()).arg("origin");
    run("quic-go-origin", &mut client, folder, CLIENT_LIMIT)?;
    say("aioquic and quic-go: the same of the origin, without long downloads, moves and Retry");
    let mut aioquic = Command::new(python);
    aioquic.arg(scripts.join("server.py"));
    run("aioquic-server", aioquic.arg(vanward).arg(cert).arg(key), folder, CLIENT_LIMIT)?;
    let mut server = Command::new(go);
    run("quic-go-server", server.arg("server").arg(vanward).arg(cert).arg(key), folder, CLIENT_LIMIT)?;
    say(
        "aioquic and quic-go: their servers and `vanward load --h3` count the same requests, bytes, handshakes and resets",
    );
    paced::check(vanward, go, PACED, folder)
}
