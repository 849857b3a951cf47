//! TLS to servers: which policy holds for a service, whether it can be obeyed, and what was found about it.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use crate::cluster::Cluster;
use crate::condition::{Condition, Fault};
use crate::hostname::is_name;
use crate::listeners::OwnGateway;
use crate::object::{GATEWAY_GROUP, Kind, Reference, unknown};
use crate::secrets;
use crate::status::{AncestorFound, Found, Status};
use crate::tls_kinds::{Ancestor, AuthorityRef, BackendTlsPolicy, TlsValidation};
use crate::translate::Machine;
use crate::written::{inline, text};

/// The key of certificates of CAs in ConfigMaps and Secrets.
const AUTHORITIES: &str = "ca.crt";
/// Statuses have at most so many ancestors.
const ANCESTORS_MAX: usize = 16;

/// The policies of a cluster, the oldest first.
pub(crate) struct Policies<'c> {
    policies: Vec<Policy<'c>>,
    /// Namespace, service and port, by its name or all, with the policy that holds there.
    targets: BTreeMap<(&'c str, &'c str, Option<&'c str>), usize>,
    /// All policies of a service: those in conflict are told by which gateways, too.
    of_service: BTreeMap<(&'c str, &'c str), Vec<usize>>,
}

struct Policy<'c> {
    policy: &'c BackendTlsPolicy,
    /// How servers are asked, or why that is not known.
    wanted: Result<ServerTls, Fault>,
    /// What it refers to and is not there.
    resolved: Option<Fault>,
    /// The policy that is older and has one of its targets.
    older: Option<usize>,
    /// The gateways through which its services are reached.
    gateways: BTreeSet<usize>,
}

/// How servers are asked by TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerTls {
    /// The name that they are asked for, and must prove.
    pub(crate) name: String,
    /// The CAs, as the name of a file and its content; `None` for those of the system.
    pub(crate) authorities: Option<(String, Vec<u8>)>,
}

impl ServerTls {
    /// As the option `tls` of an upstream has it.
    pub(crate) fn option(&self) -> String {
        let authorities = self.authorities.as_ref().map(|(file, _)| ("ca", text(file)));
        inline(authorities.into_iter().chain([("name", text(&self.name))]))
    }
}

/// The policy of a service, as a number.
pub(crate) type PolicyNumber = usize;

impl<'c> Policies<'c> {
    pub(crate) fn new(cluster: &'c Cluster, machine: &dyn Machine) -> Self {
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
            policies.push(Policy { policy, wanted, resolved, older, gateways: BTreeSet::new() });
        }
        Self { policies, targets, of_service }
    }

    /// The policy of a port of a service, if there is one. Gateways through which it is reached are noted.
    pub(crate) fn of(
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

    /// How servers are asked by a policy.
    ///
    /// # Errors
    /// Why that is not known: nobody may be asked then.
    pub(crate) fn wanted(&self, number: PolicyNumber) -> Result<&ServerTls, String> {
        let Policy { policy, wanted, .. } = &self.policies[number];
        let reference = Reference::of(Kind::BackendTlsPolicy, &policy.metadata);
        wanted.as_ref().map_err(|(_, why)| format!("{reference}: {why}"))
    }

    /// What was found about them.
    pub(crate) fn statuses(&self, gateways: &[OwnGateway<'_>]) -> Vec<Status> {
        self.policies.iter().map(|policy| self.status(policy, gateways)).collect()
    }

    fn status(&self, policy: &Policy<'_>, gateways: &[OwnGateway<'_>]) -> Status {
        let of_older = policy.older.map(|older| {
            let older = Reference::of(Kind::BackendTlsPolicy, &self.policies[older].policy.metadata);
            ("Conflicted", format!("{older} has a target of it, and comes first"))
        });
        let accepted = of_older.or_else(|| policy.wanted.as_ref().err().cloned());
        let conditions = vec![
            Condition::of("Accepted", "Accepted", accepted),
            Condition::of("ResolvedRefs", "ResolvedRefs", policy.resolved.clone()),
        ];
        let ancestor = |gateway: &usize| {
            let metadata = &gateways[*gateway].gateway.metadata;
            let ancestor = Ancestor {
                group: GATEWAY_GROUP,
                kind: Kind::Gateway.name(),
                namespace: &metadata.namespace,
                name: &metadata.name,
            };
            let ancestor = serde_json::to_value(ancestor).unwrap_or_default();
            AncestorFound { ancestor, conditions: conditions.clone() }
        };
        Status {
            object: Reference::of(Kind::BackendTlsPolicy, &policy.policy.metadata),
            generation: policy.policy.metadata.generation,
            found: Found::Policy(policy.gateways.iter().take(ANCESTORS_MAX).map(ancestor).collect()),
        }
    }
}

/// How a policy wants servers to be asked, or why it is not accepted; and what it refers to that is not there.
fn wanted(
    policy: &BackendTlsPolicy,
    cluster: &Cluster,
    machine: &dyn Machine,
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

/// CAs in objects. Without one of them, its servers are not believed.
fn of_references(
    policy: &BackendTlsPolicy,
    name: String,
    cluster: &Cluster,
    machine: &dyn Machine,
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

/// The certificates of CAs in an object.
fn authorities(
    wanted: &AuthorityRef,
    namespace: &str,
    cluster: &Cluster,
    machine: &dyn Machine,
) -> Result<Vec<u8>, Fault> {
    let AuthorityRef { group, kind, name } = wanted;
    let key = (namespace.to_owned(), name.clone());
    let invalid = |why: &str| ("InvalidCACertificateRef", format!("{kind} {namespace}/{name}: {why}"));
    let no_key = || invalid(&format!("it has no {AUTHORITIES}"));
    let pem = match (group.as_str(), kind.as_str()) {
        ("", "ConfigMap") => {
            let map = cluster.config_maps.get(&key).ok_or_else(|| invalid("it does not exist"))?;
            map.data.authorities.clone().ok_or_else(no_key)?.into_bytes()
        }
        ("", "Secret") => {
            let secret = cluster.secrets.get(&key);
            let secret = secret.ok_or_else(|| {
                invalid("there is no such Secret of type kubernetes.io/tls, and others are not read")
            })?;
            let text = secret.data.get(AUTHORITIES).ok_or_else(no_key)?;
            BASE64_STANDARD.decode(text).map_err(|_| invalid(&format!("{AUTHORITIES} is not base64")))?
        }
        _ => return Err(("InvalidKind", format!("{kind} {name}: ConfigMaps and Secrets have CAs"))),
    };
    machine.authorities(Some(&pem)).map_err(|why| invalid(&why))?;
    Ok(pem)
}

/// What cannot be obeyed of it.
fn supported(validation: &TlsValidation) -> Result<(), String> {
    let name = &validation.hostname;
    if let Some(names) = unknown(&validation.other) {
        return Err(format!("validation: not supported: {names}"));
    }
    if !is_name(name) {
        return Err(format!("hostname: {name:?} is no name of a host"));
    }
    // One name is both asked for and proved.
    let is_same = |other: &crate::tls_kinds::AltName| other.kind == "Hostname" && other.hostname == *name;
    match validation.subject_alt_names.as_slice() {
        [] => Ok(()),
        [one] if is_same(one) => Ok(()),
        _ => Err("subjectAltNames other than hostname are not supported".to_owned()),
    }
}
