//! The JSON types of the admin API, for both ends: the proxy and its command line. Durations and times say their unit.

/// Cache commands: purge orders, and explanations of cache decisions.
pub mod cache;
/// Captures of running traffic.
pub mod capture;
/// Certificates of listeners, and orders to renew.
pub mod certificates;
/// Current requests, and the last hour.
pub mod live;
/// Maintenance: orders to switch it, and its status.
pub mod maintenance;
/// Maps: their status, their entries, and orders to change them.
pub mod maps;
/// Which route a request takes.
pub mod route;
/// Shaping: the status of rates and delays, and orders to change them.
pub mod shaping;
/// The status of the proxy, and orders about servers and faults.
pub mod status;
/// Requests since the start and in the last minute.
pub mod traffic;

/// The reference of the API (OpenAPI), made from these types.
#[cfg(test)]
mod openapi;
