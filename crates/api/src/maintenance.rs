//! Maintenance in the admin API: orders to switch it, and the routes under maintenance.

use serde::{Deserialize, Serialize};

/// Switches the maintenance of routes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MaintenanceOrder {
    /// The names of the routes; empty with `all`.
    #[serde(default)]
    pub routes: Vec<String>,
    /// All routes, also those that a reload adds.
    #[serde(default)]
    pub all: bool,
    /// The path of the page, on the proxy's machine; only to begin. For this and the options below, the default is the
    /// file's value.
    #[serde(default)]
    pub page: Option<String>,
    /// A duration: the value of Retry-After.
    #[serde(default)]
    pub retry_after: Option<String>,
    /// Networks of clients that are served as usual.
    #[serde(default)]
    pub allow: Option<Vec<String>>,
}

/// The routes that an order has switched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MaintenanceSwitched {
    pub routes: Vec<String>,
}

/// A route that is under maintenance, or would be without a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MaintenanceStatus {
    pub route: String,
    /// Whether requests are refused.
    pub is_on: bool,
    /// Whether a command has switched it, rather than the file.
    pub by_command: bool,
    /// The path of the page; `None` means the error page for 503.
    pub page: Option<String>,
    /// The value of Retry-After.
    pub retry_after_seconds: u64,
    /// Networks of clients that are served as usual.
    pub allow: Vec<String>,
}
