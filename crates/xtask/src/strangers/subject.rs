//! The tested proxy: Vanward, or nginx for comparison, with one listener for TLS and one without, both with HTTP/2.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::process::{Process, free_address};
use super::programs::{NGINX, OPENSSL};
use crate::step;

/// Which proxy.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Against {
    /// Vanward of this workspace.
    Vanward,
    /// The installed nginx.
    Nginx,
}

impl fmt::Display for Against {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Vanward => "vanward",
            Self::Nginx => "nginx",
        })
    }
}

/// A running proxy. Dropping it ends the proxy.
pub(super) struct RunningProxy {
    /// Address with TLS: h2 and http/1.1 by ALPN.
    pub(super) tls: SocketAddr,
    /// Address without TLS: HTTP/2 by prior knowledge.
    pub(super) plain: SocketAddr,
    _processes: Vec<Process>,
}

impl RunningProxy {
    /// Starts the proxy in front of an HTTP/1.1 server. Vanward is started from flags and makes its own certificate.
    pub(super) fn before_http1(
        against: Against,
        vanward: &Path,
        server: SocketAddr,
        folder: &Path,
    ) -> Result<Self, String> {
        if against == Against::Nginx {
            let pair = PairFiles::make(folder)?;
            return nginx(&pair, &format!("proxy_pass http://{server};"), folder);
        }
        let start = |name: &str, more: &[&str]| {
            let mut command = Command::new(vanward);
            command.args(["proxy", "--from", "127.0.0.1:0", "--to", &format!("http://{server}")]).args(more);
            let mut process = Process::start(name, &mut command, folder)?;
            let address = first(process.addresses()?)?;
            Ok::<_, String>((process, address))
        };
        let (tls_process, tls) = start("vanward-tls", &["--self-signed"])?;
        let (plain_process, plain) = start("vanward-plain", &[])?;
        Ok(Self { tls, plain, _processes: vec![tls_process, plain_process] })
    }

    /// Starts the proxy in front of an HTTP/2 server without TLS. The certificate is a pair of files.
    pub(super) fn before_http2(
        against: Against,
        vanward: &Path,
        server: SocketAddr,
        pair: &PairFiles,
        folder: &Path,
    ) -> Result<Self, String> {
        if against == Against::Nginx {
            return nginx(pair, &format!("grpc_pass grpc://{server};"), folder);
        }
        let file = folder.join("vanward.toml");
        let PairFiles { cert, key } = pair;
        let text = format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\ntls = {{ cert = {cert:?}, key = {key:?} }}\n\n\
             [[listen]]\naddress = \"127.0.0.1:0\"\n\n\
             [[route]]\nupstream = \"app\"\ngrpc_web = true\n\n\
             [upstream.app]\nservers = [\"http://{server}\"]\nprotocol = \"h2\"\n"
        );
        write(&file, &text)?;
        let mut command = Command::new(vanward);
        command.arg("run").arg("--config").arg(&file);
        let mut process = Process::start("vanward", &mut command, folder)?;
        match process.addresses()?[..] {
            [tls, plain] => Ok(Self { tls, plain, _processes: vec![process] }),
            _ => Err(format!(
                "vanward listens on other addresses than configured; it said:\n{}",
                process.said()
            )),
        }
    }
}

/// Starts the proxy as a cache with its usual settings, and returns its address.
pub(super) fn cache(
    against: Against,
    vanward: &Path,
    server: SocketAddr,
    folder: &Path,
) -> Result<(Process, SocketAddr), String> {
    match against {
        Against::Vanward => {
            let mut command = Command::new(vanward);
            let to = format!("http://{server}");
            command.args(["proxy", "--from", "127.0.0.1:0", "--to", &to, "--cache", "64MB"]);
            let mut process = Process::start("vanward", &mut command, folder)?;
            let address = first(process.addresses()?)?;
            Ok((process, address))
        }
        Against::Nginx => {
            let address = free_address()?;
            let text = format!(
                "proxy_cache_path {}/cache keys_zone=all:10m; proxy_cache all; proxy_cache_revalidate on;
                 proxy_http_version 1.1; proxy_set_header Connection \"\";
                 server {{ listen {address}; location / {{ proxy_pass http://{server}; }} }}",
                folder.display()
            );
            Ok((nginx_of(&text, folder)?.listening_on(address)?, address))
        }
    }
}

/// Starts `vanward origin`, which has every page that the tests request.
pub(super) fn origin(vanward: &Path, folder: &Path) -> Result<(Process, SocketAddr), String> {
    let mut command = Command::new(vanward);
    command.args(["origin", "--listen", "127.0.0.1:0"]);
    let mut process = Process::start("origin", &mut command, folder)?;
    let address = first(process.addresses()?)?;
    Ok((process, address))
}

fn first(addresses: Vec<SocketAddr>) -> Result<SocketAddr, String> {
    addresses.into_iter().next().ok_or_else(|| "vanward listens nowhere".to_owned())
}

/// Files of a certificate for localhost and its key.
pub(super) struct PairFiles {
    pub(super) cert: PathBuf,
    pub(super) key: PathBuf,
}

impl PairFiles {
    pub(super) fn make(folder: &Path) -> Result<Self, String> {
        Self::ending_in(folder, 90)
    }

    /// Creates a certificate that is no CA: strict clients reject a server with a CA's.
    pub(super) fn of_no_authority(folder: &Path) -> Result<Self, String> {
        Self::with(folder, 90, &["-addext", "basicConstraints=critical,CA:FALSE"])
    }

    pub(super) fn ending_in(folder: &Path, days: u32) -> Result<Self, String> {
        Self::with(folder, days, &[])
    }

    fn with(folder: &Path, days: u32, more: &[&str]) -> Result<Self, String> {
        let pair = Self { cert: folder.join("cert.pem"), key: folder.join("key.pem") };
        let mut command = Command::new(OPENSSL.find()?);
        command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
        command.args(["-days", &days.to_string(), "-subj", "/CN=localhost", "-addext"]);
        command.args(["subjectAltName=DNS:localhost,IP:127.0.0.1", "-out"]).arg(&pair.cert);
        command.arg("-keyout").arg(&pair.key).args(more);
        let output = command
            .output()
            .map_err(|error| format!("`{}` cannot be run: {error}", step::shown(&command)))?;
        if output.status.success() {
            Ok(pair)
        } else {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("`{}` ended with {}:\n{said}", step::shown(&command), output.status))
        }
    }
}

fn nginx(pair: &PairFiles, pass: &str, folder: &Path) -> Result<RunningProxy, String> {
    let (tls, plain) = (free_address()?, free_address()?);
    let PairFiles { cert, key } = pair;
    let text = format!(
        "proxy_request_buffering off;
         server {{
           listen {tls} ssl http2; listen {plain} http2; server_name localhost;
           ssl_protocols TLSv1.2 TLSv1.3; ssl_certificate {cert:?}; ssl_certificate_key {key:?};
           location / {{ {pass} }}
         }}"
    );
    let process = nginx_of(&text, folder)?.listening_on(tls)?;
    Ok(RunningProxy { tls, plain, _processes: vec![process] })
}

pub(super) fn nginx_of(lines: &str, folder: &Path) -> Result<Process, String> {
    let own = folder.display();
    let file = folder.join("nginx.conf");
    // A single process, so that it ends when it is killed.
    let text = format!(
        "daemon off; master_process off; pid {own}/nginx.pid; error_log stderr;
         events {{ worker_connections 512; }}
         http {{
           access_log off; client_max_body_size 0;
           client_body_temp_path {own}/body; proxy_temp_path {own}/proxy; fastcgi_temp_path {own}/fastcgi;
           uwsgi_temp_path {own}/uwsgi; scgi_temp_path {own}/scgi;
           {lines}
         }}\n"
    );
    write(&file, &text)?;
    let mut command = Command::new(NGINX.find()?);
    command.arg("-p").arg(folder).arg("-e").arg("stderr").arg("-c").arg(&file);
    Process::start("nginx", &mut command, folder)
}

pub(super) fn write(file: &Path, text: &str) -> Result<(), String> {
    std::fs::write(file, text).map_err(|error| format!("{} cannot be written: {error}", file.display()))
}
