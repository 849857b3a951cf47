//! Listeners, from `bind`.

use super::HaproxyAdapter;
use super::syntax::HaproxyLine;
use crate::draft::{DraftTable, DraftValue, StatementOrigin};

/// Larger port ranges are not expanded.
const PORTS_MAX: u16 = 100;

#[derive(Debug, Clone)]
pub(super) struct Bind {
    /// The address as in routes.
    pub(super) address: String,
    pub(super) port: Option<u16>,
    pub(super) has_tls: bool,
}

impl<'s> HaproxyAdapter<'s> {
    /// Returns the listeners of a section. The caller sets `tcp`.
    pub(super) fn binds(&mut self, place: usize) -> Vec<Bind> {
        let mut binds = Vec::new();
        let section = &self.sections[place];
        for line in section.lines.iter().filter(|line| line.word(0) == "bind") {
            for address in line.word(1).split(',') {
                for (address, port) in self.addresses(address, line) {
                    if self
                        .sheet
                        .listeners
                        .iter()
                        .any(|known| known.get("address") == Some(&address.as_str().into()))
                    {
                        let why = format!("another line has {address} already");
                        self.sheet.refuse(line.number, &why, "leave one of them out");
                        continue;
                    }
                    let has_tls = line.has("ssl") || line.word(1).starts_with("quic");
                    let table = self.listener(&address, has_tls, line);
                    self.sheet.listeners.push(table);
                    binds.push(Bind { address, port, has_tls });
                }
            }
        }
        binds
    }

    /// Returns the addresses in one part of a `bind`.
    fn addresses(&mut self, text: &str, line: &'s HaproxyLine) -> Vec<(String, Option<u16>)> {
        let text = ["ipv4@", "ipv6@", "quic4@", "quic6@", "unix@"]
            .iter()
            .fold(text, |text, begin| text.trim_start_matches(begin));
        if text.starts_with('/') {
            return vec![(format!("unix:{text}"), None)];
        }
        let parts = text.rsplit_once(':');
        let ports = parts.and_then(|(_, ports)| {
            let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
            Some((first.parse::<u16>().ok()?, last.parse::<u16>().ok()?))
        });
        let (Some((host, _)), Some((first, last))) = (parts, ports) else {
            let instead = "write the address of the machine into `address`";
            self.sheet.refuse(line.number, "it has no address with a port", instead);
            return Vec::new();
        };
        let is_quoted = host.starts_with('[');
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let host = match bare {
            "" | "*" => "0.0.0.0".to_owned(),
            "localhost" => "127.0.0.1".to_owned(),
            // `:::80` is every address of IPv6.
            "::" if line.has("v4v6") => "*".to_owned(),
            bare if bare.contains(':') || is_quoted => format!("[{bare}]"),
            bare => bare.to_owned(),
        };
        let is_address = host == "*" || host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok();
        if !is_address || last < first || last - first >= PORTS_MAX {
            let instead = "write a [[listen]] for each address";
            self.sheet.refuse(line.number, "it is a name, or a range of more than 100 ports", instead);
            return Vec::new();
        }
        (first..=last).map(|port| (format!("{host}:{port}"), Some(port))).collect()
    }

    fn listener(&mut self, address: &str, has_tls: bool, line: &'s HaproxyLine) -> DraftTable {
        let from = vec![StatementOrigin::Directive(line.number)];
        let mut table = DraftTable::new("[[listen]]", Vec::new());
        table.set("address", address, from.clone());
        if line.has("accept-proxy") {
            let everybody = DraftValue::List(vec!["0.0.0.0/0".into(), "::/0".into()]);
            table.set("proxy_protocol", everybody, from.clone());
            let instead = "name the networks of your load balancers in `proxy_protocol`";
            self.sheet.differs(line.number, "the header is taken from every address", instead);
        }
        if has_tls {
            self.tls(line, &mut table);
            let protocols = line.behind("alpn").or_else(|| line.behind("npn"));
            if protocols.is_some_and(|list| !list.split(',').any(|one| one == "h2")) {
                table.set("http2", false, from.clone());
            }
        }
        if line.word(1).starts_with("quic") {
            table.set("http3", true, from);
            let why = "TCP is accepted at this address, too";
            self.sheet.differs(line.number, why, "leave the other `bind` with its port out");
        }
        for word in [
            "interface",
            "transparent",
            "namespace",
            "tcp-ut",
            "tfo",
            "maxconn",
            "nice",
            "severity-output",
            "generate-certificates",
        ] {
            if line.words.iter().skip(2).any(|known| known == word) {
                self.sheet.differs(line.number, &format!("{word} has no counterpart"), "");
            }
        }
        table
    }

    fn tls(&mut self, line: &'s HaproxyLine, table: &mut DraftTable) {
        let mut certificates = Vec::new();
        let mut origins = vec![StatementOrigin::Directive(line.number)];
        for (index, word) in line.words.iter().enumerate() {
            if word == "crt-list" {
                let instead = "list its certificates in `certificates` of [listen.tls]";
                self.sheet.refuse(line.number, "lists of certificates are not read", instead);
            }
            let Some(file) = line.words.get(index + 1).filter(|_| word == "crt") else { continue };
            let (file, base) = self.based("crt-base", file);
            origins.extend(base.map(StatementOrigin::Directive));
            if file.ends_with('/') || !file.rsplit('/').next().unwrap_or_default().contains('.') {
                let why = "it may be a folder of certificates, and here each is named";
                let instead =
                    "list each in `certificates` of [listen.tls]: { cert = \"FILE\", key = \"FILE\" }";
                self.sheet.differs(line.number, why, instead);
            }
            let pair = [("cert".to_owned(), file.as_str().into()), ("key".to_owned(), file.as_str().into())];
            certificates.push(DraftValue::Table(pair.into()));
        }
        table.extend("tls", ("certificates", DraftValue::List(certificates)), origins);
        if line.has("strict-sni") {
            table.extend("tls", ("unknown_names", "refuse".into()), Vec::new());
        }
        self.versions(line, table);
        let Some(verify) = line.behind("verify").filter(|verify| *verify != "none") else { return };
        let Some(file) = line.behind("ca-file") else { return };
        let (file, base) = self.based("ca-base", file);
        let mode = if verify == "required" { "required" } else { "optional" };
        let mut pairs = vec![("mode".to_owned(), mode.into()), ("ca".to_owned(), file.into())];
        if let Some(list) = line.behind("crl-file") {
            pairs.push(("crls".to_owned(), DraftValue::List(vec![list.into()])));
        }
        table.extend(
            "tls",
            ("client_certificates", DraftValue::Table(pairs)),
            base.map(StatementOrigin::Directive).into_iter().collect(),
        );
    }

    /// Sets the TLS versions of a listener, from its line or from `global`.
    fn versions(&mut self, line: &'s HaproxyLine, table: &mut DraftTable) {
        let globals = self.sections.iter().filter(|section| section.kind() == "global");
        let default = globals
            .flat_map(|section| &section.lines)
            .find(|line| line.word(0) == "ssl-default-bind-options");
        for (word, key) in [("ssl-min-ver", "min_version"), ("ssl-max-ver", "max_version")] {
            let own = line.behind(word).map(|version| (version, None));
            let found =
                own.or_else(|| default.and_then(|line| Some((line.behind(word)?, Some(line.number)))));
            let Some((version, number)) = found else { continue };
            let origins: Vec<StatementOrigin> = number.map(StatementOrigin::Directive).into_iter().collect();
            match version {
                "TLSv1.3" => table.extend("tls", (key, "1.3".into()), origins),
                "TLSv1.2" => table.extend("tls", (key, "1.2".into()), origins),
                _ => {
                    let number = number.unwrap_or(line.number);
                    self.sheet.differs(
                        number,
                        "TLS 1.2 is the lowest version",
                        "nothing, unless clients are older than 2013",
                    );
                }
            }
        }
        if line.has("ciphers") || line.has("ciphersuites") {
            let why = "only secure cipher suites are offered, in Vanward's order";
            self.sheet.differs(line.number, why, "`ciphers` of [listen.tls] takes their IANA names");
        }
    }
}
