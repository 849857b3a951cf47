//! Certificates of clients at listeners of gateways.

use std::collections::{BTreeMap, BTreeSet};

use crate::backend_tls::authorities;
use crate::cluster::Cluster;
use crate::condition::Fault;
use crate::kinds::{FrontendValidation, Gateway, ObjectRef};
use crate::listeners::{OwnGateway, Port, on_port, pattern};
use crate::object::{GATEWAY_GROUP, unknown};
use crate::secrets;
use crate::tls_kinds::AuthorityRef;
use crate::translate::MachineFacts;
use crate::written::{inline, list, text};

/// The CAs that sign certificates of clients, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientAuthorities {
    file: String,
    pem: Vec<u8>,
}

/// Returns why the settings of a gateway are not supported.
pub(crate) fn unsupported(gateway: &Gateway) -> Option<String> {
    let tls = gateway.spec.tls.as_ref()?;
    let frontend = tls.frontend.iter();
    let ports = frontend
        .clone()
        .flat_map(|frontend| frontend.default.iter().chain(frontend.per_port.iter().map(|port| &port.tls)));
    let validations = ports.clone().filter_map(|port| port.validation.as_ref());
    let others = [&tls.other]
        .into_iter()
        .chain(frontend.map(|frontend| &frontend.other))
        .chain(ports.map(|port| &port.other))
        .chain(tls.backend.iter().map(|backend| &backend.other))
        .chain(validations.map(|validation| &validation.other));
    others.filter_map(unknown).next().map(|names| format!("tls: not supported: {names}"))
}

/// Returns the CAs for clients of an HTTPS port; `None` asks for no certificates. The second fault is a missing reference
/// beside valid ones.
pub(crate) fn for_port(
    gateway: &Gateway,
    port: u16,
    cluster: &Cluster,
    machine: &dyn MachineFacts,
) -> Result<(Option<ClientAuthorities>, Option<Fault>), Fault> {
    let Some(FrontendValidation { ca_certificate_refs, mode, .. }) = validation(gateway, port) else {
        return Ok((None, None));
    };
    match mode.as_deref() {
        None | Some("" | "AllowValidOnly") => {}
        Some(mode) => {
            let why = "a certificate that no CA has signed is always rejected";
            return Err(("UnsupportedValue", format!("tls.frontend: mode {mode} is not supported: {why}")));
        }
    }
    let (mut pem, mut fault) = (Vec::new(), None);
    for wanted in ca_certificate_refs {
        match referred(gateway, wanted, cluster, machine) {
            Ok(more) => {
                pem.extend(more);
                pem.push(b'\n');
            }
            Err(why) => fault = fault.or(Some(why)),
        }
    }
    if pem.is_empty() {
        let why = fault.map_or_else(|| "caCertificateRefs is empty".to_owned(), |(_, why)| why);
        return Err(("NoValidCACertificate", format!("tls.frontend: {why}")));
    }
    let metadata = &gateway.metadata;
    let file = secrets::path(
        &metadata.namespace,
        &format!("gateway {} {port}", metadata.name),
        secrets::AUTHORITIES,
    );
    Ok((Some(ClientAuthorities { file, pem }), fault))
}

/// Returns the settings for a port: its own, else the default.
fn validation(gateway: &Gateway, port: u16) -> Option<&FrontendValidation> {
    let frontend = gateway.spec.tls.as_ref()?.frontend.as_ref()?;
    let own = frontend.per_port.iter().find(|own| own.port == port).map(|own| &own.tls);
    own.or(frontend.default.as_ref())?.validation.as_ref()
}

fn referred(
    gateway: &Gateway,
    wanted: &ObjectRef,
    cluster: &Cluster,
    machine: &dyn MachineFacts,
) -> Result<Vec<u8>, Fault> {
    let own = &gateway.metadata.namespace;
    let namespace = wanted.namespace.as_ref().unwrap_or(own);
    let group = wanted.group.clone().unwrap_or_default();
    let kind = wanted.kind.clone().unwrap_or_else(|| "ConfigMap".to_owned());
    let to = (group.as_str(), kind.as_str(), namespace.as_str(), wanted.name.as_str());
    if !cluster.is_granted((GATEWAY_GROUP, "Gateway", own), to) {
        let why = format!("{kind} {namespace}/{}: no ReferenceGrant in {namespace} permits it", wanted.name);
        return Err(("RefNotPermitted", why));
    }
    let wanted = AuthorityRef { group, kind, name: wanted.name.clone() };
    authorities(&wanted, namespace, cluster, machine).map_err(|(reason, why)| match reason {
        "InvalidKind" => ("InvalidCACertificateKind", why),
        reason => (reason, why),
    })
}

/// Returns the rules of a port's listeners: the option for all clients, and elements of the one by name. For a hostname the
/// oldest gateway's rule counts, as its certificate does.
pub(crate) fn rules(
    gateways: &[OwnGateway<'_>],
    port: Port,
    files: &mut BTreeMap<String, Vec<u8>>,
) -> (Option<String>, Vec<String>) {
    let (mut all, mut by_name) = (None, Vec::new());
    let has_any = on_port(gateways, port).any(|listener| listener.clients.is_some());
    let mut seen = BTreeSet::new();
    for listener in on_port(gateways, port).filter(|_| has_any) {
        let host = listener.hostname().map(str::to_ascii_lowercase);
        if !seen.insert(host.clone()) {
            continue;
        }
        let rule = listener.clients.as_ref().map(|ClientAuthorities { file, pem }| {
            files.insert(file.clone(), pem.clone());
            [("mode", text("required")), ("ca", text(file))]
        });
        match (host, rule) {
            (None, rule) => all = rule.map(inline),
            (Some(host), rule) => {
                let names = ("names", list([text(&pattern(Some(&host)))]));
                // A name without a rule is no case of a wider one.
                let none = || vec![("mode", text("none"))];
                by_name.push(inline([names].into_iter().chain(rule.map_or_else(none, Vec::from))));
            }
        }
    }
    (all, by_name)
}
