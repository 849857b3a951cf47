//! Programs of other projects: installed ones, Go programs built from their modules, and packages from registries.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::process::Process;
use crate::arm64::OF_PROGRAM;
use crate::step;
use crate::workspace::Workspace;

pub(crate) struct Needed {
    program: &'static str,
    package: &'static str,
}

pub(crate) const CADDY: Needed = Needed { program: "caddy", package: "caddy" };
pub(super) const CHROMIUM: Needed = Needed { program: "chromium", package: "chromium" };
/// Optional, because Debian lacks it.
pub(super) const CONSUL: Needed = Needed { program: "consul", package: "consul" };
pub(super) const CURL: Needed = Needed { program: "curl", package: "curl" };
pub(super) const DIG: Needed = Needed { program: "dig", package: "bind9-dnsutils" };
pub(super) const ETCD: Needed = Needed { program: "etcd", package: "etcd-server" };
pub(super) const ETCDCTL: Needed = Needed { program: "etcdctl", package: "etcd-client" };
pub(super) const GO: Needed = Needed { program: "go", package: "golang-go" };
pub(super) const GOACCESS: Needed = Needed { program: "goaccess", package: "goaccess" };
pub(super) const HAPROXY: Needed = Needed { program: "haproxy", package: "haproxy" };
pub(super) const NAMED: Needed = Needed { program: "named", package: "bind9" };
pub(crate) const NGINX: Needed = Needed { program: "nginx", package: "nginx" };
pub(super) const NODE: Needed = Needed { program: "node", package: "nodejs" };
pub(super) const NPM: Needed = Needed { program: "npm", package: "npm" };
pub(super) const OPENSSL: Needed = Needed { program: "openssl", package: "openssl" };
pub(super) const PROMETHEUS: Needed = Needed { program: "prometheus", package: "prometheus" };
pub(super) const PROMTOOL: Needed = Needed { program: "promtool", package: "prometheus" };
pub(super) const PYTHON: Needed = Needed { program: "python3", package: "python3-venv" };
pub(super) const REDIS: Needed = Needed { program: "redis-server", package: "redis-server" };
pub(super) const RSYSLOGD: Needed = Needed { program: "rsyslogd", package: "rsyslog rsyslog-openssl" };
pub(super) const TESTSSL: Needed = Needed { program: "testssl", package: "testssl.sh" };
/// Optional, because Debian 12 has it only in its backports.
pub(super) const VALKEY: Needed = Needed { program: "valkey-server", package: "valkey-server" };
pub(super) const TMUX: Needed = Needed { program: "tmux", package: "tmux" };
pub(super) const VARNISHD: Needed = Needed { program: "varnishd", package: "varnish" };

impl Needed {
    pub(crate) fn find(&self) -> Result<PathBuf, String> {
        let Self { program, package } = self;
        let path = std::env::var_os("PATH").unwrap_or_default();
        // Servers are installed in folders of root's path.
        let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
        let found = places.map(|place| place.join(program)).find(|file| file.is_file());
        found.ok_or_else(|| format!("{program} is not installed: apt-get install {package}"))
    }
}

/// Finds php-fpm, which Debian names by its version.
pub(crate) fn php_fpm() -> Result<PathBuf, String> {
    let files = fs::read_dir("/usr/sbin").into_iter().flatten().flatten().map(|file| file.path());
    let is_it =
        |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("php-fpm"));
    let found = files.filter(|path| is_it(path)).max();
    found.ok_or_else(|| "php-fpm is not installed: apt-get install php-fpm".to_owned())
}

/// Directory of `strangers.go` and its `go.mod`.
pub(super) const MODULE: &str = "crates/xtask/strangers";

const AUTHORITY: &str = "crates/xtask/strangers/acme";

/// Builds Go programs in the target directory, and returns their paths in the order of the packages. Takes a second
/// if nothing has changed, because Go caches the builds.
pub(super) fn build<const N: usize>(
    workspace: &Workspace,
    packages: [&str; N],
) -> Result<[PathBuf; N], String> {
    build_in(workspace, MODULE, packages)
}

/// Builds the test authority of ACME and its challenge server, in a separate module, because they need a newer Go.
pub(super) fn build_authority(workspace: &Workspace) -> Result<[PathBuf; 2], String> {
    const PEBBLE: &str = "github.com/letsencrypt/pebble/v2/cmd/pebble";
    build_in(workspace, AUTHORITY, [PEBBLE, &format!("{PEBBLE}-challtestsrv")])
}

/// Builds OpenTelemetry's collector, in a separate module, because it needs a newer Go. Takes a minute the first time.
pub(super) fn build_collector(workspace: &Workspace) -> Result<[PathBuf; 1], String> {
    build_in(workspace, "crates/xtask/strangers/collector", ["vanward/collector"])
}

/// Builds Helm, in a separate module, because it needs a newer Go. Takes a minute or two the first time.
pub(super) fn build_helm(workspace: &Workspace) -> Result<[PathBuf; 1], String> {
    build_in(workspace, "crates/xtask/strangers/helm", ["helm.sh/helm/v3/cmd/helm"])
}

/// Builds quic-go's client and server, in a separate module, because they need a newer Go.
pub(super) fn build_quic(workspace: &Workspace) -> Result<[PathBuf; 1], String> {
    build_in(workspace, "crates/xtask/strangers/quic", ["vanward/quic"])
}

const GATEWAY_API: &str = "crates/xtask/strangers/gatewayapi";

/// Returns the API server of Kubernetes if it is built already, so that callers need not wait for the build.
pub(super) fn apiserver(workspace: &Workspace) -> Result<Option<PathBuf>, String> {
    let program = workspace.target_directory()?.join("strangers/apiserver");
    Ok(program.is_file().then_some(program))
}

/// Builds the API server of Kubernetes, unless it exists: the first time takes several minutes.
pub(super) fn build_apiserver(workspace: &Workspace) -> Result<PathBuf, String> {
    if let Some(program) = apiserver(workspace)? {
        return Ok(program);
    }
    let [program] = build_in(workspace, "crates/xtask/strangers/apiserver", ["vanward/apiserver"])?;
    Ok(program)
}

/// Returns the folder of the Gateway API's module, which Go downloads.
pub(super) fn gateway_api(workspace: &Workspace) -> Result<PathBuf, String> {
    let go = |words: &[&str]| {
        let mut command = Command::new(GO.find()?);
        command.args(words).current_dir(workspace.root.join(GATEWAY_API)).env("GOTOOLCHAIN", "local");
        let output = command.output();
        output.map_err(|error| format!("`{}` cannot be run: {error}", step::shown(&command)))
    };
    const MODULE: &str = "sigs.k8s.io/gateway-api";
    go(&["mod", "download", MODULE])?;
    let output = go(&["list", "-m", "-f", "{{.Dir}}", MODULE])?;
    match String::from_utf8_lossy(&output.stdout).trim() {
        "" => Err(format!("{MODULE} is not there: {}", String::from_utf8_lossy(&output.stderr))),
        folder => Ok(folder.into()),
    }
}

/// Builds the simulator of pods, the echo server and the suite of the Gateway API.
pub(super) fn build_conformance(workspace: &Workspace) -> Result<[PathBuf; 3], String> {
    const SUITE: &str = "sigs.k8s.io/gateway-api/conformance";
    let [pods, echo] =
        build_in(workspace, GATEWAY_API, ["vanward/gatewayapi/pods", &format!("{SUITE}/echo-basic")])?;
    let suite = workspace.target_directory()?.join("strangers/conformance.test");
    let mut command = Command::new(GO.find()?);
    command.args(["test", "-c", "-o"]).arg(&suite).arg(SUITE).current_dir(workspace.root.join(GATEWAY_API));
    command.env("GOFLAGS", "-mod=readonly").env("GOTOOLCHAIN", "local").env("CGO_ENABLED", "0");
    step::run(&mut command)?;
    Ok([pods, echo, suite])
}

fn build_in<const N: usize>(
    workspace: &Workspace,
    module: &str,
    packages: [&str; N],
) -> Result<[PathBuf; N], String> {
    let folder = workspace.target_directory()?.join("strangers");
    let mut command = Command::new(GO.find()?);
    command
        .args(["build", "-ldflags", "-s -w", "-o"])
        .arg(&folder)
        .args(packages)
        .current_dir(workspace.root.join(module));
    // The pinned versions and hashes, and the installed toolchain.
    command.env("GOFLAGS", "-mod=readonly").env("GOTOOLCHAIN", "local").env("CGO_ENABLED", "0");
    std::fs::create_dir_all(&folder)
        .map_err(|error| format!("{} cannot be created: {error}", folder.display()))?;
    step::run(&mut command)?;
    Ok(packages.map(|package| folder.join(package.rsplit('/').next().unwrap_or(package))))
}

/// Builds `vanward` as the tests of the workspace do, so that nothing is built twice. `-p vanward` would select
/// other features of libraries, and a crate's test is built with its program.
pub(crate) fn build_vanward(workspace: &Workspace) -> Result<PathBuf, String> {
    let mut command = Command::new("cargo");
    command.args(["test", "--quiet", "--workspace", "--all-features", "--no-run", "--test", OF_PROGRAM]);
    command.current_dir(&workspace.root);
    step::run(&mut command)?;
    Ok(workspace.target_directory()?.join("debug/vanward"))
}

const INSTALL_LIMIT: Duration = Duration::from_secs(180);

/// Folder whose `node_modules` contains packages of Node.js, given as `NAME@VERSION`.
pub(super) fn from_npm(workspace: &Workspace, packages: &[&str], scratch: &Path) -> Result<PathBuf, String> {
    let name = packages.first().and_then(|package| package.split('@').next()).unwrap_or_default();
    let libraries = workspace.target_directory()?.join("strangers");
    installed(&libraries.join(name), &packages.join(" "), |folder| {
        let mut npm = Command::new(NPM.find()?);
        npm.args(["install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix"]);
        run("npm", npm.arg(folder).args(packages), scratch, INSTALL_LIMIT)
    })
}

/// Python interpreter that has packages, given as `NAME==VERSION`.
pub(super) fn from_pip(
    workspace: &Workspace,
    name: &str,
    packages: &[&str],
    scratch: &Path,
) -> Result<PathBuf, String> {
    let libraries = workspace.target_directory()?.join("strangers");
    let folder = installed(&libraries.join(name), &packages.join(" "), |folder| {
        let mut make = Command::new(PYTHON.find()?);
        run("venv", make.args(["-m", "venv", "--clear"]).arg(folder), scratch, INSTALL_LIMIT)?;
        let mut pip = Command::new(folder.join("bin/python"));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(packages);
        run("pip", &mut pip, scratch, INSTALL_LIMIT)
    })?;
    Ok(folder.join("bin/python"))
}

/// Installs something into its own folder, once for each version.
fn installed(
    folder: &Path,
    version: &str,
    install: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<PathBuf, String> {
    let stamp = folder.join("installed");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == version) {
        return Ok(folder.to_owned());
    }
    let failed = |error| format!("{} cannot be written: {error}", folder.display());
    // Left by an interrupted installation.
    drop(fs::remove_dir_all(folder));
    fs::create_dir_all(folder).map_err(failed)?;
    install(folder)?;
    fs::write(&stamp, version).map_err(failed)?;
    Ok(folder.to_owned())
}

/// Runs a program to its end. Fails if its exit status is not 0.
pub(super) fn run(name: &str, command: &mut Command, folder: &Path, limit: Duration) -> Result<(), String> {
    let (status, said) = Process::start(name, command, folder)?.finish(limit)?;
    if status.success() {
        return Ok(());
    }
    Err(format!("`{}`: {status}; it said:\n{}", step::shown(command), said.trim_end()))
}
