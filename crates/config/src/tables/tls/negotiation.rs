//! Limits on the negotiation of TLS: versions, cipher suites and groups by their IANA names, and presets of them.
//!
//! The names are those that the TLS library has. Others cannot be written.

/// The values that a listener accepts from its clients, or an upstream offers to its servers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Negotiation {
    /// Values for everything that the other fields leave out; `None` means the proxy's defaults.
    pub preset: Option<TlsPreset>,
    pub min_version: Option<TlsVersion>,
    pub max_version: Option<TlsVersion>,
    /// The cipher suites, in order of preference.
    pub ciphers: Option<Vec<TlsCipher>>,
    /// The groups of the key exchange. Servers prefer the client's order.
    pub groups: Option<Vec<TlsGroup>>,
}

impl Negotiation {
    /// The lowest and the highest version.
    pub fn versions(&self) -> (TlsVersion, TlsVersion) {
        let lowest = match self.preset {
            Some(TlsPreset::Modern) => TlsVersion::Tls13,
            Some(TlsPreset::Intermediate) | None => TlsVersion::Tls12,
        };
        (self.min_version.unwrap_or(lowest), self.max_version.unwrap_or(TlsVersion::Tls13))
    }

    /// Whether a version is within the limits.
    pub fn permits(&self, version: TlsVersion) -> bool {
        let (lowest, highest) = self.versions();
        (lowest..=highest).contains(&version)
    }
}

/// Settings by the name of a guideline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsPreset {
    /// Mozilla's "modern": TLS 1.3.
    Modern,
    /// Mozilla's "intermediate": TLS 1.2 and 1.3.
    Intermediate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246).
    Tls12,
    /// TLS 1.3 (RFC 8446).
    Tls13,
}

impl TlsVersion {
    /// All of them, and how they are written.
    pub(crate) const WORDS: &[(&str, Self)] = &[("1.2", Self::Tls12), ("1.3", Self::Tls13)];

    /// As it is written: `1.3`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Tls12 => "1.2",
            Self::Tls13 => "1.3",
        }
    }
}

/// A cipher suite, by its IANA name.
#[allow(missing_docs, reason = "the names say it: RFC 8446 §B.4, RFC 5289, RFC 7905")]
#[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "the standard's names")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsCipher {
    TLS_AES_128_GCM_SHA256,
    TLS_AES_256_GCM_SHA384,
    TLS_CHACHA20_POLY1305_SHA256,
    TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

impl TlsCipher {
    /// All that the library has, with their names.
    pub const ALL: &[(&str, Self)] = &[
        ("TLS_AES_128_GCM_SHA256", Self::TLS_AES_128_GCM_SHA256),
        ("TLS_AES_256_GCM_SHA384", Self::TLS_AES_256_GCM_SHA384),
        ("TLS_CHACHA20_POLY1305_SHA256", Self::TLS_CHACHA20_POLY1305_SHA256),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", Self::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", Self::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
        (
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
            Self::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        ),
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", Self::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", Self::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", Self::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
    ];

    /// The only version that has it.
    pub fn version(self) -> TlsVersion {
        if self <= Self::TLS_CHACHA20_POLY1305_SHA256 { TlsVersion::Tls13 } else { TlsVersion::Tls12 }
    }

    /// The kind of keys that it is for: `ECDSA` or `RSA`; `None` means all.
    pub(crate) fn key_kind(self) -> Option<&'static str> {
        let rest = self.name().strip_prefix("TLS_ECDHE_")?;
        rest.split_once("_WITH_").map(|(kind, _)| kind)
    }

    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, cipher)| *cipher == self).map_or("", |(name, _)| name)
    }
}

/// A group of the key exchange, by its IANA name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsGroup {
    /// X25519 (RFC 7748).
    X25519,
    Secp256r1,
    Secp384r1,
    /// X25519 and ML-KEM-768 together: safe as long as one of them is.
    X25519MlKem768,
    /// P-256 and ML-KEM-768 together.
    Secp256r1MlKem768,
    /// ML-KEM-768 (FIPS 203) alone.
    MlKem768,
    /// ML-KEM-1024 alone.
    MlKem1024,
}

impl TlsGroup {
    /// All that the library has, with their names.
    pub const ALL: &[(&str, Self)] = &[
        ("X25519", Self::X25519),
        ("secp256r1", Self::Secp256r1),
        ("secp384r1", Self::Secp384r1),
        ("X25519MLKEM768", Self::X25519MlKem768),
        ("SecP256r1MLKEM768", Self::Secp256r1MlKem768),
        ("MLKEM768", Self::MlKem768),
        ("MLKEM1024", Self::MlKem1024),
    ];

    /// Whether TLS 1.2 has it; TLS 1.3 has all.
    pub fn is_for_tls12(self) -> bool {
        matches!(self, Self::X25519 | Self::Secp256r1 | Self::Secp384r1)
    }
}
