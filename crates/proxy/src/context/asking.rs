//! Edits that the cache makes to a request for a server: a request for the whole response, or a revalidation.

use ::cache::is_replaced_condition;
use http1::Edits;

use crate::context::exchange::RoutedRequest;
use crate::context::exchange_slot::Texts;
use crate::context::plan::Policies;

/// Removes fields from a request that concern only its client, and replaces its preconditions and ranges by the cache's
/// lines.
pub(crate) struct Asking<'a> {
    /// `None` leaves it the client's own.
    lines: Option<&'a [u8]>,
    /// Who asks is known here, and is not for the server.
    drops_authorization: bool,
    /// What the route wants besides.
    edits: Option<&'a dyn Edits>,
}

impl<'a> Asking<'a> {
    /// Creates the edits; `None` if only the route changes the request.
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

/// The path and query for the server, if the route's cache leaves parts of the query out.
#[inline]
pub(crate) fn kept_target<'a>(routed: &RoutedRequest, texts: &'a Texts) -> Option<&'a [u8]> {
    texts.kept_target.as_deref().filter(|_| routed.is_cached())
}

/// Whether Authorization stays in this proxy, so that the response may be stored for all permitted clients (RFC 9111
/// §3.5): the route asks for a password, and tells the server no user.
#[inline]
pub(crate) fn drops_authorization(routed: &RoutedRequest, policies: &Policies) -> bool {
    policies.password().is_some() && routed.may_be_stored() && !policies.settings.request_headers.has_user()
}
