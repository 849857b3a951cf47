//! Automatic certificates from Pebble, a test authority, as the proxy's command line and curl see them: all challenges,
//! renewal, revocation, refused nonces, an authority that is gone, a hundred names, two processes with one folder.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::process::{Process, free_address};
use super::programs::{self, CURL};
use super::subject;
use crate::say;
use crate::scratch::Scratch;
use crate::workspace::{Workspace, text};

/// The time within which a bare machine has its first certificate.
const FIRST_LIMIT: Duration = Duration::from_secs(10);
/// The time that anything else may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
const HUNDRED: usize = 100;

pub(super) fn check(workspace: &Workspace, scratch: &Scratch) -> Result<(), String> {
    let [pebble, dns] = programs::build_authority(workspace)?;
    let vanward = programs::build_vanward(workspace)?;
    let folder = scratch.path();
    let (_origin, server) = subject::origin(&vanward, folder)?;
    let scene = Scene::new(pebble, dns, vanward, folder, server)?;
    from_a_bare_machine(&scene)?;
    by_files_renewed_and_revoked(&scene)?;
    by_dns(&scene)?;
    with_an_external_account(&scene)?;
    a_hundred_names_and_two_processes(&scene)
}

/// What all checks share.
struct Scene<'a> {
    pebble: PathBuf,
    vanward: PathBuf,
    folder: &'a Path,
    server: SocketAddr,
    curl: PathBuf,
    /// Answers every look-up with the loopback address.
    _dns: Process,
    dns_address: SocketAddr,
    dns_management: SocketAddr,
}

/// A running authority, and the ports that it connects to.
struct Authority {
    _process: Process,
    directory: String,
    management: SocketAddr,
    http: SocketAddr,
    tls: SocketAddr,
}

/// What an authority is started with.
#[derive(Default)]
struct Temper<'a> {
    environment: &'a [(&'a str, &'a str)],
    needs_account: bool,
}

impl<'a> Scene<'a> {
    fn new(
        pebble: PathBuf,
        dns: PathBuf,
        vanward: PathBuf,
        folder: &'a Path,
        server: SocketAddr,
    ) -> Result<Self, String> {
        let (dns_address, dns_management) = (free_address()?, free_address()?);
        let mut command = Command::new(dns);
        command.args(["-defaultIPv4", "127.0.0.1", "-defaultIPv6", "", "-http01", "", "-https01", ""]);
        command.args(["-tlsalpn01", "", "-doh", "", "-dnsserver", &dns_address.to_string()]);
        command.args(["-management", &dns_management.to_string()]);
        let process = Process::start("dns", &mut command, folder)?.listening_on(dns_management)?;
        // The certificate of the authority's own server.
        let made = Command::new(programs::OPENSSL.find()?)
            .args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-nodes",
                "-days",
                "2",
            ])
            .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
            .args([
                "-addext",
                "basicConstraints=critical,CA:FALSE",
                "-keyout",
                "server.key",
                "-out",
                "server.pem",
            ])
            .current_dir(folder)
            .output();
        let made = made.map_err(|error| format!("openssl cannot be run: {error}"))?;
        if !made.status.success() {
            return Err(format!("openssl made no certificate: {}", String::from_utf8_lossy(&made.stderr)));
        }
        let curl = CURL.find()?;
        Ok(Self { pebble, vanward, folder, server, curl, _dns: process, dns_address, dns_management })
    }

    fn authority(&self, name: &str, temper: &Temper<'_>) -> Result<Authority, String> {
        self.authority_at(name, temper, [free_address()?, free_address()?, free_address()?, free_address()?])
    }

    fn authority_at(
        &self,
        name: &str,
        temper: &Temper<'_>,
        [listen, management, http, tls]: [SocketAddr; 4],
    ) -> Result<Authority, String> {
        let file = self.folder.join(format!("{name}.json"));
        let config = json!({ "pebble": {
            "listenAddress": listen.to_string(),
            "managementListenAddress": management.to_string(),
            "certificate": "server.pem",
            "privateKey": "server.key",
            "httpPort": http.port(),
            "tlsPort": tls.port(),
            "externalAccountBindingRequired": temper.needs_account,
            "externalAccountMACKeys": { "kid-1": "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W" },
            "domainBlocklist": ["blocked.example"],
            "retryAfter": { "authz": 1, "order": 1 },
            "keyAlgorithm": "ecdsa",
            "profiles": {
                "default": { "description": "usual", "validityPeriod": 7_776_000 },
                "shortlived": { "description": "short", "validityPeriod": 518_400 },
            },
        }});
        fs::write(&file, config.to_string()).map_err(|error| format!("{}: {error}", file.display()))?;
        let mut command = Command::new(&self.pebble);
        command.arg("-config").arg(&file).args(["-dnsserver", &self.dns_address.to_string()]);
        command
            .env("PEBBLE_VA_NOSLEEP", "1")
            .envs(temper.environment.iter().copied())
            .current_dir(self.folder);
        let process = Process::start(name, &mut command, self.folder)?;
        let process = process.listening_on(listen)?.listening_on(management)?;
        let directory = format!("https://localhost:{}/dir", listen.port());
        Ok(Authority { _process: process, directory, management, http, tls })
    }

    /// Starts a proxy from a file. Returns it and the path of its admin socket.
    fn proxy(&self, name: &str, authority: &Authority, file: &str) -> Result<(Process, PathBuf), String> {
        let path = self.folder.join(format!("{name}.toml"));
        let admin = self.folder.join(format!("{name}.admin"));
        let Authority { directory, http, tls, .. } = authority;
        let file = file
            .replace("DIRECTORY", directory)
            .replace("CA", &self.folder.join("server.pem").display().to_string())
            .replace("HTTP", &http.to_string())
            .replace("TLS", &tls.to_string())
            .replace("SERVER", &self.server.to_string())
            .replace("DIR", &self.folder.display().to_string());
        let file = format!("workers = 1\nadmin = {admin:?}\n{file}");
        fs::write(&path, file).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut command = Command::new(&self.vanward);
        command.arg("run").arg("--config").arg(path);
        let mut process = Process::start(name, &mut command, self.folder)?;
        process.addresses()?;
        Ok((process, admin))
    }

    fn run_vanward(&self, words: &[&str], admin: &Path) -> Result<Output, String> {
        let mut command = Command::new(&self.vanward);
        command.args(words).arg("--socket").arg(admin);
        command.output().map_err(|error| format!("vanward {words:?}: {error}"))
    }

    /// The certificates as the command tells of them.
    fn certificates(&self, admin: &Path) -> Result<Vec<Value>, String> {
        let output = self.run_vanward(&["certificates", "--json"], admin)?;
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        if told.contains("PRIVATE KEY") {
            return Err("the admin API tells a key".to_owned());
        }
        serde_json::from_str(&told).map_err(|error| {
            format!("vanward certificates: {error}: {told}{}", String::from_utf8_lossy(&output.stderr))
        })
    }

    /// Waits until the certificates are as wanted, and returns them.
    fn until(
        &self,
        (process, admin): &(Process, PathBuf),
        what: &str,
        is_so: impl Fn(&[Value]) -> bool,
    ) -> Result<Vec<Value>, String> {
        let began = Instant::now();
        loop {
            let certificates = self.certificates(admin)?;
            if is_so(&certificates) {
                return Ok(certificates);
            }
            if began.elapsed() > LIMIT {
                let told = serde_json::to_string_pretty(&certificates).unwrap_or_default();
                return Err(format!(
                    "not within {LIMIT:?}: {what}; there is {told}\nit said:\n{}",
                    process.said()
                ));
            }
            thread::sleep(BETWEEN_LOOKS);
        }
    }

    /// The status of a page by HTTPS, for a client that trusts the authority's root.
    fn page(&self, name: &str, address: SocketAddr, root: &Path) -> Result<String, String> {
        let port = address.port();
        self.curl(&[
            "--cacert",
            &root.display().to_string(),
            "--resolve",
            &format!("{name}:{port}:127.0.0.1"),
            "--output",
            "/dev/null",
            "--write-out",
            "%{http_code}",
            &format!("https://{name}:{port}/tiny"),
        ])
    }

    /// The root of an authority, in a file.
    fn root(&self, authority: &Authority) -> Result<PathBuf, String> {
        let file = self.folder.join(format!("root-{}.pem", authority.management.port()));
        let url = format!("https://{}/roots/0", authority.management);
        self.curl(&["--insecure", "--output", &file.display().to_string(), &url])?;
        Ok(file)
    }

    fn curl(&self, words: &[&str]) -> Result<String, String> {
        let mut command = Command::new(&self.curl);
        command.args(["-q", "--silent", "--show-error", "--max-time", "30", "--noproxy", "*"]).args(words);
        let output = command.output().map_err(|error| format!("curl cannot be run: {error}"))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(said);
        }
        Err(format!("curl {words:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()))
    }
}

fn are_all_issued(certificates: &[Value]) -> bool {
    certificates.iter().all(|certificate| text(certificate, "source") == "auto")
}

fn serial(certificates: &[Value]) -> String {
    certificates.first().map(|certificate| text(certificate, "serial").to_owned()).unwrap_or_default()
}

fn from_a_bare_machine(scene: &Scene<'_>) -> Result<(), String> {
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

/// HTTP-01 for two hosts and an address, with every third nonce refused; renewal, revocation, and an authority that is gone.
fn by_files_renewed_and_revoked(scene: &Scene<'_>) -> Result<(), String> {
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

    // Another authority takes the place of the one that is gone: the proxy's account is unknown to it.
    drop(authority);
    let before = serial(&scene.certificates(&proxy.1)?);
    scene.run_vanward(&["certificates", "renew", "a.example"], &proxy.1)?;
    let failed = |certificates: &[Value]| certificates[0]["renewal"]["failures"] == 1;
    let told = scene.until(&proxy, "a failure that is told", failed)?;
    if serial(&told) != before || scene.run_vanward(&["certificates"], &proxy.1)?.status.success() {
        return Err(format!("a failure changes nothing, and is told: {told:?}"));
    }
    let authority = scene.authority_at("files-again", &Temper::default(), ports)?;
    renew(&["certificates", "renew", "a.example"])?;
    scene.page("a.example", authority.tls, &scene.root(&authority)?)?;
    say("an authority that was gone: the certificate stayed, and the next attempt succeeded");
    Ok(())
}

/// DNS-01 by command for a wildcard; a record that stays.
fn by_dns(scene: &Scene<'_>) -> Result<(), String> {
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

/// An authority that wants an account of its own.
fn with_an_external_account(scene: &Scene<'_>) -> Result<(), String> {
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

/// A hundred names, asked for by two processes with one folder: each is issued once.
fn a_hundred_names_and_two_processes(scene: &Scene<'_>) -> Result<(), String> {
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
    // The authority does not reach this one: what it has asked for itself would fail.
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
