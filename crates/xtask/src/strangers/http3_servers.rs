//! HTTP/3 to other servers: quic-go, aioquic, Caddy, nginx if it has HTTP/3, and the origin. The cases of
//! `strangers/http3/upstream.py` are pages, uploads, and many concurrent requests during reloads of the proxy.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::process::{Process, free_address};
use super::programs::{CADDY, MODULE, NGINX, run};
use super::subject::{self, PairFiles};
use crate::say;
use crate::workspace::Workspace;

/// Timeout of all cases with one server: they take a second or two, or longer on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// Sizes of the pages for file servers; other servers generate pages.
const SIZES: [usize; 3] = [128, 166_000, 10_000_000];
/// Sizes of the pages for concurrent requests.
const SHORT: std::ops::Range<usize> = 1000..1020;

pub(super) struct Programs<'a> {
    pub(super) vanward: &'a Path,
    pub(super) python: &'a Path,
    pub(super) go: &'a Path,
}

pub(super) fn check(workspace: &Workspace, programs: &Programs<'_>, folder: &Path) -> Result<(), String> {
    let folder = &folder.join("servers");
    fs::create_dir_all(folder.join("root/blank")).map_err(|error| error.to_string())?;
    for size in SIZES.into_iter().chain(SHORT) {
        subject::write(&folder.join(format!("root/blank/{size}")), &"x".repeat(size))?;
    }
    let pair = PairFiles::of_no_authority(folder)?;
    let scripts = workspace.root.join(MODULE).join("http3");
    let mut names = Vec::new();
    for (name, server) in [
        ("quic-go", quic_go(programs, &pair, folder)?),
        ("aioquic", aioquic(programs, &scripts, &pair, folder)?),
        ("Caddy", caddy(&pair, folder)?),
        ("nginx", nginx(&pair, folder)?),
        ("vanward origin", origin(programs, &pair, folder)?),
    ] {
        let Some((_server, address)) = server else {
            say(format!("{name} is built without HTTP/3 here"));
            continue;
        };
        let verify = format!("ca = {:?}, name = \"localhost\"", pair.cert);
        ask(programs, &scripts, (name, address), &verify, folder)?;
        names.push(name);
    }
    say(format!("HTTP/3 to servers: pages, uploads, and 320 requests during reloads: {}", names.join(", ")));
    Ok(())
}

/// Runs the cases through a proxy in front of a server.
fn ask(
    programs: &Programs<'_>,
    scripts: &Path,
    (name, server): (&str, SocketAddr),
    verify: &str,
    folder: &Path,
) -> Result<(), String> {
    let file = folder.join("vanward.toml");
    let text = format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\n\n[[route]]\nupstream = \"app\"\n\n\
         [upstream.app]\nservers = [\"https://{server}\"]\nprotocol = \"h3\"\nhost = {{ set = \"localhost:{}\" }}\n\
         tls = {{ {verify} }}\n",
        server.port()
    );
    subject::write(&file, &text)?;
    let mut command = Command::new(programs.vanward);
    command.arg("run").arg("--config").arg(&file);
    let mut proxy = Process::start("vanward-h3", &mut command, folder)?;
    let address = proxy.addresses()?.into_iter().next().ok_or("vanward listens nowhere")?;
    let mut client = Command::new(programs.python);
    client.arg(scripts.join("upstream.py")).arg(address.ip().to_string()).arg(address.port().to_string());
    // The origin responds to a POST of a page with the page.
    let upload = if name == "vanward origin" { "/blank/5" } else { "/upload" };
    let told = run("upstream", client.arg(proxy.id().to_string()).arg(upload), folder, LIMIT);
    told.map_err(|why| format!("with {name} as the server: {why}\nvanward said:\n{}", proxy.said()))
}

type Server = Option<(Process, SocketAddr)>;

fn quic_go(programs: &Programs<'_>, pair: &PairFiles, folder: &Path) -> Result<Server, String> {
    let mut command = Command::new(programs.go);
    started("serve-quic-go", command.arg("serve").arg(&pair.cert).arg(&pair.key), folder)
}

fn aioquic(
    programs: &Programs<'_>,
    scripts: &Path,
    pair: &PairFiles,
    folder: &Path,
) -> Result<Server, String> {
    let mut command = Command::new(programs.python);
    started("serve-aioquic", command.arg(scripts.join("serve.py")).arg(&pair.cert).arg(&pair.key), folder)
}

fn origin(programs: &Programs<'_>, pair: &PairFiles, folder: &Path) -> Result<Server, String> {
    let mut command = Command::new(programs.vanward);
    command.args(["origin", "--listen", "127.0.0.1:0", "--h3", "--cert"]).arg(&pair.cert);
    started("serve-origin", command.arg("--key").arg(&pair.key), folder)
}

/// Starts a server that prints its address.
fn started(name: &str, command: &mut Command, folder: &Path) -> Result<Server, String> {
    let mut server = Process::start(name, command, folder)?;
    let address = server.addresses()?.into_iter().next().ok_or("it listens nowhere")?;
    Ok(Some((server, address)))
}

fn caddy(pair: &PairFiles, folder: &Path) -> Result<Server, String> {
    let address = free_address()?;
    let (PairFiles { cert, key }, root) = (pair, folder.join("root"));
    let file = folder.join("Caddyfile");
    let text = format!(
        "{{\n    admin off\n    auto_https off\n    servers {{\n        protocols h1 h2 h3\n    }}\n}}\n\
         https://localhost:{} {{\n    bind 127.0.0.1\n    tls {cert:?} {key:?}\n    respond /upload 200\n    root * {root:?}\n    \
         file_server\n}}\n",
        address.port()
    );
    subject::write(&file, &text)?;
    let mut command = Command::new(CADDY.find()?);
    // The folder of the last configuration: before 2.7, saving it cannot be disabled.
    command.env("XDG_CONFIG_HOME", folder).env("XDG_DATA_HOME", folder);
    command.args(["run", "--adapter", "caddyfile", "--config"]).arg(&file);
    Ok(Some((Process::start("serve-caddy", &mut command, folder)?.listening_on(address)?, address)))
}

/// Returns `None` if the installed nginx lacks HTTP/3, as Debian's does.
fn nginx(PairFiles { cert, key }: &PairFiles, folder: &Path) -> Result<Server, String> {
    let program = NGINX.find()?;
    let built = Command::new(&program).arg("-V").output().map_err(|error| error.to_string())?;
    if !String::from_utf8_lossy(&built.stderr).contains("http_v3_module") {
        return Ok(None);
    }
    let (address, root) = (free_address()?, folder.join("root"));
    let text = format!(
        "server {{
           listen {address} quic; listen {address} ssl; http3 on; server_name localhost;
           ssl_protocols TLSv1.3; ssl_certificate {cert:?}; ssl_certificate_key {key:?}; root {root:?};
           location /upload {{ return 200; }}
         }}"
    );
    let process = subject::nginx_of(&text, folder)?.listening_on(address)?;
    Ok(Some((process, address)))
}
