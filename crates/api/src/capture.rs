//! Captures of running traffic in the admin API.

use serde::{Deserialize, Serialize};

/// Asks for the next requests. The response has a line of JSON for each, as a capture file has, and [`CaptureEnd`] as its
/// last line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CaptureOrder {
    /// The names of the routes; empty for all requests.
    #[serde(default)]
    pub routes: Vec<String>,
    /// The capture ends after this many requests.
    pub requests: u64,
    /// The capture ends after this many seconds.
    #[serde(default)]
    pub seconds: Option<u64>,
    /// Whether bodies of requests are captured that the proxy buffers.
    #[serde(default)]
    pub bodies: bool,
}

/// Last line of a response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CaptureEnd {
    /// Requests that came faster than they were read.
    pub lost: u64,
}
