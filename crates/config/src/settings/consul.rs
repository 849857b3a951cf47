//! Settings of Consul, whose catalog says which servers a service has.

use std::fmt;
use std::path::PathBuf;

use super::{KeyUrl, Scheme, Server, ServerHost};
use crate::tls::KeyPair;

/// The agent of Consul that is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consul {
    /// Where it is; the path is put before those of the API.
    pub address: KeyUrl,
    /// A file with the token (ACL).
    pub token_file: Option<PathBuf>,
    /// The CAs that sign the agent's certificate; `None` means those of the system.
    pub ca: Option<PathBuf>,
    /// The client certificate.
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

/// A service of the catalog: which of its instances are servers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CatalogService {
    /// The name, in lower case: Consul makes no difference.
    pub name: String,
    /// Tags that an instance has all of, as they are written in a query of a URL.
    pub tags: Vec<String>,
    /// The datacenter; `None` means that of the agent.
    pub datacenter: Option<String>,
}

/// Writes `NAME?tag=TAG&dc=DATACENTER`.
impl fmt::Display for CatalogService {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)?;
        let tags = self.tags.iter().map(|tag| ("tag", tag));
        let options = tags.chain(self.datacenter.iter().map(|datacenter| ("dc", datacenter)));
        for (number, (option, value)) in options.enumerate() {
            let mark = if number == 0 { '?' } else { '&' };
            write!(formatter, "{mark}{option}={value}")?;
        }
        Ok(())
    }
}
