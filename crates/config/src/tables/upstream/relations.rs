//! Rules between the options of an upstream, for files and for settings that a program changes.

use std::collections::HashMap;

use balance::{BreakerSettings, EjectionSettings, PolicyRow, SERVERS_MAX, SessionSource};

use crate::option::server::{Scheme, Server, ServerHost};
use crate::tables::tls::negotiation::TlsVersion;
use crate::tables::upstream::watch::CheckType;
use crate::tables::upstream::{Check, Protocol, StickySessions, StickyTable, Upstream};

/// The options that depend on each other.
pub(crate) struct Relations<'u> {
    pub(crate) servers: Vec<&'u Server>,
    pub(crate) balance: &'static PolicyRow,
    pub(crate) hash_key: Option<&'u SessionSource>,
    /// The key of sticky sessions; `Some(None)` for the inserted cookie.
    pub(crate) sticky: Option<Option<&'u SessionSource>>,
    pub(crate) check: Option<CheckRelations>,
    pub(crate) eject: Option<&'u EjectionSettings>,
    pub(crate) breaker: Option<&'u BreakerSettings>,
    pub(crate) protocol: Protocol,
    pub(crate) has_fastcgi: bool,
    pub(crate) sends_proxy_protocol: bool,
    pub(crate) permits_tls13: bool,
    /// Whether the name in certificates is written, or certificates are not verified.
    pub(crate) is_name_known: bool,
}

/// The options of health checks that depend on others.
#[derive(Clone, Copy)]
pub(crate) struct CheckRelations {
    pub(crate) kind: CheckType,
    pub(crate) has_port: bool,
    pub(crate) is_slower_in_doubt: bool,
}

/// The option that breaks a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UpstreamPlace {
    Upstream,
    Server(usize),
    HashKey,
    Sticky,
    Check,
    Eject,
    Breaker,
    ProxyProtocol,
    Fastcgi,
    MaxVersion,
}

pub(crate) struct Broken {
    pub(crate) at: UpstreamPlace,
    pub(crate) message: String,
    pub(crate) expected: String,
    /// The server that has the name already.
    pub(crate) first: Option<usize>,
}

impl<'u> Relations<'u> {
    /// The options of an upstream in force.
    pub(crate) fn from_upstream(upstream: &'u Upstream) -> Self {
        let check = |Check { settings, port, probe, .. }: &Check| CheckRelations {
            kind: probe.kind(),
            has_port: port.is_some(),
            is_slower_in_doubt: settings.interval_in_doubt > settings.interval,
        };
        let tls = &upstream.tls;
        Self {
            servers: upstream.servers.iter().collect(),
            balance: upstream.balance,
            hash_key: upstream.balance.hashes.then_some(&upstream.hash_key),
            sticky: upstream.sticky.as_ref().map(|sticky| match sticky {
                StickySessions::Cookie(_) => None,
                StickySessions::Table(StickyTable { source, .. }) => Some(source),
            }),
            check: upstream.check.as_ref().map(check),
            eject: upstream.settings.ejection.as_ref(),
            breaker: upstream.settings.breaker.as_ref(),
            protocol: upstream.protocol,
            has_fastcgi: upstream.fastcgi.is_some(),
            sends_proxy_protocol: upstream.send_proxy_protocol.is_some(),
            permits_tls13: tls.negotiation.permits(TlsVersion::Tls13),
            is_name_known: tls.name.is_some() || !tls.verify,
        }
    }

    /// The rules that the options break.
    pub(crate) fn broken(&self) -> Vec<Broken> {
        let mut broken = Vec::new();
        let mut refuse = |at: UpstreamPlace, message: String, expected: &str| {
            broken.push(Broken { at, message, expected: expected.to_owned(), first: None });
        };
        self.check_servers(&mut refuse);
        self.check_hash(&mut refuse);
        self.check_sticky(&mut refuse);
        self.check_times(&mut refuse);
        if self.sends_proxy_protocol && self.protocol.is_multiplexed() {
            let protocol = if self.protocol == Protocol::Http3 { "h3" } else { "h2" };
            let message = format!(
                "send_proxy_protocol names one client per connection, but with protocol = \"{protocol}\" \
                 clients share connections"
            );
            refuse(UpstreamPlace::ProxyProtocol, message, "protocol = \"http/1.1\"");
        }
        if self.protocol == Protocol::Http3 {
            self.check_http3(&mut refuse);
        }
        self.check_fastcgi(&mut refuse);
        broken.extend(self.names_twice());
        broken
    }

    fn check_servers(&self, refuse: &mut impl FnMut(UpstreamPlace, String, &str)) {
        if self.servers.len() > SERVERS_MAX {
            let message = "servers: there are too many".to_owned();
            refuse(UpstreamPlace::Upstream, message, &format!("at most {SERVERS_MAX}"));
        }
        for (place, server) in self.servers.iter().enumerate() {
            if let (ServerHost::Catalog(service), Scheme::Https, false) =
                (&server.host, server.scheme, self.is_name_known)
            {
                let message =
                    format!("servers: the certificates of {} need a name to be verified with", service.name);
                let expected = "tls.name as well: anyone who registers instances can choose their addresses, \
                                but not this name";
                refuse(UpstreamPlace::Server(place), message, expected);
            }
        }
    }

    fn names_twice(&self) -> impl Iterator<Item = Broken> {
        let mut names = HashMap::new();
        let named = self.servers.iter().enumerate();
        let named = named.filter_map(|(place, server)| Some((place, server.name.as_ref()?)));
        named.filter_map(move |(place, name)| {
            let first = names.insert(name, place)?;
            let message = format!("servers: the name {name:?} appears twice");
            let expected = "a name for each".to_owned();
            Some(Broken { at: UpstreamPlace::Server(place), message, expected, first: Some(first) })
        })
    }

    fn check_hash(&self, refuse: &mut impl FnMut(UpstreamPlace, String, &str)) {
        let policy = self.balance.name;
        let by_key = "balance = \"consistent-hash\"";
        let Some(key) = self.hash_key else { return };
        if !self.balance.hashes {
            refuse(UpstreamPlace::HashKey, format!("hash_key: balance = {policy:?} does not use it"), by_key);
        } else if policy == "client-address" && !matches!(key, SessionSource::ClientAddress(_)) {
            let message = "hash_key: balance = \"client-address\" hashes the client's address".to_owned();
            refuse(UpstreamPlace::HashKey, message, &format!("client or client/24, or {by_key}"));
        }
    }

    fn check_sticky(&self, refuse: &mut impl FnMut(UpstreamPlace, String, &str)) {
        let Some(by) = self.sticky else { return };
        let policy = self.balance.name;
        if self.balance.hashes {
            let message = format!("sticky: balance = {policy:?} already keeps clients on their servers");
            refuse(UpstreamPlace::Sticky, message, "another balance, or no sticky sessions");
        }
        let has_bytes = self.servers.iter().any(|server| server.scheme == Scheme::Tcp);
        if has_bytes && !matches!(by, Some(SessionSource::ClientAddress(_))) {
            let message = "sticky: for a tcp:// server, only the client's address is known".to_owned();
            refuse(UpstreamPlace::Sticky, message, "by = \"client\"");
        }
    }

    fn check_times(&self, refuse: &mut impl FnMut(UpstreamPlace, String, &str)) {
        if self.eject.is_some_and(|eject| eject.longest < eject.base) {
            refuse(
                UpstreamPlace::Eject,
                "eject: longest is shorter than base".to_owned(),
                "the same or more",
            );
        }
        if self.breaker.is_some_and(|breaker| breaker.open_max < breaker.open) {
            refuse(
                UpstreamPlace::Breaker,
                "breaker: open_max is shorter than open".to_owned(),
                "the same or more",
            );
        }
        let Some(check) = self.check else { return };
        if check.is_slower_in_doubt {
            let message = "check: interval_in_doubt is longer than interval".to_owned();
            refuse(UpstreamPlace::Check, message, "the same or less");
        }
        let has_unix = self.servers.iter().any(|server| matches!(server.host, ServerHost::Unix(_)));
        if check.has_port && has_unix {
            refuse(UpstreamPlace::Check, "check: a Unix socket has no port".to_owned(), "no port");
        }
    }

    /// Rejects what HTTP/3 does not have.
    fn check_http3(&self, refuse: &mut impl FnMut(UpstreamPlace, String, &str)) {
        for (place, server) in self.servers.iter().enumerate() {
            if server.scheme != Scheme::Https {
                // RFC 9114 §3.1, RFC 9001: QUIC is encrypted always.
                let message = format!("servers: {server} has no TLS, which protocol = \"h3\" needs");
                let expected = "an https:// URL, or protocol = \"h2\" or \"http/1.1\"";
                refuse(UpstreamPlace::Server(place), message, expected);
            }
        }
        if !self.permits_tls13 {
            let message = "max_version: protocol = \"h3\" needs TLS 1.3, which QUIC is based on".to_owned();
            refuse(UpstreamPlace::MaxVersion, message, "\"1.3\", or no max_version");
        }
        if self.check.is_some_and(|check| check.kind == CheckType::Tcp) {
            let message =
                "check: type = \"tcp\" does not reach servers with protocol = \"h3\", which listen at UDP"
                    .to_owned();
            let expected = "type = \"tls\", which does a QUIC handshake, or \"http\"";
            refuse(UpstreamPlace::Check, message, expected);
        }
    }

    /// Rejects what FastCGI does not have, and `fastcgi` without such servers.
    fn check_fastcgi(&self, refuse: &mut impl FnMut(UpstreamPlace, String, &str)) {
        let is_application = |server: &Server| server.scheme == Scheme::Fcgi;
        let Some(first) = self.servers.iter().position(|server| is_application(server)) else {
            if self.has_fastcgi && !self.servers.is_empty() {
                let message = "fastcgi: there is no fcgi:// server".to_owned();
                refuse(UpstreamPlace::Fastcgi, message, "servers such as fcgi://127.0.0.1:9000");
            }
            return;
        };
        if !self.has_fastcgi {
            let message = format!("servers: {} needs to know its scripts", self.servers[first]);
            refuse(UpstreamPlace::Server(first), message, "fastcgi = { root = \"/srv/app/public\" }");
        }
        if let Some(other) = self.servers.iter().position(|server| !is_application(server)) {
            let message = format!("servers: {} does not speak FastCGI as the others do", self.servers[other]);
            refuse(UpstreamPlace::Server(other), message, "an upstream for each protocol");
        }
        if self.protocol.is_multiplexed() {
            let message = "protocol: fcgi:// servers speak FastCGI".to_owned();
            refuse(UpstreamPlace::Upstream, message, "no protocol");
        }
        if self.sends_proxy_protocol {
            let message = "send_proxy_protocol: applications behind FastCGI read no PROXY header".to_owned();
            refuse(UpstreamPlace::ProxyProtocol, message, "no such option: REMOTE_ADDR names the client");
        }
        if let Some(CheckRelations { kind: CheckType::Tls | CheckType::Grpc, .. }) = self.check {
            let message = "check: fcgi:// servers have neither TLS nor gRPC".to_owned();
            refuse(UpstreamPlace::Check, message, "type = \"http\" with the path of a ping page, or \"tcp\"");
        }
    }
}
