//! Conversations with an origin over real sockets: bytes in, bytes out.

/// A client with its own parser.
mod client;
/// Requests: persistence, pipelining, bodies, rejections.
mod requests;
/// Pages of known size: lengths, validators, conditions, ranges.
mod pages;
/// Echoed requests.
mod echoes;
/// Statuses, fields, interim and early responses, options of every page.
mod answers;
/// Bodies in every framing, also slow ones; the URL list.
mod streams;
/// Faults.
mod faults;
/// Upgrades.
mod tunnels;
/// Counters.
mod counts;
