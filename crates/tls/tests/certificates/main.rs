//! Certificates from their files to the handshake: what is chosen, what is refused, what is exchanged meanwhile.

/// Authorities, certificates, files, and a client in memory.
mod scene;
/// What a client gets, and what a server.
mod handshake;
/// Every problem that a file can have.
mod problems;
/// Certificates that an authority issues.
mod automatic;
/// Files that change while they are in use.
mod reload;
/// Many certificates on one listener.
mod many;
