//! Connections in memory, ours at one end and a stranger at the other: the handshake, then what records carry.

/// Both ends of a connection, and records made by hand.
mod ends;
/// Handshakes, however their bytes arrive, and what comes right behind them.
mod handshakes;
/// Bytes in records: sizes, splits, and everything that somebody else could do to them.
mod records;
/// Handshake messages after the handshake: new keys, tickets, and those that have no place.
mod messages;
/// The end of a connection, told by either side.
mod alerts;
