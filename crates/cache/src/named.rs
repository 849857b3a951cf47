//! Names in purges and explanations: URLs, URL prefixes, hosts and tags.

use std::fmt;

use http1::RequestHead;

use crate::key::{CacheKey, KeySecret, Space, Uri, no_values, write_key};
use crate::pattern::PurgePattern;
use crate::policy::KeyOptions;
use crate::purge::{Force, Label, PurgeScope, RulesFull};
use crate::store::MemoryStore;
use crate::store::count::PurgeRule;
use crate::store::object::seconds;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PurgeTarget {
    /// A resource with all its variants.
    Url(UrlParts),
    /// All URLs with a prefix.
    Prefix(UrlParts),
    /// All URLs that match a pattern.
    Pattern(PurgePattern),
    /// All URLs of a host, with any port.
    Host(Box<[u8]>),
    /// All responses with a tag.
    Tag(Box<[u8]>),
    All,
}

/// A parsed URL. Without a scheme it means both http and https.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlParts {
    is_https: Option<bool>,
    authority: Box<[u8]>,
    path_and_query: Box<[u8]>,
}

/// Why a text is no valid name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotNamed {
    written: String,
    what: &'static str,
}

impl fmt::Display for NotNamed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?} {}", self.written, self.what)
    }
}

impl std::error::Error for NotNamed {}

impl NotNamed {
    fn too_long(text: &str) -> Self {
        Self { written: text.to_owned(), what: "is too long for a pattern, or has too many stars" }
    }
}

impl fmt::Display for UrlParts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self.is_https {
            None => "",
            Some(false) => "http://",
            Some(true) => "https://",
        })?;
        write!(formatter, "{}{}", self.authority.escape_ascii(), self.path_and_query.escape_ascii())
    }
}

impl UrlParts {
    /// Parses `http://HOST[:PORT]/PATH?QUERY`, `https://…`, or a URL without the scheme.
    ///
    /// # Errors
    /// The text is not such a URL.
    pub fn parse(text: &str) -> Result<Self, NotNamed> {
        let refuse = |what| NotNamed { written: text.to_owned(), what };
        // Keys hold URLs as they are sent, so such a name could never match.
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(refuse("has characters that must be percent-encoded (%XX)"));
        }
        let (is_https, rest) = match text.split_once("://") {
            Some(("http", rest)) => (Some(false), rest),
            Some(("https", rest)) => (Some(true), rest),
            Some((scheme, _)) if !scheme.contains(['/', '?']) => {
                return Err(refuse(
                    "has an unsupported scheme; write http://HOST/PATH, https://HOST/PATH or HOST/PATH",
                ));
            }
            _ => (None, text),
        };
        // RFC 9110 §4.2.5: a fragment is not sent.
        // The text may be copied from a browser.
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, path_and_query) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.is_empty() || !http1::is_valid_authority(authority.as_bytes()) {
            return Err(refuse("has no valid host; write http://HOST/PATH, https://HOST/PATH or HOST/PATH"));
        }
        // RFC 9110 §4.2.3: an empty path is the same as `/`.
        let slash = if path_and_query.starts_with('/') { "" } else { "/" };
        let path_and_query = [slash, path_and_query].concat().into_bytes().into();
        Ok(Self { is_https, authority: authority.as_bytes().into(), path_and_query })
    }

    /// The address of a request with this target.
    pub fn new(is_https: Option<bool>, authority: &[u8], path_and_query: &[u8]) -> Self {
        Self { is_https, authority: authority.into(), path_and_query: path_and_query.into() }
    }

    /// The URIs of the address: one, or two without a scheme.
    pub fn uris(&self) -> impl Iterator<Item = Uri<'_>> {
        let schemes =
            [false, true].into_iter().filter(|scheme| self.is_https.is_none_or(|own| own == *scheme));
        schemes.map(|scheme| Uri::new(scheme, &self.authority, &self.path_and_query))
    }

    fn write(&self, out: &mut Vec<u8>) {
        let scheme = SCHEMES.iter().position(|scheme| *scheme == self.is_https).unwrap_or_default();
        out.push(scheme as u8);
        out.extend_from_slice(&(self.authority.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.authority);
        out.extend_from_slice(&self.path_and_query);
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (&scheme, rest) = bytes.split_first()?;
        let (authority_bytes, rest) = rest.split_first_chunk()?;
        let (authority, path_and_query) =
            rest.split_at_checked(u32::from_le_bytes(*authority_bytes) as usize)?;
        Some(Self::new(*SCHEMES.get(usize::from(scheme))?, authority, path_and_query))
    }
}

const SCHEMES: [Option<bool>; 3] = [None, Some(false), Some(true)];

const URL: u8 = 1;
const PREFIX: u8 = 2;
const HOST: u8 = 3;
const TAG: u8 = 4;
const ALL: u8 = 5;
const PATTERN: u8 = 6;

/// The result of a purge so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ordered {
    /// How many responses were found by their keys.
    pub responses: usize,
    /// The purge rules now in force, which may match more responses: see [`MemoryStore::count`].
    pub rules: Vec<PurgeRule>,
}

impl fmt::Display for PurgeTarget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(address) => write!(formatter, "URL {address}"),
            Self::Prefix(address) => write!(formatter, "prefix {address}"),
            Self::Pattern(pattern) => write!(formatter, "pattern {pattern}"),
            Self::Host(host) => write!(formatter, "host {}", host.escape_ascii()),
            Self::Tag(tag) => write!(formatter, "tag {}", String::from_utf8_lossy(tag)),
            Self::All => formatter.write_str("everything"),
        }
    }
}

impl PurgeTarget {
    /// Parses a URL, or a pattern of URLs if it contains `*`.
    ///
    /// # Errors
    /// The text is invalid.
    pub fn url(text: &str) -> Result<Self, NotNamed> {
        Self::located(UrlParts::parse(text)?).ok_or_else(|| NotNamed::too_long(text))
    }

    /// The target of a request, or a pattern if it contains `*`. `None` if the pattern is too long, or has too many
    /// `*`.
    pub fn located(address: UrlParts) -> Option<Self> {
        let UrlParts { is_https, authority, path_and_query } = &address;
        if !authority.contains(&b'*') && !path_and_query.contains(&b'*') {
            return Some(Self::Url(address));
        }
        PurgePattern::of_url(*is_https, authority, path_and_query).map(Self::Pattern)
    }

    /// # Errors
    /// The text is invalid.
    pub fn prefix(text: &str) -> Result<Self, NotNamed> {
        // A star would be taken literally, match nothing, and look like success.
        if text.contains('*') {
            let what = "has a `*`, but a prefix cannot be a pattern; give it as a URL";
            return Err(NotNamed { written: text.to_owned(), what });
        }
        UrlParts::parse(text).map(Self::Prefix)
    }

    /// Parses a host name, or a pattern of hosts if it contains `*`.
    ///
    /// # Errors
    /// The text is invalid.
    pub fn host(text: &str) -> Result<Self, NotNamed> {
        let is_host = http1::is_valid_authority(text.as_bytes()) && !text.is_empty();
        if !is_host || http1::host_without_port(text.as_bytes()).len() < text.len() {
            let what = "is not a host name; write it without scheme, port and path";
            return Err(NotNamed { written: text.to_owned(), what });
        }
        if text.contains('*') {
            let pattern = PurgePattern::of_host(text.as_bytes()).ok_or_else(|| NotNamed::too_long(text))?;
            return Ok(Self::Pattern(pattern));
        }
        Ok(Self::Host(text.as_bytes().into()))
    }

    /// Parses a tag, as in `Surrogate-Key` or `Cache-Tag`.
    ///
    /// # Errors
    /// No response can have such a tag.
    pub fn tag(text: &str) -> Result<Self, NotNamed> {
        if text.trim().is_empty() || text.contains(',') || text.chars().any(char::is_control) {
            let what = "is not a tag; give each tag separately, without commas";
            return Err(NotNamed { written: text.to_owned(), what });
        }
        Ok(Self::Tag(text.trim().as_bytes().into()))
    }

    /// Appends the name in a binary form, for another process.
    pub fn write(&self, out: &mut Vec<u8>) {
        let (kind, rest): (u8, &[u8]) = match self {
            Self::Url(address) | Self::Prefix(address) => {
                out.push(if matches!(self, Self::Url(_)) { URL } else { PREFIX });
                return address.write(out);
            }
            Self::Pattern(pattern) => {
                out.push(PATTERN);
                return pattern.write(out);
            }
            Self::Host(host) => (HOST, host),
            Self::Tag(tag) => (TAG, tag),
            Self::All => (ALL, b""),
        };
        out.push(kind);
        out.extend_from_slice(rest);
    }

    /// Reads the output of `write`. `None` if the bytes are invalid.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (&kind, rest) = bytes.split_first()?;
        Some(match kind {
            URL => Self::Url(UrlParts::read(rest)?),
            PREFIX => Self::Prefix(UrlParts::read(rest)?),
            PATTERN => Self::Pattern(PurgePattern::read(rest)?),
            HOST => Self::Host(rest.into()),
            TAG => Self::Tag(rest.into()),
            ALL if rest.is_empty() => Self::All,
            _ => return None,
        })
    }

    /// Purges the named responses in all `spaces`, fetches in progress included. Softly purged ones are stale from
    /// `now_ms` on. Returns how many were found by their keys, and the rules that may match more.
    ///
    /// # Errors
    /// Too many purges would have to be remembered.
    pub fn purge(
        &self,
        store: &MemoryStore,
        secret: KeySecret,
        spaces: &[Space],
        force: Force,
        now_ms: u64,
    ) -> Result<Ordered, RulesFull> {
        let scope = match self {
            Self::Url(address) => return purge_url(address, store, secret, spaces, force, now_ms),
            Self::Prefix(address) => {
                let mut rules = Vec::new();
                for uri in address.uris() {
                    let mut prefix = Vec::new();
                    write_key(
                        &mut prefix,
                        &uri,
                        &KeyOptions::default(),
                        (&RequestHead::default(), b""),
                        |_| true,
                        no_values,
                    );
                    // A rule per scheme, because the text of a key begins with it.
                    rules.push(store.purge_rule(PurgeScope::Prefix(prefix.into()), force, now_ms)?);
                }
                return Ok(Ordered { responses: 0, rules });
            }
            Self::Pattern(pattern) => PurgeScope::Pattern(pattern.clone()),
            Self::Host(host) => PurgeScope::Label(Label::host(secret, host)),
            Self::Tag(tag) => PurgeScope::Label(Label::tag(secret, tag)),
            Self::All => PurgeScope::All,
        };
        Ok(Ordered { responses: 0, rules: vec![store.purge_rule(scope, force, now_ms)?] })
    }
}

fn purge_url(
    address: &UrlParts,
    store: &MemoryStore,
    secret: KeySecret,
    spaces: &[Space],
    force: Force,
    now_ms: u64,
) -> Result<Ordered, RulesFull> {
    let mut found: Vec<CacheKey> = Vec::new();
    let mut rules = Vec::new();
    for uri in address.uris() {
        found.extend(keys_of(&uri, spaces));
        rules.extend(purge_labels(&uri, store, secret, spaces, force, now_ms)?);
    }
    found.sort_unstable();
    // A space that ignores the scheme gives one key for both URIs.
    found.dedup();
    let mut met = 0;
    for key in found {
        met += store.purge_key(key, force);
        if force == Force::Soft {
            for object in store.variants(key) {
                object.note_stale(seconds(now_ms));
            }
        }
    }
    Ok(Ordered { responses: met, rules })
}

/// Purges one resource with all its variants in all spaces, after an unsafe request (RFC 9111 §4.4).
pub fn purge_uri(uri: &Uri<'_>, store: &MemoryStore, secret: KeySecret, spaces: &[Space]) {
    for key in keys_of(uri, spaces) {
        store.purge_key(key, Force::Hard);
    }
    if purge_labels(uri, store, secret, spaces, Force::Hard, 0).is_err() {
        // If there are too many rules to remember, purges everything, for which there is always room.
        // Losing the cache is better than serving what a client has just changed.
        let _: Result<(), RulesFull> = store.purge(PurgeScope::All, Force::Hard);
    }
}

/// The keys of a URI in all spaces, if nothing else of a request is part of them.
pub fn keys_of(uri: &Uri<'_>, spaces: &[Space]) -> impl Iterator<Item = CacheKey> {
    spaces.iter().map(|space| CacheKey::of_uri(space.secret, uri, &space.options))
}

/// Purges the URI's other keys by label, because they cannot be computed from the URI.
fn purge_labels(
    uri: &Uri<'_>,
    store: &MemoryStore,
    secret: KeySecret,
    spaces: &[Space],
    force: Force,
    now_ms: u64,
) -> Result<Vec<PurgeRule>, RulesFull> {
    let labels = spaces.iter().filter(|space| !space.options.is_uri_alone());
    let labels = labels.map(|space| Label::uri(secret, uri, &space.options));
    labels.map(|label| store.purge_rule(PurgeScope::Label(label), force, now_ms)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        for (text, is_https, authority, path_and_query) in [
            ("http://example.com/a?b=c#d", Some(false), "example.com", "/a?b=c"),
            ("https://EXAMPLE.com:8443", Some(true), "EXAMPLE.com:8443", "/"),
            ("example.com?x", None, "example.com", "/?x"),
            ("[::1]:80/a", None, "[::1]:80", "/a"),
            ("example.com/?to=http://b/", None, "example.com", "/?to=http://b/"),
        ] {
            let expected = UrlParts::new(is_https, authority.as_bytes(), path_and_query.as_bytes());
            assert_eq!(UrlParts::parse(text), Ok(expected), "{text}");
        }
        for text in ["", "/a", "http://", "ftp://a/b", "http://a b/", "user@example.com/", "http://é/"] {
            assert!(UrlParts::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_are_read_as_written() {
        let addresses = SCHEMES.map(|scheme| UrlParts::new(scheme, b"a.example:81", b"/b?\xff"));
        let urls = addresses.iter().cloned().map(PurgeTarget::Url);
        let prefixes = addresses.iter().cloned().map(PurgeTarget::Prefix);
        let names = [
            PurgeTarget::Host(b"a"[..].into()),
            PurgeTarget::Tag(b"news"[..].into()),
            PurgeTarget::All,
            PurgeTarget::host("*.a").expect("is one"),
            PurgeTarget::url("a/b*").expect("is one"),
        ];
        for named in urls.chain(prefixes).chain(names) {
            let mut bytes = Vec::new();
            named.write(&mut bytes);
            assert_eq!(PurgeTarget::read(&bytes), Some(named));
        }
        for bytes in [&b""[..], b"\0", b"\x09a", b"\x05a", b"\x01", b"\x01\x03\0\0\0\0", b"\x01\0\x02\0\0\0a"]
        {
            assert_eq!(PurgeTarget::read(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn hosts_and_tags_are_names_alone() {
        assert_eq!(PurgeTarget::host("example.com"), Ok(PurgeTarget::Host(b"example.com"[..].into())));
        assert_eq!(PurgeTarget::host("[::1]"), Ok(PurgeTarget::Host(b"[::1]"[..].into())));
        for text in ["", "example.com:80", "http://example.com", "a/b", "a b"] {
            assert!(PurgeTarget::host(text).is_err(), "{text}");
        }
        assert_eq!(PurgeTarget::tag(" a b "), Ok(PurgeTarget::Tag(b"a b"[..].into())));
        for text in ["", " ", "a,b", "a\n"] {
            assert!(PurgeTarget::tag(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn without_a_scheme_both_are_meant() {
        let address = UrlParts::parse("a.example/b").expect("is one");
        assert_eq!(address.uris().map(|uri| uri.is_https).collect::<Vec<_>>(), [false, true]);
    }
}
