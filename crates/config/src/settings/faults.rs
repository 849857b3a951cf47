//! What goes wrong on purpose, and with which requests.

use std::num::NonZeroU32;

use ipnet::IpNet;
use route::{RateKey, Rule};
use shape::{Fault, Occasion};

/// All that goes wrong on purpose.
#[derive(Debug, Clone, PartialEq)]
pub struct Faults {
    /// By what all draws are decided.
    pub seed: u64,
    /// The header field by which clients may ask for a fault; `None` is none.
    pub header: Option<String>,
    /// The networks of those clients.
    pub header_clients: Vec<IpNet>,
    /// In their order: the first that happens to a request is the only one.
    pub rules: Vec<FaultRule>,
}

impl Default for Faults {
    fn default() -> Self {
        Self { seed: 1, header: None, header_clients: Vec::new(), rules: Vec::new() }
    }
}

/// Something that goes wrong with requests of a kind.
#[derive(Debug, Clone, PartialEq)]
pub struct FaultRule {
    /// What it is called in logs, unique.
    pub name: String,
    /// What goes wrong.
    pub fault: Fault,
    /// When.
    pub occasion: Occasion,
    /// What requests have to be like, one of them; their listeners are indices into `Settings::listeners`.
    pub rules: Vec<Rule>,
    /// The names of their routes; none means every one.
    pub routes: Vec<String>,
    /// It happens to so many requests of each key, the first ones.
    pub first: Option<First>,
    /// Whether responses say that it happened.
    pub is_shown: bool,
}

/// The first requests of each key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct First {
    /// How many.
    pub count: NonZeroU32,
    /// Of what.
    pub key: RateKey,
}

impl FaultRule {
    /// One for every request.
    pub fn of(name: String, fault: Fault, occasion: Occasion) -> Self {
        let rules = vec![Rule::default()];
        Self { name, fault, occasion, rules, routes: Vec::new(), first: None, is_shown: false }
    }
}
