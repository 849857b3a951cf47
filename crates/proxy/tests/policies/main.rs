//! What routes ask of requests and do with messages, between a client and a server, in both versions that clients speak.
//!
//! As in the other conversations one thread does one thing after the other, and nothing sleeps to be right.

/// What trusted proxies say of the client.
mod truth;
/// Which route a request takes.
mod matched;
/// Who may come in, and how often.
mod asked;
/// Who may come in by a token.
mod tokens;
/// Which bots may come in by a signature.
mod bots;
/// What a server sees of a request, and a client of a response.
mod changed;
/// What the log says of it.
mod logged;
/// Answers without a server.
mod answered;
/// Which server a request goes to.
mod fleet;
/// Bodies that are read as a whole before a server is chosen.
mod buffered;
/// Clients that take a response too slowly.
mod taken;
/// Which other origins may read responses.
mod cors;
/// Routes under maintenance.
mod maintenance;
/// Sides of splits, and routes by cookie.
mod splits;
/// Sets of header edits, and defaults.
mod headers;
/// Very many routes.
mod many;
