//! Address of a cluster's API server, and credentials for it.

use std::path::{Path, PathBuf};

use config::KeyPair;

/// Folder of a pod's token and CA.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const SECURE: &str = "kubernetes://";
const PLAIN: &str = "kubernetes+http://";
const EXPECTED: &str = "kubernetes:// within a cluster, kubernetes://HOST:PORT, or kubernetes+http://HOST:PORT for \
                        `kubectl proxy`";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterCredentials {
    pub is_secure: bool,
    /// A name or an address; IPv6 without brackets.
    pub host: String,
    pub port: u16,
    /// CAs that sign the server's certificate; `None` means the system's.
    pub ca: Option<PathBuf>,
    /// A service account's token. It is read for each connection, because it is replaced before it expires.
    pub token: Option<PathBuf>,
    pub certificate: Option<KeyPair>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LocationFlags {
    pub ca: Option<PathBuf>,
    pub token: Option<PathBuf>,
    pub certificate: Option<KeyPair>,
}

impl ClusterCredentials {
    /// Whether a text is a URL of a cluster rather than a path.
    pub fn is_one(text: &str) -> bool {
        text.starts_with("kubernetes:") || text.starts_with("kubernetes+")
    }

    /// Parses a URL. `variable` reads environment variables. An error says what is expected.
    pub fn parse(
        text: &str,
        given: LocationFlags,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        let refused = |why: &str| format!("{text}: {why}; expected {EXPECTED}");
        let LocationFlags { ca, token, certificate } = given;
        let (is_secure, rest) = match (text.strip_prefix(SECURE), text.strip_prefix(PLAIN)) {
            (Some(""), _) => {
                let in_pod = |name: &str| {
                    let why = format!("this process is not in a pod of a cluster: {name} is not set");
                    variable(name).ok_or_else(|| refused(&why))
                };
                let (host, port) = (in_pod("KUBERNETES_SERVICE_HOST")?, in_pod("KUBERNETES_SERVICE_PORT")?);
                let port = port.parse().map_err(|_| refused("KUBERNETES_SERVICE_PORT is not a port"))?;
                let file = |name: &str| Some(Path::new(ACCOUNT).join(name));
                let (ca, token) = (ca.or_else(|| file("ca.crt")), token.or_else(|| file("token")));
                return Ok(Self { is_secure: true, host, port, ca, token, certificate });
            }
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => return Err(refused("this is not the URL of a cluster")),
        };
        let rest = rest.trim_end_matches('/');
        let (host, port) = rest.rsplit_once(':').ok_or_else(|| refused("it has no port"))?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-:".contains(&byte);
        if host.is_empty() || !host.bytes().all(is_host) {
            return Err(refused("it has no host"));
        }
        let port = port.parse().map_err(|_| refused("it has no port"))?;
        let is_here = host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
        if !is_secure && (token.is_some() || !is_here) {
            return Err(refused("secrets and tokens would cross the network in the clear"));
        }
        Ok(Self { is_secure, host: host.to_owned(), port, ca, token, certificate })
    }

    pub(crate) fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

/// The namespace of this pod; `None` outside of a cluster.
pub fn own_namespace() -> Option<String> {
    let text = std::fs::read_to_string(Path::new(ACCOUNT).join("namespace")).ok()?;
    text.lines().next().map(str::to_owned).filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str, given: LocationFlags) -> Result<ClusterCredentials, String> {
        ClusterCredentials::parse(text, given, |name| {
            (name == "KUBERNETES_SERVICE_HOST").then(|| "10.0.0.1".to_owned())
        })
    }

    #[test]
    fn urls_name_a_server_or_the_cluster_of_the_pod() {
        let server = |is_secure, host: &str, port| ClusterCredentials {
            is_secure,
            host: host.to_owned(),
            port,
            ca: None,
            token: None,
            certificate: None,
        };
        for (text, expected) in [
            ("kubernetes://a.example:6443", Ok(server(true, "a.example", 6443))),
            ("kubernetes://[::1]:6443/", Ok(server(true, "::1", 6443))),
            ("kubernetes+http://127.0.0.1:8001", Ok(server(false, "127.0.0.1", 8001))),
            ("kubernetes+http://10.0.0.1:8001", Err("in the clear")),
            ("kubernetes://a.example", Err("it has no port")),
            ("kubernetes://:1", Err("it has no host")),
            ("kubernetes://a/b:1", Err("it has no host")),
            ("kubernetes:x", Err("not the URL of a cluster")),
            ("kubernetes://", Err("KUBERNETES_SERVICE_PORT is not set")),
        ] {
            match (parsed(text, LocationFlags::default()), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected),
                (Err(why), Err(expected)) => assert!(why.contains(expected), "{why}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
        let token = LocationFlags { token: Some("t".into()), ..LocationFlags::default() };
        assert!(parsed("kubernetes+http://127.0.0.1:1", token).is_err());
        let both = |_: &str| Some("7".to_owned());
        let pod = ClusterCredentials::parse("kubernetes://", LocationFlags::default(), both).expect("a pod");
        assert_eq!((pod.authority().as_str(), pod.token.is_some(), pod.ca.is_some()), ("7:7", true, true));
    }
}
