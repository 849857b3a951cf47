//! Tests of the access log and its receivers, and a test that it does not allocate.

/// Files.
mod access_log;
/// Syslog and the journal.
mod receivers;
/// No allocations in the steady state.
mod steady_state;
