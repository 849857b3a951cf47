//! All tests of the program as a process, in one binary. Tests of the lab require its feature.

/// The program as a process.
mod process;
/// Commands that every build has.
mod commands;
/// `vanward adapt`.
mod adapt;
/// The configurations of `examples`.
mod examples;
/// A configuration of several files.
mod files;
/// Certificates, with openssl and curl.
mod tls;
/// Messages about the state of servers.
mod server_messages;
/// Error output of applications behind FastCGI.
mod application_errors;
/// Status as tables and as JSON.
mod status;
/// `vanward top` in a terminal.
mod top;
/// The dashboard.
mod dashboard;
/// A cache on a disk, after kill -9.
mod kept;
/// The service manager.
mod service_manager;
/// Upgrades over HTTP/3.
mod http3_upgrade;
/// Limits that instances share through Redis.
#[cfg(feature = "fleet")]
mod shared_limits;
/// Reloads and upgrades under load.
#[cfg(feature = "lab")]
mod changes;
/// Changes of maps.
#[cfg(feature = "lab")]
mod changed_maps;
/// `vanward docker`.
#[cfg(feature = "lab")]
mod docker;
/// Pages with steps for newcomers.
#[cfg(feature = "lab")]
mod start;
/// Origin, proxy and load generator together.
#[cfg(feature = "lab")]
mod serving;
/// Exit statuses for broken input.
#[cfg(feature = "lab")]
mod verdicts;
/// Captures of running traffic.
#[cfg(feature = "lab")]
mod captures;
/// `vanward load`.
#[cfg(feature = "lab")]
mod load;
/// The load generator and names with several addresses.
#[cfg(feature = "lab")]
mod load_addresses;
/// The load generator over HTTP/3.
#[cfg(feature = "lab")]
mod load_http3;
/// Streams of the load generator.
#[cfg(feature = "lab")]
mod load_streams;
/// Percentiles of a proxy with stalls.
#[cfg(feature = "lab")]
mod stalled;
/// `vanward demo`.
#[cfg(feature = "lab")]
mod demo;
/// `vanward lab`.
#[cfg(feature = "lab")]
mod lab;
/// Gates of the lab.
#[cfg(feature = "lab")]
mod gates;
/// Proxies that the lab supports.
#[cfg(feature = "lab")]
mod peers;
/// Other services than Vanward's.
#[cfg(feature = "lab")]
mod lab_services;
/// `vanward lab resilience`.
#[cfg(feature = "lab")]
mod lab_resilience;
/// The lab over several machines.
#[cfg(feature = "lab")]
mod machines;
/// Exit codes of the fleet and of the lab.
#[cfg(feature = "lab")]
mod exit_codes;
