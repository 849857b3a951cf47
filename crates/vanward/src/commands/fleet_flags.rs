//! Flags for a configuration in etcd, of `vanward run` and `vanward fleet`. A build without etcd has those of
//! `run`, too, and reports the missing feature.

use std::path::PathBuf;

#[cfg(feature = "fleet")]
use ::fleet::{EtcdCredentials, WrittenSecrets};
#[cfg(feature = "fleet")]
use config::KeyPair;

/// Credentials for etcd.
#[derive(Clone, Default, clap::Args)]
#[command(next_help_heading = "Options of etcd")]
pub(crate) struct EtcdFlags {
    /// CAs that sign the certificates of etcd's servers [default: the system's]
    #[arg(long, value_name = "FILE")]
    etcd_ca: Option<PathBuf>,

    /// Certificate of this client
    #[arg(long, value_name = "FILE", requires = "etcd_key")]
    etcd_cert: Option<PathBuf>,

    /// Key of that certificate
    #[arg(long, value_name = "FILE", requires = "etcd_cert")]
    etcd_key: Option<PathBuf>,

    /// User name for etcd
    #[arg(long, value_name = "NAME", requires = "etcd_password_file")]
    etcd_user: Option<String>,

    /// File with the user's password, in its first line
    #[arg(long, value_name = "FILE", requires = "etcd_user")]
    etcd_password_file: Option<PathBuf>,

    /// Allow secrets in the configuration: every reader of etcd or its backups can read them
    #[arg(long)]
    etcd_secrets: bool,
}

impl EtcdFlags {
    #[cfg(feature = "fleet")]
    pub(crate) fn access(&self) -> EtcdCredentials {
        let pair = |(cert, key)| KeyPair { cert, key, passphrase: None };
        EtcdCredentials {
            ca: self.etcd_ca.clone(),
            certificate: self.etcd_cert.clone().zip(self.etcd_key.clone()).map(pair),
            user: self.etcd_user.clone().zip(self.etcd_password_file.clone()),
        }
    }

    #[cfg(feature = "fleet")]
    pub(crate) fn secrets(&self) -> WrittenSecrets {
        if self.etcd_secrets { WrittenSecrets::Allowed } else { WrittenSecrets::Refused }
    }

    pub(crate) fn are_used(&self) -> bool {
        let Self { etcd_ca, etcd_cert, etcd_key: _, etcd_user, etcd_password_file: _, etcd_secrets } = self;
        etcd_ca.is_some() || etcd_cert.is_some() || etcd_user.is_some() || *etcd_secrets
    }
}

/// Flags of an instance.
#[derive(Clone, Default, clap::Args)]
#[command(next_help_heading = "Options of etcd")]
pub(crate) struct FleetFlags {
    #[command(flatten)]
    pub(super) etcd: EtcdFlags,

    /// Name of this instance among those with the same configuration [default: the name of the machine]
    #[arg(long, value_name = "NAME")]
    instance: Option<String>,

    /// Folder for the last good configuration, for a start while etcd is unreachable [default: the folder `fleet`
    /// in $STATE_DIRECTORY, or /var/lib/vanward/fleet]
    #[arg(long, value_name = "DIR")]
    fleet_dir: Option<PathBuf>,
}

impl FleetFlags {
    pub(crate) fn are_used(&self) -> bool {
        self.are_of_etcd() || self.instance.is_some()
    }

    /// Whether a flag is given that only a configuration in etcd needs.
    pub(crate) fn are_of_etcd(&self) -> bool {
        self.etcd.are_used() || self.fleet_dir.is_some()
    }

    #[cfg(any(feature = "fleet", feature = "kubernetes"))]
    pub(crate) fn name(&self) -> Result<String, String> {
        let name = self.instance.clone().unwrap_or_else(host_name);
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:@".contains(&byte);
        if name.is_empty() || name.len() > 200 || !name.bytes().all(is_name) {
            return Err(format!("--instance: {name:?} is not a name: use letters, digits and -_.:@"));
        }
        Ok(name)
    }

    #[cfg(feature = "fleet")]
    pub(super) fn folder(&self) -> PathBuf {
        let state = std::env::var_os("STATE_DIRECTORY").map(PathBuf::from);
        let default = || state.unwrap_or_else(|| PathBuf::from("/var/lib/vanward")).join("fleet");
        self.fleet_dir.clone().unwrap_or_else(default)
    }
}

#[cfg(any(feature = "fleet", feature = "kubernetes"))]
fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}
