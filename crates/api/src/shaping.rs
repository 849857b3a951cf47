//! Rates and delays, and orders to change them.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

/// What can be slowed down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlaceKind {
    /// Where clients connect.
    Listener,
    /// What requests take.
    Route,
    /// The servers behind it.
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

/// What is to be otherwise about a place than the file has it, each option as a file has it. `none` takes it away; what is
/// left out is as in the file, whatever was changed before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShapingOrder {
    /// What it is.
    pub place: PlaceKind,
    /// What the file calls it. Left out, the only one that there is.
    #[serde(default)]
    pub name: Option<String>,
    /// A link by its name; of a listener.
    #[serde(default)]
    pub profile: Option<String>,
    /// How fast what clients are sent passes: one limit, or several that hold at once.
    #[serde(default, deserialize_with = "one_or_many")]
    pub rate: Option<Vec<String>>,
    /// The same of what clients send.
    #[serde(default, deserialize_with = "one_or_many")]
    pub upload_rate: Option<Vec<String>>,
    /// How late connections begin; not of a route, nor are the next two.
    #[serde(default)]
    pub connect_delay: Option<String>,
    /// How late each piece comes, either way.
    #[serde(default)]
    pub latency: Option<String>,
    /// Packets that are sent once more.
    #[serde(default)]
    pub loss: Option<String>,
    /// How late requests go on; of a route, as is the next.
    #[serde(default)]
    pub delay: Option<String>,
    /// How late responses go on.
    #[serde(default)]
    pub response_delay: Option<String>,
    /// After how long everything is as in the file again. Left out, never.
    #[serde(default)]
    pub expires: Option<String>,
}

impl ShapingOrder {
    /// One that changes nothing yet.
    pub fn of(place: PlaceKind, name: Option<String>) -> Self {
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
    enum Written {
        One(String),
        Many(Vec<String>),
    }
    Ok(Option::deserialize(deserializer)?.map(|written| match written {
        Written::One(one) => vec![one],
        Written::Many(many) => many,
    }))
}

/// A place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceNamed {
    /// What it is.
    pub place: PlaceKind,
    /// As in the file.
    pub name: String,
}

/// Changes that were taken back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShapingCleared {
    /// How many.
    pub cleared: usize,
}

/// How fast and how late a place is, each option as a file has it; empty and `None` where it is neither.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShapingStatus {
    /// What it is.
    pub place: PlaceKind,
    /// As in the file.
    pub name: String,
    /// How fast what clients are sent passes.
    pub rate: Vec<String>,
    /// The same of what clients send.
    pub upload_rate: Vec<String>,
    /// How late connections begin.
    pub connect_delay: Option<String>,
    /// How late each piece comes, either way.
    pub latency: Option<String>,
    /// Packets that are sent once more.
    pub loss: Option<String>,
    /// How late requests go on.
    pub delay: Option<String>,
    /// How late responses go on.
    pub response_delay: Option<String>,
    /// Whether an operator has changed it since the file was read.
    pub is_changed: bool,
    /// After how long it is as in the file again, if it is by itself.
    pub expires_in_seconds: Option<f64>,
}

impl ShapingStatus {
    /// Whether it is as if nothing were shaped there, and always was.
    pub fn is_plain(&self) -> bool {
        let delays = [&self.connect_delay, &self.latency, &self.loss, &self.delay, &self.response_delay];
        !self.is_changed
            && self.rate.is_empty()
            && self.upload_rate.is_empty()
            && delays.iter().all(|delay| delay.is_none())
    }
}
