//! The cache in the path of requests, between clients of HTTP/1 and HTTP/2 and a server that the test plays.
//!
//! Each test is one thread, and no test depends on sleeping.

/// Answers from the store.
mod answered;
/// Preconditions of clients, and revalidation.
mod validated;
/// Ranges of stored responses.
mod ranges;
/// Stored partial responses.
mod parts;
/// Stale responses.
mod stale;
/// Responses that their server has withdrawn.
mod withdrawn;
/// Lifetimes by condition.
mod lifetimes;
/// Each response is judged separately.
mod judged;
/// Parts of requests that are kept from servers.
mod kept;
/// Requests that bypass the store.
mod passed;
/// Metrics.
mod counted;
/// Collapsed requests.
mod shared;
/// Reloads that change sizes.
mod resized;
/// Purges.
mod purged;
/// Separate spaces of routes.
mod routed;
/// The disk.
mod disk;
/// Explanations for operators.
mod explained;
