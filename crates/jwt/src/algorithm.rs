//! Signature algorithms (RFC 7518 §3.1, RFC 8037). `none` is not supported.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    Hs256,
    Hs384,
    Hs512,
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    Rs384,
    Rs512,
    /// RSASSA-PSS with SHA-256.
    Ps256,
    Ps384,
    Ps512,
    /// ECDSA on P-256.
    Es256,
    Es384,
    /// ECDSA on P-521, with SHA-512.
    Es512,
    /// Ed25519.
    EdDsa,
}

impl Algorithm {
    /// The algorithms with a public key, with which a token can be verified but not signed.
    pub const ASYMMETRIC: &'static [Self] = &[
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
        Self::Es256,
        Self::Es384,
        Self::Es512,
        Self::EdDsa,
    ];
    /// The algorithms with a shared secret.
    pub const SYMMETRIC: &'static [Self] = &[Self::Hs256, Self::Hs384, Self::Hs512];

    /// Names are case-sensitive (RFC 7515 §4.1.1).
    pub fn parse(name: &str) -> Option<Self> {
        // RFC 9864 §2.2 renames EdDSA on this curve.
        let name = if name == "Ed25519" { "EdDSA" } else { name };
        Self::ASYMMETRIC.iter().chain(Self::SYMMETRIC).copied().find(|known| known.name() == name)
    }

    /// The name in token headers.
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
            Self::Es512 => "ES512",
            Self::EdDsa => "EdDSA",
        }
    }

    /// Whether the same secret signs and verifies.
    pub fn is_symmetric(self) -> bool {
        Self::SYMMETRIC.contains(&self)
    }

    /// The algorithm in the library `jsonwebtoken`; `None` for ES512, which it lacks.
    pub(crate) fn verifier(self) -> Option<jsonwebtoken::Algorithm> {
        use jsonwebtoken::Algorithm as Theirs;
        Some(match self {
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
            Self::Es512 => return None,
            Self::EdDsa => Theirs::EdDSA,
        })
    }
}
