//! HTTP caching (RFC 9111) for a shared cache: what may be stored, and when a stored response may be used.
//!
//! No sockets, no clock, no threads: times are milliseconds since 1970, messages are heads of `http1`. A hit costs one
//! pass over the request's fields and two comparisons, and allocates nothing.

#![forbid(unsafe_code)]

/// A route's cache options.
mod policy;
/// Looks up fields by name.
mod fields;
/// Parses Cache-Control and targeted fields.
mod directives;
/// Cache-related properties of a request.
mod asked;
/// Cache keys.
mod key;
/// Vary and variants.
mod vary;
/// Normalises Accept-Encoding.
mod encoding;
/// Metadata of a stored response.
mod stored;
/// Decides whether a stored response may be used.
mod decide;
/// Evaluates preconditions of clients.
mod conditional;
/// Byte ranges and stored parts.
mod ranges;
/// Age and freshness lifetime.
mod freshness;
/// Decides whether a response may be stored, and what of it.
mod storable;
/// Reasons why a response is not stored.
mod refusal;
/// Validation requests, and updates by a 304.
mod refresh;
/// Invalidation by unsafe requests.
mod invalidate;
/// Age and Cache-Status for clients.
mod status;
/// Stored responses in memory.
mod store;
/// Request collapsing: one fetch for all clients with equal requests.
mod fill;
/// Other content codings of stored bodies.
mod coded;
/// Purges, as rules that look-ups check.
mod purge;
/// Labels that a response can be purged by.
mod labels;
/// URL patterns of purges.
mod pattern;
/// Names in purges and explanations: URLs, prefixes, hosts, tags.
mod named;
/// Why recent requests were no hits.
mod outcome;
/// Estimates hit rates for other memory sizes.
mod survey;
/// Requests that instances pass on to each other.
mod peer;
/// Copies of often requested responses that another instance owns.
mod hot;

pub use asked::CacheRequestFields;
pub use coded::{FormJoined, FormKey, FormReader, FormWriter, Forms};
pub use conditional::{PreconditionResult, Validators, judge_conditions, range_applies};
pub use decide::{Decision, Forward, Freshness, LookUp, OriginError, decide, serves_on_error};
pub use directives::{DirectiveSource, RequestDirectives, ResponseDirectives};
pub use encoding::Codings;
pub use fill::{BodyDemand, Fill, FillReader, Filled, HeadWait, Lead, ReadError, Waited};
pub use hot::{HOT_SECONDS, Hot};
pub use invalidate::{also_invalid, invalidates, is_unsafe};
pub use key::{CacheKey, KeySecret, KeyValues, Space, Uri, no_values, write_kept_target, write_key};
pub use labels::{also_labelled, labels, names_tags, tags, tags_of_lines};
pub use named::{NotNamed, Ordered, PurgeTarget, UrlParts, keys_of, purge_uri};
pub use outcome::{MissEnding, MissOutcome};
pub use pattern::PurgePattern;
pub use peer::{PEER_FIELD, PeerRequest};
pub use policy::{
    ACCEL_EXPIRES, CachePolicy, Heuristic, Ignore, KeyOptions, KeyQuery, Parameter, SURROGATE_CONTROL,
    StatusTtl, TARGETS, TargetedField,
};
pub use purge::{Force, Label, PurgeRules, PurgeScope, RulesFull};
pub use ranges::{
    Boundary, Selection, StoredPart, may_combine, select, write_content_range, write_unsatisfied_range,
};
pub use refresh::{
    Refreshed, completes, is_about, is_head_of, is_replaced_condition, outdates, refresh, write_completion,
    write_conditions,
};
pub use refusal::{NotStored, REFUSALS, RefusalRow};
pub use status::{CacheStatus, Handling, write_age, write_content_length};
pub use storable::{KeptHead, admit, write_cookies, write_named_fields};
pub use store::apart::Apart;
pub use store::behind::Behind;
pub use store::count::{Met, PurgeRule};
pub use store::object::{Object, Opening, SHORT_BODY_BYTES_MAX};
pub use store::record::Recorded;
pub use store::resize::Resized;
pub use store::shelf::{Shelf, Shelved, Shelving};
pub use store::{MemoryStore, MissRole, StoreSettings, StoreTally};
pub use stored::{Stored, StoredTimes};
pub use survey::HitRates;
pub use vary::{VariantKey, Vary};
