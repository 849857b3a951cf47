//! Shaping in the admin API: the status of rates and delays, and orders to change them.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

/// The kinds of places that can be shaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum PlaceKind {
    Listener,
    Route,
    Upstream,
}

impl fmt::Display for PlaceKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Listener => "listener",
            Self::Route => "route",
            Self::Upstream => "upstream",
        })
    }
}

/// Overrides the shaping of one place. Options have the syntax of the configuration file, and `none` removes a limit or
/// delay. Options that are left out return to the file's settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ShapingOrder {
    pub place: PlaceKind,
    /// The name in the configuration file. May be left out if there is only one.
    #[serde(default)]
    pub name: Option<String>,
    /// A link profile by name; listeners only.
    #[serde(default)]
    pub profile: Option<String>,
    /// Rate limits on bytes sent to clients. All of them apply together.
    #[serde(default, deserialize_with = "one_or_many")]
    pub rate: Option<Vec<String>>,
    /// Rate limits on bytes received from clients. All of them apply together.
    #[serde(default, deserialize_with = "one_or_many")]
    pub upload_rate: Option<Vec<String>>,
    /// The delay of new connections; not for routes.
    #[serde(default)]
    pub connect_delay: Option<String>,
    /// The latency of each piece of data, in both directions; not for routes.
    #[serde(default)]
    pub latency: Option<String>,
    /// The share of packets that are sent again; not for routes.
    #[serde(default)]
    pub loss: Option<String>,
    /// The delay of requests; routes only.
    #[serde(default)]
    pub delay: Option<String>,
    /// The delay of responses; routes only.
    #[serde(default)]
    pub response_delay: Option<String>,
    /// How long the order applies. `None` means until it is changed.
    #[serde(default)]
    pub expires: Option<String>,
}

impl ShapingOrder {
    /// An order without any change yet.
    pub fn new(place: PlaceKind, name: Option<String>) -> Self {
        Self {
            place,
            name,
            profile: None,
            rate: None,
            upload_rate: None,
            connect_delay: None,
            latency: None,
            loss: None,
            delay: None,
            response_delay: None,
            expires: None,
        }
    }
}

fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a rate such as \"1MB/s\", or a list of rates")]
    enum WrittenRate {
        One(String),
        Many(Vec<String>),
    }
    Ok(Option::deserialize(deserializer)?.map(|written| match written {
        WrittenRate::One(one) => vec![one],
        WrittenRate::Many(many) => many,
    }))
}

/// A place that can be shaped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlaceNamed {
    pub place: PlaceKind,
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ShapingCleared {
    /// The number of removed orders.
    pub cleared: usize,
}

/// The shaping of one place. Options have the syntax of the configuration file; empty or `None` means unlimited, or no
/// delay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ShapingStatus {
    pub place: PlaceKind,
    pub name: String,
    /// Rate limits on bytes sent to clients.
    pub rate: Vec<String>,
    /// Rate limits on bytes received from clients.
    pub upload_rate: Vec<String>,
    /// The delay of new connections.
    pub connect_delay: Option<String>,
    /// The latency of each piece of data, in both directions.
    pub latency: Option<String>,
    /// The share of packets that are sent again.
    pub loss: Option<String>,
    pub delay: Option<String>,
    pub response_delay: Option<String>,
    /// Whether an operator has changed the settings since the file was read.
    pub is_changed: bool,
    /// When an operator's change expires, if it does.
    pub expires_in_seconds: Option<f64>,
}

impl ShapingStatus {
    /// Whether nothing is shaped here, and no operator has changed it.
    pub fn is_plain(&self) -> bool {
        let delays = [&self.connect_delay, &self.latency, &self.loss, &self.delay, &self.response_delay];
        !self.is_changed
            && self.rate.is_empty()
            && self.upload_rate.is_empty()
            && delays.iter().all(|delay| delay.is_none())
    }
}
