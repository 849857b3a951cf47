//! Translates Ingresses: hosts, paths and certificates become routes of Vanward. Unsupported parts are answered
//! with 500 and reported.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use regex_syntax::escape;

use crate::annotations::{
    self, AuthServer, Canary, ClientTls, IngressOptions, Passwords, Secure, UserListForm, WITHOUT, with_names,
};
use crate::backends::{Backends, Referring, Spoken};
use crate::client_hosts::ClientHosts;
use crate::cluster::Cluster;
use crate::filters::Options;
use crate::hostname::is_name;
use crate::http_route::Claims;
use crate::ingress_hosts::{self, RuleHosts};
use crate::ingress_kinds::{Ingress, IngressBackend, IngressPath};
use crate::ingress_services::{
    DefaultAnswer, NEEDS_POLICY, PathService, asked, asked_at_host, default_answer, upstream,
};
use crate::kinds::BackendRef;
use crate::listeners::{ListenerProtocol, Port};
use crate::object::{ObjectKind, Reference};
use crate::own_host::{self, Answerer};
use crate::secrets;
use crate::status::{ObjectStatus, StatusFindings};
use crate::tls_kinds::ConfigMap;
use crate::translate::{self, MachineFacts, Refused};
use crate::written::{WrittenTable, inline, list, literal, template, text};

/// Annotation of the default class, for Ingresses without a class.
const IS_DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";
/// Annotation with the class, from before the field existed.
const OLD_CLASS: &str = "kubernetes.io/ingress.class";

#[derive(Default)]
pub(crate) struct Ingresses {
    pub(crate) ports: BTreeMap<Port, (ListenerProtocol, Reference)>,
    pub(crate) certificates: Vec<(Reference, Vec<String>)>,
    pub(crate) routes: Vec<(Reference, WrittenTable)>,
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    /// Elements of the option `client_certificates_by_name` of the listener for HTTPS.
    pub(crate) client_certificates: Vec<String>,
    pub(crate) statuses: Vec<ObjectStatus>,
    /// Unsupported parts, by Ingress.
    pub(crate) remarks: Vec<(Reference, String)>,
}

pub(crate) struct Around<'a, 'c> {
    pub(crate) cluster: &'c Cluster,
    pub(crate) options: &'a translate::OperatorOptions,
    pub(crate) refused: &'a Refused,
    pub(crate) machine: &'a dyn MachineFacts,
    pub(crate) taken: &'a BTreeMap<Port, ListenerProtocol>,
    /// Hostnames of gateways' listeners at the port for https, in lower case.
    pub(crate) gateway_hosts: &'a BTreeSet<String>,
}

/// Translates the Ingresses of our classes, oldest first. Gateways take precedence.
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
    let own: Vec<_> = own.into_iter().map(|ingress| OwnIngress::new(ingress, around)).collect();
    let known = ingress_hosts::of_rules(&own);
    let mut names = BTreeSet::new();
    for ingress in &own {
        out.take_certificates(ingress, around, &known, &mut names);
    }
    out.listen(own.first(), around);
    let (canaries, own): (Vec<_>, Vec<_>) = own.into_iter().partition(|own| own.wanted.canary.is_some());
    let mut canaries = out.canaries(canaries, &around.options.addresses);
    let mut clients = ClientHosts::new(&own, &known, around, claims);
    out.client_certificates = clients.option();
    out.files.append(&mut clients.files);
    let neighbours = Neighbours { answerers: own_host::answerers(&own), known, clients };
    for own in own {
        out.take(own, around, &neighbours, &mut canaries, backends, claims);
    }
    for (owner, path) in
        canaries.values().filter(|canary| !canary.is_used).map(|canary| (&canary.owner, canary.place))
    {
        out.remarks.push((owner.clone(), format!("annotation canary: no other Ingress has {}", shown(path))));
    }
    out
}

/// Facts about all Ingresses together.
struct Neighbours<'c> {
    answerers: Vec<Answerer<'c>>,
    known: RuleHosts,
    clients: ClientHosts,
}

/// An Ingress of our classes, with the settings from its annotations.
pub(crate) struct OwnIngress<'c> {
    pub(crate) ingress: &'c Ingress,
    pub(crate) owner: Reference,
    pub(crate) wanted: IngressOptions,
    pub(crate) faults: Vec<String>,
    pub(crate) refused: Option<String>,
}

impl<'c> OwnIngress<'c> {
    fn new(ingress: &'c Ingress, around: &Around<'_, '_>) -> Self {
        let owner = Reference::new(ObjectKind::Ingress, &ingress.metadata);
        let (wanted, faults) = annotations::wanted(&ingress.metadata);
        let refused = around.refused.get(&owner).cloned();
        let mut own = Self { ingress, owner, wanted, faults, refused };
        own.faults.extend(own.host_faults());
        own
    }
}

/// The key that a canary shares with its main Ingress: namespace, host, path type and path.
type Spot<'c> = (&'c str, Option<String>, &'c str, &'c str);

struct NextVersion<'c> {
    owner: Reference,
    canary: Canary,
    backend: &'c IngressBackend,
    place: (Option<&'c str>, &'c str),
    is_used: bool,
}

impl NextVersion<'_> {
    fn used(&mut self) -> &mut Self {
        self.is_used = true;
        self
    }
}

fn spot<'c>(ingress: &'c Ingress, host: Option<&str>, path: Option<&'c IngressPath>) -> Spot<'c> {
    let kind = path.map_or("Prefix", |path| path.path_type.as_str());
    (&ingress.metadata.namespace, host.map(str::to_ascii_lowercase), kind, path_of(path))
}

fn path_of(path: Option<&IngressPath>) -> &str {
    path.and_then(|path| path.path.as_deref()).filter(|path| !path.is_empty()).unwrap_or("/")
}

fn shown((host, path): (Option<&str>, &str)) -> String {
    format!("{}{path}", host.unwrap_or("*"))
}

/// Returns our classes by name, with `true` for the default class.
fn classes<'c>(around: &Around<'_, 'c>, out: &mut Ingresses) -> BTreeMap<&'c str, bool> {
    let ours = around.cluster.ingress_classes.values();
    let ours = ours.filter(|class| class.spec.controller == around.options.controller);
    let mut classes = BTreeMap::new();
    for class in ours {
        if class.spec.parameters.is_some() {
            let reference = Reference::new(ObjectKind::IngressClass, &class.metadata);
            out.remarks
                .push((reference, "parameters are not supported: its Ingresses are not served".to_owned()));
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

struct ServedPath<'a> {
    owner: &'a Reference,
    port: Port,
    /// As in the option `host`; `None` for any.
    host: Option<String>,
    name: String,
}

impl ServedPath<'_> {
    /// Begins a route with a name for a path.
    fn table(&self, name: &str, path: &str) -> WrittenTable {
        WrittenTable::new("[[route]]")
            .with("name", text(name))
            .with("listener", list([text(&self.port.to_string())]))
            .maybe("host", self.host.as_ref().map(|host| list([text(host)])))
            .with("path", text(path))
    }
}

/// A path that gets an answer.
struct AnsweredPath<'a, 'c> {
    own: &'a OwnIngress<'c>,
    host: Option<&'c str>,
    backend: &'c IngressBackend,
    around: &'a Around<'a, 'c>,
    neighbours: &'a Neighbours<'c>,
}

struct ServedRule<'a> {
    path: String,
    answer: IngressAnswer,
    rewrite: Option<String>,
    /// The option for an authentication server at the request's host.
    asked: Option<String>,
    /// The option for answers of the default backend.
    on_status: Option<String>,
    /// The host's rule about certificates of clients.
    clients: Option<&'a ClientTls>,
    wanted: &'a IngressOptions,
    /// Backends for requests with further conditions.
    sides: Vec<Side>,
}

enum IngressAnswer {
    Upstream(String),
    /// The default backend, and a table of request fields for it.
    StandsIn(String, String),
    /// Options for upstreams by weight, and for the stickiness of their sides.
    Split(String, Option<String>),
    Redirect(String),
    /// No valid backend: responds with 500.
    Fails,
}

impl Ingresses {
    /// Opens the ports for Ingresses, of which this one is the oldest.
    fn listen(&mut self, first: Option<&OwnIngress<'_>>, around: &Around<'_, '_>) {
        let Some(first) = first.map(|own| &own.owner) else { return };
        let [http, https] = around.options.ingress_ports.map(|number| Port { address: None, number });
        let wants_https = !self.certificates.is_empty();
        for (port, protocol, is_wanted) in
            [(http, ListenerProtocol::Http, true), (https, ListenerProtocol::Https, wants_https)]
        {
            if !is_wanted {
                continue;
            }
            let free = match around.taken.get(&port) {
                Some(taken) if *taken == protocol => Ok(()),
                Some(_) => Err(format!("port {} has another protocol in a Gateway", port.number)),
                None => around.machine.port(None, port.number),
            };
            match free {
                Ok(()) => drop(self.ports.insert(port, (protocol, first.clone()))),
                Err(why) => {
                    let why = format!("Ingresses are not served at this port: {why}");
                    self.remarks.push((first.clone(), why));
                }
            }
        }
    }

    /// Takes the certificates of an Ingress, for names that no older one has.
    fn take_certificates(
        &mut self,
        own: &OwnIngress<'_>,
        around: &Around<'_, '_>,
        known: &RuleHosts,
        taken: &mut BTreeSet<String>,
    ) {
        let OwnIngress { ingress, owner, .. } = own;
        let namespace = &ingress.metadata.namespace;
        for wanted in &ingress.spec.tls {
            let Some(name) = wanted.secret_name.as_ref().filter(|name| !name.is_empty()) else { continue };
            let secret =
                Reference { kind: ObjectKind::Secret, namespace: namespace.clone(), name: name.clone() };
            let secret_of_tls = around.cluster.secrets.get(&(namespace.clone(), name.clone()));
            let secret_of_tls =
                secret_of_tls.ok_or_else(|| "there is no such Secret of type kubernetes.io/tls".to_owned());
            let in_certificate = secret_of_tls
                .and_then(secrets::pair)
                .and_then(|(certificate, key)| around.machine.certificate(&certificate, &key));
            let in_certificate = match in_certificate {
                Ok(names) => names,
                Err(why) => {
                    self.remarks.push((owner.clone(), format!("tls: {secret}: {why}")));
                    continue;
                }
            };
            let others = own.other_names(&in_certificate, known);
            let hosts = if wanted.hosts.is_empty() { in_certificate } else { wanted.hosts.clone() };
            let hosts = hosts.into_iter().chain(others).map(|host| host.to_ascii_lowercase());
            let hosts = hosts.filter(|host| is_name(host.strip_prefix("*.").unwrap_or(host)));
            let names: Vec<String> = hosts.filter(|host| taken.insert(host.clone())).collect();
            if !names.is_empty() {
                self.certificates.push((secret, names));
            }
        }
    }

    /// Collects the paths of canaries. For the same key the oldest counts.
    fn canaries<'c>(
        &mut self,
        all: Vec<OwnIngress<'c>>,
        addresses: &[String],
    ) -> BTreeMap<Spot<'c>, NextVersion<'c>> {
        let mut canaries = BTreeMap::new();
        for OwnIngress { ingress, owner, wanted, faults, refused } in all {
            let faults = faults.into_iter().chain(refused);
            let faults: Vec<String> = faults.map(|why| format!("it gets no requests: {why}")).collect();
            let canary = wanted.canary.filter(|_| faults.is_empty());
            self.remarks.extend(faults.into_iter().map(|why| (owner.clone(), why)));
            for (_, host, path, backend) in paths(ingress).into_iter().filter(|_| canary.is_some()) {
                let place = (host, path_of(path));
                let canary = canary.clone().unwrap_or_default();
                let next = NextVersion { owner: owner.clone(), canary, backend, place, is_used: false };
                match canaries.entry(spot(ingress, host, path)) {
                    Entry::Vacant(free) => drop(free.insert(next)),
                    Entry::Occupied(_) => {
                        let why = format!("annotation canary: an older canary has {}", shown(place));
                        self.remarks.push((owner.clone(), why));
                    }
                }
            }
            self.statuses.push(ObjectStatus {
                object: owner,
                generation: ingress.metadata.generation,
                found: StatusFindings::Ingress(addresses.to_vec()),
            });
        }
        canaries
    }

    fn take<'c>(
        &mut self,
        mut own: OwnIngress<'c>,
        around: &Around<'_, '_>,
        neighbours: &Neighbours<'c>,
        canaries: &mut BTreeMap<Spot<'c>, NextVersion<'c>>,
        backends: &mut Backends<'_>,
        claims: &mut Claims,
    ) {
        if let Some(why) = own.refused {
            return self.remarks.push((own.owner, format!("it is not served: {why}")));
        }
        match self.access(&own.owner, &own.wanted, around, backends) {
            Ok(options) => own.wanted.options.extend(options),
            Err(why) => own.faults.push(why),
        }
        let OwnIngress { ingress, owner, wanted, .. } = &own;
        let (aliases, mut faults) = own.aliases(&neighbours.known);
        for (place, host, path, backend) in paths(ingress) {
            let names = [host].into_iter().flatten().chain(aliases.iter().map(String::as_str));
            let rule = rule((path, backend), wanted, &owner.namespace);
            let served = ingress_hosts::options(host, &aliases).and_then(|hosts| Ok((hosts, rule?)));
            let (hosts, mut rule) = match served {
                Ok(served) => served,
                Err(why) => {
                    faults.push(why);
                    continue;
                }
            };
            let next = canaries.get_mut(&spot(ingress, host, path)).map(NextVersion::used);
            let at = AnsweredPath { own: &own, host, backend, around, neighbours };
            let mut clients = names.map(|name| neighbours.clients.rule_of(owner, name));
            let clients = clients.try_fold(None, |first: Option<&ClientTls>, rule| Ok(first.or(rule?)));
            let answer = clients.and_then(|clients| {
                rule.clients = clients;
                self.answer(&at, next, &mut rule, backends)
            });
            faults.extend(answer.err());
            let is_covered = host.is_some_and(|host| is_secured(ingress, host));
            for (port, (protocol, _)) in self.ports.clone() {
                let https = around.options.ingress_ports[1];
                let redirects = rule.redirects(protocol, is_covered).then_some(https);
                for (suffix, host) in &hosts {
                    let name = format!("ingress:{}/{}/{place}{suffix} {port}", owner.namespace, owner.name);
                    let at = ServedPath { owner, port, host: host.clone(), name };
                    self.write(&at, &rule, redirects, claims);
                }
            }
        }
        faults.extend(self.redirect_www(&own, &neighbours.known, claims));
        let OwnIngress { ingress, owner, faults: of_all, .. } = own;
        self.remarks.extend(of_all.into_iter().chain(faults).map(|why| (owner.clone(), why)));
        let addresses = around.options.addresses.clone();
        let generation = ingress.metadata.generation;
        self.statuses.push(ObjectStatus {
            object: owner,
            generation,
            found: StatusFindings::Ingress(addresses),
        });
    }

    /// Sets the answer of a rule. Without a valid one it stays 500.
    fn answer(
        &mut self,
        at: &AnsweredPath<'_, '_>,
        next: Option<&mut NextVersion<'_>>,
        rule: &mut ServedRule<'_>,
        backends: &mut Backends<'_>,
    ) -> Result<(), String> {
        let AnsweredPath { own, host, backend, around, neighbours } = at;
        let OwnIngress { owner, wanted, .. } = own;
        let is_refused = !own.faults.is_empty();
        let answer = if let Some(redirect) = &wanted.redirect {
            IngressAnswer::Redirect(redirect.clone())
        } else {
            let (secret, path) = (around.options.cookie_secret.as_deref(), rule.path.clone());
            let asking = PathService { wanted, owner, path: &path, secret };
            let stable = upstream(backend, &asking, backends)?;
            let default = wanted.default_backend.as_ref();
            let default = default.map(|default| default_answer(default, (owner, backend, &stable), backends));
            match default.transpose()? {
                Some(DefaultAnswer::Always(upstream, fields)) => IngressAnswer::StandsIn(upstream, fields),
                default => {
                    if let Some(DefaultAnswer::ForErrors(option)) = default {
                        rule.on_status = option;
                    }
                    let next = next.filter(|_| !is_refused);
                    let (answer, sides) = self.shared(stable, next, &asking, backends);
                    rule.sides = sides;
                    answer
                }
            }
        };
        rule.asked = asked_at_host(wanted, *host, &neighbours.answerers, around, backends)?;
        if !is_refused {
            rule.answer = answer;
        }
        Ok(())
    }

    /// Redirects hosts with or without `www.`. Returns remarks on those that stay.
    fn redirect_www(&mut self, own: &OwnIngress<'_>, known: &RuleHosts, claims: &mut Claims) -> Vec<String> {
        let (redirects, remarks) = own.www_redirects(known);
        let owner = &own.owner;
        for (from, to) in redirects.into_iter().filter(|_| own.faults.is_empty()) {
            for (port, (protocol, _)) in self.ports.clone() {
                let (scheme, usual) = match protocol {
                    ListenerProtocol::Http => ("http", 80),
                    ListenerProtocol::Https | ListenerProtocol::Tls | ListenerProtocol::Tcp => ("https", 443),
                };
                let suffix = if port.number == usual { String::new() } else { format!(":{}", port.number) };
                let to = template(&format!("{scheme}://{to}{suffix}$path"));
                let name = format!("ingress:{}/{}/{from} {port}", owner.namespace, owner.name);
                let at = ServedPath { owner, port, host: Some(from.clone()), name };
                if claims.insert((port, at.host.clone(), "/".to_owned(), Vec::new())) {
                    let redirect = inline([("to", to), ("status", "308".to_owned())]);
                    let table = at.table(&at.name, "/").with("redirect", redirect);
                    self.routes.push((owner.clone(), table));
                }
            }
        }
        remarks
    }

    fn write(
        &mut self,
        at: &ServedPath<'_>,
        rule: &ServedRule<'_>,
        redirects: Option<u16>,
        claims: &mut Claims,
    ) {
        if claims.insert((at.port, at.host.clone(), rule.path.clone(), Vec::new())) {
            let own = at.table(&at.name, &rule.path);
            self.routes.push((at.owner.clone(), rule.answered(own, &rule.answer, redirects)));
            let sides = rule.sides.iter().filter(|_| redirects.is_none());
            for (number, (option, condition, upstream, canary)) in sides.enumerate() {
                let own = at.table(&format!("{} canary {number}", at.name), &rule.path);
                let own = own.with(option, condition.clone());
                let answered = rule.answered(own, &IngressAnswer::Upstream(upstream.clone()), None);
                self.routes.push((canary.clone(), answered));
            }
            let page = rule.clients.and_then(|clients| clients.page.clone());
            if let Some(page) = page.filter(|_| redirects.is_none()) {
                let own = at.table(&format!("{} without certificate", at.name), &rule.path);
                let own = own.with("when", text(WITHOUT)).with("redirect", page);
                self.routes.push((at.owner.clone(), own));
            }
        }
        let is_asked = !matches!(rule.answer, IngressAnswer::Redirect(_) | IngressAnswer::Fails);
        let is_asked = is_asked && redirects.is_none();
        let Some(root) = rule.wanted.app_root.as_ref().filter(|_| is_asked) else { return };
        if claims.insert((at.port, at.host.clone(), "= /".to_owned(), Vec::new())) {
            let redirect = inline([("to", root.clone()), ("status", "302".to_owned())]);
            let table = at.table(&format!("{} root", at.name), "= /").with("redirect", redirect);
            self.routes.push((at.owner.clone(), table));
        }
    }
}

impl Ingresses {
    /// Returns the options for client authentication. After an error no client may be admitted.
    fn access(
        &mut self,
        owner: &Reference,
        wanted: &IngressOptions,
        around: &Around<'_, '_>,
        backends: &mut Backends<'_>,
    ) -> Result<Options, String> {
        let mut options = Options::new();
        if let Some(map) = &wanted.custom_headers {
            options.push(("response_headers", custom_headers(owner, map, around.cluster)?));
        }
        if let Some(Passwords { secret, form, realm }) = &wanted.passwords {
            let path = self.users(owner, secret, *form, around)?;
            let realm = realm.as_ref().map(|realm| ("realm", text(realm)));
            options.push(("auth", inline([("users", text(&path))].into_iter().chain(realm))));
        }
        if let Some(server @ AuthServer { service: Some(service), .. }) = &wanted.auth_server {
            let none = BTreeSet::new();
            let (kind, namespace) = (ObjectKind::Ingress.name(), owner.namespace.as_str());
            let from = Referring {
                kind,
                namespace,
                gateways: &none,
                spoken: Spoken::Http1,
                client: None,
                own: None,
            };
            let mut backend = BackendRef::to(&service.name, Some(service.port));
            backend.namespace = Some(service.namespace.clone());
            let upstream = backends
                .upstream(from, &backend)
                .map_err(|(_, why)| format!("annotation auth-url: {why}"))?;
            if service.is_secure && !backends.is_secure(&upstream) {
                return Err(format!("annotation auth-url: {NEEDS_POLICY}"));
            }
            options.push(("forward_auth", asked(server, &upstream)));
        }
        Ok(options)
    }

    /// Returns the name of the file with a Secret's users.
    fn users(
        &mut self,
        owner: &Reference,
        secret: &str,
        form: UserListForm,
        around: &Around<'_, '_>,
    ) -> Result<String, String> {
        let failed =
            |why: &str| format!("annotation auth-secret: Secret {}/{secret}: {why}", owner.namespace);
        let known = around.cluster.passwords.get(&(owner.namespace.clone(), secret.to_owned()));
        let users = known.and_then(|known| secrets::users(known, form)).ok_or_else(|| {
            failed("there is none of type Opaque with users and the hashes of their passwords, as htpasswd -B writes them")
        })?;
        around.machine.users(&users).map_err(|why| failed(&why))?;
        let key = if form == UserListForm::File { "auth" } else { "users" };
        let path = secrets::path(&owner.namespace, secret, key);
        self.files.insert(path.clone(), users);
        Ok(path)
    }

    /// Divides a path between the servers of the Ingress and of its canary.
    fn shared(
        &mut self,
        stable: String,
        next: Option<&mut NextVersion<'_>>,
        asking: &PathService<'_>,
        backends: &mut Backends<'_>,
    ) -> (IngressAnswer, Vec<Side>) {
        let Some(next) = next else { return (IngressAnswer::Upstream(stable), Vec::new()) };
        let canary = match upstream(next.backend, asking, backends) {
            Ok(canary) => canary,
            Err(why) => {
                self.remarks.push((next.owner.clone(), format!("it gets no requests: {why}")));
                return (IngressAnswer::Upstream(stable), Vec::new());
            }
        };
        let Canary { conditions, weight, total } = &next.canary;
        let side = |(option, condition, is_canary): &(&'static str, String, bool)| {
            let upstream = if *is_canary { &canary } else { &stable };
            (*option, condition.clone(), upstream.clone(), next.owner.clone())
        };
        let sides = conditions.iter().map(side).collect();
        let answer = match total - weight {
            _ if *weight == 0 || canary == stable => IngressAnswer::Upstream(stable),
            0 => IngressAnswer::Upstream(canary),
            rest => {
                let shares = [(stable.as_str(), rest.to_string()), (canary.as_str(), weight.to_string())];
                let sticky =
                    asking.wanted.affinity.as_ref().and_then(|affinity| affinity.side(asking.secret));
                IngressAnswer::Split(inline(shares), sticky)
            }
        };
        (answer, sides)
    }
}

/// A condition option and its value, the upstream if it holds, and the canary.
type Side = (&'static str, String, String, Reference);

/// Lists the paths of an Ingress with hosts and names, in order. The default backend is the last.
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

/// Converts a host to an option. An Ingress's wildcard matches one label.
pub(crate) fn host_option(host: &str) -> Result<String, String> {
    let host = host.to_ascii_lowercase();
    match host.strip_prefix("*.") {
        Some(below) if is_name(below) => Ok(format!("~ [^.]+\\.{}", escape(below))),
        None if is_name(&host) => Ok(host),
        _ => Err(format!("host {host:?} is not a host name")),
    }
}

/// Whether the host, including all names of its wildcard, has a certificate in the Ingress.
fn is_secured(ingress: &Ingress, host: &str) -> bool {
    let mut hosts = ingress.spec.tls.iter().flat_map(|tls| &tls.hosts);
    hosts.any(|pattern| match pattern.strip_prefix("*.") {
        Some(below) => host.split_once('.').is_some_and(|(_, parent)| parent.eq_ignore_ascii_case(below)),
        None => pattern.eq_ignore_ascii_case(host),
    })
}

/// Translates a path, without an answer. An error says why the matching requests are undefined.
fn rule<'w>(
    (path, backend): (Option<&IngressPath>, &IngressBackend),
    wanted: &'w IngressOptions,
    namespace: &str,
) -> Result<ServedRule<'w>, String> {
    let value = path_of(path);
    if !value.starts_with('/') {
        return Err(format!("path {value:?} does not begin with /"));
    }
    let kind = path.map_or("Prefix", |path| path.path_type.as_str());
    let is_expression =
        kind == "ImplementationSpecific" && (wanted.uses_expressions || wanted.rewrite_target.is_some());
    // As in ingress-nginx: prefixes ignore case.
    let pattern = format!("(?i:{value})(?s:.*)");
    let path = match kind {
        _ if is_expression => {
            regex_syntax::parse(&pattern)
                .map_err(|_| format!("path {value:?} is not a supported expression"))?;
            format!("~ {pattern}")
        }
        "Exact" => format!("= {value}"),
        "Prefix" | "ImplementationSpecific" => match value.trim_end_matches('/') {
            "" => "/".to_owned(),
            prefix => prefix.to_owned(),
        },
        other => return Err(format!("pathType {other} is not supported")),
    };
    let mut rewrite = match &wanted.rewrite_target {
        Some(target) if is_expression => vec![("path", template(target))],
        Some(target) => vec![("pattern", text("(?s:.*)")), ("path", literal(target))],
        None => Vec::new(),
    };
    let service = backend.service.as_ref().map_or("", |service| &service.name);
    let host = wanted.upstream_host.as_ref().map(|host| with_names(host, service, namespace));
    rewrite.extend(host.map(|host| ("host", literal(&host))));
    Ok(ServedRule {
        path,
        answer: IngressAnswer::Fails,
        rewrite: (!rewrite.is_empty()).then(|| inline(rewrite)),
        asked: None,
        on_status: None,
        clients: None,
        wanted,
        sides: Vec::new(),
    })
}

impl ServedRule<'_> {
    fn redirects(&self, protocol: ListenerProtocol, is_covered: bool) -> bool {
        // Over HTTP no client has a certificate.
        let needs_certificate = self.clients.is_some_and(|clients| clients.is_required);
        let wants = match self.wanted.secure {
            _ if needs_certificate => true,
            Some(Secure::Everybody) => true,
            Some(Secure::Nobody) => false,
            None => is_covered,
        };
        protocol == ListenerProtocol::Http && wants
    }

    fn answered(&self, table: WrittenTable, answer: &IngressAnswer, redirects: Option<u16>) -> WrittenTable {
        let (table, is_asked) = match (answer, redirects) {
            (IngressAnswer::Fails, _) => {
                return table.with("respond", inline([("status", "500".to_owned())]));
            }
            (_, Some(port)) => {
                let authority = if port == 443 { "$host".to_owned() } else { format!("$host:{port}") };
                let to = template(&format!("https://{authority}$path"));
                return table.with("redirect", inline([("to", to), ("status", "308".to_owned())]));
            }
            (IngressAnswer::Redirect(redirect), None) => (table.with("redirect", redirect.clone()), false),
            (IngressAnswer::Upstream(upstream) | IngressAnswer::StandsIn(upstream, _), None) => {
                (table.with("upstream", text(upstream)), true)
            }
            (IngressAnswer::Split(split, sticky), None) => {
                (table.with("split", split.clone()).maybe("sticky", sticky.clone()), true)
            }
        };
        let is_for_servers =
            |option: &str| matches!(option, "limits" | "timeouts" | "retry" | "request_buffering");
        let options = self.wanted.options.iter().filter(|(option, _)| is_asked || !is_for_servers(option));
        let table = options.fold(table, |table, (option, value)| table.with(option, value.clone()));
        let of_clients = self.clients.map(ClientTls::denied).unwrap_or_default();
        let denied: Vec<String> = self.wanted.denied.iter().cloned().chain(of_clients).collect();
        let of_clients = self.clients.map(ClientTls::fields).unwrap_or_default();
        let mut headers: Vec<String> =
            self.wanted.request_headers.iter().cloned().chain(of_clients).collect();
        if let IngressAnswer::StandsIn(_, fields) = answer {
            headers.push(fields.clone());
        }
        let all = |tables: Vec<String>| (!tables.is_empty()).then(|| list(tables));
        let table = table.maybe("deny", all(denied)).maybe("forward_auth", self.asked.clone());
        if !is_asked {
            return table;
        }
        table
            .maybe("request_headers", all(headers))
            .maybe("client_cert", self.clients.and_then(ClientTls::certificate))
            .maybe("rewrite", self.rewrite.clone())
            .maybe("on_status", self.on_status.clone())
    }
}

/// Returns the option with the response fields of a ConfigMap.
fn custom_headers(owner: &Reference, map: &str, cluster: &Cluster) -> Result<String, String> {
    let known = cluster.config_maps.get(&(owner.namespace.clone(), map.to_owned()));
    let fields = known.and_then(ConfigMap::fields).ok_or_else(|| {
        let what = "there is none whose entries are all response fields, each of one line";
        format!("annotation custom-headers: ConfigMap {}/{map}: {what}", owner.namespace)
    })?;
    let fields = fields.iter().map(|(name, value)| (name.as_str(), literal(value)));
    Ok(inline([("set", inline(fields))]))
}
