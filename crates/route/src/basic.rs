//! Basic authentication (RFC 7617): credentials, users, and recently verified passwords.
//!
//! Verifying a password takes milliseconds, by design: call `Users::verify` on a thread that serves no connections, and
//! ask `Verified` on the worker first.

/// The digits of hashes.
mod crypt_text;
/// The `$apr1$` hash, the default of `htpasswd`.
mod apr1;
/// Hashes of SHA-256 and SHA-512 crypt.
mod sha_crypt;
/// Users and their password hashes.
mod users;
/// Recently verified credentials.
mod verified;

pub use users::{UserFault, UserFaultKind, Users};
pub use verified::{CredentialsDigest, VerifiedCredentials};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The longest accepted user name, and password. Longer ones would only make hashing slow.
pub const CREDENTIAL_BYTES_MAX: usize = 256;

/// The longest Base64 text of user name, colon and password.
const ENCODED_BYTES_MAX: usize = (2 * CREDENTIAL_BYTES_MAX + 1).div_ceil(3) * 4;

/// The user name and password that a client sent. `Debug` does not show the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    user: Vec<u8>,
    password: Vec<u8>,
}

/// Why an Authorization value is rejected, always with 401.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// The scheme is not Basic.
    #[error("the scheme is not Basic")]
    Scheme,
    /// The credentials are not valid Base64 with padding.
    #[error("the credentials are not in Base64")]
    Encoding,
    /// There is no colon, or a control character (RFC 7617 §2).
    #[error("the credentials are not a name and a password")]
    Form,
    /// The user name or password exceeds [`CREDENTIAL_BYTES_MAX`].
    #[error("the name or the password has more than {CREDENTIAL_BYTES_MAX} bytes")]
    TooLong,
}

impl Credentials {
    /// Parses an Authorization value.
    ///
    /// # Errors
    /// Why the value is rejected.
    pub fn parse(value: &[u8]) -> Result<Self, CredentialsError> {
        const SCHEME: &[u8] = b"basic";
        let (scheme, rest) = value.split_at_checked(SCHEME.len()).ok_or(CredentialsError::Scheme)?;
        // RFC 9110 §11.1 and §11.4: the scheme in any case, then spaces.
        let encoded = rest.trim_ascii_start();
        if !scheme.eq_ignore_ascii_case(SCHEME) || encoded.len() == rest.len() {
            return Err(CredentialsError::Scheme);
        }
        if encoded.len() > ENCODED_BYTES_MAX {
            return Err(CredentialsError::TooLong);
        }
        let text = STANDARD.decode(encoded).map_err(|_| CredentialsError::Encoding)?;
        let colon = text.iter().position(|&byte| byte == b':').ok_or(CredentialsError::Form)?;
        let (user, password) = (&text[..colon], &text[colon + 1..]);
        if text.iter().any(u8::is_ascii_control) {
            return Err(CredentialsError::Form);
        }
        if user.len() > CREDENTIAL_BYTES_MAX || password.len() > CREDENTIAL_BYTES_MAX {
            return Err(CredentialsError::TooLong);
        }
        Ok(Self { user: user.to_vec(), password: password.to_vec() })
    }

    /// The claimed user name.
    pub fn user(&self) -> &[u8] {
        &self.user
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Credentials(\"{}\", …)", self.user.escape_ascii())
    }
}

/// The value of WWW-Authenticate for a realm, which browsers show to the user. `None` if the realm has control
/// characters.
pub fn challenge(realm: &str) -> Option<String> {
    if realm.chars().any(char::is_control) {
        return None;
    }
    // RFC 9110 §5.6.4; RFC 7617 §2.1 for the charset.
    let quoted = realm.replace('\\', "\\\\").replace('"', "\\\"");
    Some(format!("Basic realm=\"{quoted}\", charset=\"UTF-8\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(value: &str) -> Result<(String, String), CredentialsError> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Credentials::parse(value.as_bytes()).map(|found| (text(&found.user), text(&found.password)))
    }

    fn encoded(text: &str) -> String {
        format!("Basic {}", STANDARD.encode(text))
    }

    /// RFC 7617 §2, with its own example first.
    #[test]
    fn credentials() {
        let both = |user: &str, password: &str| Ok((user.to_owned(), password.to_owned()));
        assert_eq!(parsed("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), both("Aladdin", "open sesame"));
        assert_eq!(parsed("bASIC  QTpC"), both("A", "B"));
        assert_eq!(parsed(&encoded("a:b:c")), both("a", "b:c"));
        assert_eq!(parsed(&encoded(":")), both("", ""));
        assert_eq!(parsed(&encoded("test:123\u{a3}")), both("test", "123\u{a3}"));
        let long = "x".repeat(CREDENTIAL_BYTES_MAX);
        assert_eq!(parsed(&encoded(&format!("{long}:{long}"))), both(&long, &long));
        for (value, error) in [
            ("", CredentialsError::Scheme),
            ("Basic", CredentialsError::Scheme),
            ("BasicQTpC", CredentialsError::Scheme),
            ("Bearer QTpC", CredentialsError::Scheme),
            ("Basic QTpC QTpC", CredentialsError::Encoding),
            ("Basic QTpCCg", CredentialsError::Encoding),
            ("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=", CredentialsError::Encoding),
            ("Basic QTpC====", CredentialsError::Encoding),
            ("Basic QTo-", CredentialsError::Encoding),
            ("Basic QTp=", CredentialsError::Encoding),
            ("Basic ", CredentialsError::Form),
            (&encoded("nobody"), CredentialsError::Form),
            (&encoded("a:b\n"), CredentialsError::Form),
            (&encoded("a\0:b"), CredentialsError::Form),
            (&encoded(&format!("{long}x:")), CredentialsError::TooLong),
            (&encoded(&format!(":{long}x")), CredentialsError::TooLong),
            (&encoded(&"x".repeat(2000)), CredentialsError::TooLong),
        ] {
            assert_eq!(parsed(value), Err(error), "{value}");
        }
        let shown = format!("{:?}", Credentials::parse(b"Basic QTpC").unwrap());
        assert_eq!(shown, "Credentials(\"A\", …)");
    }

    #[test]
    fn challenges() {
        assert_eq!(challenge("a \"b\" \\c").unwrap(), r#"Basic realm="a \"b\" \\c", charset="UTF-8""#);
        assert_eq!(challenge("a\r\nb"), None);
    }
}
