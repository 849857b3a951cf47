//! The dashboard in Chromium: axe-core checks every part with data, bright and dark, on desktop and phone. Further
//! checks: changes, explanations, reported faults, and attacks by other sites. The steps are in `strangers/dashboard`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::process::{Process, free_address};
use super::programs::{self, CHROMIUM, MODULE, NODE};
use super::subject;
use crate::say;
use crate::scratch::Scratch;
use crate::workspace::Workspace;

pub(super) const PACKAGES: [&str; 2] = ["puppeteer-core@24.43.1", "axe-core@4.14.1"];
const TOKEN: &str = "0123456789abcdef0123456789abcdef";
/// Timeout of all steps: they take twenty seconds, or longer on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);

pub(super) fn check(workspace: &Workspace, scratch: &Scratch, pictures: Option<&Path>) -> Result<(), String> {
    let folder = scratch.path();
    let libraries = programs::from_npm(workspace, &PACKAGES, folder)?;
    let vanward = programs::build_vanward(workspace)?;
    let proxy = DashboardProxy::start(&vanward, folder)?;
    let (_open, unguarded) = without_token(&vanward, folder)?;
    let mut node = Command::new(NODE.find()?);
    node.arg(workspace.root.join(MODULE).join("dashboard/drive.mjs")).arg(libraries).arg(CHROMIUM.find()?);
    node.args([&proxy.dashboard, &proxy.address])
        .arg(&proxy.token)
        .arg(pictures.unwrap_or(folder))
        .arg(unguarded);
    let (status, said) = Process::start("drive", &mut node, folder)?.finish(LIMIT)?;
    said.lines().for_each(say);
    if status.success() { Ok(()) } else { Err(format!("the dashboard: {status}")) }
}

fn without_token(vanward: &Path, folder: &Path) -> Result<(Process, String), String> {
    let (dashboard, file) = (free_address()?, folder.join("open.toml"));
    let text = format!(
        "dashboard = \"{dashboard}\"\ndashboard_write = true\n[[listen]]\naddress = \"127.0.0.1:0\"\n\
         [[route]]\nrespond = {{ status = 200 }}\n"
    );
    subject::write(&file, &text)?;
    let mut command = Command::new(vanward);
    command.arg("run").arg("--config").arg(&file);
    let process = Process::start("open", &mut command, folder)?.listening_on(dashboard)?;
    Ok((process, format!("http://{dashboard}")))
}

/// A proxy with data in each part of the page.
struct DashboardProxy {
    dashboard: String,
    address: String,
    token: PathBuf,
    _processes: [Process; 2],
}

impl DashboardProxy {
    fn start(vanward: &Path, folder: &Path) -> Result<Self, String> {
        let (origin, server) = subject::origin(vanward, folder)?;
        let (dashboard, gone) = (free_address()?, free_address()?);
        let (token, file) = (folder.join("token"), folder.join("shown.toml"));
        subject::write(&token, TOKEN)?;
        let (mut command, log) = on_small_disk(vanward, folder)?;
        let text = format!(
            "dashboard = \"{dashboard}\"\ndashboard_write = true\ndashboard_token_file = {token:?}\n\
             [cache]\nmemory = \"1MiB\"\n[limits]\nconnections = 300\n[log]\ntarget = {log:?}\n\
             [[listen]]\naddress = \"127.0.0.1:0\"\n\
             [[listen]]\naddress = \"127.0.0.1:0\"\ntls = {{ self_signed = true }}\n\
             [[route]]\nname = \"app\"\nupstream = \"app\"\nresponse_delay = \"1ms\"\n\
             request_headers = {{ set = {{ Authorization = \"Bearer very-secret\" }} }}\n\
             [[route]]\nname = \"cached\"\npath = \"/cached\"\nupstream = \"app\"\nrewrite = {{ path = \"/tiny\" }}\n\
             cache = {{ default_ttl = \"1m\" }}\n\
             [[route]]\nname = \"many\"\npath = \"/varnish\"\nupstream = \"app\"\ncache = {{}}\n\
             [[route]]\nname = \"limited\"\npath = \"/limited\"\nupstream = \"app\"\n\
             rate_limit = {{ rate = \"1/s\", key = \"client\" }}\n\
             [[route]]\nname = \"gone\"\npath = \"/gone\"\nupstream = \"gone\"\n\
             [[fault]]\ninject = \"503\"\npath = \"/never\"\n[[fault]]\ninject = \"delay 2s\"\npath = \"/slow\"\n\
             [upstream.app]\nservers = [\"http://{server}\"]\n[upstream.gone]\nservers = [\"http://{gone}\"]\n\
             check = {{ type = \"tcp\", interval = \"1s\", fall = 1 }}\n\
             [[route]]\nname = \"dead\"\npath = \"/dead\"\nupstream = \"dead\"\n\
             [upstream.dead]\nservers = [\"http://{gone}\"]\n\
             [[route]]\nname = \"late\"\npath = \"/delay\"\nupstream = \"late\"\n\
             [upstream.late]\nservers = [\"http://{server}\"]\n"
        );
        subject::write(&file, &text)?;
        command.arg("run").arg("--config").arg(&file);
        let mut process = Process::start("shown", &mut command, folder)?;
        let address = process.addresses()?.first().copied().ok_or("the proxy listens nowhere")?;
        let [dashboard, address] = [dashboard, address].map(|address| format!("http://{address}"));
        Ok(Self { dashboard, address, token, _processes: [origin, process] })
    }
}

/// Prepares the program with a private mount of a 64 KiB disk, and a file on that disk. Without permission to
/// mount, the file is one that accepts no data.
fn on_small_disk(vanward: &Path, folder: &Path) -> Result<(Command, PathBuf), String> {
    let disk = folder.join("disk");
    fs::create_dir(&disk).map_err(|error| format!("{}: {error}", disk.display()))?;
    let mounted = |program: &Path| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
        command.arg("mount -t tmpfs -o size=64k tmpfs \"$0\" && exec \"$@\"").arg(&disk).arg(program);
        command
    };
    let output = mounted(Path::new("true")).output();
    if output.is_ok_and(|output| output.status.success()) {
        return Ok((mounted(vanward), disk.join("access.log")));
    }
    say("no disk can be mounted here: the full one is /dev/full");
    Ok((Command::new(vanward), PathBuf::from("/dev/full")))
}
