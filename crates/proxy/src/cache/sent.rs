//! Determines which request fields reach servers unchanged: variants can only be distinguished by those.

use ::cache::{CachePolicy, NotStored, Uri, Vary, write_kept_target};
use config::HostHeader;
use http1::{Name, RequestHead};

use crate::context::exchange_slot::CurrentRequest;
use crate::context::plan::Authentication;
use crate::context::routed::{ExchangeContext, RoutedRequest};
use crate::outgoing::asking::{drops_authorization, tells_user};

#[derive(Debug, Clone, Copy)]
pub(super) struct Passing {
    /// Whether the peer is a trusted proxy.
    pub(super) is_trusted: bool,
    pub(super) names_fields: bool,
    /// Whether Authorization is only for this proxy.
    pub(super) drops_authorization: bool,
    /// Whether the server learns the user from authentication.
    pub(super) tells_user: bool,
}

/// Removes the query parameters that the cache key omits. Otherwise a response that depends on them would be stored for
/// requests without them. Does nothing without a cache. Called before the look-up.
#[inline]
pub(crate) fn prepare(ctx: &ExchangeContext<'_>, routed: &RoutedRequest, request: &mut CurrentRequest) {
    if !routed.is_cached {
        return;
    }
    let policy = ctx.snapshot.plan.config.routes[routed.route].cache.as_deref();
    let leaves_out = policy.is_some_and(|policy| policy.key.leaves_out());
    // The slot's memory is reused: the target of an earlier request must be cleared.
    if leaves_out || request.texts.kept_target.is_some() {
        keep_target(policy, routed, request);
    }
}

#[cold]
fn keep_target(policy: Option<&CachePolicy>, routed: &RoutedRequest, request: &mut CurrentRequest) {
    let (target, bytes) = (&routed.target, request.head_bytes());
    let policy = policy.filter(|policy| policy.key.leaves_out() && routed.may_be_stored());
    let kept = policy.map(|policy| {
        let uri = Uri::new(false, target.authority.for_bytes(bytes), target.path_and_query.for_bytes(bytes));
        let mut kept = Vec::new();
        write_kept_target(&mut kept, &uri, &policy.key);
        kept
    });
    request.texts.kept_target = kept;
}

impl Passing {
    #[inline]
    pub(super) fn new(ctx: &ExchangeContext<'_>, routed: &RoutedRequest) -> Self {
        Self {
            is_trusted: ctx.client.is_trusted,
            names_fields: routed.connection.names_fields,
            drops_authorization: routed
                .policies(ctx)
                .is_some_and(|policies| drops_authorization(routed, policies)),
            tells_user: routed.policies(ctx).is_some_and(tells_user),
        }
    }

    /// Returns a test of whether the server sees a field as the client sent it.
    pub(super) fn passes(self, head: &RequestHead, bytes: &[u8]) -> impl Fn(&[u8]) -> bool + Copy {
        move |name| self.has(head, bytes, name)
    }

    fn has(self, head: &RequestHead, bytes: &[u8], name: &[u8]) -> bool {
        // Fields that only trusted clients may set are dropped for others, as in `http1::write_request`. The proxy's
        // replacement follows from the URL.
        let is_dropped = match Name::from_name(name) {
            Name::XForwardedProto | Name::XForwardedHost | Name::XForwardedOther | Name::XClientCert => {
                !self.is_trusted
            }
            Name::DisguisedForwarded => true,
            _ => false,
        };
        let is_ours = self.drops_authorization && name.eq_ignore_ascii_case(b"authorization");
        !(is_dropped || is_ours || (self.names_fields && is_of_hop(head, bytes, name)))
    }
}

/// Whether Connection names the field, so that it is not forwarded (RFC 9110 §7.6.1).
#[cold]
pub(super) fn is_of_hop(head: &RequestHead, bytes: &[u8], name: &[u8]) -> bool {
    let mut options = head.values(bytes, Name::Connection);
    options.any(|value| {
        value.split(|&byte| byte == b',').any(|option| option.trim_ascii().eq_ignore_ascii_case(name))
    })
}

/// Rejects responses that vary by a field that the proxy writes, other than from the URL (RFC 9111 §4.1). The client's
/// field does not identify the variant.
///
/// # Errors
/// If the response varies by such a field.
pub(super) fn check(ctx: &ExchangeContext<'_>, routed: &RoutedRequest, vary: &Vary) -> Result<(), NotStored> {
    let is_rewritten = |name: &[u8]| match Name::from_name(name) {
        Name::Via | Name::Forwarded | Name::XForwardedFor | Name::XClientCert => true,
        Name::Traceparent => ctx.snapshot.plan.tracing.is_some(),
        Name::Host => rewrites_host(ctx, routed),
        _ => false,
    };
    let is_edited = |name: &[u8]| {
        // A constant is the same for all clients, unless its edit has a condition.
        routed.policies(ctx).is_some_and(|policies| policies.settings.request_headers.varies(name))
    };
    let authentication = routed.policies(ctx).and_then(|policies| policies.authentication.as_ref());
    let is_claim = |name: &[u8]| {
        let mut own = authentication.into_iter().flat_map(Authentication::own_fields);
        own.any(|known| known.as_bytes().eq_ignore_ascii_case(name))
    };
    if vary.names().any(|name| is_rewritten(name) || is_edited(name) || is_claim(name)) {
        return Err(NotStored::VaryRewritten);
    }
    Ok(())
}

/// Whether a server sees another Host than the client's, which is part of the URL.
fn rewrites_host(ctx: &ExchangeContext<'_>, routed: &RoutedRequest) -> bool {
    let upstream = &ctx.snapshot.plan.upstreams[routed.upstream.get()].config;
    let rewrite = routed.policies(ctx).and_then(|policies| policies.settings.rewrite.host.as_ref());
    rewrite.is_some() || upstream.host == HostHeader::Server
}
