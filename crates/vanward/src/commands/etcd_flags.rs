//! Flags for a configuration that is kept in etcd, of `vanward run` and `vanward fleet`.

use std::path::PathBuf;

use ::fleet::{Access, WrittenSecrets};
use config::KeyPair;

/// How to be let in by etcd.
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

    /// User of etcd
    #[arg(long, value_name = "NAME", requires = "etcd_password_file")]
    etcd_user: Option<String>,

    /// File with the user's password, in its first line
    #[arg(long, value_name = "FILE", requires = "etcd_user")]
    etcd_password_file: Option<PathBuf>,

    /// Allow secrets in the configuration: everybody who reads etcd or its backups reads them
    #[arg(long)]
    etcd_secrets: bool,
}

impl EtcdFlags {
    pub(crate) fn access(&self) -> Access {
        let pair = |(cert, key)| KeyPair { cert, key, passphrase: None };
        Access {
            ca: self.etcd_ca.clone(),
            certificate: self.etcd_cert.clone().zip(self.etcd_key.clone()).map(pair),
            user: self.etcd_user.clone().zip(self.etcd_password_file.clone()),
        }
    }

    pub(crate) fn secrets(&self) -> WrittenSecrets {
        if self.etcd_secrets { WrittenSecrets::Allowed } else { WrittenSecrets::Refused }
    }

    /// Whether any of them is given.
    pub(crate) fn are_used(&self) -> bool {
        let Self { etcd_ca, etcd_cert, etcd_key: _, etcd_user, etcd_password_file: _, etcd_secrets } = self;
        etcd_ca.is_some() || etcd_cert.is_some() || etcd_user.is_some() || *etcd_secrets
    }
}
