//! What origins tell caches alone: taken away from responses that are passed on, as it is from those that are stored.

use ::cache::names_tags;

/// Edits that take Surrogate-Key and Cache-Tag away.
pub(crate) struct WithoutTags;

impl wire::Edits for WithoutTags {
    fn touches(&self, name: &[u8]) -> bool {
        names_tags(name)
    }

    fn removes(&self, name: &[u8]) -> bool {
        names_tags(name)
    }

    fn replace(&self, _: &[u8], _: &[u8], _: &mut Vec<u8>) {}

    fn add(&self, _: &mut Vec<u8>) {}
}
