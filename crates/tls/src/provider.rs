//! The cipher suites, groups and signature algorithms in use: those of aws-lc-rs in rustls, all with forward secrecy.

use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider, kx_group};

use crate::trial;

/// Cryptography for clients, where the proxy's order of ciphers decides: TLS scanners object to the client's order. The
/// order begins like OpenSSL's, which most peers follow, so that comparisons use the same ciphers. X25519MLKEM768 is
/// for clients that ask for it; others pay nothing.
pub(crate) fn for_clients() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
        let cipher_suites = vec![
            cipher_suite::TLS13_AES_256_GCM_SHA384,
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
            cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
            cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
            cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
            cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
            cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
            cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        ];
        let kx_groups =
            vec![kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1, kx_group::X25519MLKEM768];
        let cipher_suites = cipher_suites.into_iter().map(trial::telling).collect();
        Arc::new(CryptoProvider { cipher_suites, kx_groups, ..default_provider() })
    });
    Arc::clone(&PROVIDER)
}

/// Cryptography for servers: ciphers in the order of their cost. Without X25519MLKEM768: offered without its key share
/// of a kilobyte, it makes servers that prefer it ask again, a round trip for each connection.
pub(crate) fn for_servers() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
        let cipher_suites = vec![
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS13_AES_256_GCM_SHA384,
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
            cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
            cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
            cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
            cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
            cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
            cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        ];
        let kx_groups = vec![kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1];
        Arc::new(CryptoProvider { cipher_suites, kx_groups, ..default_provider() })
    });
    Arc::clone(&PROVIDER)
}
