//! Hosts of Ingresses whose clients present certificates. As in ingress-nginx, one rule holds for all of a host.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use crate::annotations::ClientTls;
use crate::http_route::Claims;
use crate::ingress::{Around, OwnIngress};
use crate::ingress_hosts::RuleHosts;
use crate::listeners::Port;
use crate::object::{ObjectKind, Reference};
use crate::secrets;
use crate::written::{inline, list, text};

/// The rules by host, in lower case.
#[derive(Default)]
pub(crate) struct ClientHosts {
    rules: BTreeMap<String, HostRule>,
    /// All hosts of Ingresses.
    all: BTreeSet<String>,
    /// Why an Ingress may not have a rule for a host.
    refused: BTreeMap<(Reference, String), String>,
    pub(crate) files: BTreeMap<String, Vec<u8>>,
}

/// The rule of a host: the options, or why there are none and no client is admitted.
#[derive(Clone)]
struct HostRule {
    owner: Reference,
    wanted: ClientTls,
    options: Result<RuleOptions, String>,
}

type RuleOptions = Vec<(&'static str, String)>;

impl ClientHosts {
    /// Collects the rules, oldest Ingress first. Hosts that routes of gateways claim keep their own.
    pub(crate) fn new(
        all: &[OwnIngress<'_>],
        known: &RuleHosts,
        around: &Around<'_, '_>,
        claims: &Claims,
    ) -> Self {
        let https = Port { address: None, number: around.options.ingress_ports[1] };
        let claimed =
            claims.iter().filter(|(port, ..)| *port == https).filter_map(|(_, host, ..)| host.as_ref());
        let of_gateways: BTreeSet<&String> = claimed.chain(around.gateway_hosts).collect();
        let is_of_gateway = |host: &str| {
            of_gateways.iter().any(|own| own.as_str() == host || wildcard(own).as_deref() == Some(host))
        };
        let mut hosts = Self::default();
        let mut first: BTreeMap<String, &str> = BTreeMap::new();
        for own in all {
            let rule = own.wanted.client_tls.as_ref().map(|wanted| HostRule {
                owner: own.owner.clone(),
                wanted: wanted.clone(),
                options: hosts.options(wanted, &own.owner, around),
            });
            for host in own.hosts(known) {
                let namespace = first.entry(host.clone()).or_insert(&own.owner.namespace);
                let Some(rule) = &rule else { continue };
                let why = match hosts.rules.entry(host.clone()) {
                    _ if is_of_gateway(&host) => format!("a Gateway has {host}"),
                    _ if *namespace != own.owner.namespace => {
                        format!("an older Ingress in namespace {namespace} has {host}")
                    }
                    Entry::Occupied(known) if known.get().wanted != rule.wanted => {
                        format!("{} has another rule for {host}", known.get().owner)
                    }
                    Entry::Occupied(_) => continue,
                    Entry::Vacant(free) => {
                        free.insert(rule.clone());
                        continue;
                    }
                };
                hosts.refused.insert((own.owner.clone(), host), failed(&why));
            }
        }
        for own in all {
            let Some(rule) = own.rule_hosts().find_map(|host| hosts.rules.get(&host).cloned()) else {
                continue;
            };
            for alias in own.hosts(known) {
                hosts.rules.entry(alias).or_insert_with(|| rule.clone());
            }
        }
        hosts.all = first.into_keys().collect();
        hosts
    }

    /// Returns the rule of a host. Fails if no request of this Ingress may be served there.
    pub(crate) fn rule_of(&self, ingress: &Reference, host: &str) -> Result<Option<&ClientTls>, String> {
        let host = host.to_ascii_lowercase();
        let rule = self.rules.get(&host);
        if let Some(why) = self.refused.get(&(ingress.clone(), host)) {
            return Err(why.clone());
        }
        match rule {
            None => Ok(None),
            Some(HostRule { wanted, options: Ok(_), .. }) => Ok(Some(wanted)),
            Some(HostRule { owner, options: Err(why), .. }) if owner == ingress => Err(why.clone()),
            Some(HostRule { owner, options: Err(why), .. }) => Err(format!("{owner}: {why}")),
        }
    }

    /// Returns the elements of the option `client_certificates_by_name`.
    pub(crate) fn option(&self) -> Vec<String> {
        let rule = |(host, rule): (&String, &HostRule)| {
            let names = ("names", list([text(host)]));
            Some(inline([names].into_iter().chain(rule.options.as_ref().ok()?.clone())))
        };
        // A host is not that of another Ingress with a wildcard.
        let has_rule = |host: &str| self.rules.contains_key(host);
        let is_apart = |host: &&String| !has_rule(host) && wildcard(host).is_some_and(|wide| has_rule(&wide));
        let apart = self.all.iter().filter(is_apart);
        let apart = apart.map(|host| inline([("names", list([text(host)])), ("mode", text("none"))]));
        self.rules.iter().filter_map(rule).chain(apart).collect()
    }

    fn options(
        &mut self,
        wanted: &ClientTls,
        owner: &Reference,
        around: &Around<'_, '_>,
    ) -> Result<RuleOptions, String> {
        let namespace = owner.namespace.clone();
        let secret = Reference { kind: ObjectKind::Secret, namespace, name: wanted.secret.clone() };
        let refused = |why: &str| failed(&format!("{secret}: {why}"));
        let key = (secret.namespace.clone(), secret.name.clone());
        let known = around.cluster.secrets.get(&key).or_else(|| around.cluster.passwords.get(&key));
        let known = known.ok_or_else(|| {
            refused("there is none of type Opaque or kubernetes.io/tls with certificates in ca.crt")
        })?;
        let pem = secrets::authorities(known).map_err(|why| refused(&why))?;
        around.machine.authorities(Some(&pem)).map_err(|why| refused(&why))?;
        let file = secrets::path(&secret.namespace, &secret.name, secrets::AUTHORITIES);
        self.files.insert(file.clone(), pem);
        let mode = if wanted.is_required_by_handshake() { "required" } else { "optional" };
        Ok(vec![("mode", text(mode)), ("ca", text(&file)), ("depth", wanted.depth.to_string())])
    }
}

/// Returns the wildcard that matches a name; `None` for a wildcard.
fn wildcard(host: &str) -> Option<String> {
    let (first, parent) = host.split_once('.')?;
    (first != "*").then(|| format!("*.{parent}"))
}

fn failed(why: &str) -> String {
    format!("annotation auth-tls-secret: {why}")
}
