//! Fields that are removed from every part of a message. Heads are edited where they are written; this is for interim
//! responses and trailers.

use ::cache::names_tags;
use route::RemovedFields;

use crate::context::exchange::{ExchangeContext, RoutedRequest};

/// Removes the fields with cache tags, which origins send to caches alone.
pub(crate) static TAGS: OmittedFields = OmittedFields { removed: None, tags: true };

/// A filter that removes fields by name, and edits none.
#[derive(Debug, Clone)]
pub(crate) struct OmittedFields {
    removed: Option<RemovedFields>,
    /// Whether what origins tell caches alone is among them.
    tags: bool,
}

impl OmittedFields {
    /// The fields to remove from requests of a route; `None` if there are none.
    pub(crate) fn in_requests(ctx: &ExchangeContext<'_>, routed: &RoutedRequest) -> Option<Self> {
        let removed = routed.policies(ctx)?.settings.request_headers.removed();
        removed.map(|removed| Self { removed: Some(removed.clone()), tags: false })
    }

    /// The fields to remove from responses of a route; `None` if there are none.
    pub(crate) fn in_responses(ctx: &ExchangeContext<'_>, routed: &RoutedRequest) -> Option<Self> {
        let policies = routed.response_policies(ctx);
        let removed = policies.and_then(|policies| policies.settings.response_headers.removed()).cloned();
        let tags = routed.hides_tags(ctx);
        (removed.is_some() || tags).then_some(Self { removed, tags })
    }

    pub(crate) fn has(&self, name: &[u8]) -> bool {
        self.removed.as_ref().is_some_and(|removed| removed.has(name)) || (self.tags && names_tags(name))
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
