//! Describes a plan for the results: proxies, cases, common settings, and unsupported cases.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::num::NonZeroUsize;

use report::results::{
    Arrivals, Case, ClientScheme, ComparedProxy, Lacking, Layer, OriginProtocol, ProxyRole, StreamResults,
};

use crate::certificate::CertificatePaths;
use crate::error::Error;
use crate::origins::Addresses;
use crate::plan::{CasePlan, LabPlan, OriginSource, PlanLoad, RequestList};
use crate::proxies::{Installed, OriginVerification, Service};
use crate::sites::Sites;

/// Settings of a run for every proxy.
pub(super) struct GivenSettings<'g> {
    /// Its port is chosen later.
    pub(super) listen: SocketAddr,
    pub(super) origins: &'g Addresses,
    pub(super) certificate: Option<&'g CertificatePaths>,
    /// Certificate check for origins that are not the lab's.
    pub(super) verified: Option<&'g OriginVerification>,
}

impl GivenSettings<'_> {
    /// Task of every proxy in a case.
    pub(super) fn service(&self, case: &CasePlan) -> Service {
        Service {
            listen: self.listen,
            tls: self
                .certificate
                .filter(|_| case.scheme == ClientScheme::Https && case.layer == Layer::Seven)
                .cloned(),
            version: case.version,
            origins: self.origins.that_speak(case.upstream).to_vec(),
            upstream: case.upstream,
            origins_certificate: match (case.upstream, self.verified) {
                (OriginProtocol::Https, Some(verified)) => Some(verified.clone()),
                (OriginProtocol::Https, None) => self.certificate.map(OriginVerification::own),
                (OriginProtocol::Http | OriginProtocol::H2, _) => None,
            },
            layer: case.layer,
            workers: case.workers,
            keep_alive: true,
            access_log: false,
            features: case.features,
            // A probe does not use streams.
            target: (!case.has_list() && case.streams.is_none()).then(|| case.payload.path.clone()),
            streams: case.streams.as_ref().map(|streams| streams.kind),
        }
    }
}

/// Settings that all proxies share in every case, a phrase each. Other settings are listed with their cases.
pub(super) fn alike(plan: &LabPlan, given: &GivenSettings<'_>) -> Vec<String> {
    let mut phrases: Vec<String> = match &plan.origins.source {
        // The setup of these services is unknown.
        OriginSource::Nothing => vec!["services that were already running".to_owned()],
        _ => plan.cases.iter().flat_map(|case| given.service(case).features()).collect(),
    };
    if let OriginSource::Running(servers) = &plan.origins.source {
        let tls = if plan.origins.tls.is_some() { " over TLS" } else { "" };
        phrases.push(format!("origins that were already running{tls}: {}", servers.join(", ")));
    }
    let mut seen = HashSet::new();
    phrases
        .extend(plan.says_keep_alive.then(|| "clients and origins send `Connection: keep-alive`".to_owned()));
    phrases.retain(|phrase| seen.insert(phrase.clone()));
    phrases
}

/// Every case that a proxy of the plan does not support, found by making its configuration.
pub(super) async fn lacking(
    plan: &LabPlan,
    given: &GivenSettings<'_>,
    sites: &mut Sites,
) -> Result<Vec<Lacking>, Error> {
    let cells = plan.cases.iter().flat_map(|case| plan.proxies.iter().map(move |proxy| (case, proxy)));
    let cells: Vec<(&CasePlan, &Installed)> = cells.filter(|(case, proxy)| case.includes(proxy)).collect();
    let asked = cells
        .iter()
        .map(|(case, proxy)| ((*proxy).clone(), given.service(case).deviating(proxy.deviation)))
        .collect();
    let refusals = sites.refusals(asked).await?;
    let lacking = |((case, proxy), reason): (&(&CasePlan, &Installed), Option<String>)| {
        Some(Lacking { proxy: proxy.name.clone(), case: case.name.clone(), reason: reason? })
    };
    Ok(cells.iter().zip(refusals).filter_map(lacking).collect())
}

pub(crate) fn proxy(installed: &Installed) -> ComparedProxy {
    ComparedProxy {
        name: installed.name.clone(),
        // Another version of Vanward is a peer.
        role: if installed.name.contains('@') { ProxyRole::Peer } else { installed.driver.role },
        version: installed.version.clone(),
        started: Vec::new(),
    }
}

pub(crate) fn case(case: &CasePlan) -> Case {
    Case {
        name: case.name.clone(),
        scheme: case.scheme,
        version: case.version,
        upstream: case.upstream,
        layer: case.layer,
        payload: case.payload.name.clone(),
        // The responses of a list differ in size.
        payload_bytes: case.payload.bytes.filter(|_| !case.has_list()).unwrap_or(0),
        connections: case.connections.get(),
        streams: case.streams.as_ref().map(|streams| StreamResults {
            kind: streams.kind,
            per_connection: streams.per_connection.get(),
            message_bytes: streams.size_bytes,
            senders: streams.senders.map(NonZeroUsize::get),
        }),
        arrivals: match &case.load {
            // A share becomes a rate once the closed loops are measured.
            PlanLoad::Closed | PlanLoad::ShareOfSlowest(_) => Arrivals::Closed,
            PlanLoad::Rate(rate_per_second) => Arrivals::Constant { rate_per_second: *rate_per_second },
            PlanLoad::Search(bound) => Arrivals::Searched { bound: bound.text().to_owned() },
        },
        workers: case.workers.get(),
        requests: case.requests,
        measured_seconds: case.measured.map(|time| time.as_secs_f64()),
        features: case.requests_from.iter().map(RequestList::phrase).chain(case.features.phrases()).collect(),
        published: case.published.clone(),
        generator: case.generator.name.to_owned(),
    }
}
