//! Asks which route a request takes.

use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

/// A request to explain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct RouteOrder {
    pub method: String,
    /// `http://HOST/PATH?QUERY`, `https://…`, or `/PATH` for a request without a host.
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub client: IpAddr,
    /// The listener, by name or address; `None` for the first that fits the URL.
    pub listener: Option<String>,
}

impl Default for RouteOrder {
    fn default() -> Self {
        Self {
            method: "GET".to_owned(),
            url: "/".to_owned(),
            headers: Vec::new(),
            client: Ipv4Addr::LOCALHOST.into(),
            listener: None,
        }
    }
}
