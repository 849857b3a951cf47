//! The JSON types of the admin API, for both ends: the proxy and its command line. Durations and times say their unit.

/// What is stored: orders to purge, and explanations.
pub mod cache;
/// Rates and delays, and orders to change them.
pub mod shaping;
/// The status of the proxy, and orders about servers and faults.
pub mod status;
