//! The sticky session cookie that the proxy inserts: server ID, expiry, and a signature over both.
//!
//! Takes no memory, and survives restarts. Because it is signed, a client can neither choose a server nor extend its
//! session. The ID reveals nothing about the servers. Not encrypted.

use aws_lc_rs::{constant_time, hmac};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::hash::ServerId;
use crate::session::source::{SessionFields, cookie};

/// The ID, its end in seconds of Unix time, and the leading half of an HMAC-SHA-256 (RFC 2104 §5 allows it).
const ID_BYTES: usize = 8;
const END_BYTES: usize = 8;
const MAC_BYTES: usize = 16;
const SIGNED_BYTES: usize = ID_BYTES + END_BYTES;
const VALUE_BYTES: usize = SIGNED_BYTES + MAC_BYTES;
/// In base64 without padding.
const TEXT_BYTES: usize = (VALUE_BYTES * 4).div_ceil(3);

/// Attributes of the cookie (RFC 6265 §5.2). It is always `HttpOnly`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CookieAttributes {
    pub path: String,
    /// `None` restricts the cookie to the host.
    pub domain: Option<String>,
    /// Sent over TLS only. `None` sets it for clients that use https.
    pub secure: Option<bool>,
    pub same_site: SameSite,
    /// Whether responses with the cookie are for its client alone: `Cache-Control: private`.
    pub is_private: bool,
}

impl Default for CookieAttributes {
    fn default() -> Self {
        let same_site = SameSite::Lax;
        Self { path: "/".to_owned(), domain: None, secure: None, same_site, is_private: false }
    }
}

/// Which cross-site requests carry a cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SameSite {
    Strict,
    /// Only requests that navigate to the site.
    Lax,
    /// All; browsers also require `Secure`.
    None,
}

/// The content of a valid session cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stuck {
    pub server: ServerId,
    /// Whether half of the lifetime is over. The response then renews the cookie, so that a session in use continues.
    pub is_to_be_renewed: bool,
}

/// Creates and reads the session cookies of an upstream.
#[derive(Debug)]
pub struct InsertedCookie {
    name: String,
    /// The attributes in Set-Cookie, after the value.
    attributes: String,
    /// Whether `Secure` is set only for clients that use https.
    follows_scheme: bool,
    is_private: bool,
    /// How long a session lasts without a request. `None` means until the browser is closed.
    ttl_seconds: Option<u64>,
    /// Distinguishes this upstream's cookies from others with the same keys.
    context: String,
    /// The first key signs; all are accepted, so that keys can be rotated.
    keys: Vec<hmac::Key>,
}

impl InsertedCookie {
    /// Cookies with a name, for the upstream named `context`. Each secret has at least 32 bytes.
    ///
    /// # Panics
    /// Without a secret, with a name that is no token (RFC 9110 §5.6.2), or with attributes that would end the line or
    /// the attribute: no configuration gives these.
    pub fn new(
        name: &str,
        context: &str,
        ttl_seconds: Option<u64>,
        attributes: &CookieAttributes,
        secrets: &[&[u8]],
    ) -> Self {
        assert!(!secrets.is_empty(), "a cookie is signed");
        assert!(!name.is_empty() && name.bytes().all(is_token), "a cookie's name is a token");
        let values = [Some(&attributes.path), attributes.domain.as_ref()];
        let is_plain =
            |value: &String| value.bytes().all(|byte| (0x20..0x7f).contains(&byte) && byte != b';');
        assert!(values.into_iter().flatten().all(is_plain), "an attribute is plain text");
        Self {
            name: name.to_owned(),
            attributes: attributes.text(ttl_seconds),
            follows_scheme: attributes.secure.is_none(),
            is_private: attributes.is_private,
            ttl_seconds,
            context: context.to_owned(),
            keys: secrets.iter().map(|secret| hmac::Key::new(hmac::HMAC_SHA256, secret)).collect(),
        }
    }

    /// Whether responses with the cookie are for its client alone.
    pub fn is_private(&self) -> bool {
        self.is_private
    }

    /// Reads the session cookie of a request, if it has a valid one that has not expired.
    pub fn read(&self, fields: &impl SessionFields, unix_seconds: u64) -> Option<Stuck> {
        let values = fields.values("Cookie").filter_map(|field| cookie(field, self.name.as_bytes()));
        values.take(COOKIES_READ_MAX).find_map(|value| self.verify(value, unix_seconds))
    }

    /// Appends a Set-Cookie value for this server. `is_https` is whether the client used https.
    pub fn write(&self, out: &mut Vec<u8>, server: ServerId, unix_seconds: u64, is_https: bool) {
        // A session without an end still has the field, so that all cookies have one length.
        let end = self.ttl_seconds.map_or(u64::MAX, |ttl| unix_seconds.saturating_add(ttl));
        let mut value = [0; VALUE_BYTES];
        value[..ID_BYTES].copy_from_slice(&server.as_u64().to_be_bytes());
        value[ID_BYTES..SIGNED_BYTES].copy_from_slice(&end.to_be_bytes());
        let mac = self.sign(&self.keys[0], &value[..SIGNED_BYTES]);
        value[SIGNED_BYTES..].copy_from_slice(&mac.as_ref()[..MAC_BYTES]);
        let mut text = [0; TEXT_BYTES];
        let written = URL_SAFE_NO_PAD.encode_slice(value, &mut text).unwrap_or(0);
        out.extend_from_slice(self.name.as_bytes());
        out.push(b'=');
        out.extend_from_slice(&text[..written]);
        out.extend_from_slice(self.attributes.as_bytes());
        // A browser drops a Secure cookie that comes over http, and the session with it.
        if self.follows_scheme && is_https {
            out.extend_from_slice(b"; Secure");
        }
    }

    fn verify(&self, text: &[u8], unix_seconds: u64) -> Option<Stuck> {
        // Before any decoding: most foreign values end here.
        if text.len() != TEXT_BYTES {
            return None;
        }
        let mut value = [0; VALUE_BYTES];
        URL_SAFE_NO_PAD.decode_slice(text, &mut value).ok().filter(|&length| length == VALUE_BYTES)?;
        let (signed, mac) = value.split_at(SIGNED_BYTES);
        let is_of = |key: &hmac::Key| {
            let expected = self.sign(key, signed);
            // In constant time: the time of a plain comparison would betray how many bytes of a forged signature are
            // right.
            constant_time::verify_slices_are_equal(&expected.as_ref()[..MAC_BYTES], mac).is_ok()
        };
        if !self.keys.iter().any(is_of) {
            return None;
        }
        let (id, end) = signed.split_at(ID_BYTES);
        let server = ServerId::from_u64(u64::from_be_bytes(id.try_into().ok()?));
        let end = u64::from_be_bytes(end.try_into().ok()?);
        let left = end.checked_sub(unix_seconds).filter(|&left| left > 0)?;
        // A cookie with a longer lifetime than is configured now is renewed, too.
        let is_to_be_renewed = self.ttl_seconds.is_some_and(|ttl| left <= ttl / 2 || left > ttl);
        Some(Stuck { server, is_to_be_renewed })
    }

    fn sign(&self, key: &hmac::Key, signed: &[u8]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(key);
        // The signed part has a fixed length, so the context behind it cannot be mistaken for it.
        context.update(signed);
        // The name and the upstream are signed, too, so that a cookie of another upstream with equal secrets is
        // invalid.
        context.update(self.name.as_bytes());
        context.update(b"=");
        context.update(self.context.as_bytes());
        context.sign()
    }
}

/// Cookies with this name that are read: a browser sends several if paths or domains overlap.
// Each costs a signature, so a client must not choose the number.
const COOKIES_READ_MAX: usize = 4;

impl CookieAttributes {
    fn text(&self, ttl_seconds: Option<u64>) -> String {
        let domain = self.domain.as_ref().map_or_else(String::new, |domain| format!("; Domain={domain}"));
        let max_age = ttl_seconds.map_or_else(String::new, |seconds| format!("; Max-Age={seconds}"));
        let secure = if self.secure == Some(true) { "; Secure" } else { "" };
        let same_site = match self.same_site {
            SameSite::Strict => "Strict",
            SameSite::Lax => "Lax",
            SameSite::None => "None",
        };
        format!("; Path={}{domain}{max_age}; HttpOnly{secure}; SameSite={same_site}", self.path)
    }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Cookies(Vec<Vec<u8>>);

    impl SessionFields for Cookies {
        fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
            assert_eq!(name, "Cookie");
            self.0.iter().map(Vec::as_slice)
        }
    }

    const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";
    const OTHER_SECRET: &[u8] = b"fedcba9876543210fedcba9876543210";
    const NOW: u64 = 1_700_000_000;

    fn made(context: &str, ttl_seconds: Option<u64>, secrets: &[&[u8]]) -> InsertedCookie {
        InsertedCookie::new("server", context, ttl_seconds, &CookieAttributes::default(), secrets)
    }

    /// The Cookie field that a browser sends back.
    fn kept(cookie: &InsertedCookie, server: u64) -> Vec<u8> {
        let mut set = Vec::new();
        cookie.write(&mut set, ServerId::from_u64(server), NOW, false);
        set.split(|byte| *byte == b';').next().map(<[u8]>::to_vec).unwrap_or_default()
    }

    fn read(cookie: &InsertedCookie, sent: &[u8], unix_seconds: u64) -> Option<(u64, bool)> {
        let stuck = cookie.read(&Cookies(vec![sent.to_vec()]), unix_seconds)?;
        Some((stuck.server.as_u64(), stuck.is_to_be_renewed))
    }

    #[test]
    fn a_cookie_names_its_server_until_it_ends() {
        let cookie = made("app", Some(100), &[SECRET]);
        let sent = kept(&cookie, 77);
        for (later, expected) in [
            (0, Some((77, false))),
            (49, Some((77, false))),
            (50, Some((77, true))),
            (99, Some((77, true))),
            (100, None),
        ] {
            assert_eq!(read(&cookie, &sent, NOW + later), expected, "after {later} s");
        }
        let for_ever = made("app", None, &[SECRET]);
        assert_eq!(read(&for_ever, &kept(&for_ever, 5), NOW * 100), Some((5, false)));
        // The lifetime of sessions was shortened, with the same secret.
        assert_eq!(read(&cookie, &kept(&for_ever, 5), NOW), Some((5, true)));
        assert_eq!(read(&made("app", Some(99), &[SECRET]), &sent, NOW), Some((77, true)));
    }

    #[test]
    fn only_own_signatures_count() {
        let cookie = made("app", Some(100), &[SECRET]);
        let sent = kept(&cookie, 77);
        assert_eq!(read(&made("other", Some(100), &[SECRET]), &sent, NOW), None, "another upstream");
        assert_eq!(read(&made("app", Some(100), &[OTHER_SECRET]), &sent, NOW), None, "another key");
        assert_eq!(
            read(&made("app", Some(100), &[OTHER_SECRET, SECRET]), &sent, NOW),
            Some((77, false)),
            "a key that was exchanged"
        );
        for place in 7..sent.len() {
            let mut forged = sent.clone();
            forged[place] = if forged[place] == b'A' { b'B' } else { b'A' };
            assert_eq!(read(&cookie, &forged, NOW), None, "byte {place}");
            assert_eq!(read(&cookie, &sent[..place], NOW), None, "cut at {place}");
        }
    }

    #[test]
    fn one_of_several_cookies_of_the_name_is_enough() {
        let cookie = made("app", None, &[SECRET]);
        let sent = Cookies(vec![b"server=stale; a=b".to_vec(), [b"c=d; ", &kept(&cookie, 9)[..]].concat()]);
        assert_eq!(cookie.read(&sent, NOW).map(|stuck| stuck.server.as_u64()), Some(9));
    }

    #[test]
    fn attributes_are_written_out() {
        let written = |attributes: CookieAttributes, ttl_seconds, is_https| {
            let cookie = InsertedCookie::new("server", "app", ttl_seconds, &attributes, &[SECRET]);
            let mut set = Vec::new();
            cookie.write(&mut set, ServerId::from_u64(1), NOW, is_https);
            let set = String::from_utf8(set).expect("text");
            set.split_once(';').map(|(_, attributes)| attributes.to_owned()).unwrap_or_default()
        };
        let plain = " Path=/; HttpOnly; SameSite=Lax";
        assert_eq!(written(CookieAttributes::default(), None, false), plain);
        assert_eq!(written(CookieAttributes::default(), None, true), format!("{plain}; Secure"));
        let never = CookieAttributes { secure: Some(false), ..CookieAttributes::default() };
        assert_eq!(written(never, None, true), plain);
        let all = CookieAttributes {
            path: "/app".to_owned(),
            domain: Some("example.com".to_owned()),
            secure: Some(true),
            same_site: SameSite::None,
            is_private: true,
        };
        let expected = " Path=/app; Domain=example.com; Max-Age=60; HttpOnly; Secure; SameSite=None";
        assert_eq!(written(all.clone(), Some(60), false), expected);
        assert_eq!(written(all, Some(60), true), expected);
    }

    #[test]
    #[should_panic(expected = "a cookie's name is a token")]
    fn a_name_that_would_break_the_field_is_our_own_mistake() {
        InsertedCookie::new("a;b", "app", None, &CookieAttributes::default(), &[SECRET]);
    }

    proptest! {
        #[test]
        fn nothing_that_clients_send_breaks_it(sent: Vec<u8>) {
            let cookie = made("app", Some(100), &[SECRET]);
            prop_assert_eq!(read(&cookie, &sent, NOW), None);
            prop_assert_eq!(read(&cookie, &[b"server=", &sent[..]].concat(), NOW), None);
        }
    }
}
