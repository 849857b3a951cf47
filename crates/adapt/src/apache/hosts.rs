//! Listeners, and virtual hosts by name. The first virtual host of an address serves unknown names.

use super::sections::Section;
use super::{ApacheAdapter, from, is_on, last};
use crate::RemarkKind;
use crate::draft::{DraftTable, DraftValue, StatementOrigin};
use crate::rules::{self, Atom, Expression, Holds, HostIs, RegionOutcome, Test};
use crate::source::Directive;
use crate::values;

/// A virtual host, or the whole file if it has none.
pub(super) struct VirtualHost<'d> {
    pub(super) directive: Option<&'d Directive>,
    pub(super) inner: &'d [Directive],
    names: Expression,
    pub(super) sections: Vec<Section<'d>>,
}

/// Directives outside of all virtual hosts that would be those of each.
const INHERITED: [&str; 9] = [
    "proxypass",
    "proxypassmatch",
    "redirect",
    "redirectmatch",
    "redirectpermanent",
    "redirecttemp",
    "header",
    "requestheader",
    "proxypreservehost",
];
/// Directives outside of all virtual hosts that count in each of them: their guards are not lost.
const OF_ALL: [&str; 8] = [
    "<location>",
    "<locationmatch>",
    "<proxy>",
    "<proxymatch>",
    "<if>",
    "<limit>",
    "<limitexcept>",
    "sslverifyclient",
];

impl<'s> ApacheAdapter<'s> {
    pub(super) fn hosts(&mut self, all: &[Directive]) {
        let hosts: Vec<&Directive> =
            all.iter().filter(|directive| directive.name == "<virtualhost>").collect();
        let mut listeners: Vec<(String, Vec<StatementOrigin>, Vec<VirtualHost<'_>>)> = Vec::new();
        let places = all.iter().chain(hosts.iter().flat_map(|host| host.inner()));
        let balancers: Vec<&Directive> =
            places.filter(|directive| directive.name.starts_with("<proxy")).collect();
        // A virtual host has balancers of its own: which one is meant is known if no other has the name.
        let is_only =
            |one: &&Directive| balancers.iter().filter(|other| other.words == one.words).count() == 1;
        let balancers: Vec<&Directive> = balancers.iter().copied().filter(is_only).collect();
        let of_all: Vec<&Directive> =
            all.iter().filter(|directive| OF_ALL.contains(&directive.name.as_str())).collect();
        if !hosts.is_empty() {
            for directive in all.iter().filter(|directive| INHERITED.contains(&directive.name.as_str())) {
                let instead = "write it into each VirtualHost that needs it";
                self.sheet.refuse(directive.number, "it stands outside of all virtual hosts", instead);
            }
        }
        let mut listens: Vec<(&Directive, &str)> = all
            .iter()
            .filter(|inner| inner.name == "listen")
            .map(|listen| (listen, listen.word(0)))
            .collect();
        if listens.is_empty() {
            // A file of one site: its `Listen` is in another one.
            listens =
                hosts.iter().flat_map(|host| host.words.iter().map(|word| (*host, word.as_str()))).collect();
        }
        for (listen, word) in listens {
            let Some(address) = address(word) else {
                self.sheet.refuse(listen.number, "it has no port", "write a [[listen]] with the address");
                continue;
            };
            let mut served = Vec::new();
            for host in &hosts {
                if host.words.iter().any(|word| is_at(word, &address)) {
                    served.push(self.virtual_host(Some(host), host.inner(), &of_all));
                }
            }
            if hosts.is_empty() {
                served.push(self.virtual_host(None, all, &[]));
            }
            if served.is_empty() {
                let why = "no virtual host is at this address";
                self.sheet.refuse(listen.number, why, "write a VirtualHost for it, or leave it out");
                continue;
            }
            if listeners.iter().any(|(known, ..)| *known == address) {
                self.sheet.needless(listen.number, "there is a listener with this address");
                continue;
            }
            listeners.push((address, from(listen), served));
        }
        let needs_names = listeners.len() > 1;
        for (address, origins, served) in &listeners {
            if let Some(has_tls) = self.listener(address, origins.clone(), served) {
                self.routes(needs_names.then_some(address), served, &balancers, has_tls);
            }
        }
        for host in hosts {
            let why = "requests get the same responses without it";
            self.sheet.say_if_unsaid(host.number, RemarkKind::NeedsNothing, why);
        }
    }

    /// Writes the routes of a listener's virtual hosts.
    fn routes(
        &mut self,
        listener: Option<&String>,
        served: &[VirtualHost<'_>],
        balancers: &[&Directive],
        has_tls: bool,
    ) {
        let mut tests: Vec<Test> = Vec::new();
        let first = first_needed(served);
        for (index, host) in served.iter().enumerate() {
            if index >= first {
                host.names.tests(&mut tests);
            }
            self.tests_of(host, &mut tests);
        }
        let schema = self.sheet.definitions.schema();
        let found =
            rules::routes(&tests, &schema, &mut |holds| self.judge(served, balancers, holds, has_tls));
        self.sheet.report(&found);
        for mut table in found.tables {
            super::targets::replace_prefix(&mut table);
            if let Some(listener) = listener {
                table.set_first("listener", listener.as_str());
            }
            self.sheet.routes.push(table);
        }
    }

    fn virtual_host<'d>(
        &mut self,
        directive: Option<&'d Directive>,
        inner: &'d [Directive],
        of_all: &[&'d Directive],
    ) -> VirtualHost<'d> {
        let mut names = Vec::new();
        for named in inner.iter().filter(|inner| matches!(inner.name.as_str(), "servername" | "serveralias"))
        {
            for word in &named.words {
                match host(word) {
                    Some(host) => names.push(Expression::Any(vec![Atom::Host(host)], named.number)),
                    None => {
                        let instead = "write the hosts into `host` of the [[route]]";
                        self.sheet.refuse(named.number, "it is no host", instead);
                    }
                }
            }
        }
        let sections = self.sections(of_all.iter().copied().chain(inner));
        VirtualHost { directive, inner, names: Expression::Either(names), sections }
    }

    /// Writes a listener. Returns whether it has TLS; `None` if its hosts differ in that, or have no certificate.
    fn listener(
        &mut self,
        address: &str,
        origins: Vec<StatementOrigin>,
        served: &[VirtualHost<'_>],
    ) -> Option<bool> {
        let mut table = DraftTable::new("[[listen]]", Vec::new());
        table.set("address", address, origins);
        let has_tls = |host: &VirtualHost<'_>| last(host.inner, "sslengine").is_some_and(is_on);
        let is_tls = served.iter().any(has_tls);
        for host in served.iter().filter(|_| is_tls) {
            let (cert, key) =
                (last(host.inner, "sslcertificatefile"), last(host.inner, "sslcertificatekeyfile"));
            let (true, Some(cert)) = (has_tls(host), cert) else {
                let number = host.directive.map_or(0, |directive| directive.number);
                let why = "other virtual hosts of this address have TLS, and this one has no certificate";
                self.sheet.refuse(number, why, "give it an address or a certificate of its own");
                return None;
            };
            let file = |directive: &Directive| DraftValue::from(directive.word(0));
            let pair = vec![("cert".to_owned(), file(cert)), ("key".to_owned(), file(key.unwrap_or(cert)))];
            let mut pairs = match table.inner("tls", "certificates") {
                Some(DraftValue::List(known)) => known.clone(),
                _ => Vec::new(),
            };
            if !pairs.contains(&DraftValue::Table(pair.clone())) {
                pairs.push(DraftValue::Table(pair));
            }
            let mut origins = from(cert);
            origins.extend(key.into_iter().flat_map(from));
            origins.extend(last(host.inner, "sslengine").into_iter().flat_map(from));
            table.extend("tls", ("certificates", DraftValue::List(pairs)), origins);
        }
        self.sheet.listeners.push(table);
        Some(is_tls)
    }

    fn judge(
        &mut self,
        served: &[VirtualHost<'_>],
        balancers: &[&Directive],
        holds: &Holds<'_>,
        has_tls: bool,
    ) -> RegionOutcome {
        let mut made = RegionOutcome { from: Vec::new(), options: DraftTable::default() };
        let mut named = served.iter().skip(first_needed(served));
        let named = named.find(|host| host.names.verdict(holds, has_tls) == Ok(true));
        let Some(host) = named.or_else(|| served.first()) else { return made };
        made.from.extend(host.directive.into_iter().flat_map(from));
        if self.guarded(host, holds, &mut made) {
            return made;
        }
        self.target(host, balancers, holds, &mut made);
        made
    }
}

/// The first virtual host whose names matter: those of the first one do only if another one has such names, too.
fn first_needed(served: &[VirtualHost<'_>]) -> usize {
    let names = |host: &VirtualHost<'_>| -> Vec<Atom> {
        let Expression::Either(parts) = &host.names else { return Vec::new() };
        let atoms = parts.iter().flat_map(|part| match part {
            Expression::Any(atoms, _) => atoms.clone(),
            _ => Vec::new(),
        });
        atoms.collect()
    };
    let Some((first, others)) = served.split_first() else { return 0 };
    let (own, others): (Vec<Atom>, Vec<Atom>) = (names(first), others.iter().flat_map(names).collect());
    let is_exact = |atom: &Atom| matches!(atom, Atom::Host(HostIs::Exact(_)));
    let is_apart = others.is_empty()
        || own.iter().chain(&others).all(is_exact) && !own.iter().any(|name| others.contains(name));
    usize::from(is_apart)
}

/// The address of a `Listen`, as in [[listen]].
fn address(word: &str) -> Option<String> {
    let (host, port) = word.rsplit_once(':').unwrap_or(("*", word));
    let port = port.parse::<u16>().ok()?;
    let bare = host.trim_matches(['[', ']']);
    let host = match bare.parse::<std::net::IpAddr>() {
        Ok(address) if address.is_unspecified() => "*".to_owned(),
        Ok(std::net::IpAddr::V6(_)) => format!("[{bare}]"),
        Ok(_) => bare.to_owned(),
        Err(_) if matches!(bare, "*" | "_default_") => "*".to_owned(),
        Err(_) => return None,
    };
    Some(format!("{host}:{port}"))
}

/// Whether a virtual host is at a listener's address.
fn is_at(word: &str, address: &str) -> bool {
    let (host, port) = word.rsplit_once(':').unwrap_or((word, "*"));
    let (known_host, known_port) = address.rsplit_once(':').unwrap_or((address, ""));
    let is_any = matches!(host, "*" | "_default_" | "0.0.0.0" | "[::]");
    (is_any || host == known_host) && (port == "*" || port == known_port)
}

/// A host; `*` and `?` are wildcards.
fn host(word: &str) -> Option<HostIs> {
    let word = word.rsplit_once("://").map_or(word, |(_, rest)| rest);
    let word = word.split(':').next().unwrap_or_default().to_ascii_lowercase();
    let inner = word.strip_prefix("*.").unwrap_or(&word);
    if !inner.contains(['*', '?']) && inner == word {
        return HostIs::named(&word);
    }
    // One wildcard may stand for several labels.
    let pattern = values::escaped(&word).replace("\\*", ".*").replace("\\?", ".");
    (!word.is_empty()).then_some(HostIs::Pattern(pattern))
}
