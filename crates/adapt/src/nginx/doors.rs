//! Listeners. nginx declares them in each server; Vanward declares each address once, with the certificates of all
//! its servers.

use super::scope::BlockScope;
use super::syntax::Directive;
use super::{NginxAdapter, from};
use crate::RemarkKind;
use crate::draft::{DraftTable, DraftValue, StatementOrigin};

pub(super) struct Door {
    pub(super) address: String,
    pub(super) options: DraftTable,
    /// Servers that listen here, and the default one.
    pub(super) servers: Vec<usize>,
    pub(super) default: Option<usize>,
    has_tls: bool,
    certificates: Vec<DraftValue>,
    certificates_from: Vec<StatementOrigin>,
}

impl Door {
    /// Creates a listener of the block `stream`.
    pub(super) fn for_bytes(address: &str, origin: StatementOrigin) -> Self {
        Self::new(address, origin)
    }

    fn new(address: &str, origin: StatementOrigin) -> Self {
        let mut options = DraftTable::new("[[listen]]", Vec::new());
        options.set("address", address, vec![origin]);
        Self {
            address: address.to_owned(),
            options,
            servers: Vec::new(),
            default: None,
            has_tls: false,
            certificates: Vec::new(),
            certificates_from: Vec::new(),
        }
    }

    /// The server for unknown names: the declared default, else the first.
    pub(super) fn default_server(&self) -> Option<usize> {
        self.default.or(self.servers.first().copied())
    }

    pub(super) fn table(mut self) -> DraftTable {
        if !self.certificates.is_empty() {
            let certificates = DraftValue::List(self.certificates);
            self.options.extend("tls", ("certificates", certificates), self.certificates_from);
        }
        self.options
    }
}

/// TLS directives that a listener has only once.
const FOR_DOORS: [&str; 5] =
    ["ssl_protocols", "ssl_ciphers", "ssl_client_certificate", "ssl_verify_client", "ssl_reject_handshake"];

impl<'s> NginxAdapter<'s> {
    /// Returns a server's listeners as indices.
    pub(super) fn listen(&mut self, server: usize, scope: &BlockScope<'s>) -> Vec<usize> {
        let mut doors = Vec::new();
        for listen in scope.all("listen") {
            let Some(address) = self.address(listen) else { continue };
            let door = self.door(&address, StatementOrigin::Directive(listen.number));
            if !self.doors[door].servers.contains(&server) {
                self.doors[door].servers.push(server);
            }
            self.listen_words(listen, door, server);
            if !doors.contains(&door) {
                doors.push(door);
            }
        }
        if scope.here("listen").is_none() {
            let door = self.door("0.0.0.0:80", StatementOrigin::Default("the default of nginx's listen"));
            self.doors[door].servers.push(server);
            doors.push(door);
        }
        if scope.one("ssl").is_some_and(|ssl| ssl.word(0) == "on") {
            doors.iter().for_each(|door| self.doors[*door].has_tls = true);
        }
        if let Some(http2) = scope.one("http2") {
            let is_on = http2.word(0) == "on";
            doors.iter().for_each(|door| self.doors[*door].options.set("http2", is_on, from(http2)));
        }
        for door in &doors {
            if self.doors[*door].has_tls {
                self.certificates(*door, scope);
            }
        }
        doors
    }

    fn door(&mut self, address: &str, origin: StatementOrigin) -> usize {
        if let Some(known) = self.doors.iter().position(|door| door.address == address) {
            self.doors[known].options.cite("address", origin);
            return known;
        }
        self.doors.push(Door::new(address, origin));
        self.doors.len() - 1
    }

    pub(super) fn address(&mut self, listen: &Directive) -> Option<String> {
        let word = listen.word(0);
        if let Some(path) = word.strip_prefix("unix:") {
            return Some(format!("unix:{path}"));
        }
        let (host, port) = match word.rsplit_once(':') {
            Some((host, port)) if !host.ends_with(':') && port.parse::<u16>().is_ok() => (host, port),
            _ if word.parse::<u16>().is_ok() => ("*", word),
            _ => (word, "80"),
        };
        // nginx's `*` is every address of IPv4.
        let host = match host {
            "*" => "0.0.0.0",
            "localhost" => "127.0.0.1",
            host => host,
        };
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        if bare.parse::<std::net::IpAddr>().is_ok() {
            return Some(format!("{host}:{port}"));
        }
        self.note(
            listen,
            RemarkKind::Refused,
            "it has a name instead of an address",
            "write the address of the machine",
        );
        None
    }

    fn listen_words(&mut self, listen: &'s Directive, door: usize, server: usize) {
        for word in listen.words.iter().skip(1) {
            let origin = from(listen);
            match word.as_str() {
                "ssl" => self.doors[door].has_tls = true,
                "quic" | "http3" => {
                    self.doors[door].has_tls = true;
                    self.doors[door].options.set("http3", true, origin);
                }
                "http2" => self.doors[door].options.set("http2", true, origin),
                "default_server" | "default" => self.doors[door].default = Some(server),
                "proxy_protocol" => self.introduced(listen, door),
                "reuseport" | "deferred" | "bind" | "ipv6only=on" | "spdy" => {}
                "ipv6only=off" => {
                    let instead = "write address = \"*:PORT\" for both, and leave the listener of IPv4 out";
                    self.note(listen, RemarkKind::Differs, "[::] is only IPv6", instead);
                }
                other => {
                    let why = format!("the socket option {other} has no equivalent");
                    self.note(listen, RemarkKind::Differs, &why, "");
                }
            }
        }
    }

    /// Translates `proxy_protocol`. nginx accepts the header from every client, and trusts those in `set_real_ip_from`.
    fn introduced(&mut self, listen: &'s Directive, door: usize) {
        let everybody = DraftValue::List(vec!["0.0.0.0/0".into(), "::/0".into()]);
        self.doors[door].options.set("proxy_protocol", everybody, from(listen));
        let why = "the header is taken from every address, and names the client";
        self.note(
            listen,
            RemarkKind::Differs,
            why,
            "name the networks of your load balancers in `proxy_protocol`",
        );
    }

    fn certificates(&mut self, door: usize, scope: &BlockScope<'s>) {
        let (certs, keys) = (scope.all("ssl_certificate"), scope.all("ssl_certificate_key"));
        for (index, cert) in certs.iter().enumerate() {
            let Some(key) = keys.get(index) else { continue };
            if cert.word(0).contains('$') || cert.word(0).starts_with("data:") || key.word(0).contains(':') {
                let why = "certificates are files, selected by the client's server name (SNI)";
                self.note(
                    cert,
                    RemarkKind::Refused,
                    why,
                    "list all of them in `certificates` of [listen.tls]",
                );
                continue;
            }
            let pair = [("cert".to_owned(), cert.word(0).into()), ("key".to_owned(), key.word(0).into())];
            let pair = DraftValue::Table(pair.into());
            let door = &mut self.doors[door];
            if !door.certificates.contains(&pair) {
                door.certificates.push(pair);
            }
            for directive in [cert, key] {
                let origin = StatementOrigin::Directive(directive.number);
                if !door.certificates_from.contains(&origin) {
                    door.certificates_from.push(origin);
                }
            }
        }
        for directive in FOR_DOORS.iter().filter_map(|name| scope.one(name)) {
            self.tls(door, directive, scope);
        }
    }

    fn tls(&mut self, door: usize, directive: &'s Directive, scope: &BlockScope<'s>) {
        match directive.name.as_str() {
            "ssl_protocols" => {
                let has = |version: &str| directive.words.iter().any(|word| word == version);
                if ["SSLv3", "TLSv1", "TLSv1.1"].iter().any(|old| has(old)) {
                    let why = "TLS 1.2 is the lowest version";
                    self.note(
                        directive,
                        RemarkKind::Differs,
                        why,
                        "nothing, unless clients are older than 2013",
                    );
                }
                let pair = match (has("TLSv1.2"), has("TLSv1.3")) {
                    (true, false) => ("max_version", "1.2"),
                    (false, true) => ("min_version", "1.3"),
                    _ => ("min_version", "1.2"),
                };
                self.door_option(door, directive, (pair.0, pair.1.into()));
            }
            "ssl_ciphers" => {
                let why = "only secure cipher suites are offered, in Vanward's order";
                self.note(
                    directive,
                    RemarkKind::Differs,
                    why,
                    "`ciphers` of [listen.tls] takes their IANA names",
                );
            }
            "ssl_verify_client" => {
                let mode = match directive.word(0) {
                    "on" => "required",
                    "optional" => "optional",
                    "off" => return self.note(directive, RemarkKind::NeedsNothing, "it is the default", ""),
                    _ => {
                        let why = "a certificate that the CA has not signed is refused";
                        return self.note(
                            directive,
                            RemarkKind::Refused,
                            why,
                            "choose \"required\" or \"optional\"",
                        );
                    }
                };
                let Some(ca) = scope.one("ssl_client_certificate") else { return };
                let table = [("mode".to_owned(), mode.into()), ("ca".to_owned(), ca.word(0).into())];
                self.door_option(door, directive, ("client_certificates", DraftValue::Table(table.into())));
                self.doors[door].options.cite("tls", StatementOrigin::Directive(ca.number));
                if self.doors[door].servers.len() > 1 {
                    let why = "it applies to all servers of this address";
                    let instead = "set it by name in `client_certificates_by_name` of [listen.tls]";
                    self.note(directive, RemarkKind::Differs, why, instead);
                }
            }
            "ssl_reject_handshake" if directive.word(0) == "on" => {
                self.door_option(door, directive, ("unknown_names", "refuse".into()));
            }
            "ssl_reject_handshake" => self.note(directive, RemarkKind::NeedsNothing, "it is the default", ""),
            // Translated with `ssl_verify_client`.
            _ => {}
        }
    }

    /// Sets a TLS option that all servers of the address share. The first value wins.
    fn door_option(&mut self, door: usize, directive: &Directive, (key, value): (&str, DraftValue)) {
        let options = &mut self.doors[door].options;
        if let Some(DraftValue::Table(pairs)) = options.get("tls")
            && let Some((_, known)) = pairs.iter().find(|(name, _)| name == key)
        {
            if *known != value {
                let why = "TLS is set up once for an address, and an earlier server has done so";
                return self.note(directive, RemarkKind::Refused, why, "choose what suits all its servers");
            }
            return options.cite("tls", StatementOrigin::Directive(directive.number));
        }
        options.extend("tls", (key, value), from(directive));
    }
}
