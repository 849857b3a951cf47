//! What is stored: orders to purge, and explanations.

use serde::{Deserialize, Serialize};

/// What is to be purged: all that is named in any of these ways.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PurgeOrder {
    /// With all their variants. Without a scheme, of http and https. With `*`, which stands for any text, patterns of URLs.
    pub urls: Vec<String>,
    /// All whose URL begins so.
    pub prefixes: Vec<String>,
    /// All of these hosts, without a port; `*` stands for any text.
    pub hosts: Vec<String>,
    /// All that have one of these tags, by `Surrogate-Key` or `Cache-Tag`.
    pub tags: Vec<String>,
    /// Everything.
    pub all: bool,
    /// Whether it becomes stale, rather than gone.
    pub soft: bool,
}

/// What was purged.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Purged {
    /// How much was named.
    pub named: usize,
    /// The stored responses that answer no more, or are stale now: each that was usable in memory, and of those that are on the
    /// disk alone the ones that were named by their URL, or all.
    pub responses: usize,
    /// The same for each name; one response may have several.
    #[serde(default)]
    pub met: Vec<PurgeMatch>,
    /// Whether more may have been met on the disk, which is not known before it is read.
    #[serde(default)]
    pub is_more_on_disk: bool,
}

/// What a name has met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgeMatch {
    /// Such as `tag news`.
    pub what: String,
    /// How many stored responses.
    pub responses: usize,
}

/// A GET that is asked about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExplainOrder {
    /// Without a scheme, that of https where it is spoken.
    pub url: String,
    /// Its header fields.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
}

/// What would become of a GET, and what has become of those before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explained {
    /// The route that it takes, as the log calls it.
    pub route: String,
    /// What its response is found by; `None` where the route stores nothing.
    pub key: Option<String>,
    /// What would become of it now.
    pub now: CacheVerdict,
    /// What is stored under its key: the variant that it asks for, and the newest others.
    pub stored: Vec<StoredResponse>,
    /// How many variants are stored.
    #[serde(default)]
    pub variants: usize,
    /// How many had to make room for others of the same key.
    #[serde(default)]
    pub variants_displaced: u64,
    /// The last request with its key that nothing stored answered, if that is still known.
    pub last_miss: Option<LastMiss>,
    /// What would make hits of the next ones.
    pub remedies: Vec<String>,
}

/// What would become of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheVerdict {
    /// Its route stores nothing.
    Off,
    /// What is stored answers, and is fresh.
    Hit,
    /// What is stored answers, and is stale.
    StaleHit,
    /// It is read from the disk, and answers if it is the right variant, and fresh.
    OnDisk,
    /// A server is asked whether what is stored is still good, for this reason.
    Validated(String),
    /// A server is asked, for this reason.
    Miss(String),
    /// It wants nothing but what is stored, which does not answer.
    Refused,
}

/// A stored response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredResponse {
    /// Its status.
    pub status: u16,
    /// Whether it is the variant that the request asks for.
    pub is_asked_for: bool,
    /// The fields that it varies by, a comma between them.
    pub vary: String,
    /// How old it is.
    pub age_seconds: u64,
    /// How long it stays fresh; negative where it is stale.
    pub ttl_seconds: i64,
    /// Whether it is stale since it was purged.
    pub is_purged_softly: bool,
    /// Whether its freshness is a guess from its Last-Modified.
    pub is_guess: bool,
    /// How long its body is.
    pub body_bytes: u64,
    /// All memory that it takes.
    pub memory_bytes: u64,
    /// Its ETag.
    pub etag: Option<String>,
    /// Its Last-Modified.
    pub last_modified: Option<String>,
}

/// A request that nothing stored answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastMiss {
    /// When it was asked.
    pub seconds_ago: u64,
    /// Why it was no hit, in the word of RFC 9211.
    pub forward: String,
    /// The same in a sentence.
    pub why: String,
    /// What the server answered, if it did.
    pub status: Option<u16>,
    /// Whether that was stored, or said that what is stored is good.
    pub is_stored: bool,
    /// Why not.
    pub not_stored: Option<StoreRefusal>,
}

/// Why a response was not stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreRefusal {
    /// The word for it, as in `detail` of Cache-Status.
    pub reason: String,
    /// In a sentence.
    pub what: String,
}
