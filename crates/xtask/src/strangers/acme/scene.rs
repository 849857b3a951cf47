//! Shared by the checks with Pebble: the authority, its challenge server, proxies, and access to certificates.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::process::{Process, free_address};
use super::super::programs::{self, CURL};
use crate::workspace::text;

pub(super) const LIMIT: Duration = Duration::from_secs(120);
pub(super) const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

pub(super) struct AcmeScene<'a> {
    pub(super) pebble: PathBuf,
    pub(super) vanward: PathBuf,
    pub(super) folder: &'a Path,
    pub(super) server: SocketAddr,
    pub(super) curl: PathBuf,
    /// Answers every look-up with the loopback address.
    _dns: Process,
    pub(super) dns_address: SocketAddr,
    pub(super) dns_management: SocketAddr,
}

/// A running authority, and the ports that it connects to.
pub(super) struct AcmeServer {
    pub(super) process: Process,
    pub(super) directory: String,
    pub(super) management: SocketAddr,
    pub(super) http: SocketAddr,
    pub(super) tls: SocketAddr,
}

#[derive(Default)]
pub(super) struct Temper<'a> {
    pub(super) environment: &'a [(&'a str, &'a str)],
    pub(super) needs_account: bool,
    /// The DNS server that it queries; by default the challenge server.
    pub(super) dns: Option<SocketAddr>,
}

impl<'a> AcmeScene<'a> {
    pub(super) fn new(
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

    pub(super) fn authority(&self, name: &str, temper: &Temper<'_>) -> Result<AcmeServer, String> {
        self.authority_at(name, temper, [free_address()?, free_address()?, free_address()?, free_address()?])
    }

    pub(super) fn authority_at(
        &self,
        name: &str,
        temper: &Temper<'_>,
        [listen, management, http, tls]: [SocketAddr; 4],
    ) -> Result<AcmeServer, String> {
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
        let dns = temper.dns.unwrap_or(self.dns_address);
        let mut command = Command::new(&self.pebble);
        command.arg("-config").arg(&file).args(["-dnsserver", &dns.to_string()]);
        command
            .env("PEBBLE_VA_NOSLEEP", "1")
            .envs(temper.environment.iter().copied())
            .current_dir(self.folder);
        let process = Process::start(name, &mut command, self.folder)?;
        let process = process.listening_on(listen)?.listening_on(management)?;
        let directory = format!("https://localhost:{}/dir", listen.port());
        Ok(AcmeServer { process, directory, management, http, tls })
    }

    /// Starts a proxy from a file. Returns it with the path of its admin socket.
    pub(super) fn proxy(
        &self,
        name: &str,
        authority: &AcmeServer,
        file: &str,
    ) -> Result<(Process, PathBuf), String> {
        let path = self.folder.join(format!("{name}.toml"));
        let admin = self.folder.join(format!("{name}.admin"));
        let AcmeServer { directory, http, tls, .. } = authority;
        let file = file
            .replace("DIRECTORY", directory)
            .replace("CA", &self.folder.join("server.pem").display().to_string())
            .replace("HTTP", &http.to_string())
            .replace("TLS", &tls.to_string())
            .replace("SERVER", &self.server.to_string())
            .replace("DIR", &self.folder.display().to_string());
        let file = format!("workers = 2\nadmin = {admin:?}\n{file}");
        fs::write(&path, file).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut command = Command::new(&self.vanward);
        command.arg("run").arg("--config").arg(path);
        let mut process = Process::start(name, &mut command, self.folder)?;
        process.addresses()?;
        // It reports its addresses before every listener is open.
        let began = Instant::now();
        while !admin.exists() {
            if began.elapsed() > LIMIT {
                return Err(format!("{name} has no admin socket; it said:\n{}", process.said()));
            }
            thread::sleep(BETWEEN_LOOKS);
        }
        Ok((process, admin))
    }

    pub(super) fn run_vanward(&self, words: &[&str], admin: &Path) -> Result<Output, String> {
        let mut command = Command::new(&self.vanward);
        command.args(words).arg("--socket").arg(admin);
        command.output().map_err(|error| format!("vanward {words:?}: {error}"))
    }

    pub(super) fn certificates(&self, admin: &Path) -> Result<Vec<Value>, String> {
        let output = self.run_vanward(&["certificates", "--json"], admin)?;
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        if told.contains("PRIVATE KEY") {
            return Err("the admin API shows a private key".to_owned());
        }
        serde_json::from_str(&told).map_err(|error| {
            format!("vanward certificates: {error}: {told}{}", String::from_utf8_lossy(&output.stderr))
        })
    }

    pub(super) fn renew(&self, name: &str, admin: &Path) -> Result<(), String> {
        let output = self.run_vanward(&["certificates", "renew", name], admin)?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("vanward certificates renew {name}: {}", String::from_utf8_lossy(&output.stderr)))
    }

    pub(super) fn until(
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

    /// Returns the status of a page over HTTPS, for a client that trusts the authority's root.
    pub(super) fn page(&self, name: &str, address: SocketAddr, root: &Path) -> Result<String, String> {
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

    pub(super) fn root(&self, authority: &AcmeServer) -> Result<PathBuf, String> {
        let file = self.folder.join(format!("root-{}.pem", authority.management.port()));
        let url = format!("https://{}/roots/0", authority.management);
        self.curl(&["--insecure", "--output", &file.display().to_string(), &url])?;
        Ok(file)
    }

    pub(super) fn curl(&self, words: &[&str]) -> Result<String, String> {
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

pub(super) fn are_all_issued(certificates: &[Value]) -> bool {
    certificates.iter().all(|certificate| text(certificate, "source") == "auto")
}

pub(super) fn serial(certificates: &[Value]) -> String {
    certificates.first().map(|certificate| text(certificate, "serial").to_owned()).unwrap_or_default()
}

/// The renewal state of the first certificate.
pub(super) fn renewal(certificates: &[Value]) -> &Value {
    certificates.first().map_or(&Value::Null, |certificate| &certificate["renewal"])
}
