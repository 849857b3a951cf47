//! Two ends of HTTP/3 talk to each other over streams in memory, and each of them to a peer that breaks the rules.

/// What both ends of a connection are made of here.
mod ends;
/// Requests and responses, whichever way they are cut.
mod exchanges;
/// What a connection ends for.
mod breaches;
/// What a stream ends for, and requests that are refused.
mod refusals;
/// What a peer cannot make a connection hold or do.
mod limits;
/// How connections end.
mod farewells;
