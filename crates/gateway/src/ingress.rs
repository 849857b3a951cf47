//! Ingresses: their hosts, paths and certificates as routes of Vanward. What they want and is not supported is answered with 500,
//! and told.

use std::collections::{BTreeMap, BTreeSet};

use regex_syntax::escape;

use crate::annotations::{self, Secure, Wanted};
use crate::backends::{Backends, Referring, Spoken};
use crate::cluster::Cluster;
use crate::hostname::is_name;
use crate::http_route::Claims;
use crate::ingress_kinds::{Ingress, IngressBackend, IngressPath};
use crate::kinds::BackendRef;
use crate::listeners::{Port, Protocol};
use crate::object::{Kind, Reference};
use crate::secrets;
use crate::status::{Found, Status};
use crate::translate::{Machine, Options, Refused};
use crate::written::{Table, inline, list, literal, template, text};

/// The annotation that a class is for Ingresses that name none.
const IS_DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";
/// The annotation that named the class before there was a field for it.
const OLD_CLASS: &str = "kubernetes.io/ingress.class";

/// What Ingresses are served by.
#[derive(Default)]
pub(crate) struct Ingresses {
    /// The ports, each with its first Ingress.
    pub(crate) ports: BTreeMap<Port, (Protocol, Reference)>,
    /// Certificates, each with the names that clients ask for who get it.
    pub(crate) certificates: Vec<(Reference, Vec<String>)>,
    pub(crate) routes: Vec<(Reference, Table)>,
    pub(crate) statuses: Vec<Status>,
    /// What cannot be obeyed of which Ingress.
    pub(crate) remarks: Vec<(Reference, String)>,
}

/// What Ingresses are translated with.
pub(crate) struct Around<'a, 'c> {
    pub(crate) cluster: &'c Cluster,
    pub(crate) options: &'a Options,
    pub(crate) refused: &'a Refused,
    pub(crate) machine: &'a dyn Machine,
    /// What gateways speak at their ports.
    pub(crate) taken: &'a BTreeMap<Port, Protocol>,
}

/// Translates the Ingresses of classes of ours, the oldest first. Gateways come before them.
pub(crate) fn translate(
    around: &Around<'_, '_>,
    backends: &mut Backends<'_>,
    claims: &mut Claims,
) -> Ingresses {
    let mut out = Ingresses::default();
    let classes = classes(around, &mut out);
    let mut own: Vec<&Ingress> =
        around.cluster.ingresses.values().filter(|ingress| is_own(ingress, &classes)).collect();
    own.sort_by_key(|ingress| ingress.metadata.age());
    let mut names = BTreeSet::new();
    for ingress in &own {
        out.take_certificates(ingress, around, &mut names);
    }
    let [http, https] = around.options.ingress_ports.map(|number| Port { address: None, number });
    let first = own.first().map(|ingress| Reference::of(Kind::Ingress, &ingress.metadata));
    let wants_https = !out.certificates.is_empty();
    for (port, protocol, is_wanted) in [(http, Protocol::Http, true), (https, Protocol::Https, wants_https)] {
        let Some(first) = first.clone().filter(|_| is_wanted) else { continue };
        let free = match around.taken.get(&port) {
            Some(taken) if *taken == protocol => Ok(()),
            Some(_) => Err(format!("port {} has another protocol in a Gateway", port.number)),
            None => around.machine.port(None, port.number),
        };
        match free {
            Ok(()) => drop(out.ports.insert(port, (protocol, first))),
            Err(why) => out.remarks.push((first, format!("Ingresses are not served there: {why}"))),
        }
    }
    for ingress in own {
        out.take(ingress, around, backends, claims);
    }
    out
}

/// A class of ours: its name, and whether it is for Ingresses that name none.
fn classes<'c>(around: &Around<'_, 'c>, out: &mut Ingresses) -> BTreeMap<&'c str, bool> {
    let ours = around.cluster.ingress_classes.values();
    let ours = ours.filter(|class| class.spec.controller == around.options.controller);
    let mut classes = BTreeMap::new();
    for class in ours {
        if class.spec.parameters.is_some() {
            let reference = Reference::of(Kind::IngressClass, &class.metadata);
            out.remarks
                .push((reference, "there are no parameters here: its Ingresses are not served".to_owned()));
            continue;
        }
        let is_default = class.metadata.annotations.get(IS_DEFAULT).is_some_and(|value| value == "true");
        classes.insert(class.metadata.name.as_str(), is_default);
    }
    classes
}

fn is_own(ingress: &Ingress, classes: &BTreeMap<&str, bool>) -> bool {
    let named = ingress.spec.ingress_class_name.as_ref().or(ingress.metadata.annotations.get(OLD_CLASS));
    match named {
        Some(name) => classes.contains_key(name.as_str()),
        None => classes.values().any(|is_default| *is_default),
    }
}

/// A place that an Ingress is served at.
struct Place<'a> {
    owner: &'a Reference,
    port: Port,
    /// As the option `host` has it; `None` for any.
    host: Option<String>,
    name: String,
}

/// A path of a rule, and who answers there.
struct Rule<'a> {
    path: String,
    answer: Answer,
    rewrite: Option<String>,
    wanted: &'a Wanted,
}

/// Who answers.
enum Answer {
    Upstream(String),
    /// A redirect, as the option has it.
    Redirect(String),
    /// Nobody can be asked, or not as it is wanted: the answer is 500.
    Fails,
}

impl Ingresses {
    /// The certificates of an Ingress, for names that no older one has.
    fn take_certificates(
        &mut self,
        ingress: &Ingress,
        around: &Around<'_, '_>,
        taken: &mut BTreeSet<String>,
    ) {
        let owner = Reference::of(Kind::Ingress, &ingress.metadata);
        let namespace = &ingress.metadata.namespace;
        for wanted in &ingress.spec.tls {
            let Some(name) = wanted.secret_name.as_ref().filter(|name| !name.is_empty()) else { continue };
            let secret = Reference { kind: Kind::Secret, namespace: namespace.clone(), name: name.clone() };
            let known = around.cluster.secrets.get(&(namespace.clone(), name.clone()));
            let known = known.ok_or_else(|| "there is no such Secret of type kubernetes.io/tls".to_owned());
            let own = known
                .and_then(secrets::pair)
                .and_then(|(certificate, key)| around.machine.certificate(&certificate, &key));
            let own = match own {
                Ok(own) => own,
                Err(why) => {
                    self.remarks.push((owner.clone(), format!("tls: {secret}: {why}")));
                    continue;
                }
            };
            let hosts = if wanted.hosts.is_empty() { own } else { wanted.hosts.clone() };
            let hosts = hosts.into_iter().map(|host| host.to_ascii_lowercase());
            let hosts = hosts.filter(|host| is_name(host.strip_prefix("*.").unwrap_or(host)));
            let names: Vec<String> = hosts.filter(|host| taken.insert(host.clone())).collect();
            if !names.is_empty() {
                self.certificates.push((secret, names));
            }
        }
    }

    fn take(
        &mut self,
        ingress: &Ingress,
        around: &Around<'_, '_>,
        backends: &mut Backends<'_>,
        claims: &mut Claims,
    ) {
        let owner = Reference::of(Kind::Ingress, &ingress.metadata);
        if let Some(why) = around.refused.get(&owner) {
            return self.remarks.push((owner, format!("it is not served: {why}")));
        }
        let (wanted, mut faults) = annotations::wanted(&ingress.metadata);
        let is_refused = !faults.is_empty();
        for (place, host, path, backend) in paths(ingress) {
            let option = host.map(host_option).transpose();
            let (option, mut rule) = match option.and_then(|option| Ok((option, rule(path, &wanted)?))) {
                Ok(rule) => rule,
                Err(why) => {
                    faults.push(why);
                    continue;
                }
            };
            let answer = match &wanted.redirect {
                Some(redirect) => Ok(Answer::Redirect(redirect.clone())),
                None => upstream(backend, &wanted, &owner, backends).map(Answer::Upstream),
            };
            match answer {
                Ok(answer) if !is_refused => rule.answer = answer,
                Ok(_) => {}
                Err(why) => faults.push(why),
            }
            let is_covered = host.is_some_and(|host| is_secured(ingress, host));
            for (port, (protocol, _)) in self.ports.clone() {
                let name = format!("ingress:{}/{}/{place} {port}", owner.namespace, owner.name);
                let at = Place { owner: &owner, port, host: option.clone(), name };
                let https = around.options.ingress_ports[1];
                let redirects = rule.redirects(protocol, is_covered).then_some(https);
                self.write(&at, &rule, redirects, claims);
            }
        }
        self.remarks.extend(faults.into_iter().map(|why| (owner.clone(), why)));
        let addresses = around.options.addresses.clone();
        let generation = ingress.metadata.generation;
        self.statuses.push(Status { object: owner, generation, found: Found::Ingress(addresses) });
    }

    fn write(&mut self, at: &Place<'_>, rule: &Rule<'_>, redirects: Option<u16>, claims: &mut Claims) {
        let table = |name: &str, path: &str| {
            Table::new("[[route]]")
                .with("name", text(name))
                .with("listener", list([text(&at.port.to_string())]))
                .maybe("host", at.host.as_ref().map(|host| list([text(host)])))
                .with("path", text(path))
        };
        if claims.insert((at.port, at.host.clone(), rule.path.clone(), Vec::new())) {
            let table = table(&at.name, &rule.path);
            self.routes.push((at.owner.clone(), rule.answered(table, redirects)));
        }
        let is_asked = matches!(rule.answer, Answer::Upstream(_)) && redirects.is_none();
        let Some(root) = rule.wanted.app_root.as_ref().filter(|_| is_asked) else { return };
        if claims.insert((at.port, at.host.clone(), "= /".to_owned(), Vec::new())) {
            let redirect = inline([("to", root.clone()), ("status", "302".to_owned())]);
            let table = table(&format!("{} root", at.name), "= /").with("redirect", redirect);
            self.routes.push((at.owner.clone(), table));
        }
    }
}

/// The paths of an Ingress with their hosts, in order; last what its default backend answers. Each has a name.
fn paths(ingress: &Ingress) -> Vec<(String, Option<&str>, Option<&IngressPath>, &IngressBackend)> {
    let mut paths = Vec::new();
    for (number, rule) in ingress.spec.rules.iter().enumerate() {
        let host = rule.host.as_deref().filter(|host| !host.is_empty());
        let of_rule = rule.http.iter().flat_map(|http| &http.paths).enumerate();
        paths.extend(
            of_rule.map(|(place, path)| (format!("{number}/{place}"), host, Some(path), &path.backend)),
        );
        if let Some(backend) = &ingress.spec.default_backend {
            paths.push((format!("{number}/default"), host, None, backend));
        }
    }
    paths.extend(
        ingress.spec.default_backend.iter().map(|backend| ("default".to_owned(), None, None, backend)),
    );
    paths
}

/// A host as the option has it. A wildcard is for one label.
fn host_option(host: &str) -> Result<String, String> {
    let host = host.to_ascii_lowercase();
    match host.strip_prefix("*.") {
        Some(below) if is_name(below) => Ok(format!("~ [^.]+\\.{}", escape(below))),
        None if is_name(&host) => Ok(host),
        _ => Err(format!("host {host:?} is no name of a host")),
    }
}

/// Whether a host of an Ingress, or all that its wildcard stands for, has a certificate there.
fn is_secured(ingress: &Ingress, host: &str) -> bool {
    let mut hosts = ingress.spec.tls.iter().flat_map(|tls| &tls.hosts);
    hosts.any(|pattern| match pattern.strip_prefix("*.") {
        Some(below) => host.split_once('.').is_some_and(|(_, parent)| parent.eq_ignore_ascii_case(below)),
        None => pattern.eq_ignore_ascii_case(host),
    })
}

/// A path, for which nobody answers yet.
///
/// # Errors
/// Why it cannot be told which requests it is for.
fn rule<'w>(path: Option<&IngressPath>, wanted: &'w Wanted) -> Result<Rule<'w>, String> {
    let value = path.and_then(|path| path.path.as_deref()).filter(|path| !path.is_empty()).unwrap_or("/");
    if !value.starts_with('/') {
        return Err(format!("path {value:?} does not begin with /"));
    }
    let kind = path.map_or("Prefix", |path| path.path_type.as_str());
    let is_expression =
        kind == "ImplementationSpecific" && (wanted.uses_expressions || wanted.rewrite_target.is_some());
    // Beginnings of paths in any case, as ingress-nginx has them.
    let pattern = format!("(?i:{value})(?s:.*)");
    let path = match kind {
        _ if is_expression => {
            regex_syntax::parse(&pattern)
                .map_err(|_| format!("path {value:?} is no expression that is known here"))?;
            format!("~ {pattern}")
        }
        "Exact" => format!("= {value}"),
        "Prefix" | "ImplementationSpecific" => match value.trim_end_matches('/') {
            "" => "/".to_owned(),
            prefix => prefix.to_owned(),
        },
        other => return Err(format!("pathType {other} is not supported")),
    };
    let rewrite = wanted.rewrite_target.as_ref().map(|target| match is_expression {
        true => inline([("path", template(target))]),
        false => inline([("pattern", text("(?s:.*)")), ("path", literal(target))]),
    });
    Ok(Rule { path, answer: Answer::Fails, rewrite, wanted })
}

/// The upstream of a backend.
///
/// # Errors
/// Why nobody can be asked.
fn upstream(
    backend: &IngressBackend,
    wanted: &Wanted,
    owner: &Reference,
    backends: &mut Backends<'_>,
) -> Result<String, String> {
    let Some(service) = &backend.service else {
        return Err("backends other than services are not supported".to_owned());
    };
    let none = BTreeSet::new();
    let spoken = wanted.spoken.map_or(Spoken::Http1, |servers| servers.spoken);
    let from = Referring { kind: Kind::Ingress.name(), namespace: &owner.namespace, gateways: &none, spoken };
    let by_name = service.port.name.as_deref();
    let port = service.port.number.or_else(|| backends.port_named(&owner.namespace, &service.name, by_name?));
    let upstream = backends.upstream(from, &BackendRef::to(&service.name, port)).map_err(|(_, why)| why)?;
    if wanted.spoken.is_some_and(|servers| servers.is_secure) && !backends.is_secure(&upstream) {
        let why = "annotation backend-protocol: it needs a BackendTLSPolicy for the service, which says whom to believe";
        return Err(why.to_owned());
    }
    Ok(upstream)
}

impl Rule<'_> {
    /// Whether clients are sent to https.
    fn redirects(&self, protocol: Protocol, is_covered: bool) -> bool {
        let wants = match self.wanted.secure {
            Some(Secure::Everybody) => true,
            Some(Secure::Nobody) => false,
            None => is_covered,
        };
        protocol == Protocol::Http && wants
    }

    fn answered(&self, table: Table, redirects: Option<u16>) -> Table {
        let (table, is_asked) = match (&self.answer, redirects) {
            (Answer::Fails, _) => return table.with("respond", inline([("status", "500".to_owned())])),
            (_, Some(port)) => {
                let authority = if port == 443 { "$host".to_owned() } else { format!("$host:{port}") };
                let to = template(&format!("https://{authority}$path"));
                return table.with("redirect", inline([("to", to), ("status", "308".to_owned())]));
            }
            (Answer::Redirect(redirect), None) => (table.with("redirect", redirect.clone()), false),
            (Answer::Upstream(upstream), None) => (table.with("upstream", text(upstream)), true),
        };
        let is_for_servers = |option: &str| matches!(option, "limits" | "timeouts" | "request_headers");
        let options = self.wanted.options.iter().filter(|(option, _)| is_asked || !is_for_servers(option));
        let table = options.fold(table, |table, (option, value)| table.with(option, value.clone()));
        table.maybe("rewrite", self.rewrite.clone().filter(|_| is_asked))
    }
}
