//! Options of `[cache.peers]`, declared once, and their relations.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::document::value_error::{ValueError, ValueFault};
use crate::option::host::{LISTEN_ADDRESS, TLS_NAME, listen_address, tls_name};
use crate::option::kind::{At, List, Located, Maybe, Text};
use crate::option::path::{PATH_KIND, Path};
use crate::option::range::{Count, Unit, Wait};
use crate::option::server::{Server, ServerHost};
use crate::option::table::{Inline, Table, key, required};
use crate::tables::cache::CachePeers;
use crate::tables::tls::KeyPair;

#[derive(Debug, Clone)]
pub(crate) struct PeersWritten {
    pub(crate) listen: Option<Located<SocketAddr>>,
    pub(crate) address: Option<Located<Server>>,
    pub(crate) members: Option<Vec<Located<Server>>>,
    pub(crate) ca: Path,
    pub(crate) cert: Path,
    pub(crate) key: Path,
    pub(crate) name: Option<String>,
    pub(crate) timeout: Duration,
    pub(crate) hot: usize,
    pub(crate) hot_memory: u32,
}

impl Default for PeersWritten {
    fn default() -> Self {
        Self {
            listen: None,
            address: None,
            members: None,
            ca: None,
            cert: None,
            key: None,
            name: None,
            timeout: CachePeers::TIMEOUT,
            hot: CachePeers::HOT_REQUESTS as usize,
            hot_memory: CachePeers::HOT_PERCENT,
        }
    }
}

pub(crate) const PEERS: Inline<PeersWritten> = Inline {
    title: "peers",
    example: "{ listen = \"10.0.0.1:7443\", address = \"10.0.0.1:7443\", members = [\"10.0.0.1:7443\", …], ca = …, \
              cert = …, key = … }",
    table: &Table {
        options: &[
            required!(
                "listen",
                Maybe(At(Text {
                    expected: LISTEN_ADDRESS,
                    read: listen_address,
                    print: ToString::to_string,
                })),
                PeersWritten.listen,
                "Address to listen on for the other instances: HTTP/2 with TLS, for clients with a certificate. Choose \
                 a private one.",
            ),
            required!(
                "address",
                Maybe(At(MEMBER)),
                PeersWritten.address,
                "Address at which the other instances reach this one: a host and a port.",
            ),
            key!(
                "members",
                Maybe(List { kind: At(MEMBER), may_be_empty: false }),
                PeersWritten.members,
                "The `address` of each instance, this one included, in any order. Default: the instances \
                 with the same configuration in etcd, which publish their addresses there.",
            ),
            required!(
                "ca",
                PATH_KIND,
                PeersWritten.ca,
                "The CA certificates that sign the certificates of instances, and no others, in PEM.",
            ),
            required!(
                "cert",
                PATH_KIND,
                PeersWritten.cert,
                "The certificate of this instance, for both sides of a connection, followed by the intermediate \
                 certificates, in PEM.",
            ),
            required!("key", PATH_KIND, PeersWritten.key, "The private key of `cert`, in PEM.",),
            key!(
                "name",
                Maybe(Text { expected: TLS_NAME, read: tls_name, print: String::clone }),
                PeersWritten.name,
                "A name that the certificate of each instance must have, on both sides of a connection. \
                 Default: for listening instances the host of their `address`, for connecting ones any \
                 certificate from `ca`.",
            ),
            key!(
                "timeout",
                Wait { range: Duration::from_millis(100)..=Duration::from_secs(60) },
                PeersWritten.timeout,
                "How long to wait for a connection to another instance, and for its first answer. Then the \
                 request goes to the upstream. An instance that has to ask the upstream reports this at \
                 once, and then has as much time as the upstream.",
            ),
            key!(
                "hot",
                Count { range: 0..=1_000_000, unit: Unit::Things },
                PeersWritten.hot,
                "From this number of requests for a key within 10s on, its response is kept here as well, \
                 for 10s at most and no longer than it is fresh. 0: never.",
            ),
            key!(
                "hot_memory",
                Count { range: 1..=50, unit: Unit::Percent },
                PeersWritten.hot_memory,
                "The part of `memory` for these responses.",
            ),
        ],
    },
};

const MEMBER_EXPECTED: &str = "a host with a port such as 10.0.0.1:7443 or edge-1.example.com:7443";
const MEMBER: Text<Server> = Text { expected: MEMBER_EXPECTED, read: member, print: written_member };

/// Parses the address of an instance: HOST:PORT.
fn member(text: &str) -> Result<Server, ValueError> {
    let refuse = |fault| ValueError { fault, expected: MEMBER_EXPECTED };
    let written = text.trim();
    if written.is_empty() {
        return Err(refuse(ValueFault::Empty));
    }
    if let Some((scheme, _)) = written.split_once("://") {
        return Err(refuse(ValueFault::UnknownScheme(scheme.to_owned())));
    }
    let server: Server =
        format!("https://{written}").parse().map_err(|error: ValueError| refuse(error.fault))?;
    let digits =
        written.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    if !digits || matches!(server.host, ServerHost::Unix(_)) {
        return Err(refuse(ValueFault::NoPort(written.to_owned())));
    }
    Ok(server)
}

pub(crate) fn written_member(server: &Server) -> String {
    format!("{}:{}", server.host, server.port)
}

impl PeersWritten {
    /// The files that it names, with their options.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&'static str, &Located<PathBuf>)> {
        let named = [("ca", &self.ca), ("cert", &self.cert), ("key", &self.key)];
        named.into_iter().filter_map(|(option, path)| Some((option, path.as_ref()?)))
    }

    /// The settings that the options describe; `None` if a required one is missing, which is reported elsewhere.
    pub(crate) fn meaning(&self) -> Option<CachePeers> {
        let Self { listen, address, members, ca, cert, key, name, timeout, hot, hot_memory } = self.clone();
        let file = |path: Path| path.map(|path| path.value);
        Some(CachePeers {
            listen: listen?.value,
            address: address?.value,
            members: members.map(|members| members.into_iter().map(|member| member.value).collect()),
            ca: file(ca)?,
            certificate: KeyPair::new(file(cert)?, file(key)?),
            name,
            timeout,
            hot_requests: u32::try_from(hot).unwrap_or(u32::MAX),
            hot_percent: hot_memory,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_an_instance_has_a_host_and_a_port() {
        for (text, written) in [
            ("10.0.0.1:7443", Some("10.0.0.1:7443")),
            ("[2001:db8::1]:7443", Some("[2001:db8::1]:7443")),
            ("edge-1.example.com:443", Some("edge-1.example.com:443")),
            ("10.0.0.1", None),
            ("[2001:db8::1]", None),
            ("edge-1.example.com", None),
            ("https://10.0.0.1:7443", None),
            ("10.0.0.1:7443/path", None),
            ("10.0.0.1:0", None),
            ("", None),
        ] {
            assert_eq!(member(text).ok().as_ref().map(written_member).as_deref(), written, "{text:?}");
        }
    }
}
