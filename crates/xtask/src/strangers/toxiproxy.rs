//! Chaos proxy with Toxiproxy's own clients: its command line, and its libraries for Go, Node.js and Python.
//!
//! The tests of the libraries are in their languages in `strangers/toxiproxy`; the test of the command line is here.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::process::Process;
use super::programs::{self, MODULE, NODE, run};
use super::subject;
use crate::say;
use crate::scratch::Scratch;
use crate::workspace::Workspace;

const COMMAND_LINE: &str = "github.com/Shopify/toxiproxy/v2/cmd/cli";
const GO_CLIENT: &str = "vanward/strangers/toxiproxy";
const NODE_CLIENT: &str = "toxiproxy-node-client@4.1.0";
/// Python client with its dependencies, in matching versions.
const PYTHON_CLIENT: &[&str] = &["toxiproxy-python==0.1.1", "future==1.0.0", "requests==2.32.3"];
/// Timeout of a client: it takes a second or two, or longer on a busy machine.
const CLIENT_LIMIT: Duration = Duration::from_secs(60);

pub(super) fn check(workspace: &Workspace, scratch: &Scratch) -> Result<(), String> {
    let [command_line, go_client] = programs::build(workspace, [COMMAND_LINE, GO_CLIENT])?;
    let folder = scratch.path();
    let node_client = programs::from_npm(workspace, &[NODE_CLIENT], folder)?;
    let python = programs::from_pip(workspace, "toxiproxy-python", PYTHON_CLIENT, folder)?;
    let vanward = programs::build_vanward(workspace)?;
    let (_origin, server) = subject::origin(&vanward, folder)?;
    let mut chaos = Command::new(&vanward);
    chaos.args(["chaos", "--listen", "127.0.0.1:0"]);
    let mut chaos = Process::start("chaos", &mut chaos, folder)?;
    let api = chaos.addresses()?.into_iter().next().ok_or("the chaos proxy listens nowhere")?;
    let (url, server) = (format!("http://{api}"), server.to_string());
    let scripts = workspace.root.join(MODULE).join("toxiproxy");

    let mut go = Command::new(go_client);
    go.args([&url, &server]);
    let mut node = Command::new(NODE.find()?);
    node.arg(scripts.join("client.mjs")).arg(node_client).args([&url, &server]);
    let mut by_python = Command::new(python);
    by_python.arg(scripts.join("client.py")).args([&api.ip().to_string(), &api.port().to_string(), &server]);
    for (name, client) in [("Go", &mut go), ("Node.js", &mut node), ("Python", &mut by_python)] {
        run(name, client, folder, CLIENT_LIMIT)?;
        say(format_args!("the client for {name}: as its README says"));
    }
    let count = by_command_line(&command_line, api, &server, folder)?;
    say(format_args!("the command line: {count} commands, each as it should"));
    Ok(())
}

/// Runs commands of the command line, and checks their output. A failed command exits with 1.
fn by_command_line(program: &Path, api: SocketAddr, server: &str, folder: &Path) -> Result<usize, String> {
    let create = format!("create --listen 127.0.0.1:0 --upstream {server} cli");
    let commands = [
        (create.as_str(), Ok("Created new proxy cli")),
        (&create, Err("proxy already exists")),
        (
            "toxic add -t latency -n late -tox 0.5 -a latency=100 -a jitter=50 cli",
            Ok("downstream latency toxic 'late'"),
        ),
        ("toxic add -t bandwidth -u -a rate=100 cli", Ok("upstream bandwidth toxic 'bandwidth_upstream'")),
        ("toxic add -t noise cli", Err("invalid toxic type")),
        ("toxic update -n late -a jitter=25 cli", Ok("Updated toxic 'late'")),
        (
            "inspect cli",
            Ok(
                "late\ttype=latency\tstream=downstream\ttoxicity=1.00\tattributes=[\tjitter=25\tlatency=100\t]",
            ),
        ),
        ("toxic remove -n late cli", Ok("Removed toxic 'late'")),
        ("toxic remove -n late cli", Err("toxic not found")),
        ("list", Ok("enabled\t1")),
        ("toggle cli", Ok("Proxy cli is now disabled")),
        ("list", Ok("disabled\t1")),
        ("delete cli", Ok("Deleted proxy cli")),
        ("inspect cli", Err("proxy not found")),
    ];
    for (index, (words, expected)) in commands.iter().enumerate() {
        let mut command = Command::new(program);
        command.arg("--host").arg(format!("http://{api}")).args(words.split(' '));
        let (status, said) =
            Process::start(&format!("cli-{index}"), &mut command, folder)?.finish(CLIENT_LIMIT)?;
        let (Ok(text) | Err(text)) = expected;
        if status.success() != expected.is_ok() || !said.contains(text) {
            return Err(format!("`toxiproxy-cli {words}` was to say {text:?}: {status}, it said:\n{said}"));
        }
    }
    Ok(commands.len())
}
