//! Settings of faults.

use std::num::NonZeroU32;

use ipnet::IpNet;
use route::{RateKey, Rule};
use shape::{Fault, Occasion};

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
    /// The fault.
    pub fault: Fault,
    /// When the fault happens: probability, share of clients, schedule.
    pub occasion: Occasion,
    /// The requests that match: those that fulfil any of these rules. Listeners are indices into `Settings::listeners`.
    pub rules: Vec<Rule>,
    /// The names of matching routes; empty means all.
    pub routes: Vec<String>,
    /// Restricts the fault to the first requests of each key.
    pub first: Option<First>,
    /// Whether responses say that the fault happened.
    pub is_shown: bool,
}

/// The first requests of each key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct First {
    /// The number of requests.
    pub count: NonZeroU32,
    /// The key that requests are counted by.
    pub key: RateKey,
}

impl FaultRule {
    /// A fault for all requests.
    pub fn of(name: String, fault: Fault, occasion: Occasion) -> Self {
        let rules = vec![Rule::default()];
        Self { name, fault, occasion, rules, routes: Vec::new(), first: None, is_shown: false }
    }
}
