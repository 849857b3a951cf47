//! What the admin API tells of what is stored, and takes: the shapes of its JSON, for both ends.

use std::sync::Weak;

use ::cache::{Address, Force, Named, NotNamed};
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::{elsewhere, ending, json, refused};
use crate::change::Control;
use crate::control::notice;

/// What is to be purged: all that is named in any of these ways.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PurgeOrder {
    /// With all their variants. Without a scheme, of http and https.
    pub urls: Vec<String>,
    /// All whose URL begins so.
    pub prefixes: Vec<String>,
    /// All of these hosts, without a port.
    pub hosts: Vec<String>,
    /// All that have one of these tags, by `Surrogate-Key` or `Cache-Tag`.
    pub tags: Vec<String>,
    /// Everything.
    pub all: bool,
    /// Whether it becomes stale, rather than gone.
    pub soft: bool,
}

/// What was purged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Purged {
    /// How much was named.
    pub named: usize,
    /// The stored responses with the URLs that were named. What prefixes, hosts and tags meet is not counted, since it is not
    /// looked for.
    pub responses: usize,
}

impl PurgeOrder {
    fn named(&self) -> Result<Vec<Named>, NotNamed> {
        let urls = self.urls.iter().map(|url| Address::parse(url).map(Named::Url));
        let prefixes = self.prefixes.iter().map(|prefix| Address::parse(prefix).map(Named::Prefix));
        let hosts = self.hosts.iter().map(|host| Named::host(host));
        let tags = self.tags.iter().map(|tag| Named::tag(tag));
        let all = self.all.then_some(Ok(Named::All));
        urls.chain(prefixes).chain(hosts).chain(tags).chain(all).collect()
    }
}

/// Purges what is named; what is wrong with a name is said before anything is done.
pub(super) async fn purge(State(control): State<Weak<Control>>, body: Bytes) -> Response {
    let order: PurgeOrder = match serde_json::from_slice(&body) {
        Ok(order) => order,
        Err(error) => {
            return refused(StatusCode::BAD_REQUEST, &format!("the body is not understood: {error}"));
        }
    };
    let named = match order.named() {
        Ok(named) if named.is_empty() => {
            return refused(
                StatusCode::BAD_REQUEST,
                "nothing is named: there are urls, prefixes, hosts, tags and all",
            );
        }
        Ok(named) => named,
        Err(error) => return refused(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let force = if order.soft { Force::Soft } else { Force::Hard };
    let purged = elsewhere(control, move |control| {
        let plan = control.plan();
        plan.cache.as_ref().map(|cache| cache.purge(&plan.config, &named, force))
    });
    match purged.await {
        None => ending(),
        Some(None) => refused(StatusCode::CONFLICT, NOTHING_STORED),
        Some(Some(Err(error))) => refused(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
        Some(Some(Ok(purged))) => {
            if order.all {
                notice("all that is stored was purged, as the admin API was asked to");
            }
            json(StatusCode::OK, &purged)
        }
    }
}

const NOTHING_STORED: &str = "nothing is stored: the configuration has no [cache]";
