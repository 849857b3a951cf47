//! TLS of a listener: certificates from files or ACME, versions, client certificates.

use super::entry_points::ListenerPoint;
use super::{TraefikAdapter, find, from, is_on, numbers, text};
use crate::RemarkKind;
use crate::draft::{DraftTable, DraftValue, StatementOrigin};
use crate::source::Directive;

pub(super) fn write_certificates<'s>(
    adapter: &mut TraefikAdapter<'s>,
    point: &ListenerPoint<'s>,
    table: &mut DraftTable,
) {
    let tls = adapter.all_tls(point);
    let resolver = tls.iter().find_map(|tls| text(tls, "certResolver").filter(|(name, _)| !name.is_empty()));
    let files = adapter.files();
    match resolver {
        Some((name, place)) => {
            table.extend("tls", ("certificates", "auto".into()), from(place));
            adapter.names(&tls, table);
            adapter.resolver(name, place);
            for pair in &files {
                let why = "a listener has either certificate files or automatic certificates";
                let instead = "leave `certResolver` out, or name the files in [listen.tls]";
                adapter.refuse_all(pair, why, instead);
            }
        }
        None if files.is_empty() => {
            let why = vec![StatementOrigin::Default("Traefik's own certificate: no file names one")];
            table.extend("tls", ("self_signed", true.into()), why);
        }
        None => {
            let mut list: Vec<DraftValue> = Vec::new();
            let mut origins = Vec::new();
            for pair in &files {
                let (Some((cert, at)), Some((key, and))) = (text(pair, "certFile"), text(pair, "keyFile"))
                else {
                    let why = "it is not a certificate with its key";
                    adapter.refuse_all(pair, why, "name both in [listen.tls]");
                    continue;
                };
                if cert.contains("BEGIN") || key.contains("BEGIN") {
                    let why = "certificates are in files";
                    adapter.refuse_all(pair, why, "write them into separate files");
                    continue;
                }
                let value =
                    DraftValue::Table(vec![("cert".to_owned(), cert.into()), ("key".to_owned(), key.into())]);
                if !list.contains(&value) {
                    list.push(value);
                }
                origins.extend([from(at), from(and)].concat());
                if let Some(stores) = find(pair, "stores") {
                    adapter.sheet.needless(stores.number, "all listeners with TLS have all certificates");
                }
            }
            table.extend("tls", ("certificates", DraftValue::List(list)), origins);
        }
    }
    adapter.options(&tls, table);
    for block in &tls {
        // `tls: {}`
        adapter.sheet.say_if_unsaid(
            block.number,
            RemarkKind::NeedsNothing,
            "its routes are at a listener with TLS",
        );
        if let Some(certs) = text(block, "certResolver") {
            adapter.sheet.say_if_unsaid(
                certs.1.number,
                RemarkKind::NeedsNothing,
                "the listener has automatic certificates",
            );
        }
    }
}

impl<'s> TraefikAdapter<'s> {
    /// The `tls` of an entry point and of all its routers.
    fn all_tls(&self, point: &ListenerPoint<'s>) -> Vec<&'s Directive> {
        let routers = self.defined("http", "routers").chain(self.defined("tcp", "routers"));
        let of_routers = routers.filter(|router| point.has(router)).filter_map(|router| find(router, "tls"));
        point.of_http("tls").into_iter().chain(of_routers).filter(|tls| !is_on(tls, "passthrough")).collect()
    }

    /// Certificates from files, that of the default store first.
    fn files(&self) -> Vec<&'s Directive> {
        let stores = self.defined("tls", "stores").filter_map(|store| find(store, "defaultCertificate"));
        let listed = self.top("tls").filter_map(|tls| find(tls, "certificates")).flat_map(Directive::inner);
        stores.chain(listed).collect()
    }

    /// `domains`: names for automatic certificates.
    fn names(&mut self, tls: &[&'s Directive], table: &mut DraftTable) {
        let mut names: Vec<String> = Vec::new();
        let mut origins = Vec::new();
        for domain in tls.iter().filter_map(|tls| find(tls, "domains")).flat_map(Directive::inner) {
            let listed = domain.inner().iter().filter(|inner| {
                inner.name.eq_ignore_ascii_case("main") || inner.name.eq_ignore_ascii_case("sans")
            });
            for part in listed {
                origins.extend(from(part));
                for name in &part.words {
                    if name.starts_with("*.") {
                        let instead = "name the hosts, or write `dns` in [acme]: docs/certificates.md";
                        self.sheet.refuse(
                            part.number,
                            "only DNS can prove a wildcard, and its provider is not built in",
                            instead,
                        );
                    } else if !names.contains(name) {
                        names.push(name.clone());
                    }
                }
            }
        }
        if !names.is_empty() {
            table.extend("tls", ("names", names.into()), origins);
        }
    }

    /// Writes [acme] from the first named resolver.
    fn resolver(&mut self, name: &str, place: &'s Directive) {
        let resolver =
            self.top("certificatesResolvers").flat_map(Directive::inner).find(|known| known.name == name);
        let Some(resolver) = resolver else {
            let why = format!("there is no resolver {name} in the files: the authority is Let's Encrypt");
            return self.sheet.differs(place.number, &why, "see [acme]: docs/certificates.md");
        };
        self.sheet.say_if_unsaid(resolver.number, RemarkKind::NeedsNothing, "it is [acme]");
        let Some(acme) = find(resolver, "acme") else {
            return self.refuse_all(resolver, "it has no authority", "see [acme]: docs/certificates.md");
        };
        let mut challenges: Vec<&str> = Vec::new();
        for option in acme.inner() {
            let word = option.word(0);
            match option.name.to_ascii_lowercase().as_str() {
                "email" => self.sheet.once("[acme]", "contact", word, option.number),
                "caserver" => self.sheet.once("[acme]", "directory", word, option.number),
                "cacertificates" if option.words.len() == 1 => {
                    self.sheet.once("[acme]", "ca", word, option.number);
                }
                "keytype" => {
                    let key = match word.to_ascii_uppercase().as_str() {
                        "EC256" => "ecdsa-p256",
                        "EC384" => "ecdsa-p384",
                        "RSA2048" => "rsa-2048",
                        _ => "rsa-4096",
                    };
                    self.sheet.once("[acme]", "key_type", key, option.number);
                }
                "profile" => self.sheet.once("[acme]", "profile", word, option.number),
                "storage" => {
                    let why = "certificates are stored in a folder, and are ordered again";
                    self.sheet.differs(option.number, why, "`folder` of [acme] names it");
                }
                "httpchallenge" => {
                    challenges.push("http-01");
                    self.needless_all(option, "listeners without TLS answer it");
                }
                "tlschallenge" => {
                    challenges.push("tls-alpn-01");
                    self.needless_all(option, "the listener answers it");
                }
                "dnschallenge" => {
                    let instead = "write `dns` of [acme]: a program of yours, or dynamic updates (RFC 2136)";
                    self.refuse_all(option, "providers of DNS are not built in", instead);
                }
                "eab" => {
                    let instead = "write `external_account = { id = \"…\", key_file = \"FILE\" }` in [acme]";
                    self.refuse_all(option, "its key is in a file", instead);
                }
                "certificatesduration" => {
                    self.sheet.needless(option.number, "the authority says when to renew");
                }
                _ => {
                    let instead = "see [acme]: docs/certificates.md";
                    self.refuse_all(option, "the authority is asked in the usual way", instead);
                }
            }
        }
        if !challenges.is_empty() {
            let list: Vec<String> = challenges.iter().map(|name| (*name).to_owned()).collect();
            self.sheet.set("[acme]", "challenges", list, Vec::new());
        }
    }

    /// Translates `tls.options`: those of the routers, or `default`.
    fn options(&mut self, tls: &[&'s Directive], table: &mut DraftTable) {
        let mut chosen: Option<&'s Directive> = None;
        let named = tls.iter().filter_map(|tls| text(tls, "options"));
        let mut wanted: Vec<(String, Option<&'s Directive>)> =
            named.map(|(name, place)| (name.to_owned(), Some(place))).collect();
        if wanted.len() < tls.len() {
            wanted.push(("default".to_owned(), None));
        }
        for (name, place) in wanted {
            let bare = super::of_file(&name).unwrap_or(&name);
            let Some(found) = self.defined("tls", "options").find(|options| options.name == bare) else {
                if let Some(place) = place {
                    let why = format!("there are no options {name} in the files");
                    self.sheet.refuse(place.number, &why, "write them into [listen.tls]");
                }
                continue;
            };
            match (chosen, place) {
                (Some(first), Some(place)) if first.number != found.number => {
                    let instead = "give its routers a separate entry point, or write \
                                   `client_certificates_by_name`";
                    self.sheet.refuse(place.number, "a listener has the same options for all names", instead);
                }
                (Some(_), None) => {}
                (_, place) => {
                    if let Some(place) = place {
                        self.sheet.needless(place.number, "they are written in [listen.tls]");
                    }
                    chosen = Some(found);
                }
            }
        }
        for option in chosen.map_or(&[][..], Directive::inner) {
            self.tls_option(option, table);
        }
    }

    fn tls_option(&mut self, option: &'s Directive, table: &mut DraftTable) {
        let word = option.word(0);
        match option.name.to_ascii_lowercase().as_str() {
            name @ ("minversion" | "maxversion") => {
                let key = if name == "minversion" { "min_version" } else { "max_version" };
                let version = if word.ends_with("13") { "1.3" } else { "1.2" };
                if !word.ends_with("12") && !word.ends_with("13") {
                    self.sheet.differs(option.number, "only TLS 1.2 and 1.3 are supported", "");
                }
                table.extend("tls", (key, version.into()), from(option));
            }
            "snistrict" if word.eq_ignore_ascii_case("true") => {
                table.extend("tls", ("unknown_names", "refuse".into()), from(option));
            }
            "clientauth" => self.client_auth(option, table),
            "ciphersuites" => {
                let why = "only secure ones are offered, in Vanward's order";
                self.sheet.differs(option.number, why, "`ciphers` of [listen.tls] names some");
            }
            "curvepreferences" => {
                let why = "only secure ones are offered";
                self.sheet.differs(option.number, why, "`groups` of [listen.tls] names some");
            }
            "alpnprotocols" if !option.words.iter().any(|word| word == "h2") => {
                table.set("http2", false, from(option));
            }
            _ => {
                for number in numbers(option) {
                    self.sheet.needless(number, "that is the default");
                }
            }
        }
    }

    fn client_auth(&mut self, option: &'s Directive, table: &mut DraftTable) {
        let kind = text(option, "clientAuthType").map_or("", |(kind, _)| kind);
        let mode = match kind {
            "RequireAndVerifyClientCert" => "required",
            "VerifyClientCertIfGiven" => "optional",
            "" | "NoClientCert" => return self.needless_all(option, "no certificate is requested"),
            _ => {
                let instead = "write `client_certificates = { mode = \"required\", ca = \"FILE\" }`";
                return self.refuse_all(
                    option,
                    "a certificate that no trusted CA has signed proves nothing",
                    instead,
                );
            }
        };
        let files = find(option, "caFiles");
        let Some(ca) = files.filter(|files| files.words.len() == 1 && !files.word(0).contains("BEGIN"))
        else {
            let instead = "put all CA certificates into one file: `client_certificates = { mode = \"required\", ca = \"FILE\" }`";
            return self.refuse_all(option, "its CAs are not one file", instead);
        };
        let pairs = [("mode".to_owned(), mode.into()), ("ca".to_owned(), ca.word(0).into())];
        let origins = numbers(option).into_iter().map(StatementOrigin::Directive).collect();
        table.extend("tls", ("client_certificates", DraftValue::Table(pairs.into())), origins);
    }
}
