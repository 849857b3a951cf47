//! The cipher suites, groups and signature algorithms in use: those of aws-lc-rs in rustls, all with forward secrecy.

use std::sync::{Arc, LazyLock};

use config::{Negotiation, TlsCipher, TlsGroup, TlsVersion};
use rustls::crypto::aws_lc_rs::{ALL_CIPHER_SUITES, cipher_suite, default_provider, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::sign::SigningKey;
use rustls::{SupportedCipherSuite, SupportedProtocolVersion, version};

use crate::trial;

/// Ciphers for clients, where the proxy's order decides, because TLS scanners object to the client's order. The order
/// begins like OpenSSL's, which most peers follow, so that comparisons use the same ciphers.
const FOR_CLIENTS: &[TlsCipher] = &[
    TlsCipher::TLS_AES_256_GCM_SHA384,
    TlsCipher::TLS_AES_128_GCM_SHA256,
    TlsCipher::TLS_CHACHA20_POLY1305_SHA256,
    TlsCipher::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    TlsCipher::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    TlsCipher::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    TlsCipher::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    TlsCipher::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    TlsCipher::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
];

/// X25519MLKEM768 is for clients that ask for it; others pay nothing. The client's order decides.
const GROUPS_FOR_CLIENTS: &[TlsGroup] =
    &[TlsGroup::X25519, TlsGroup::Secp256r1, TlsGroup::Secp384r1, TlsGroup::X25519MlKem768];

/// Ciphers for servers, in the order of their cost.
const FOR_SERVERS: &[TlsCipher] = &[
    TlsCipher::TLS_AES_128_GCM_SHA256,
    TlsCipher::TLS_AES_256_GCM_SHA384,
    TlsCipher::TLS_CHACHA20_POLY1305_SHA256,
    TlsCipher::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    TlsCipher::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    TlsCipher::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    TlsCipher::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    TlsCipher::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    TlsCipher::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
];

/// Without X25519MLKEM768: offered without its key share of a kilobyte, it makes servers that prefer it ask again, a
/// round trip for each connection.
const GROUPS_FOR_SERVERS: &[TlsGroup] = &[TlsGroup::X25519, TlsGroup::Secp256r1, TlsGroup::Secp384r1];

pub(crate) fn for_clients(negotiation: &Negotiation) -> Arc<CryptoProvider> {
    provider(negotiation, (FOR_CLIENTS, GROUPS_FOR_CLIENTS), telling)
}

/// Whether the proxy's order of cipher suites decides, not the client's. Mozilla's guideline leaves it to the client,
/// which knows whether it has instructions for AES.
pub(crate) fn prefers_own_order(negotiation: &Negotiation) -> bool {
    negotiation.ciphers.is_some() || negotiation.preset.is_none()
}

pub(crate) fn for_servers(negotiation: &Negotiation) -> Arc<CryptoProvider> {
    provider(negotiation, (FOR_SERVERS, GROUPS_FOR_SERVERS), suite)
}

/// Cryptography to load keys and to verify certificates: the same for all.
pub(crate) fn for_certificates() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| Arc::new(default_provider()));
    Arc::clone(&PROVIDER)
}

/// The permitted versions, newest first.
pub(crate) fn versions(negotiation: &Negotiation) -> Vec<&'static SupportedProtocolVersion> {
    let all = [(TlsVersion::Tls13, &version::TLS13), (TlsVersion::Tls12, &version::TLS12)];
    let permitted = all.into_iter().filter(|(version, _)| negotiation.permits(*version));
    permitted.map(|(_, version)| version).collect()
}

/// Whether a listener can use a key: in TLS 1.2 the cipher suite determines the kind of the certificate's key (RFC 5246
/// §7.4.2).
pub(crate) fn has_suite_for(negotiation: &Negotiation, key: &dyn SigningKey) -> bool {
    let ciphers = negotiation.ciphers.as_deref().unwrap_or(FOR_CLIENTS);
    let permitted = ciphers.iter().filter(|cipher| negotiation.permits(cipher.version()));
    permitted.map(|cipher| suite(*cipher)).any(|suite| match suite {
        SupportedCipherSuite::Tls12(suite) => key.choose_scheme(suite.sign).is_some(),
        SupportedCipherSuite::Tls13(_) => true,
    })
}

fn provider(
    negotiation: &Negotiation,
    (ciphers, groups): (&[TlsCipher], &[TlsGroup]),
    suite: fn(TlsCipher) -> SupportedCipherSuite,
) -> Arc<CryptoProvider> {
    let ciphers = negotiation.ciphers.as_deref().unwrap_or(ciphers);
    let groups = negotiation.groups.as_deref().unwrap_or(groups);
    Arc::new(CryptoProvider {
        cipher_suites: ciphers.iter().map(|cipher| suite(*cipher)).collect(),
        kx_groups: groups.iter().map(|group| self::group(*group)).collect(),
        ..default_provider()
    })
}

fn suite(cipher: TlsCipher) -> SupportedCipherSuite {
    use TlsCipher as Cipher;
    match cipher {
        Cipher::TLS_AES_128_GCM_SHA256 => cipher_suite::TLS13_AES_128_GCM_SHA256,
        Cipher::TLS_AES_256_GCM_SHA384 => cipher_suite::TLS13_AES_256_GCM_SHA384,
        Cipher::TLS_CHACHA20_POLY1305_SHA256 => cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        Cipher::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 => {
            cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
        }
        Cipher::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 => {
            cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
        }
        Cipher::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 => {
            cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
        }
        Cipher::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        Cipher::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        Cipher::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => {
            cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256
        }
    }
}

/// A suite that reports records that cannot be decrypted. Each suite is created once.
fn telling(cipher: TlsCipher) -> SupportedCipherSuite {
    static TELLING: LazyLock<Vec<SupportedCipherSuite>> =
        LazyLock::new(|| ALL_CIPHER_SUITES.iter().copied().map(trial::telling).collect());
    let suite = suite(cipher);
    TELLING.iter().copied().find(|telling| telling.suite() == suite.suite()).unwrap_or(suite)
}

fn group(group: TlsGroup) -> &'static dyn SupportedKxGroup {
    match group {
        TlsGroup::X25519 => kx_group::X25519,
        TlsGroup::Secp256r1 => kx_group::SECP256R1,
        TlsGroup::Secp384r1 => kx_group::SECP384R1,
        TlsGroup::X25519MlKem768 => kx_group::X25519MLKEM768,
        TlsGroup::Secp256r1MlKem768 => kx_group::SECP256R1MLKEM768,
        TlsGroup::MlKem768 => kx_group::MLKEM768,
        TlsGroup::MlKem1024 => kx_group::MLKEM1024,
    }
}

#[cfg(test)]
mod tests {
    use rustls::crypto::aws_lc_rs::ALL_KX_GROUPS;

    use super::*;

    #[test]
    fn the_names_that_can_be_written_are_all_that_the_library_has() {
        let ciphers: Vec<_> = TlsCipher::ALL.iter().map(|(_, cipher)| suite(*cipher).suite()).collect();
        assert_eq!(ciphers.len(), ALL_CIPHER_SUITES.len());
        for suite in ALL_CIPHER_SUITES {
            assert!(ciphers.contains(&suite.suite()), "{:?}", suite.suite());
        }
        let groups: Vec<_> = TlsGroup::ALL.iter().map(|(_, group)| self::group(*group).name()).collect();
        assert_eq!(groups.len(), ALL_KX_GROUPS.len());
        for group in ALL_KX_GROUPS {
            assert!(groups.contains(&group.name()), "{:?}", group.name());
        }
        for (name, cipher) in TlsCipher::ALL {
            let known = format!("{:?}", suite(*cipher).suite()).replace("TLS13_", "TLS_");
            assert_eq!((cipher.name(), known.as_str()), (*name, *name));
            let is_tls13 = suite(*cipher).tls13().is_some();
            assert_eq!(cipher.version() == TlsVersion::Tls13, is_tls13, "{name}");
        }
        for (name, group) in TlsGroup::ALL {
            let known = self::group(*group);
            assert_eq!(format!("{:?}", known.name()).to_lowercase(), name.to_lowercase());
            let is_for_tls12 = known.usable_for_version(rustls::ProtocolVersion::TLSv1_2);
            assert_eq!(group.is_for_tls12(), is_for_tls12, "{name}");
        }
    }
}
