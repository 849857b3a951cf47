//! TLS to servers: selects and checks the policy of a service, and reports on each policy.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use crate::client_identity::ClientIdentity;
use crate::cluster::Cluster;
use crate::condition::{Fault, StatusCondition};
use crate::hostname::is_name;
use crate::listeners::OwnGateway;
use crate::object::{GATEWAY_GROUP, ObjectKind, Reference, unknown};
use crate::secrets::{self, AUTHORITIES};
use crate::status::{AncestorFound, ObjectStatus, StatusFindings};
use crate::tls_kinds::{Ancestor, AuthorityRef, BackendTlsPolicy, TlsValidation};
use crate::translate::MachineFacts;
use crate::written::{inline, text};

/// The API's limit for ancestors in a status.
const ANCESTORS_MAX: usize = 16;

pub(crate) struct TlsPolicies<'c> {
    policies: Vec<TlsPolicy<'c>>,
    /// The policy in effect by namespace, service and port name; `None` stands for all ports.
    targets: BTreeMap<(&'c str, &'c str, Option<&'c str>), usize>,
    /// All policies of a service. Policies in conflict list their gateways, too.
    of_service: BTreeMap<(&'c str, &'c str), Vec<usize>>,
}

struct TlsPolicy<'c> {
    policy: &'c BackendTlsPolicy,
    wanted: Result<ServerTls, Fault>,
    /// A missing reference.
    resolved: Option<Fault>,
    older: Option<usize>,
    /// The gateways that lead to its services.
    gateways: BTreeSet<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerTls {
    /// Server name that is sent (SNI) and must be in the certificate.
    pub(crate) name: String,
    /// CAs as file name and content; `None` means the system's.
    pub(crate) authorities: Option<(String, Vec<u8>)>,
}

impl ServerTls {
    /// The option `tls` of an upstream. The servers may ask for the certificate `client`.
    pub(crate) fn option(&self, client: Option<&ClientIdentity>) -> String {
        let authorities = self.authorities.as_ref().map(|(file, _)| ("ca", text(file)));
        let own = client.into_iter().flat_map(ClientIdentity::options);
        inline(authorities.into_iter().chain([("name", text(&self.name))]).chain(own))
    }
}

pub(crate) type PolicyNumber = usize;

impl<'c> TlsPolicies<'c> {
    pub(crate) fn new(cluster: &'c Cluster, machine: &dyn MachineFacts) -> Self {
        let mut all: Vec<&BackendTlsPolicy> = cluster.tls_policies.values().collect();
        all.sort_by_key(|policy| policy.metadata.age());
        let mut policies = Vec::new();
        let (mut targets, mut of_service) = (BTreeMap::new(), BTreeMap::<_, Vec<usize>>::new());
        for (number, policy) in all.into_iter().enumerate() {
            let mut older = None;
            let of_services = policy
                .spec
                .target_refs
                .iter()
                .filter(|target| (target.group.as_str(), target.kind.as_str()) == ("", "Service"));
            for target in of_services {
                let section = target.section_name.as_deref().filter(|section| !section.is_empty());
                let place = (policy.metadata.namespace.as_str(), target.name.as_str(), section);
                let holder = *targets.entry(place).or_insert(number);
                older = older.or(Some(holder).filter(|holder| *holder != number));
                of_service.entry((place.0, place.1)).or_default().push(number);
            }
            let (wanted, resolved) = wanted(policy, cluster, machine);
            policies.push(TlsPolicy { policy, wanted, resolved, older, gateways: BTreeSet::new() });
        }
        Self { policies, targets, of_service }
    }

    /// Returns the policy of a service's port, and records the gateways that lead to it.
    pub(crate) fn for_service(
        &mut self,
        (namespace, service): (&str, &str),
        port: Option<&str>,
        gateways: &BTreeSet<usize>,
    ) -> Option<PolicyNumber> {
        let own = port.filter(|port| !port.is_empty());
        let whole = self.targets.get(&(namespace, service, None)).copied();
        let number = own.and_then(|port| self.targets.get(&(namespace, service, Some(port))).copied());
        for policy in self.of_service.get(&(namespace, service)).into_iter().flatten() {
            self.policies[*policy].gateways.extend(gateways);
        }
        number.or(whole)
    }

    /// Returns a policy's TLS settings. After an error no server may be used.
    pub(crate) fn wanted(&self, number: PolicyNumber) -> Result<&ServerTls, String> {
        let TlsPolicy { policy, wanted, .. } = &self.policies[number];
        let reference = Reference::new(ObjectKind::BackendTlsPolicy, &policy.metadata);
        wanted.as_ref().map_err(|(_, why)| format!("{reference}: {why}"))
    }

    pub(crate) fn statuses(&self, gateways: &[OwnGateway<'_>]) -> Vec<ObjectStatus> {
        self.policies.iter().map(|policy| self.status(policy, gateways)).collect()
    }

    fn status(&self, policy: &TlsPolicy<'_>, gateways: &[OwnGateway<'_>]) -> ObjectStatus {
        let of_older = policy.older.map(|older| {
            let older = Reference::new(ObjectKind::BackendTlsPolicy, &self.policies[older].policy.metadata);
            ("Conflicted", format!("{older} has one of its targets, and takes precedence"))
        });
        let accepted = of_older.or_else(|| policy.wanted.as_ref().err().cloned());
        let conditions = vec![
            StatusCondition::new("Accepted", "Accepted", accepted),
            StatusCondition::new("ResolvedRefs", "ResolvedRefs", policy.resolved.clone()),
        ];
        let ancestor = |gateway: &usize| {
            let metadata = &gateways[*gateway].gateway.metadata;
            let ancestor = Ancestor {
                group: GATEWAY_GROUP,
                kind: ObjectKind::Gateway.name(),
                namespace: &metadata.namespace,
                name: &metadata.name,
            };
            let ancestor = serde_json::to_value(ancestor).unwrap_or_default();
            AncestorFound { ancestor, conditions: conditions.clone() }
        };
        ObjectStatus {
            object: Reference::new(ObjectKind::BackendTlsPolicy, &policy.policy.metadata),
            generation: policy.policy.metadata.generation,
            found: StatusFindings::Policy(policy.gateways.iter().take(ANCESTORS_MAX).map(ancestor).collect()),
        }
    }
}

/// Derives the TLS settings of a policy, or why it is not accepted. Also returns a missing reference.
fn wanted(
    policy: &BackendTlsPolicy,
    cluster: &Cluster,
    machine: &dyn MachineFacts,
) -> (Result<ServerTls, Fault>, Option<Fault>) {
    let spec = &policy.spec;
    let invalid = |why: String| ("Invalid", why);
    if let Err(why) = supported(&spec.validation) {
        return (Err(invalid(why)), None);
    }
    if let Some(names) = unknown(&spec.options) {
        return (Err(invalid(format!("options: not supported: {names}"))), None);
    }
    let name = spec.validation.hostname.to_ascii_lowercase();
    let references = &spec.validation.ca_certificate_refs;
    match spec.validation.well_known.as_deref().filter(|known| !known.is_empty()) {
        Some("System") if references.is_empty() => {
            let checked = machine.authorities(None).map(|()| ServerTls { name, authorities: None });
            (checked.map_err(|why| invalid(format!("wellKnownCACertificates: {why}"))), None)
        }
        None if !references.is_empty() => of_references(policy, name, cluster, machine),
        Some("System") | None => {
            (Err(invalid("one of caCertificateRefs and wellKnownCACertificates is needed".to_owned())), None)
        }
        Some(other) => {
            (Err(invalid(format!("wellKnownCACertificates: {other} is not supported, System is"))), None)
        }
    }
}

/// Collects CAs from objects. If one is missing, no server is trusted.
fn of_references(
    policy: &BackendTlsPolicy,
    name: String,
    cluster: &Cluster,
    machine: &dyn MachineFacts,
) -> (Result<ServerTls, Fault>, Option<Fault>) {
    let namespace = &policy.metadata.namespace;
    let mut pem = Vec::new();
    let mut fault = None;
    for wanted in &policy.spec.validation.ca_certificate_refs {
        match authorities(wanted, namespace, cluster, machine) {
            Ok(more) => {
                pem.extend(more);
                pem.push(b'\n');
            }
            Err(why) => fault = fault.or(Some(why)),
        }
    }
    match fault {
        Some(fault) if pem.is_empty() => (Err(("NoValidCACertificate", fault.1.clone())), Some(fault)),
        fault => {
            let file = secrets::path(namespace, &format!("policy {}", policy.metadata.name), AUTHORITIES);
            (Ok(ServerTls { name, authorities: Some((file, pem)) }), fault)
        }
    }
}

/// Returns the CA certificates of an object, in PEM.
pub(crate) fn authorities(
    wanted: &AuthorityRef,
    namespace: &str,
    cluster: &Cluster,
    machine: &dyn MachineFacts,
) -> Result<Vec<u8>, Fault> {
    let AuthorityRef { group, kind, name } = wanted;
    let key = (namespace.to_owned(), name.clone());
    let invalid = |why: &str| ("InvalidCACertificateRef", format!("{kind} {namespace}/{name}: {why}"));
    let no_key = || invalid(&format!("it has no {AUTHORITIES}"));
    let pem = match (group.as_str(), kind.as_str()) {
        ("", "ConfigMap") => {
            let map = cluster.config_maps.get(&key).ok_or_else(|| invalid("it does not exist"))?;
            map.authorities().ok_or_else(no_key)?.as_bytes().to_vec()
        }
        ("", "Secret") => {
            let secret = cluster.secrets.get(&key);
            let secret = secret.ok_or_else(|| {
                invalid("there is no such Secret of type kubernetes.io/tls, and others are not read")
            })?;
            let text = secret.data.get(AUTHORITIES).ok_or_else(no_key)?;
            BASE64_STANDARD.decode(text).map_err(|_| invalid(&format!("{AUTHORITIES} is not base64")))?
        }
        _ => return Err(("InvalidKind", format!("{kind} {name}: only ConfigMaps and Secrets can have CAs"))),
    };
    machine.authorities(Some(&pem)).map_err(|why| invalid(&why))?;
    Ok(pem)
}

fn supported(validation: &TlsValidation) -> Result<(), String> {
    let name = &validation.hostname;
    if let Some(names) = unknown(&validation.other) {
        return Err(format!("validation: not supported: {names}"));
    }
    if !is_name(name) {
        return Err(format!("hostname: {name:?} is not a host name"));
    }
    // The same name is sent as SNI and verified.
    let is_same = |other: &crate::tls_kinds::AltName| other.kind == "Hostname" && other.hostname == *name;
    match validation.subject_alt_names.as_slice() {
        [] => Ok(()),
        [one] if is_same(one) => Ok(()),
        _ => Err("subjectAltNames other than hostname are not supported".to_owned()),
    }
}
