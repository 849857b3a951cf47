//! Settings of faults.

use std::num::NonZeroU32;

use ipnet::IpNet;
use route::{RateKey, RouteRule};
use shape::{ConnectionFault, Directions, Fault, Occasion};

use crate::tables::settings::Settings;

/// Options of faults.
pub(crate) mod options;
/// Checks and converts the options of faults.
pub(crate) mod resolve;
/// Parses faults of connections.
pub(crate) mod connection;
/// Parses faults.
pub(crate) mod kinds;
/// Parses faults for a running proxy.
pub(crate) mod read;
/// The response of an injected status.
pub(crate) mod response;

/// All faults, and who may ask for them.
#[derive(Debug, Clone, PartialEq)]
pub struct Faults {
    /// The seed of all random decisions.
    pub seed: u64,
    /// The header field by which clients may ask for a fault; `None` turns it off.
    pub header: Option<String>,
    /// The networks of clients that may use `header`.
    pub header_clients: Vec<IpNet>,
    /// The rules in order. A request gets the first fault that happens to it, and no other.
    pub rules: Vec<FaultRule>,
}

impl Default for Faults {
    fn default() -> Self {
        Self { seed: 1, header: None, header_clients: Vec::new(), rules: Vec::new() }
    }
}

/// A fault and the requests that it may happen to.
#[derive(Debug, Clone, PartialEq)]
pub struct FaultRule {
    /// The name in logs, unique.
    pub name: String,
    pub fault: Fault,
    /// The response of an injected status.
    pub response: Option<Box<InjectedResponse>>,
    /// When the fault happens: probability, share of clients, schedule.
    pub occasion: Occasion,
    /// The requests that match: those that fulfil any of these rules. Listeners are indices into `Settings::listeners`.
    pub rules: Vec<RouteRule>,
    /// The names of matching routes; empty means all.
    pub routes: Vec<String>,
    /// Restricts the fault to the first requests of each key.
    pub first: Option<First>,
    /// Whether responses say that the fault happened.
    pub is_shown: bool,
}

/// The response of an injected status. Each part has a default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InjectedResponse {
    pub body: Option<String>,
    pub content_type: Option<String>,
    pub headers: Vec<(String, String)>,
    /// The status of gRPC, for calls.
    pub grpc_status: Option<u8>,
    /// The message of gRPC, for calls.
    pub grpc_message: Option<String>,
}

/// The first requests of each key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct First {
    pub count: NonZeroU32,
    /// The key that requests are counted by.
    pub key: RateKey,
}

impl FaultRule {
    /// A fault for all requests.
    pub fn new(name: String, fault: Fault, occasion: Occasion) -> Self {
        let rules = vec![RouteRule::default()];
        Self {
            name,
            fault,
            response: None,
            occasion,
            rules,
            routes: Vec::new(),
            first: None,
            is_shown: false,
        }
    }

    /// Whether this fault happens to all that a later one could happen to, so that the later one never happens while this one is
    /// there.
    pub fn hides(&self, later: &Self) -> bool {
        let is_certain = Occasion { expires: None, ..self.occasion.clone() } == Occasion::default();
        let has_routes = self.routes.is_empty()
            || !later.routes.is_empty() && later.routes.iter().all(|route| self.routes.contains(route));
        let has_rules = self.rules.contains(&RouteRule::default())
            || later.rules.iter().all(|rule| self.rules.contains(rule));
        is_certain
            && self.first.is_none()
            && has_routes
            && has_rules
            && is_drawn_before(&self.fault, &later.fault)
    }
}

impl FaultRule {
    /// Whether clients of HTTP/3 are spared at a listener that the fault is for: it changes bytes of TCP.
    pub fn spares_http3(&self, settings: &Settings) -> bool {
        let Fault::Connection(fault) = &self.fault else { return false };
        let is_for = |place: usize| {
            self.rules.iter().any(|rule| rule.listeners.is_empty() || rule.listeners.contains(&place))
        };
        let mut listeners = settings.listeners.iter().enumerate();
        !fault.is_of_quic() && listeners.any(|(place, listener)| listener.http3 && is_for(place))
    }
}

/// Whether of two faults only the earlier one happens, if it is certain.
fn is_drawn_before(earlier: &Fault, later: &Fault) -> bool {
    use ConnectionFault::{BadHandshake, Datagrams, Toxic};
    match (earlier, later) {
        (
            Fault::Connection(Datagrams { ways: earlier, .. }),
            Fault::Connection(Datagrams { ways: later, .. }),
        ) => *earlier == Directions::Both || earlier == later,
        (Fault::Connection(Toxic { .. }), Fault::Connection(Toxic { .. } | BadHandshake))
        | (Fault::Connection(BadHandshake), Fault::Connection(BadHandshake)) => true,
        (Fault::Connection(_), _) | (_, Fault::Connection(_)) => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use shape::Millionths;

    use super::*;

    #[test]
    fn a_certain_fault_hides_what_it_covers() {
        let [certain, other] = ["a", "b"]
            .map(|name| FaultRule::new(name.to_owned(), Fault::Answer { status: 503 }, Occasion::default()));
        let with = |change: &dyn Fn(&mut FaultRule)| {
            let mut rule = certain.clone();
            change(&mut rule);
            rule
        };
        let route = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let of = |names: &[&str]| with(&|rule| rule.routes = route(names));
        let cut = with(&|rule| rule.fault = Fault::Cut { bytes: 1 });
        let reset = with(&|rule| rule.fault = Fault::Connection(ConnectionFault::BadHandshake));
        let path = with(&|rule| {
            rule.rules =
                vec![RouteRule { host: route::HostRule::Exact("a".to_owned()), ..RouteRule::default() }];
        });
        let expires = with(&|rule| rule.occasion.expires = Some(Duration::from_secs(1)));
        for (earlier, later) in [
            (&certain, &other),
            (&certain, &cut),
            (&certain, &path),
            (&path, &path),
            (&expires, &other),
            (&of(&["x", "y"]), &of(&["x"])),
        ] {
            assert!(earlier.hides(later), "{earlier:?} {later:?}");
        }
        let half =
            with(&|rule| rule.occasion.probability = Millionths::of_millionths(500_000).expect("a share"));
        let later = with(&|rule| rule.occasion.from = Duration::from_secs(1));
        for (earlier, later) in [
            (&half, &other),
            (&later, &other),
            (&path, &other),
            (&certain, &reset),
            (&reset, &other),
            (&of(&["x"]), &other),
            (&of(&["x"]), &of(&["x", "y"])),
        ] {
            assert!(!earlier.hides(later), "{earlier:?} {later:?}");
        }
    }
}
