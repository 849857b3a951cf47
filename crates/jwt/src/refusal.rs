//! Why a token is refused: the words of RFC 6750 §3.1, and a reason that tells a client nothing about keys.

macro_rules! refusals {
    ($($(#[doc = $doc:literal])+ $variant:ident $reason:literal,)*) => {
        /// Why a token is refused.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Refusal {
            $($(#[doc = $doc])+ $variant,)*
        }

        impl Refusal {
            /// All refusals.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The reason in a few words, of characters that may stand in a quoted string (RFC 6750 §3).
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
    /// The request has several tokens, or several fields that a token could be in.
    Repeated "there is more than one token",
    /// The token is longer than is allowed.
    TooLong "the token is too long",
    /// The token is no signed token in the compact form.
    Malformed "the token is malformed",
    /// The token is encrypted.
    Encrypted "the token is encrypted",
    /// The token is signed by an algorithm that is not allowed, or not signed.
    Algorithm "the algorithm of the token is not accepted",
    /// The token has header parameters that must be understood, and are not.
    Critical "the token has critical header parameters",
    /// There is no key for the token.
    UnknownKey "the key of the token is not known",
    /// The signature is wrong.
    Signature "the signature of the token is wrong",
    /// The claims are no JSON object, or one of them has a wrong type.
    Claims "the claims of the token are malformed",
    /// The token has no time at which it expires.
    NoExpiry "the token never expires",
    /// The token has expired.
    Expired "the token has expired",
    /// The token is not valid yet.
    NotYetValid "the token is not valid yet",
    /// The issuer is not accepted.
    Issuer "the issuer of the token is not accepted",
    /// The token is for somebody else.
    Audience "the token is for another audience",
    /// A required claim is missing, or has another value.
    Insufficient "the token does not grant access to this",
}

impl Refusal {
    /// Whether the token is valid, but does not grant enough: 403 and `insufficient_scope` rather than 401.
    pub fn is_of_scope(self) -> bool {
        self == Self::Insufficient
    }

    /// The value of WWW-Authenticate (RFC 6750 §3).
    pub fn challenge(self) -> String {
        let error = match self {
            // RFC 6750 §3.1: without a token there is no error to tell.
            Self::Missing => return "Bearer".to_owned(),
            Self::Insufficient => "insufficient_scope",
            _ => "invalid_token",
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
