//! Edits to a request for a server that the route's own edits know nothing of: those of the cache (a request for the whole
//! response, or a revalidation), and the removal of a token.

use std::sync::Arc;

use ::cache::is_replaced_condition;
use http1::Edits;

use crate::context::exchange::RoutedRequest;
use crate::context::exchange_slot::Texts;
use crate::context::plan::{ForwardAuth, Policies, Tokens};
use route::cookie_value;

/// Removes fields from a request that concern only its client, and replaces its preconditions and ranges by the cache's
/// lines.
pub(crate) struct Asking<'a> {
    /// `None` leaves it the client's own.
    lines: Option<&'a [u8]>,
    /// Who asks is known here, and is not for the server.
    drops_authorization: bool,
    /// The cookie with the token, if it is not for the server.
    drops_cookie: Option<&'a str>,
    /// What the route wants besides.
    edits: Option<&'a dyn Edits>,
}

impl<'a> Asking<'a> {
    /// Creates the edits; `None` if only the route changes the request.
    pub(crate) fn of(
        lines: Option<&'a [u8]>,
        drops_authorization: bool,
        drops_cookie: Option<&'a str>,
        edits: Option<&'a dyn Edits>,
    ) -> Option<Self> {
        let is_idle = lines.is_none() && !drops_authorization && drops_cookie.is_none();
        (!is_idle).then_some(Self { lines, drops_authorization, drops_cookie, edits })
    }

    fn drops(&self, name: &[u8]) -> bool {
        (self.lines.is_some() && is_replaced_condition(name))
            || (self.drops_authorization && name.eq_ignore_ascii_case(b"authorization"))
    }

    fn has_cookie(&self, name: &[u8]) -> bool {
        self.drops_cookie.is_some() && name.eq_ignore_ascii_case(b"cookie")
    }
}

impl Edits for Asking<'_> {
    fn touches(&self, name: &[u8]) -> bool {
        self.drops(name) || self.has_cookie(name) || self.edits.is_some_and(|edits| edits.touches(name))
    }

    fn removes(&self, name: &[u8]) -> bool {
        self.drops(name) || self.edits.is_some_and(|edits| edits.removes(name))
    }

    fn replace(&self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        if self.removes(name) {
            return;
        }
        if let Some(cookie) = self.drops_cookie.filter(|_| self.has_cookie(name)) {
            replace_cookies(name, value, cookie, out);
        } else if let Some(edits) = self.edits {
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

/// Appends a Cookie line without one of its cookies; nothing if there was no other.
fn replace_cookies(name: &[u8], value: &[u8], dropped: &str, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(name);
    let mut separator = b": ".as_slice();
    for pair in value.split(|&byte| byte == b';').map(<[u8]>::trim_ascii) {
        if !pair.is_empty() && cookie_value(pair, dropped).is_none() {
            out.extend_from_slice(separator);
            out.extend_from_slice(pair);
            separator = b"; ";
        }
    }
    match separator {
        b"; " => out.extend_from_slice(b"\r\n"),
        _ => out.truncate(start),
    }
}

/// The path and query for the server, if the route's cache leaves parts of the query out.
#[inline]
pub(crate) fn kept_target<'a>(routed: &RoutedRequest, texts: &'a Texts) -> Option<&'a [u8]> {
    texts.kept_target.as_deref().filter(|_| routed.is_cached())
}

/// Whether Authorization stays in this proxy, so that the response may be stored for all permitted clients (RFC 9111
/// §3.5): the route asks for a password or a token, and tells the server no user.
#[inline]
pub(crate) fn drops_authorization(routed: &RoutedRequest, policies: &Policies) -> bool {
    let Some(authentication) = &policies.authentication else { return false };
    let is_ours = match authentication.tokens() {
        Some(tokens) => !tokens.tells_server() && (tokens.is_bearer() || authentication.password().is_some()),
        None => authentication.password().is_some(),
    };
    is_ours && routed.may_be_stored() && !policies.settings.request_headers.has_user()
}

/// Whether the server learns who asks from a token, wherever that is, or from an authentication server: then its response is stored under the conditions
/// that hold for requests with Authorization (RFC 9111 §3.5).
#[inline]
pub(crate) fn tells_user(policies: &Policies) -> bool {
    let Some(authentication) = &policies.authentication else { return false };
    let by_token =
        |tokens: &Arc<Tokens>| tokens.tells_server() || policies.settings.request_headers.has_user();
    let by_server = |auth: &Arc<ForwardAuth>| {
        let config::ForwardAuth { copy_headers, user_header, .. } = &auth.settings;
        !copy_headers.is_empty() || (user_header.is_some() && policies.settings.request_headers.has_user())
    };
    let by_bot = || authentication.bots().is_some() && policies.settings.request_headers.has_user();
    authentication.tokens().is_some_and(by_token)
        || authentication.server().is_some_and(by_server)
        || by_bot()
}
