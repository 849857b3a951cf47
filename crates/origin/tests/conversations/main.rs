//! Conversations with an origin over real sockets: bytes in, bytes out.

/// A client that sends bytes and reads responses by its own rules.
mod client;
/// Requests: persistence, pipelining, bodies, and what is refused.
mod requests;
/// Pages of known size: lengths, validators, conditions, ranges.
mod pages;
/// The request, given back.
mod echoes;
/// Statuses, fields, interim and early responses, options of every page.
mod answers;
/// Bodies in every framing, and slowly; the URL list.
mod streams;
/// Faults.
mod faults;
/// Upgrades.
mod tunnels;
/// Counts of what arrived.
mod counts;
