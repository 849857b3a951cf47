//! Connections in memory, between our end and a peer: the handshake, then records.

/// Both ends of a connection, and records made by hand.
mod ends;
/// Handshakes with any split of their bytes, and data right behind them.
mod handshakes;
/// Data in records: sizes, splits, and tampering.
mod records;
/// Handshake messages after the handshake: key updates, tickets, and those that are not allowed.
mod messages;
/// The end of a connection, from either side.
mod alerts;
