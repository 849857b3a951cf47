//! HTTP/3 with aioquic, a client and a server in Python: the proxy, the origin and the load generator. The cases are in its
//! language, in `strangers/http3`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::process::Process;
use super::programs::{self, MODULE, run};
use super::subject;
use crate::say;
use crate::scratch::Scratch;
use crate::workspace::Workspace;

const PACKAGE: &str = "aioquic==1.7.2";
/// Time for all cases: a few seconds, or longer on a busy machine.
const CLIENT_LIMIT: Duration = Duration::from_secs(120);

pub(super) fn check(workspace: &Workspace, scratch: &Scratch) -> Result<(), String> {
    let folder = scratch.path();
    let python = programs::from_pip(workspace, "aioquic", &[PACKAGE], folder)?;
    let vanward = programs::build_vanward(workspace)?;
    let (_origin, server) = subject::origin(&vanward, folder)?;
    let file = folder.join("vanward.toml");
    let text = format!(
        // One worker meets all clients of the flood.
        "workers = 1\n[[listen]]\naddress = \"127.0.0.1:0\"\ntls = {{ self_signed = true }}\nhttp3 = true\n\n\
         [[route]]\nupstream = \"app\"\n\n[upstream.app]\nservers = [\"http://{server}\"]\n"
    );
    subject::write(&file, &text)?;
    let mut command = Command::new(&vanward);
    command.arg("run").arg("--config").arg(&file);
    let mut proxy = Process::start("vanward", &mut command, folder)?;
    let address = proxy.addresses()?.into_iter().next().ok_or("vanward listens nowhere")?;
    let script = workspace.root.join(MODULE).join("http3/client.py");
    let mut client = Command::new(&python);
    client.arg(&script).args([&address.ip().to_string(), &address.port().to_string()]);
    run("aioquic", &mut client, folder, CLIENT_LIMIT)?;
    say(format_args!(
        "aioquic: pages, uploads, downloads, keys, versions, sessions and Retry, each as it should be"
    ));
    drop(proxy);
    lab(workspace, &python, &vanward, folder)
}

/// The origin with aioquic's client, and the generator with its server.
fn lab(workspace: &Workspace, python: &Path, vanward: &Path, folder: &Path) -> Result<(), String> {
    let mut command = Command::new(vanward);
    command.args(["origin", "--listen", "127.0.0.1:0", "--self-signed", "--h3"]);
    let mut origin = Process::start("origin-h3", &mut command, folder)?;
    let address = origin.addresses()?.into_iter().next().ok_or("the origin listens nowhere")?;
    let mut client = Command::new(python);
    client.arg(workspace.root.join(MODULE).join("http3/client.py"));
    client.args([&address.ip().to_string(), &address.port().to_string(), "origin"]);
    run("aioquic-origin", &mut client, folder, CLIENT_LIMIT)?;
    say(format_args!("aioquic: the same of the origin, without long downloads and Retry"));
    let subject::Pair { cert, key } = subject::Pair::make(folder)?;
    let mut server = Command::new(python);
    server.arg(workspace.root.join(MODULE).join("http3/server.py")).arg(vanward).arg(cert).arg(key);
    run("aioquic-server", &mut server, folder, CLIENT_LIMIT)?;
    say(format_args!(
        "aioquic: its server and `vanward load --h3` count the same requests, bytes, handshakes and resets"
    ));
    Ok(())
}
