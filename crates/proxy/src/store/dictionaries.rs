//! Stored responses that clients use as dictionaries for later ones (RFC 9842).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::cache::Object;
use aws_lc_rs::digest::{Context, SHA256};
use coding::{DICTIONARY_BYTES_MAX, Digest, is_dictionary, match_of, matches};
use config::Compress;

use crate::shared::request_fields::fields_of_text;

/// Maximum number of dictionaries, those used last. A client names the version that it has, which may no longer be
/// stored as a response.
const DICTIONARIES_MAX: usize = 64;

/// A stored response that is a dictionary.
#[derive(Clone)]
pub(crate) struct Dictionary {
    pub(crate) digest: Digest,
    pub(crate) object: Arc<Object>,
}

/// The dictionary used last is in front.
#[derive(Default)]
pub(crate) struct Dictionaries(Mutex<VecDeque<Dictionary>>);

impl Dictionaries {
    /// Keeps a response if it is a dictionary: its server declares it, or its path matches a pattern of the route. All
    /// together take at most `bytes_max`.
    pub(crate) fn consider(&self, object: &Arc<Object>, compress: &Compress, bytes_max: u64) {
        if !is_one(object, compress) {
            return;
        }
        let mut hash = Context::new(&SHA256);
        object.body(0..u64::MAX).for_each(|piece| hash.update(piece));
        let Ok(digest) = hash.finish().as_ref().try_into() else { return };
        let mut known = self.known();
        // Equal bytes of one origin need no second entry.
        known.retain(|dictionary| {
            dictionary.digest != digest || !is_of_same_origin(&dictionary.object, object)
        });
        known.push_front(Dictionary { digest, object: Arc::clone(object) });
        let mut bytes = 0;
        let mut is_kept = |dictionary: &Dictionary| {
            bytes += dictionary.object.weight_bytes();
            bytes <= bytes_max
        };
        // The ones used last are in front, so the others are dropped.
        let kept = known.iter().take(DICTIONARIES_MAX).take_while(|dictionary| is_kept(dictionary)).count();
        known.truncate(kept);
    }

    /// Returns the dictionary with this digest, of the same origin as a response.
    pub(crate) fn find(&self, digest: &Digest, key_text: &[u8]) -> Option<Dictionary> {
        let mut known = self.known();
        let is_it = |dictionary: &Dictionary| {
            dictionary.digest == *digest && origin(dictionary.object.key_text()) == origin(key_text)
        };
        let place = known.iter().position(is_it)?;
        let found = known.remove(place)?;
        known.push_front(found.clone());
        Some(found)
    }

    fn known(&self) -> MutexGuard<'_, VecDeque<Dictionary>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_of_same_origin(one: &Object, other: &Object) -> bool {
    origin(one.key_text()) == origin(other.key_text())
}

fn is_one(object: &Object, compress: &Compress) -> bool {
    let is_sized = (1..=DICTIONARY_BYTES_MAX).contains(&object.body_bytes());
    if object.stored().status != 200 || object.stored().part.is_some() || !is_sized {
        return false;
    }
    let mut is_said = false;
    for (name, value) in fields_of_text(object.head()) {
        // Clients keep the decoded body, so a coded response is not a dictionary.
        if name.eq_ignore_ascii_case(b"content-encoding") {
            return false;
        }
        is_said |= name.eq_ignore_ascii_case(b"use-as-dictionary") && match_of(value).is_some();
    }
    (is_said || pattern_of(path(object.key_text()), compress).is_some()) && is_dictionary(object.body_at(0))
}

/// Returns the route's pattern that a path matches.
pub(crate) fn pattern_of<'c>(path: &[u8], compress: &'c Compress) -> Option<&'c str> {
    compress.dictionaries.iter().find(|pattern| matches(pattern.as_bytes(), path)).map(String::as_str)
}

/// Returns scheme and authority of a key's text, which begins with a URL.
fn origin(key_text: &[u8]) -> &[u8] {
    &key_text[..origin_len(key_text)]
}

/// Returns the path in a key's text.
pub(crate) fn path(key_text: &[u8]) -> &[u8] {
    let path = &key_text[origin_len(key_text)..];
    &path[..path.iter().position(|byte| b"?#\n \0".contains(byte)).unwrap_or(path.len())]
}

fn origin_len(key_text: &[u8]) -> usize {
    let authority = key_text.windows(3).position(|window| window == b"://").map_or(0, |at| at + 3);
    let len = key_text[authority..].iter().position(|byte| *byte == b'/');
    len.map_or(key_text.len(), |len| authority + len)
}
