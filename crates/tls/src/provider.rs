//! The ciphers, groups and signatures in use: those of aws-lc-rs that rustls has, all with forward secrecy.

use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider, kx_group};

use crate::trial;

/// Towards clients, where our order of ciphers decides: a scanner takes the client's for a mistake. It begins as that of OpenSSL does, which
/// most peers follow: who compares us with them compares the same ciphers. X25519MLKEM768 is for those who ask for it; a
/// client that doesn't pays nothing.
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

/// Towards servers: ciphers in the order of their cost. X25519MLKEM768 is left out: named without a key of its own
/// kilobyte, it makes servers that prefer it ask again, a round trip for each connection.
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
