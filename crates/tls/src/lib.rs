//! TLS on both sides of the proxy: certificates, trust, and the configuration of rustls.
//!
//! Has no timer or socket, and uses threads only to load many certificates. The caller moves the bytes, and calls
//! `tick` to check files for changes.

/// Record layer: encrypts and decrypts records between the caller's buffers.
mod record;
/// The handshake.
mod handshake;
/// The encrypted session after the handshake.
mod session;
/// TLS to clients: a listener's certificates as a rustls configuration.
mod server;
/// The rustls configurations of a listener.
mod server_config;
/// Limits the intermediate certificates of clients.
mod depth_verifier;
/// Session tickets for clients, and their keys.
mod tickets;
/// Selects the certificate for a client.
mod store;
/// Reads a ClientHello before the handshake.
mod client_hello;
/// Finds certificates by host name.
mod names;
/// TLS to servers: trust, client certificate, server names.
mod client;
/// TLS for QUIC.
mod quic;
/// The identity of a client, from its certificate.
mod peer;
/// A certificate and its key, from files or self-signed.
mod pair;
/// Intermediate certificates that chains share.
mod shared;
/// Parses X.509 certificates.
mod certificate;
/// Reads certificate revocation lists.
mod crl;
/// Decrypts private keys.
mod encrypted_key;
/// Walks through DER.
mod der;
/// Challenges of certificate authorities.
mod challenges;
/// Certificates in use, for operators.
mod inventory;
/// Parses OCSP responses.
mod ocsp;
/// Reads files, and detects changes.
mod file;
/// Files that exist only in memory.
mod memory;
/// Problems of TLS files.
mod problem;
/// Explains failed handshakes with servers.
mod reason;
/// The cipher suites, groups and signature algorithms in use.
mod provider;
/// Writes the secrets of sessions to a file, for debugging.
mod key_log;
/// Detects records that rustls could not decrypt.
mod trial;

pub use certificate::written_time;
pub use challenges::{ACME_TLS, Challenges, ServedChallenge};
pub use client::{ClientSide, check_authorities, check_authorities_pem};
pub use client_hello::{CLIENT_HELLO_MAX, ClientHello, NoHello};
pub use handshake::{Advance, Agreed, Handshake, TlsRole};
pub use inventory::{CertificateInUse, InventorySource};
pub use memory::keep_in_memory;
pub use names::{HostNames, is_for};
pub use pair::{check, check_pem};
pub use peer::VerifiedClient;
pub use problem::{CertificateFault, CertificateProblem};
pub use quic::{QUIC_SECRET_BYTES, QuicKeys, quic_secret};
pub use reason::{HandshakeFault, reason, reason_of_client};
pub use record::{Alert, OVERHEAD_MAX, PLAINTEXT_MAX, RECORD_MAX};
pub use server::{Reload, ServerSide};
pub use session::{OpenedRecord, TlsSession};
pub use tickets::TicketKeys;
