//! Reasons for refusing a token, with error codes of RFC 6750 §3.1. Their texts tell a client nothing about keys.

macro_rules! refusals {
    ($($(#[doc = $doc:literal])+ $variant:ident $reason:literal,)*) => {
        /// The reason for refusing a token.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Refusal {
            $($(#[doc = $doc])+ $variant,)*
        }

        impl Refusal {
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Has only characters that are allowed in a quoted string (RFC 6750 §3).
            pub fn reason(self) -> &'static str {
                match self {
                    $(Self::$variant => $reason,)*
                }
            }
        }
    };
}

refusals! {
    /// The request has no token.
    Missing "a token is required",
    /// The request has several tokens, or several fields that may have a token.
    Repeated "there is more than one token",
    /// The token exceeds the size limit.
    TooLong "the token is too long",
    /// The token is not in the compact form of signed tokens.
    Malformed "the token is malformed",
    /// The token is encrypted (JWE).
    Encrypted "the token is encrypted",
    /// The token is unsigned, or its algorithm is not accepted.
    Algorithm "the algorithm of the token is not accepted",
    /// The token has critical header parameters, of which none is supported.
    Critical "the token has critical header parameters",
    /// No key of the set matches the token.
    UnknownKey "the key of the token is not known",
    /// No key verifies the signature.
    Signature "the signature of the token is wrong",
    /// The claims are not a JSON object, or one of them has the wrong type.
    Claims "the claims of the token are malformed",
    /// The claim `exp` is missing.
    NoExpiry "the token never expires",
    /// The claim `exp` is in the past.
    Expired "the token has expired",
    /// The claim `nbf` is in the future.
    NotYetValid "the token is not valid yet",
    /// The claim `iss` names another issuer.
    Issuer "the issuer of the token is not accepted",
    /// The claim `aud` names another recipient.
    Audience "the token is for another audience",
    /// A required claim is missing, or has no accepted value.
    Insufficient "the token does not grant access to this",
}

impl Refusal {
    /// Whether a valid token lacks a required claim. The response is then 403 with `insufficient_scope` instead of 401.
    pub fn is_of_scope(self) -> bool {
        self == Self::Insufficient
    }

    /// The value of WWW-Authenticate (RFC 6750 §3).
    pub fn challenge(self) -> String {
        let error = match self {
            // RFC 6750 §3.1: without a token, the response has no error code.
            Self::Missing => return "Bearer".to_owned(),
            Self::Insufficient => "insufficient_scope",
            Self::Repeated
            | Self::TooLong
            | Self::Malformed
            | Self::Encrypted
            | Self::Algorithm
            | Self::Critical
            | Self::UnknownKey
            | Self::Signature
            | Self::Claims
            | Self::NoExpiry
            | Self::Expired
            | Self::NotYetValid
            | Self::Issuer
            | Self::Audience => "invalid_token",
        };
        format!("Bearer error=\"{error}\", error_description=\"{}\"", self.reason())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_may_stand_in_quotes() {
        for refusal in Refusal::ALL {
            // RFC 6750 §3: error_description = %x20-21 / %x23-5B / %x5D-7E.
            let is_quotable = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
            assert!(refusal.reason().bytes().all(is_quotable), "{refusal:?}");
        }
        assert_eq!(Refusal::Missing.challenge(), "Bearer");
        assert_eq!(
            Refusal::Expired.challenge(),
            "Bearer error=\"invalid_token\", error_description=\"the token has expired\""
        );
    }
}
