//! Removes fields from interim responses and trailers. Final heads are edited where they are written.

use ::cache::{CachePolicy, names_tags};
use route::{ActiveEdits, RemovedFields};

use crate::context::plan::RoutePolicies;

/// Removes the response fields that are meant only for this cache.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HiddenFields<'a>(pub(crate) &'a CachePolicy);

impl http1::Edits for HiddenFields<'_> {
    fn touches(&self, name: &[u8]) -> bool {
        self.0.hides(name)
    }

    fn removes(&self, name: &[u8]) -> bool {
        self.0.hides(name)
    }

    fn replace(&self, _: &[u8], _: &[u8], _: &mut Vec<u8>) {}

    fn add(&self, _: &mut Vec<u8>) {}
}

/// A filter that removes fields by name.
#[derive(Debug, Clone)]
pub(crate) struct OmittedFields {
    // Whatever the conditions of edits: the response is not known, or the head has left.
    removed: Option<RemovedFields>,
    /// Whether it also removes cache tags.
    tags: bool,
}

impl OmittedFields {
    /// Returns the fields to remove from requests of a route; `None` if there are none.
    pub(crate) fn in_requests(policies: &RoutePolicies) -> Option<Self> {
        let removed = policies.settings.request_headers.removed();
        removed.map(|removed| Self { removed: Some(removed.clone()), tags: false })
    }

    /// Returns the fields to remove from responses of a route, including those that its cache hides; `None` if there
    /// are none.
    pub(crate) fn in_responses(
        policies: Option<&RoutePolicies>,
        hiding: Option<&CachePolicy>,
    ) -> Option<Self> {
        let removed = policies.and_then(|policies| policies.settings.response_headers.removed()).cloned();
        let tags = hiding.is_some_and(|policy| !policy.sends_tags);
        // Most routes remove nothing, and get no filter.
        (removed.is_some() || tags).then_some(Self { removed, tags })
    }

    pub(crate) fn has(&self, name: &[u8]) -> bool {
        self.removed.as_ref().is_some_and(|removed| removed.has(name, ActiveEdits::ALL))
            || (self.tags && names_tags(name))
    }
}

impl http1::Edits for OmittedFields {
    fn touches(&self, name: &[u8]) -> bool {
        self.has(name)
    }

    fn removes(&self, name: &[u8]) -> bool {
        self.has(name)
    }

    fn replace(&self, _: &[u8], _: &[u8], _: &mut Vec<u8>) {}

    fn add(&self, _: &mut Vec<u8>) {}
}
