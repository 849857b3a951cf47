//! Edits of a request that are independent of the route's header edits: the cache's conditions and ranges, and the
//! removal of a token.

use std::sync::Arc;

use ::cache::is_replaced_condition;
use http1::Edits;

use crate::context::exchange_slot::Texts;
use crate::context::plan::{ForwardAuth, RoutePolicies, Tokens};
use crate::context::routed::RoutedRequest;
use route::cookie_value;

/// Removes fields that concern only the client, and replaces its preconditions and ranges by the cache's lines.
pub(crate) struct AuthRequestEdits<'a> {
    /// `None` keeps the client's.
    lines: Option<&'a [u8]>,
    /// Whether Authorization is checked here, and not meant for the server.
    drops_authorization: bool,
    /// The cookie with the token, if it is not meant for the server.
    drops_cookie: Option<&'a str>,
    /// The route's own edits.
    edits: Option<&'a dyn Edits>,
}

impl<'a> AuthRequestEdits<'a> {
    /// Creates the edits; `None` if only the route changes the request.
    pub(crate) fn new(
        lines: Option<&'a [u8]>,
        drops_authorization: bool,
        drops_cookie: Option<&'a str>,
        edits: Option<&'a dyn Edits>,
    ) -> Option<Self> {
        // Usually nothing is edited, and the head is copied as it is.
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

impl Edits for AuthRequestEdits<'_> {
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
        // Added last, so that no edit of the route changes them.
        out.extend_from_slice(self.lines.unwrap_or_default());
    }
}

/// Appends a Cookie field without one of its cookies; nothing if there was no other.
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

/// Returns the path and query for the server, if the cache's key omits parts of the query.
#[inline]
pub(crate) fn kept_target<'a>(routed: &RoutedRequest, texts: &'a Texts) -> Option<&'a [u8]> {
    texts.kept_target.as_deref().filter(|_| routed.is_cached())
}

/// Whether Authorization stays in this proxy: the route requires a password or a token, and does not pass the user to
/// the server. Then the response may be stored for all admitted clients (RFC 9111 §3.5).
#[inline]
pub(crate) fn drops_authorization(routed: &RoutedRequest, policies: &RoutePolicies) -> bool {
    let Some(authentication) = &policies.authentication else { return false };
    let is_ours = match authentication.tokens() {
        Some(tokens) => !tokens.tells_server() && (tokens.is_bearer() || authentication.password().is_some()),
        None => authentication.password().is_some(),
    };
    is_ours && routed.may_be_stored() && !policies.settings.request_headers.tells_user()
}

/// Whether the server learns the user from a token or an authentication server. Then its response is stored only under
/// the conditions for requests with Authorization (RFC 9111 §3.5).
#[inline]
pub(crate) fn tells_user(policies: &RoutePolicies) -> bool {
    let Some(authentication) = &policies.authentication else { return false };
    let by_token =
        |tokens: &Arc<Tokens>| tokens.tells_server() || policies.settings.request_headers.tells_user();
    let by_server = |auth: &Arc<ForwardAuth>| {
        let config::ForwardAuth { copy_headers, user_header, .. } = &auth.settings;
        !copy_headers.is_empty() || (user_header.is_some() && policies.settings.request_headers.tells_user())
    };
    let by_bot = || authentication.bots().is_some() && policies.settings.request_headers.tells_user();
    authentication.tokens().is_some_and(by_token)
        || authentication.server().is_some_and(by_server)
        || by_bot()
}
