//! Maintenance in the admin API: orders to switch it, and what is under maintenance.

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
    /// The path of the page, on the machine of the proxy; only to begin. What is left out here and below is the file's.
    #[serde(default)]
    pub page: Option<String>,
    /// A duration: when clients may come again.
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
    /// Their names.
    pub routes: Vec<String>,
}

/// A route that is under maintenance, or would be without a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MaintenanceStatus {
    /// The name of the route.
    pub route: String,
    /// Whether requests are refused.
    pub is_on: bool,
    /// Whether a command has switched it, rather than the file.
    pub by_command: bool,
    /// The path of the page; `None` means the error page for 503.
    pub page: Option<String>,
    /// When clients may come again.
    pub retry_after_seconds: u64,
    /// Networks of clients that are served as usual.
    pub allow: Vec<String>,
}
