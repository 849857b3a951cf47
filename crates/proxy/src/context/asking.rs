//! What the cache asks of a server in the place of its client: for all, or whether what is stored is still good.

use ::cache::is_replaced_condition;
use http1::Edits;

use crate::context::exchange::RoutedRequest;
use crate::context::exchange_slot::Texts;
use crate::context::plan::Policies;

/// Takes out of a request what is the client's alone, and puts lines of the cache in the place of its preconditions and
/// ranges.
pub(crate) struct Asking<'a> {
    /// `None` leaves it the client's own.
    lines: Option<&'a [u8]>,
    /// Who asks is known here, and is not for the server.
    drops_authorization: bool,
    /// What the route wants besides.
    edits: Option<&'a dyn Edits>,
}

impl<'a> Asking<'a> {
    /// `None` where nothing changes but by the route.
    pub(crate) fn of(
        lines: Option<&'a [u8]>,
        drops_authorization: bool,
        edits: Option<&'a dyn Edits>,
    ) -> Option<Self> {
        (lines.is_some() || drops_authorization).then_some(Self { lines, drops_authorization, edits })
    }

    fn drops(&self, name: &[u8]) -> bool {
        (self.lines.is_some() && is_replaced_condition(name))
            || (self.drops_authorization && name.eq_ignore_ascii_case(b"authorization"))
    }
}

impl Edits for Asking<'_> {
    fn touches(&self, name: &[u8]) -> bool {
        self.drops(name) || self.edits.is_some_and(|edits| edits.touches(name))
    }

    fn removes(&self, name: &[u8]) -> bool {
        self.drops(name) || self.edits.is_some_and(|edits| edits.removes(name))
    }

    fn replace(&self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        if let Some(edits) = self.edits.filter(|_| !self.drops(name)) {
            edits.replace(name, value, out);
        }
    }

    fn add(&self, out: &mut Vec<u8>) {
        if let Some(edits) = self.edits {
            edits.add(out);
        }
        out.extend_from_slice(self.lines.unwrap_or_default());
    }
}

/// Path and query that a server is to see, where they are not all that the client sent.
#[inline]
pub(crate) fn kept_target<'a>(routed: &RoutedRequest, texts: &'a Texts) -> Option<&'a [u8]> {
    texts.kept_target.as_deref().filter(|_| routed.is_cached())
}

/// Whether who asks is known to this proxy alone, so that what a server answers is for all who may ask (RFC 9111 §3.5): the
/// route has asked for a password, and tells the server of no user.
#[inline]
pub(crate) fn drops_authorization(routed: &RoutedRequest, policies: &Policies) -> bool {
    policies.auth.is_some() && routed.may_be_stored() && !policies.settings.request_headers.has_user()
}
