//! Options of `[consul]`, declared once.

use std::path::PathBuf;

use crate::host::{TLS_NAME, tls_name};
use crate::jwt_options::{is_loopback, key_url};
use crate::kind::{At, Located, Maybe, Text, located};
use crate::options::File;
use crate::reader::{Reader, Span};
use crate::settings::{Consul, KeyUrl, Scheme, ServerHost};
use crate::table::{Table, key};
use crate::tls::KeyPair;
use crate::tls_options::{PATH_KIND, Path};
use crate::tls_resolve::check_pair;
use crate::value_error::ValueError;

/// The parsed table `[consul]`.
#[derive(Debug, Clone)]
pub(crate) struct ConsulWritten {
    address: Located<KeyUrl>,
    token_file: Path,
    ca: Path,
    cert: Path,
    key: Path,
    name: Option<Located<String>>,
}

impl Default for ConsulWritten {
    fn default() -> Self {
        Self::from(&Consul::default())
    }
}

pub(crate) static CONSUL: Table<ConsulWritten> = Table {
    options: &[
        &key(
            "address",
            At(ADDRESS),
            |consul: &mut ConsulWritten| &mut consul.address,
            "URL of the agent. A path is put before those of its API.",
        ),
        &key(
            "token_file",
            PATH_KIND,
            |consul: &mut ConsulWritten| &mut consul.token_file,
            "File with a token (ACL) that may read the services and their nodes, in its first line. It is read for each \
             request.",
        ),
        &key(
            "ca",
            PATH_KIND,
            |consul: &mut ConsulWritten| &mut consul.ca,
            "The CA certificates that sign the agent's certificate, in PEM. Default: those of the system.",
        ),
        &key(
            "cert",
            PATH_KIND,
            |consul: &mut ConsulWritten| &mut consul.cert,
            "Client certificate, for an agent that requests one, in PEM.",
        ),
        &key("key", PATH_KIND, |consul: &mut ConsulWritten| &mut consul.key, "Its private key in PEM."),
        &key(
            "name",
            Maybe(At(Text { expected: TLS_NAME, read: tls_name, print: String::clone })),
            |consul: &mut ConsulWritten| &mut consul.name,
            "Server name (SNI) to send and to verify. Default: the host of `address`.",
        ),
    ],
};

const ADDRESS: Text<KeyUrl> = Text {
    expected: "a URL such as http://127.0.0.1:8500 or https://consul.example.com:8501",
    read: address,
    print: ToString::to_string,
};

fn address(text: &str) -> Result<KeyUrl, ValueError> {
    key_url(text).map_err(|error| ValueError { expected: ADDRESS.expected, ..error })
}

/// Adds mistakes about options that have no effect, and a warning of a token that others can read on its way.
pub(crate) fn check(file: &File, reader: &mut Reader<'_>) {
    let ConsulWritten { address, token_file, ca, cert, key, name } = &file.consul;
    check_pair(cert, key, reader);
    let server = &address.value.server;
    if server.scheme == Scheme::Https {
        return;
    }
    let paths = [("ca", ca), ("cert", cert), ("key", key)];
    let written = paths.into_iter().filter_map(|(option, path)| Some((option, &path.as_ref()?.at)));
    for (option, at) in written.chain(name.as_ref().map(|name| ("name", &name.at))) {
        let mistake = reader.mistake(at, format!("{option}: Consul is reached without TLS"));
        reader.add(mistake.expecting(format!("an address with https://, or no {option}")));
    }
    if let Some(token) = token_file.as_ref().filter(|_| !is_loopback(&server.host)) {
        let warning = reader.mistake(&token.at, "token_file: without TLS the token can be read on its way");
        reader.warn(warning.expecting("an address with https://"));
    }
}

/// Warns of a table that no server makes use of.
pub(crate) fn warn_of_unused(file: &File, reader: &mut Reader<'_>) {
    let mut servers = file.upstreams.iter().flat_map(|(.., upstream)| &upstream.servers);
    if servers.any(|server| matches!(server.value.host, ServerHost::Catalog(_))) {
        return;
    }
    let ConsulWritten { address, token_file, ca, cert, key, name } = &file.consul;
    let paths = [token_file, ca, cert, key].into_iter().flatten().map(|path| &path.at);
    // The default is what is printed of a file without it.
    let address = (address.value != Consul::default().address).then_some(&address.at);
    let written = paths.chain(address).chain(name.iter().map(|name| &name.at));
    if let Some(at) = written.min_by_key(|at| at.start) {
        let warning = reader.mistake(at, "[consul]: no server is a service of Consul");
        reader.warn(warning.expecting("servers such as http+consul://web, or no [consul]"));
    }
}

/// Adds a mistake if nothing says which name instances of a service have to prove.
pub(crate) fn check_name(
    (host, at): (&ServerHost, &Span),
    (scheme, has_name): (Scheme, bool),
    reader: &mut Reader<'_>,
) {
    if let (ServerHost::Catalog(service), Scheme::Https, false) = (host, scheme, has_name) {
        let what = format!("servers: nothing says which name the certificates of {} have", service.name);
        let expected =
            "tls.name as well: whoever registers instances can choose their addresses, but no name";
        let mistake = reader.mistake(at, what);
        reader.add(mistake.expecting(expected));
    }
}

impl ConsulWritten {
    /// The file with the CAs that sign the agent's certificate.
    pub(crate) fn ca(&self) -> Option<&Located<PathBuf>> {
        self.ca.as_ref()
    }

    /// The file with the token.
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

impl From<&Consul> for ConsulWritten {
    fn from(consul: &Consul) -> Self {
        let Consul { address, token_file, ca, certificate, name } = consul.clone();
        let (cert, key) = certificate.map(|pair| (pair.cert, pair.key)).unzip();
        let [token_file, ca, cert, key] = [token_file, ca, cert, key].map(|path| path.map(located));
        Self { address: located(address), token_file, ca, cert, key, name: name.map(located) }
    }
}
