//! What a shared cache may store, and when what is stored answers a request (RFC 9111).
//!
//! No sockets, no clock, no threads: time comes in as a number of milliseconds since 1970, messages as heads of `http1`. A
//! hit costs one pass over the request's fields and two comparisons; nothing is allocated and no text is written for it.

#![forbid(unsafe_code)]

/// What a route's owner wants.
mod policy;
/// Fields by their names.
mod fields;
/// Cache-Control and CDN-Cache-Control.
mod directives;
/// Dictionaries of Structured Fields.
mod structured;
/// What a request asks of a cache.
mod asked;
/// What a stored response is found by.
mod key;
/// What tells the variants of a response apart.
mod vary;
/// Content codings that a client takes.
mod encoding;
/// What is known of a stored response.
mod stored;
/// Whether a stored response answers.
mod decide;
/// Preconditions of clients.
mod conditional;
/// Parts of representations.
mod ranges;
/// How long a response is fresh.
mod freshness;
/// Whether a response is stored, and what of it.
mod storable;
/// Why a response is not stored.
mod refusal;
/// What a 304 does to what is stored.
mod refresh;
/// What a request makes invalid.
mod invalidate;
/// What a client is told.
mod status;
/// Responses in memory.
mod store;
/// One fetch for all who want the same.
mod fill;
/// What was purged.
mod purge;
/// What a response can be purged by.
mod labels;
/// Patterns of URLs.
mod pattern;
/// What is named to be purged.
mod named;
/// Why requests were no hits.
mod outcome;
/// How many hits another size of memory would give.
mod survey;

pub use asked::Asked;
pub use conditional::{Verdict, judge_conditions, range_applies};
pub use decide::{Decision, Forward, Found, Freshness, OriginError, decide, serves_on_error};
pub use directives::{RequestDirectives, ResponseDirectives, Source};
pub use encoding::Codings;
pub use fill::{Fill, Filled, Lead, ReadError, Reader, Wait, Waited, Wanted};
pub use invalidate::{also_invalid, invalidates, is_unsafe};
pub use key::{Key, KeySecret, Space, Uri, write_kept_target, write_key};
pub use labels::{also_labelled, labels, names_tags, tags};
pub use named::{Address, Named, NotNamed, Ordered, purge_uri};
pub use outcome::{Ending, Outcome};
pub use pattern::Pattern;
pub use policy::{Heuristic, Ignore, KeyOptions, Parameter, Policy, Query, StatusTtl};
pub use purge::{Force, Label, Rules, RulesFull, Scope};
pub use ranges::{
    Boundary, Part, Selection, may_combine, select, write_content_range, write_unsatisfied_range,
};
pub use refresh::{
    Refreshed, completes, is_about, is_head_of, is_replaced_condition, refresh, write_completion,
    write_conditions,
};
pub use refusal::{REFUSALS, Refusal, RefusalRow};
pub use status::{CacheStatus, Handling, write_age, write_content_length};
pub use storable::{admit, write_cookies, write_named_fields};
pub use store::apart::Apart;
pub use store::behind::Behind;
pub use store::count::{Met, Rule};
pub use store::object::{Object, Opening, SHORT_BODY_BYTES_MAX};
pub use store::record::Recorded;
pub use store::resize::Resized;
pub use store::shelf::{Shelf, Shelved, Shelving};
pub use store::{Joined, Store, StoreSettings, StoreTally};
pub use stored::{Stored, Times};
pub use survey::HitRates;
pub use vary::{VariantKey, Vary};
