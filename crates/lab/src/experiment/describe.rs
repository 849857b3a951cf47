//! The plan in the words of the results: proxies, cases, what is alike for all, and who cannot do what.

use std::collections::HashSet;
use std::path::Path;

use report::results::{Arrivals, Case, Lacking, Proxy, Scheme};

use crate::certificate::Certificate;
use crate::origins::Origins;
use crate::plan::{CasePlan, Load, Plan};
use crate::proxies::{Installed, Service};
use crate::start;

/// What every proxy is given in a case, but for where it listens.
pub(super) fn service(case: &CasePlan, origins: &Origins, certificate: Option<Certificate>) -> Service {
    Service {
        listen: start::ANY_PORT,
        tls: certificate.filter(|_| case.scheme == Scheme::Https),
        version: case.version,
        origins: origins.addresses.clone(),
        workers: case.workers,
        keep_alive: true,
        access_log: false,
        features: case.features,
    }
}

/// What is alike for every proxy in every case, a phrase each: what only some cases have is said with those.
pub(super) fn alike(plan: &Plan, origins: &Origins, certificate: Option<&Certificate>) -> Vec<String> {
    let of_case = |case: &CasePlan| service(case, origins, certificate.cloned()).features();
    let mut phrases: Vec<String> = plan.cases.iter().flat_map(of_case).collect();
    let mut seen = HashSet::new();
    phrases.retain(|phrase| seen.insert(phrase.clone()));
    phrases
}

/// Every case that a proxy would take part in and cannot do, by asking for its configuration.
pub(super) fn lacking(
    plan: &Plan,
    origins: &Origins,
    certificate: Option<&Certificate>,
    folder: &Path,
) -> Vec<Lacking> {
    let cells = plan.cases.iter().flat_map(|case| plan.proxies.iter().map(move |proxy| (case, proxy)));
    let refused = cells.filter(|(case, proxy)| case.includes(proxy)).filter_map(|(case, proxy)| {
        let service = service(case, origins, certificate.cloned()).deviating(proxy.deviation);
        let reason = (proxy.driver.configure)(proxy, &service, folder).err()?.to_string();
        Some(Lacking { proxy: proxy.name.clone(), case: case.name.clone(), reason })
    });
    refused.collect()
}

pub(super) fn proxy(installed: &Installed) -> Proxy {
    Proxy {
        name: installed.name.clone(),
        role: installed.driver.role,
        version: installed.version.clone(),
        started: Vec::new(),
    }
}

pub(super) fn case(case: &CasePlan) -> Case {
    Case {
        name: case.name.clone(),
        scheme: case.scheme,
        version: case.version,
        payload: case.payload.name.clone(),
        // Those of a list differ.
        payload_bytes: case.payload.bytes.filter(|_| case.urls.is_none()).unwrap_or(0),
        connections: case.connections.get(),
        arrivals: match &case.load {
            // A share becomes a rate once the closed loops are measured.
            Load::Closed | Load::ShareOfSlowest(_) => Arrivals::Closed,
            Load::Rate(rate_per_second) => Arrivals::Constant { rate_per_second: *rate_per_second },
            Load::Search(bound) => Arrivals::Searched { bound: bound.text().to_owned() },
        },
        workers: case.workers.get(),
        requests: case.requests,
        features: case.features.phrases(),
        published: case.published.clone(),
        generator: case.generator.name.to_owned(),
    }
}
