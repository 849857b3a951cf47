//! Signature algorithms (RFC 7518 §3.1, RFC 8037). `none` is none of them.

/// A signature algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// HMAC with SHA-256.
    Hs256,
    /// HMAC with SHA-384.
    Hs384,
    /// HMAC with SHA-512.
    Hs512,
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// RSASSA-PKCS1-v1_5 with SHA-384.
    Rs384,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    Rs512,
    /// RSASSA-PSS with SHA-256.
    Ps256,
    /// RSASSA-PSS with SHA-384.
    Ps384,
    /// RSASSA-PSS with SHA-512.
    Ps512,
    /// ECDSA on P-256.
    Es256,
    /// ECDSA on P-384.
    Es384,
    /// Ed25519.
    EdDsa,
}

impl Algorithm {
    /// The algorithms with a public key: whoever verifies cannot sign.
    pub const ASYMMETRIC: &'static [Self] = &[
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
        Self::Es256,
        Self::Es384,
        Self::EdDsa,
    ];
    /// The algorithms with a secret that both sides have.
    pub const SYMMETRIC: &'static [Self] = &[Self::Hs256, Self::Hs384, Self::Hs512];

    /// The algorithm of this name. Names are case-sensitive (RFC 7515 §4.1.1).
    pub fn of(name: &str) -> Option<Self> {
        // RFC 9864 §2.2 names the curve of EdDSA.
        let name = if name == "Ed25519" { "EdDSA" } else { name };
        Self::ASYMMETRIC.iter().chain(Self::SYMMETRIC).copied().find(|known| known.name() == name)
    }

    /// The name in headers of tokens.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hs256 => "HS256",
            Self::Hs384 => "HS384",
            Self::Hs512 => "HS512",
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::EdDsa => "EdDSA",
        }
    }

    /// Whether it signs and verifies with the same secret.
    pub fn is_symmetric(self) -> bool {
        Self::SYMMETRIC.contains(&self)
    }

    pub(crate) fn verifier(self) -> jsonwebtoken::Algorithm {
        use jsonwebtoken::Algorithm as Theirs;
        match self {
            Self::Hs256 => Theirs::HS256,
            Self::Hs384 => Theirs::HS384,
            Self::Hs512 => Theirs::HS512,
            Self::Rs256 => Theirs::RS256,
            Self::Rs384 => Theirs::RS384,
            Self::Rs512 => Theirs::RS512,
            Self::Ps256 => Theirs::PS256,
            Self::Ps384 => Theirs::PS384,
            Self::Ps512 => Theirs::PS512,
            Self::Es256 => Theirs::ES256,
            Self::Es384 => Theirs::ES384,
            Self::EdDsa => Theirs::EdDSA,
        }
    }
}
