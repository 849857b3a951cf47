//! Tests of route tables and of shared limits, and a test that they do not allocate.

/// The route of a request.
mod matching;
/// Conditions of rules.
mod conditions;
/// Values in templates and keys.
mod values;
/// Limits over several instances.
mod shared;
/// No allocations per request.
mod allocations;
