//! Describes a plan for the results: proxies, cases, common settings, and unsupported cases.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::num::NonZeroUsize;

use report::results::{Arrivals, Case, Lacking, Layer, Proxy, Role, Scheme, Streams, Upstream};

use crate::certificate::Certificate;
use crate::error::Error;
use crate::origins::Addresses;
use crate::plan::{CasePlan, Load, OriginSource, Plan, RequestList};
use crate::proxies::{Installed, Service, Verified};
use crate::sites::Sites;

/// Settings of a run for every proxy.
pub(super) struct Given<'g> {
    /// Listening address, with a port that is chosen later.
    pub(super) listen: SocketAddr,
    pub(super) origins: &'g Addresses,
    pub(super) certificate: Option<&'g Certificate>,
    /// How the certificate of origins that are not the lab's is verified.
    pub(super) verified: Option<&'g Verified>,
}

impl Given<'_> {
    /// Task of every proxy in a case.
    pub(super) fn service(&self, case: &CasePlan) -> Service {
        Service {
            listen: self.listen,
            tls: self
                .certificate
                .filter(|_| case.scheme == Scheme::Https && case.layer == Layer::Seven)
                .cloned(),
            version: case.version,
            origins: self.origins.that_speak(case.upstream).to_vec(),
            upstream: case.upstream,
            origins_certificate: match (case.upstream, self.verified) {
                (Upstream::Https, Some(verified)) => Some(verified.clone()),
                (Upstream::Https, None) => self.certificate.map(Verified::own),
                (Upstream::Http | Upstream::H2, _) => None,
            },
            layer: case.layer,
            workers: case.workers,
            keep_alive: true,
            access_log: false,
            features: case.features,
            // What shows that it is ready is no stream.
            target: (!case.has_list() && case.streams.is_none()).then(|| case.payload.path.clone()),
            streams: case.streams.as_ref().map(|streams| streams.kind),
        }
    }
}

/// What is alike for every proxy in every case, a phrase each. Other settings are listed with their cases.
pub(super) fn alike(plan: &Plan, given: &Given<'_>) -> Vec<String> {
    let mut phrases: Vec<String> = match &plan.origins.source {
        // How it is set up is not known.
        OriginSource::Nothing => vec!["services that run already".to_owned()],
        _ => plan.cases.iter().flat_map(|case| given.service(case).features()).collect(),
    };
    if let OriginSource::Running(servers) = &plan.origins.source {
        let tls = if plan.origins.tls.is_some() { " over TLS" } else { "" };
        phrases.push(format!("origins that run already{tls}: {}", servers.join(", ")));
    }
    let mut seen = HashSet::new();
    phrases
        .extend(plan.says_keep_alive.then(|| "clients and origins say `Connection: keep-alive`".to_owned()));
    phrases.retain(|phrase| seen.insert(phrase.clone()));
    phrases
}

/// Every case that a proxy of the plan does not support, found by making its configuration.
pub(super) async fn lacking(
    plan: &Plan,
    given: &Given<'_>,
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

pub(super) fn proxy(installed: &Installed) -> Proxy {
    Proxy {
        name: installed.name.clone(),
        // Another version of ours is one of those that ours is compared with.
        role: if installed.name.contains('@') { Role::Peer } else { installed.driver.role },
        version: installed.version.clone(),
        started: Vec::new(),
    }
}

pub(super) fn case(case: &CasePlan) -> Case {
    Case {
        name: case.name.clone(),
        scheme: case.scheme,
        version: case.version,
        upstream: case.upstream,
        layer: case.layer,
        payload: case.payload.name.clone(),
        // Those of a list differ.
        payload_bytes: case.payload.bytes.filter(|_| !case.has_list()).unwrap_or(0),
        connections: case.connections.get(),
        streams: case.streams.as_ref().map(|streams| Streams {
            kind: streams.kind,
            per_connection: streams.per_connection.get(),
            message_bytes: streams.size_bytes,
            senders: streams.senders.map(NonZeroUsize::get),
        }),
        arrivals: match &case.load {
            // A share becomes a rate once the closed loops are measured.
            Load::Closed | Load::ShareOfSlowest(_) => Arrivals::Closed,
            Load::Rate(rate_per_second) => Arrivals::Constant { rate_per_second: *rate_per_second },
            Load::Search(bound) => Arrivals::Searched { bound: bound.text().to_owned() },
        },
        workers: case.workers.get(),
        requests: case.requests,
        measured_seconds: case.measured.map(|time| time.as_secs_f64()),
        features: case.requests_from.iter().map(RequestList::phrase).chain(case.features.phrases()).collect(),
        published: case.published.clone(),
        generator: case.generator.name.to_owned(),
    }
}
