//! Fields that are in no part of a message: heads are edited where they are written, here is what comes before and behind
//! those.

use ::cache::names_tags;
use route::RemovedFields;

use crate::context::exchange::{Admitted, Call};

/// What origins tell caches alone: taken away from responses that are passed on, as it is from those that are stored.
pub(crate) static TAGS: Unwanted = Unwanted { removed: None, tags: true };

/// Names of fields that are left out, and nothing is edited.
#[derive(Clone)]
pub(crate) struct Unwanted {
    removed: Option<RemovedFields>,
    /// Whether what origins tell caches alone is among them.
    tags: bool,
}

impl Unwanted {
    /// In requests of a route; `None` where there are none.
    pub(crate) fn in_requests(call: &Call<'_>, admitted: &Admitted) -> Option<Self> {
        let removed = admitted.policies(call)?.meant.request_headers.removed();
        removed.map(|removed| Self { removed: Some(removed.clone()), tags: false })
    }

    /// In responses of a route; `None` where there are none.
    pub(crate) fn in_responses(call: &Call<'_>, admitted: &Admitted) -> Option<Self> {
        let policies = admitted.policies(call);
        let removed = policies.and_then(|policies| policies.meant.response_headers.removed()).cloned();
        let tags = admitted.hides_tags(call);
        (removed.is_some() || tags).then_some(Self { removed, tags })
    }

    pub(crate) fn has(&self, name: &[u8]) -> bool {
        self.removed.as_ref().is_some_and(|removed| removed.has(name)) || (self.tags && names_tags(name))
    }
}

impl http1::Edits for Unwanted {
    fn touches(&self, name: &[u8]) -> bool {
        self.has(name)
    }

    fn removes(&self, name: &[u8]) -> bool {
        self.has(name)
    }

    fn replace(&self, _: &[u8], _: &[u8], _: &mut Vec<u8>) {}

    fn add(&self, _: &mut Vec<u8>) {}
}
