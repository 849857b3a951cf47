//! Cases in which no proxy and no generator could take part.

use report::results::{Layer, OriginProtocol};

use super::GivenPlan;
use crate::plan::CasePlan;

/// The reason why a case is impossible for every proxy and generator.
pub(super) fn impossible(case: &CasePlan, given: GivenPlan<'_>) -> Option<String> {
    let GivenPlan { clients, origins, .. } = given;
    let (has_own_origins, have_origins_tls) = (origins.is_own(), origins.tls.is_some());
    let unknown = || {
        if !has_own_origins {
            return None;
        }
        let message = origin::serves(&case.payload.path).err()?;
        Some(format!("payload {:?}: {message}", case.payload.path))
    };
    let alone = (case.connections.get() < clients)
        .then(|| format!("{:?} has fewer connections than there are clients", case.name));
    let name = &case.name;
    let tls = match (has_own_origins, have_origins_tls, case.upstream == OriginProtocol::Https) {
        (true, ..) | (false, false, false) => None,
        (false, true, true) if case.layer == Layer::Seven => None,
        (false, true, true) => Some(format!(
            "at layer 4 clients verify the origins themselves, and {name:?} has those of [origin]; expected layer 7"
        )),
        (false, true, false) => Some(format!(
            "{name:?} has origins without TLS, and those of [origin] use it; expected upstream = \"https\""
        )),
        (false, false, true) => Some(format!(
            "{name:?} has origins over TLS, and those of [origin] are reached without; expected https:// URLs in it, or \
             upstream = \"http\" or \"h2\""
        )),
    };
    case.contradiction().or_else(unknown).or(tls).or(alone)
}
