//! Checks across tables: names that lead nowhere, combinations that are refused, routes that no request reaches.

/// Checks relations between values; converts a parsed file to settings.
pub(crate) mod resolve;
/// Checks settings that a program made or changed.
pub(crate) mod settings;
/// Duplicate addresses and conditions.
pub(crate) mod twice;
/// Zones of limits.
pub(crate) mod zones;
/// Finds routes that no request reaches.
pub(crate) mod unreachable;
/// Files, folders and names that must exist on the machine.
pub(crate) mod needs;
/// Checks across tables about TLS.
pub(crate) mod tls;
/// Checks across tables about automatic certificates.
pub(crate) mod acme;
/// Checks across tables about services that instances share, the dashboard and link profiles.
pub(crate) mod services;
