//! The compact form of a signed token (RFC 7515 §7.1): three base64url parts separated by dots.
//!
//! Keys and key locations in the header (`jwk`, `jku`, `x5c`, `x5u`) are ignored, because an attacker can choose them.
//! The payload is decoded only after the signature was verified.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::algorithm::Algorithm;
use crate::json::Json;
use crate::refusal::Refusal;

/// The maximum size of the header in base64url, and of `kid`.
const HEADER_BYTES_MAX: usize = 4096;
const KEY_ID_BYTES_MAX: usize = 512;

/// A token of which only the header was decoded.
#[derive(Debug, Clone, PartialEq)]
pub struct ParsedToken<'t> {
    /// From the header, not yet verified.
    pub algorithm: Algorithm,
    /// The `kid` of the header.
    pub key_id: Option<String>,
    /// The signed part: header and payload, in base64url.
    pub(crate) signed: &'t [u8],
    pub(crate) payload: &'t [u8],
    pub(crate) signature: &'t str,
}

impl<'t> ParsedToken<'t> {
    /// # Errors
    /// If the token is malformed, encrypted, or has an unsupported header.
    pub fn parse(text: &'t [u8]) -> Result<Self, Refusal> {
        let text = std::str::from_utf8(text).map_err(|_| Refusal::Malformed)?;
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if !text.bytes().all(is_allowed) {
            return Err(Refusal::Malformed);
        }
        let mut parts = text.split('.');
        let (header, payload, signature) = match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(header), Some(payload), Some(signature), None) => (header, payload, signature),
            // RFC 7516 §3: an encrypted token has five parts.
            (Some(_), Some(_), Some(_), Some(_)) if parts.count() == 1 => return Err(Refusal::Encrypted),
            _ => return Err(Refusal::Malformed),
        };
        let (algorithm, key_id) = Self::header(header)?;
        // RFC 7518 §3.6: only `none` has an empty signature.
        if signature.is_empty() || payload.is_empty() {
            return Err(Refusal::Malformed);
        }
        let signed = &text.as_bytes()[..header.len() + 1 + payload.len()];
        Ok(Self { algorithm, key_id, signed, payload: payload.as_bytes(), signature })
    }

    fn header(encoded: &str) -> Result<(Algorithm, Option<String>), Refusal> {
        if encoded.len() > HEADER_BYTES_MAX {
            return Err(Refusal::Malformed);
        }
        let header = object(encoded.as_bytes()).ok_or(Refusal::Malformed)?;
        let algorithm = header.member("alg").and_then(Json::text).ok_or(Refusal::Malformed)?;
        if header.member("enc").is_some() {
            return Err(Refusal::Encrypted);
        }
        // RFC 7515 §4.1.11: no extension is supported. RFC 7797 §6: `b64` changes the signed bytes, even if `crit` does
        // not name it.
        if header.member("crit").is_some() || header.member("b64").is_some() {
            return Err(Refusal::Critical);
        }
        let algorithm = Algorithm::parse(algorithm).ok_or(Refusal::Algorithm)?;
        let key_id = match header.member("kid") {
            None => None,
            Some(Json::Text(id)) if id.len() <= KEY_ID_BYTES_MAX => Some(id.clone()),
            Some(_) => return Err(Refusal::Malformed),
        };
        Ok((algorithm, key_id))
    }
}

/// Decodes a JSON object in base64url.
pub(crate) fn object(encoded: &[u8]) -> Option<Json> {
    // Unused bits must be zero, so that each token has exactly one encoding.
    let bytes = URL_SAFE_NO_PAD.decode(encoded).ok()?;
    Json::parse(&bytes).filter(|json| matches!(json, Json::Table(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(header: &str) -> String {
        format!("{}.e30.c2ln", URL_SAFE_NO_PAD.encode(header))
    }

    #[test]
    fn headers_are_read_strictly() {
        let kid = "k".repeat(KEY_ID_BYTES_MAX);
        let (longest, longer) = (format!(r#"{{"alg":"ES256","kid":"{kid}"}}"#), format!("{kid}k"));
        let longer = format!(r#"{{"alg":"ES256","kid":"{longer}"}}"#);
        let huge = format!(r#"{{"alg":"ES256","x":"{}"}}"#, "x".repeat(HEADER_BYTES_MAX));
        for (header, expected) in [
            (r#"{"alg":"ES256"}"#, Ok(None)),
            (r#"{"alg":"ES256","kid":"a","typ":"JWT","cty":"x"}"#, Ok(Some("a"))),
            (r#"{"alg":"Ed25519"}"#, Ok(None)),
            (&longest, Ok(Some(kid.as_str()))),
            (r#"{"alg":"ES256","kid":"../../etc/passwd"}"#, Ok(Some("../../etc/passwd"))),
            (r#"{"alg":"ES256","kid":"' OR 1=1 --"}"#, Ok(Some("' OR 1=1 --"))),
            // A key in the token's header is ignored.
            (
                r#"{"alg":"ES256","jwk":{"kty":"EC"},"jku":"https://evil.test","x5u":"https://evil.test","x5c":[]}"#,
                Ok(None),
            ),
            (r#"{"alg":"none"}"#, Err(Refusal::Algorithm)),
            (r#"{"alg":"None"}"#, Err(Refusal::Algorithm)),
            (r#"{"alg":"nOnE"}"#, Err(Refusal::Algorithm)),
            (r#"{"alg":"NONE"}"#, Err(Refusal::Algorithm)),
            (r#"{"alg":"es256"}"#, Err(Refusal::Algorithm)),
            (r#"{"alg":"ES256 "}"#, Err(Refusal::Algorithm)),
            (r#"{"alg":"ES256K"}"#, Err(Refusal::Algorithm)),
            (r#"{"alg":""}"#, Err(Refusal::Algorithm)),
            (r#"{"alg":"ES256","alg":"none"}"#, Err(Refusal::Malformed)),
            (r#"{"alg":"none","alg":"ES256"}"#, Err(Refusal::Malformed)),
            (r#"{"alg":["ES256"]}"#, Err(Refusal::Malformed)),
            (r#"{"alg":null}"#, Err(Refusal::Malformed)),
            (r#"{"Alg":"ES256"}"#, Err(Refusal::Malformed)),
            (r#"{}"#, Err(Refusal::Malformed)),
            (r#"["alg","ES256"]"#, Err(Refusal::Malformed)),
            (r#""ES256""#, Err(Refusal::Malformed)),
            (r#"{"alg":"ES256"}x"#, Err(Refusal::Malformed)),
            (r#"{"alg":"ES256","kid":1}"#, Err(Refusal::Malformed)),
            (r#"{"alg":"ES256","kid":null}"#, Err(Refusal::Malformed)),
            (r#"{"alg":"ES256","kid":"a","kid":"b"}"#, Err(Refusal::Malformed)),
            (&longer, Err(Refusal::Malformed)),
            (&huge, Err(Refusal::Malformed)),
            (r#"{"alg":"ES256","crit":["exp"]}"#, Err(Refusal::Critical)),
            (r#"{"alg":"ES256","crit":[]}"#, Err(Refusal::Critical)),
            (r#"{"alg":"ES256","b64":false,"crit":["b64"]}"#, Err(Refusal::Critical)),
            (r#"{"alg":"ES256","b64":false}"#, Err(Refusal::Critical)),
            (r#"{"alg":"RSA-OAEP","enc":"A256GCM"}"#, Err(Refusal::Encrypted)),
        ] {
            let text = token(header);
            let read = ParsedToken::parse(text.as_bytes()).map(|token| token.key_id);
            assert_eq!(read, expected.map(|id| id.map(str::to_owned)), "{header:.80}");
        }
    }

    #[test]
    fn there_are_three_parts() {
        let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"ES256"}"#);
        for (text, expected) in [
            (format!("{header}.e30.c2ln"), None),
            (format!("{header}.e30."), Some(Refusal::Malformed)),
            (format!("{header}..c2ln"), Some(Refusal::Malformed)),
            (format!("{header}.e30"), Some(Refusal::Malformed)),
            (header.clone(), Some(Refusal::Malformed)),
            (String::new(), Some(Refusal::Malformed)),
            ("..".to_owned(), Some(Refusal::Malformed)),
            (format!("{header}.e30.c2ln."), Some(Refusal::Malformed)),
            (format!("{header}.e30.c2ln.c2ln"), Some(Refusal::Malformed)),
            (format!("{header}.a.b.c.d"), Some(Refusal::Encrypted)),
            (format!("{header}.a.b.c.d.e"), Some(Refusal::Malformed)),
            (format!(" {header}.e30.c2ln"), Some(Refusal::Malformed)),
            (format!("{header}.e30.c2ln "), Some(Refusal::Malformed)),
            (format!("{header}.e30.c2ln\t"), Some(Refusal::Malformed)),
            (format!("{header}. e30.c2ln"), Some(Refusal::Malformed)),
            (format!("{header}=.e30.c2ln"), Some(Refusal::Malformed)),
            (format!("{header}.e30.c2+n"), Some(Refusal::Malformed)),
            (format!("{header}.e30.c2/n"), Some(Refusal::Malformed)),
            (format!("{header}.e30.c2ln,{header}.e30.c2ln"), Some(Refusal::Malformed)),
        ] {
            assert_eq!(ParsedToken::parse(text.as_bytes()).err(), expected, "{text}");
        }
        let bits = token(r#"{"alg":"ES256" }"#).replacen('.', "x.", 1);
        assert_eq!(
            ParsedToken::parse(bits.as_bytes()).err(),
            Some(Refusal::Malformed),
            "one way to write it"
        );
        assert_eq!(ParsedToken::parse(b"\xff.e30.c2ln").err(), Some(Refusal::Malformed));
    }
}
