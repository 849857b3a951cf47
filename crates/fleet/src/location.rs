//! The URL of a configuration in etcd: `etcd://host:2379,host:2379/prefix`.

use std::fmt;

use crate::etcd::EtcdKeys;

const PORT: u16 = 2379;
const SECURE: &str = "etcd://";
const PLAIN: &str = "etcd+http://";
const EXPECTED: &str = "etcd://HOST:PORT,HOST:PORT/PREFIX (over TLS), or etcd+http:// (in the clear)";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    pub is_secure: bool,
    /// At least one.
    pub endpoints: Vec<EtcdEndpoint>,
    /// The key of the only file, if it ends in `.toml`; else the prefix of all keys, without the trailing slash.
    pub prefix: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EtcdEndpoint {
    /// A name or an address; IPv6 without brackets.
    pub host: String,
    pub port: u16,
}

impl Location {
    /// Whether a text is such a URL rather than a path.
    pub fn is_one(text: &str) -> bool {
        text.starts_with("etcd:") || text.starts_with("etcd+")
    }

    /// An error says what is expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let refused = |why: &str| format!("{text}: {why}; expected {EXPECTED}");
        let (is_secure, rest) = match (text.strip_prefix(SECURE), text.strip_prefix(PLAIN)) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => return Err(refused("this is no URL of etcd")),
        };
        let (hosts, prefix) = rest.split_once('/').ok_or_else(|| refused("it has no prefix"))?;
        if hosts.contains('@') {
            return Err(format!(
                "{text}: a user is given by --etcd-user, a password by --etcd-password-file"
            ));
        }
        let prefix = prefix.trim_end_matches('/');
        let is_key = |byte: u8| byte.is_ascii_graphic() && !b"?#%\"\\".contains(&byte);
        if prefix.is_empty() {
            return Err(refused("it has no prefix"));
        }
        if !prefix.bytes().all(is_key)
            || prefix.split('/').any(|part| part.is_empty() || part == "." || part == "..")
        {
            return Err(refused("its prefix is no path of a key"));
        }
        let endpoints: Result<Vec<_>, String> = hosts
            .split(',')
            .map(|host| endpoint(host).ok_or_else(|| refused(&format!("{host:?} is no host"))))
            .collect();
        Ok(Self { is_secure, endpoints: endpoints?, prefix: format!("/{prefix}") })
    }

    pub fn keys(&self) -> EtcdKeys {
        let Self { prefix, .. } = self;
        if self.is_one_file() { EtcdKeys::One(prefix.clone()) } else { EtcdKeys::Below(format!("{prefix}/")) }
    }

    /// Whether the configuration is a single key rather than a tree.
    pub fn is_one_file(&self) -> bool {
        self.prefix.ends_with(".toml")
    }

    /// Returns the name of a file in messages: `etcd:` and its key.
    pub(crate) fn shown(&self, name: &str) -> String {
        let Self { prefix, .. } = self;
        if self.is_one_file() { format!("etcd:{prefix}") } else { format!("etcd:{prefix}/{name}") }
    }

    /// Returns a key of the fleet's own state, outside of the configuration's prefix: neither is read as the other.
    pub(crate) fn own(&self, rest: &str) -> String {
        format!("{}.fleet/{rest}", self.prefix)
    }
}

fn endpoint(text: &str) -> Option<EtcdEndpoint> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (host, port.strip_prefix(':').or(port.is_empty().then_some("")))
        }
        None => text.split_once(':').map_or((text, Some("")), |(host, port)| (host, Some(port))),
    };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    if host.is_empty() || !host.bytes().all(is_name) {
        return None;
    }
    let port = match port? {
        "" => PORT,
        digits => digits.parse().ok().filter(|port| *port > 0)?,
    };
    Some(EtcdEndpoint { host: host.to_owned(), port })
}

impl fmt::Display for EtcdEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<String> = self.endpoints.iter().map(ToString::to_string).collect();
        let scheme = if self.is_secure { SECURE } else { PLAIN };
        write!(f, "{scheme}{}{}", hosts.join(","), self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_printed() {
        for (text, expected) in [
            ("etcd://a/edge", Ok("etcd://a:2379/edge")),
            ("etcd://a:1,b.example:2,192.0.2.1:3/x/y/", Ok("etcd://a:1,b.example:2,192.0.2.1:3/x/y")),
            ("etcd+http://127.0.0.1/edge", Ok("etcd+http://127.0.0.1:2379/edge")),
            ("etcd://[::1]:5,[::2]/e", Ok("etcd://[::1]:5,[::2]:2379/e")),
            ("etcd://a", Err("it has no prefix")),
            ("etcd://a/", Err("it has no prefix")),
            ("etcd:///x", Err("\"\" is no host")),
            ("etcd://a,/x", Err("\"\" is no host")),
            ("etcd://a:0/x", Err("\"a:0\" is no host")),
            ("etcd://a:99999/x", Err("is no host")),
            ("etcd://[::1/x", Err("is no host")),
            ("etcd://[a]/x", Err("is no host")),
            ("etcd://a b/x", Err("is no host")),
            ("etcd://a/x//y", Err("is no path of a key")),
            ("etcd://a/../y", Err("is no path of a key")),
            ("etcd://a/x?y=1", Err("is no path of a key")),
            ("etcd://u:p@a/x", Err("--etcd-user")),
            ("etcd+https://a/x", Err("this is no URL of etcd")),
            ("etcd:a/x", Err("this is no URL of etcd")),
        ] {
            assert!(Location::is_one(text), "{text}");
            match (Location::parse(text), expected) {
                (Ok(location), Ok(printed)) => assert_eq!(location.to_string(), printed),
                (Err(why), Err(part)) => assert!(why.contains(part), "{why}"),
                (read, _) => panic!("{text}: {read:?}"),
            }
        }
        assert!(!Location::is_one("vanward.toml") && !Location::is_one("/etc/etcd/x.toml"));
    }
}
