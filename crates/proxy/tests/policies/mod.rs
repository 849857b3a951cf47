//! Policies of routes, between a client of HTTP/1 or HTTP/2 and a server.
//!
//! Each test is one thread, and no test depends on sleeping.

/// Facts about clients from trusted proxies.
mod truth;
/// The choice of a route.
mod matched;
/// Maps in conditions, and changes of them.
mod mapped;
/// Changes of maps that instances share.
mod shared_maps;
/// Admission by network, rate, and password.
mod asked;
/// Limits on requests under way.
mod under_way;
/// Limits on the connections of a client.
mod per_client;
/// Tokens.
mod tokens;
/// Signatures of bots.
mod bots;
/// Changes of requests and responses.
mod changed;
/// The access log.
mod logged;
/// Responses without a server.
mod answered;
/// Another upstream's answer in place of an error.
mod fallbacks;
/// The choice of a server.
mod fleet;
/// Request buffering.
mod buffered;
/// Clients that read a response too slowly.
mod taken;
/// CORS.
mod cors;
/// Routes under maintenance.
mod maintenance;
/// Splits, and routes by cookie.
mod splits;
/// Sets of header edits, and defaults.
mod headers;
/// Options with conditions.
mod conditions;
/// Values.
mod values;
/// Values of the user, the server and the response.
mod later_values;
/// Very many routes.
mod many;

pub(crate) use asked::USERS;
