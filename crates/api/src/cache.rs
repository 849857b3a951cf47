//! Cache commands of the admin API: purge orders, and explanations of cache decisions.

use serde::{Deserialize, Serialize};

/// A purge order. It covers every stored response that at least one field names.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct PurgeOrder {
    /// URLs, with all variants. A URL without a scheme means http and https. A `*` matches any text.
    pub urls: Vec<String>,
    pub prefixes: Vec<String>,
    /// Host names without a port; `*` matches any text.
    pub hosts: Vec<String>,
    /// Cache tags, as in `Surrogate-Key` or `Cache-Tag`.
    pub tags: Vec<String>,
    pub all: bool,
    /// Makes responses stale instead of deleting them (soft purge).
    pub soft: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Purged {
    /// How many URLs, prefixes, hosts and tags the order named.
    pub named: usize,
    /// How many stored responses were purged: every usable one in memory; on disk, only those named by URL or by `all`.
    pub responses: usize,
    /// The purged responses for each name of the order. One response may count under several names.
    #[serde(default)]
    pub met: Vec<PurgeMatch>,
    /// Whether the disk may hold further matches, which are found only when they are read.
    #[serde(default)]
    pub is_more_on_disk: bool,
    /// The other instances; `None` if this one shares with none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<PurgedElsewhere>,
}

/// The results of a purge on all instances that share purges.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PurgedElsewhere {
    /// How many instances run, this one included.
    pub instances: usize,
    /// Instances that did not purge in time. They purge once they can.
    pub missing: Vec<String>,
    /// Why the result is not known.
    pub problem: Option<String>,
}

impl PurgedElsewhere {
    /// The result if Redis has not answered in time.
    pub fn unknown() -> Self {
        Self { problem: Some("Redis has not answered in time".to_owned()), ..Self::default() }
    }

    pub fn is_whole(&self) -> bool {
        self.problem.is_none() && self.missing.is_empty()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PurgeMatch {
    /// The kind and the name, such as `tag news`.
    pub what: String,
    pub responses: usize,
}

/// Asks how the cache would treat a GET request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ExplainOrder {
    /// The URL. Without a scheme, https is assumed if the proxy speaks it.
    pub url: String,
    /// The header fields of the request.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
}

/// The treatment of a GET request by the cache now, and of earlier requests with the same key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Explained {
    /// The name of the matching route, as in the log.
    pub route: String,
    /// The cache key; `None` if the route stores nothing.
    pub key: Option<String>,
    /// The cache's decision about the request now.
    pub now: CacheVerdict,
    /// The stored responses under the key: the selected variant, and the newest others.
    pub stored: Vec<StoredResponse>,
    /// The number of stored variants.
    #[serde(default)]
    pub variants: usize,
    /// How many variants were evicted to make room for other variants of the key.
    #[serde(default)]
    pub variants_displaced: u64,
    /// The last cache miss of the key, if it is still known.
    pub last_miss: Option<LastMiss>,
    /// The instance that owns the key, if instances share the cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<CacheOwner>,
    /// Suggestions that would turn misses into hits.
    pub remedies: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CacheOwner {
    /// The address for other instances.
    pub address: String,
    /// Whether this instance is the owner.
    pub is_own: bool,
}

/// A decision of the cache about a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CacheVerdict {
    /// The route stores nothing.
    Off,
    /// A fresh stored response would be sent.
    Hit,
    /// A stale stored response would be sent.
    StaleHit,
    /// The response is only on disk. It is sent if it turns out to be the right variant, and fresh.
    OnDisk,
    /// A server would be asked to validate the stored response, for this reason.
    Validated(String),
    /// The request would go to a server, for this reason.
    Miss(String),
    /// The request accepts only a stored response (`only-if-cached`), and none is usable.
    Refused,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StoredResponse {
    pub status: u16,
    /// Whether the request selects this variant.
    pub is_asked_for: bool,
    /// The field names in `Vary`, separated by commas.
    pub vary: String,
    pub age_seconds: u64,
    /// The remaining freshness lifetime; negative if the response is stale.
    pub ttl_seconds: i64,
    /// Whether a soft purge made the response stale.
    pub is_purged_softly: bool,
    /// Whether the freshness lifetime is heuristic, derived from Last-Modified.
    pub is_guess: bool,
    pub body_bytes: u64,
    /// All the memory that the stored response takes.
    pub memory_bytes: u64,
    pub etag: Option<String>,
    pub last_modified: Option<String>,
    /// The cache tags that it can be purged by.
    #[serde(default)]
    pub tags: Vec<String>,
    /// The number of further tags, whose text is not kept.
    #[serde(default)]
    pub tags_untold: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LastMiss {
    /// The time since the request.
    pub seconds_ago: u64,
    /// Why the request was forwarded, as the `fwd` word of Cache-Status (RFC 9211).
    pub forward: String,
    /// Why the request was forwarded, as a sentence.
    pub why: String,
    /// The status code of the server's response, if there was one.
    pub status: Option<u16>,
    /// Whether the response was stored, or confirmed the stored one.
    pub is_stored: bool,
    /// Why the response was not stored.
    pub not_stored: Option<StoreRefusal>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StoreRefusal {
    /// The reason as a word, as in `detail` of Cache-Status.
    pub reason: String,
    /// The reason as a sentence.
    pub what: String,
}
