//! Flags for connections and TLS, of requests and of streams.

use std::path::PathBuf;

use load::{ConnectTargets, Tls, TlsVersion};

use super::values;

/// Targets of connections, and their TLS.
#[derive(clap::Args)]
pub(super) struct Connecting {
    /// Connect to these addresses instead, `HOST:PORT:ADDRESS[,ADDRESS]`, as curl does. Can be repeated
    #[arg(long, value_name = "ENTRY")]
    resolve: Vec<String>,
    /// Connect to another host and port instead, HOST:PORT:OTHER:PORT, as curl does. Can be repeated
    #[arg(long, value_name = "ENTRY")]
    connect_to: Vec<String>,
    /// Resolve host names again at this interval, such as 30s, and use the new addresses [default: once]
    #[arg(long, value_name = "TIME", value_parser = values::interval)]
    resolve_every: Option<u32>,
    /// Connect to this Unix socket instead
    #[arg(long, value_name = "PATH", conflicts_with_all = ["resolve", "connect_to", "resolve_every"])]
    unix_socket: Option<PathBuf>,
    /// Accept any certificate, without verification
    #[arg(short = 'k', long)]
    insecure: bool,
    /// Trust the CAs in this PEM file instead of the system's
    #[arg(long, value_name = "FILE", visible_alias = "cacert", conflicts_with = "insecure")]
    ca: Option<PathBuf>,
    /// Server name to ask for (SNI) and to verify, instead of the URL's host
    #[arg(long, value_name = "NAME")]
    sni: Option<String>,
    /// Client certificate, with its chain: a PEM file
    #[arg(short = 'E', long, value_name = "FILE")]
    cert: Option<PathBuf>,
    /// Private key of --cert: a PEM file [default: the file of --cert]
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Do not resume TLS sessions: every handshake is full
    #[arg(long)]
    no_resume: bool,
    /// Highest TLS version [default: 1.3]
    #[arg(long, value_name = "VERSION")]
    tls_max: Option<TlsMax>,
    /// Only cipher suite, by its IANA name: TLS_AES_128_GCM_SHA256
    #[arg(long, value_name = "NAME")]
    cipher: Option<String>,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum TlsMax {
    #[value(name = "1.2")]
    Tls12,
    #[value(name = "1.3")]
    Tls13,
}

impl Connecting {
    pub(super) fn directions(&self) -> ConnectTargets {
        ConnectTargets {
            resolve: self.resolve.clone(),
            connect_to: self.connect_to.clone(),
            unix_socket: self.unix_socket.clone(),
            resolve_every_seconds: self.resolve_every,
        }
    }

    pub(super) fn tls(&self) -> Tls {
        Tls {
            verify: !self.insecure,
            ca: self.ca.clone(),
            resume: !self.no_resume,
            version_max: self.tls_max.map(|version| match version {
                TlsMax::Tls12 => TlsVersion::Tls12,
                TlsMax::Tls13 => TlsVersion::Tls13,
            }),
            cipher: self.cipher.clone(),
            server_name: self.sni.clone(),
            certificate: self.cert.clone(),
            key: self.key.clone(),
        }
    }
}
