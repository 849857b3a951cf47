//! Certificates from their files to the handshake: selection, rejection, and replacement.

/// Authorities, certificates, files, and a client in memory.
mod scene;
/// Handshakes with clients and with servers.
mod handshake;
/// Every problem that a file can have.
mod problems;
/// Certificates from an authority.
mod automatic;
/// Files that change while they are in use.
mod reload;
/// Many certificates on one listener.
mod many;
