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
        .then(|| format!("{:?} has fewer connections than client machines", case.name));
    let name = &case.name;
    let tls = match (has_own_origins, have_origins_tls, case.upstream == OriginProtocol::Https) {
        (true, ..) | (false, false, false) => None,
        (false, true, true) if case.layer == Layer::Seven => None,
        (false, true, true) => Some(format!(
            "at layer 4 clients would verify the certificates of [origin] themselves; expected layer 7 for {name:?}"
        )),
        (false, true, false) => Some(format!(
            "{name:?} has origins without TLS, but the servers of [origin] use TLS; expected upstream = \"https\""
        )),
        (false, false, true) => Some(format!(
            "{name:?} has origins over TLS, but the URLs of [origin] are http://; expected https:// URLs, or upstream \
             = \"http\" or \"h2\""
        )),
    };
    case.contradiction().or_else(unknown).or(tls).or(alone)
}
