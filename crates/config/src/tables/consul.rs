//! The table `[consul]`: the agent of Consul, whose catalog names the servers of a service.

use std::path::PathBuf;

use crate::document::value_error::ValueError;
use crate::option::host::{TLS_NAME, tls_name};
use crate::option::kind::{At, Located, Maybe, Text, located};
use crate::option::path::{PATH_KIND, Path};
use crate::option::server::{Scheme, Server, ServerHost};
use crate::option::table::{Table, key};
use crate::tables::jwt::KeyUrl;
use crate::tables::jwt::options::key_url;
use crate::tables::tls::KeyPair;

/// The agent of Consul that is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consul {
    /// Where it is; the path is put before those of the API.
    pub address: KeyUrl,
    /// A file with the token (ACL).
    pub token_file: Option<PathBuf>,
    /// The CAs that sign the agent's certificate; `None` means those of the system.
    pub ca: Option<PathBuf>,
    pub certificate: Option<KeyPair>,
    /// The name to verify; `None` means the host of the address.
    pub name: Option<String>,
}

/// The agent of this machine.
impl Default for Consul {
    fn default() -> Self {
        let host = ServerHost::Address(std::net::Ipv4Addr::LOCALHOST.into());
        let address = KeyUrl { server: Server::at(Scheme::Http, host, Self::PORT), path: "/".to_owned() };
        Self { address, token_file: None, ca: None, certificate: None, name: None }
    }
}

impl Consul {
    /// The port of the API.
    const PORT: u16 = 8500;
}

#[derive(Debug, Clone)]
pub(crate) struct ConsulWritten {
    pub(crate) address: Located<KeyUrl>,
    pub(crate) token_file: Path,
    pub(crate) ca: Path,
    pub(crate) cert: Path,
    pub(crate) key: Path,
    pub(crate) name: Option<Located<String>>,
}

impl Default for ConsulWritten {
    fn default() -> Self {
        let Consul { address, .. } = Consul::default();
        Self { address: located(address), token_file: None, ca: None, cert: None, key: None, name: None }
    }
}

pub(crate) static CONSUL: Table<ConsulWritten> = Table {
    options: &[
        key!(
            "address",
            At(ADDRESS),
            ConsulWritten.address,
            "URL of the agent. A path is prepended to those of its API.",
        ),
        key!(
            "token_file",
            PATH_KIND,
            ConsulWritten.token_file,
            "File with a token (ACL) that may read the services and their nodes, in its first line. It is read for each \
             request.",
        ),
        key!(
            "ca",
            PATH_KIND,
            ConsulWritten.ca,
            "The CA certificates that sign the agent's certificate, in PEM. Default: those of the system.",
        ),
        key!(
            "cert",
            PATH_KIND,
            ConsulWritten.cert,
            "Client certificate, for an agent that requests one, in PEM.",
        ),
        key!("key", PATH_KIND, ConsulWritten.key, "Its private key in PEM."),
        key!(
            "name",
            Maybe(At(Text { expected: TLS_NAME, read: tls_name, print: String::clone })),
            ConsulWritten.name,
            "Server name (SNI) to send and to verify. Default: the host of `address`.",
        ),
    ],
};

pub(crate) const ADDRESS: Text<KeyUrl> = Text {
    expected: "a URL such as http://127.0.0.1:8500 or https://consul.example.com:8501",
    read: address,
    print: ToString::to_string,
};

pub(crate) fn address(text: &str) -> Result<KeyUrl, ValueError> {
    key_url(text).map_err(|error| ValueError { expected: ADDRESS.expected, ..error })
}

impl ConsulWritten {
    /// The file with the CAs that sign the agent's certificate.
    pub(crate) fn ca(&self) -> Option<&Located<PathBuf>> {
        self.ca.as_ref()
    }

    pub(crate) fn token_file(&self) -> Option<&Located<PathBuf>> {
        self.token_file.as_ref()
    }

    /// The settings that the options describe, without mistakes.
    pub(crate) fn meaning(self) -> Consul {
        let Self { address, token_file, ca, cert, key, name } = self;
        let [token_file, ca, cert, key] = [token_file, ca, cert, key].map(|path| path.map(|path| path.value));
        let certificate = cert.zip(key).map(|(cert, key)| KeyPair { cert, key, passphrase: None });
        Consul { address: address.value, token_file, ca, certificate, name: name.map(|name| name.value) }
    }
}
