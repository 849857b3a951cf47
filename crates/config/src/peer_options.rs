//! Options of `[cache.peers]`, declared once, and their relations.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::host::{LISTEN_ADDRESS, TLS_NAME, listen_address, tls_name};
use crate::kind::{At, List, Located, Maybe, Text, located};
use crate::options::File;
use crate::range::{Count, Unit, Wait};
use crate::reader::Reader;
use crate::settings::{CachePeers, Server, ServerHost};
use crate::table::{Inline, Table, key, required};
use crate::tls::KeyPair;
use crate::tls_options::{PATH_KIND, Path};
use crate::value_error::{ValueError, ValueFault};

/// The parsed table `[cache.peers]`.
#[derive(Debug, Clone)]
pub(crate) struct PeersWritten {
    pub(crate) listen: Option<Located<SocketAddr>>,
    address: Option<Located<Server>>,
    members: Option<Vec<Located<Server>>>,
    ca: Path,
    cert: Path,
    key: Path,
    name: Option<String>,
    timeout: Duration,
    hot: usize,
    hot_memory: u32,
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
            &required(
                "listen",
                Maybe(At(Text {
                    expected: LISTEN_ADDRESS,
                    read: listen_address,
                    print: ToString::to_string,
                })),
                |peers: &mut PeersWritten| &mut peers.listen,
                "Address to listen on for the other instances: HTTP/2 with TLS, for clients with a certificate. Choose \
                 a private one.",
            ),
            &required(
                "address",
                Maybe(At(MEMBER)),
                |peers: &mut PeersWritten| &mut peers.address,
                "How the other instances reach this one: a host and a port.",
            ),
            &key(
                "members",
                Maybe(List { kind: At(MEMBER), may_be_empty: false }),
                |peers: &mut PeersWritten| &mut peers.members,
                "The `address` of each instance, this one included, in any order. Default: those that run with the same \
                 configuration in etcd, as they tell there.",
            ),
            &required(
                "ca",
                PATH_KIND,
                |peers: &mut PeersWritten| &mut peers.ca,
                "The CA certificates that sign the certificates of instances, and of nobody else, in PEM.",
            ),
            &required(
                "cert",
                PATH_KIND,
                |peers: &mut PeersWritten| &mut peers.cert,
                "The certificate of this instance, for both sides of a connection, followed by the intermediate \
                 certificates, in PEM.",
            ),
            &required(
                "key",
                PATH_KIND,
                |peers: &mut PeersWritten| &mut peers.key,
                "The private key of `cert`, in PEM.",
            ),
            &key(
                "name",
                Maybe(Text { expected: TLS_NAME, read: tls_name, print: String::clone }),
                |peers: &mut PeersWritten| &mut peers.name,
                "A name that the certificate of each instance must have, on both sides of a connection. Default: the \
                 host of its `address` for who listens, and any certificate of `ca` for who connects.",
            ),
            &key(
                "timeout",
                Wait { range: Duration::from_millis(100)..=Duration::from_secs(60) },
                |peers: &mut PeersWritten| &mut peers.timeout,
                "How long to wait for a connection to another instance, and for its first sign of life. Then the \
                 request goes to the upstream. An instance that asks the upstream itself says so at once, and has as \
                 long as the upstream.",
            ),
            &key(
                "hot",
                Count { range: 0..=1_000_000, unit: Unit::Things },
                |peers: &mut PeersWritten| &mut peers.hot,
                "From so many requests for a key within 10s on, its response is kept here as well, for 10s at most and no longer \
                 than it is fresh. 0: never.",
            ),
            &key(
                "hot_memory",
                Count { range: 1..=50, unit: Unit::Percent },
                |peers: &mut PeersWritten| &mut peers.hot_memory,
                "The part of `memory` that what is kept so may take.",
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

fn written_member(server: &Server) -> String {
    format!("{}:{}", server.host, server.port)
}

/// Adds mistakes about the instances, and about names that belong to the cache.
pub(crate) fn check(file: &File, reader: &mut Reader<'_>) {
    let peers = file.cache.as_ref().and_then(|cache| cache.value.peers.as_ref());
    let Some(peers) = peers else { return };
    let PeersWritten { address, members, .. } = &peers.value;
    let mut places = HashMap::new();
    for Located { value, at } in members.iter().flatten() {
        let first = *places.entry(value.to_string()).or_insert(at);
        if first != at {
            let mistake = reader.mistake(at, format!("members: {} is there twice", written_member(value)));
            reader.add(mistake.expecting("each instance once"));
        }
    }
    if let Some(Located { value, at }) = address
        // One that cannot be read may be it.
        && peers.is_intact
        && members.is_some()
        && !places.contains_key(&value.to_string())
    {
        let what = format!("address: {} is not among the members", written_member(value));
        reader.add(reader.mistake(at, what).expecting("one of members"));
    }
    let upstreams = file.upstreams.iter().map(|(at, name, _)| (name.as_str(), at));
    let names = file.listen.iter().filter_map(|listen| listen.value.name.as_ref());
    let listeners = names.map(|Located { value, at }| (value.as_str(), at));
    for (_, at) in upstreams.chain(listeners).filter(|(name, _)| *name == CachePeers::NAME) {
        let what = format!("{:?} is what the instances of [cache.peers] are called", CachePeers::NAME);
        reader.add(reader.mistake(at, what).expecting("another name"));
    }
}

impl PeersWritten {
    /// The files that it names, with their options.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&'static str, &Located<PathBuf>)> {
        let named = [("ca", &self.ca), ("cert", &self.cert), ("key", &self.key)];
        named.into_iter().filter_map(|(option, path)| Some((option, path.as_ref()?)))
    }

    /// The settings that the options describe; `None` if a required one is missing, which is a mistake of its own.
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

impl From<&CachePeers> for PeersWritten {
    fn from(peers: &CachePeers) -> Self {
        let CachePeers {
            listen,
            address,
            members,
            ca,
            certificate,
            name,
            timeout,
            hot_requests,
            hot_percent,
        } = peers.clone();
        let file = |path: PathBuf| Some(located(path));
        Self {
            listen: Some(located(listen)),
            address: Some(located(address)),
            members: members.map(|members| members.into_iter().map(located).collect()),
            ca: file(ca),
            cert: file(certificate.cert),
            key: file(certificate.key),
            name,
            timeout,
            hot: usize::try_from(hot_requests).unwrap_or(usize::MAX),
            hot_memory: hot_percent,
        }
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
