//! Verifies the token of a request (JWT), on the worker: a signature costs less than a trip to another thread.
//!
//! A token that was seen before costs a look-up. With an unknown key, the request waits briefly for keys to be fetched.

use std::sync::Arc;

use http1::RequestTarget;
use jwt::Refusal;

use crate::context::exchange_slot::CurrentRequest;
use crate::context::plan::{LiveTokenKeys, Tokens};
use crate::context::routed::ExchangeContext;
use crate::context::seen::{self, RequestFields};
use crate::failure::Failure;
use crate::shared::vouched::Vouched;
use transport::deadline::Ticks;

/// Time that a request waits for keys to be fetched.
const PATIENCE: Ticks = Ticks(30);

/// Result of verifying a token.
pub(crate) enum TokenOutcome {
    Verified(Arc<Vouched>),
    Refused(Refusal),
    /// No keys have been fetched yet.
    NoKeys,
}

impl TokenOutcome {
    /// Whether newly fetched keys may verify it.
    pub(crate) fn may_wait(&self, tokens: &Tokens) -> bool {
        tokens.keys.remote.is_some() && matches!(self, Self::NoKeys | Self::Refused(Refusal::UnknownKey))
    }
}

pub(crate) fn failure(refusal: Refusal) -> Failure {
    match refusal {
        Refusal::Missing => Failure::TokenMissing,
        refusal if refusal.is_of_scope() => Failure::TokenInsufficient,
        _ => Failure::TokenRefused,
    }
}

/// Waits for keys, and verifies the token again. Called if `may_wait` of the first result is true.
pub(crate) async fn wait(
    ctx: &ExchangeContext<'_>,
    tokens: &Tokens,
    target: &RequestTarget,
    request: &CurrentRequest,
) -> TokenOutcome {
    let token = verify(ctx, tokens, target, request);
    let has_none = matches!(token, TokenOutcome::NoKeys);
    if token.may_wait(tokens) && keys_come(ctx, &tokens.keys, has_none).await {
        return verify(ctx, tokens, target, request);
    }
    token
}

/// Starts a fetch of keys, unless there were too many lately, and waits for it. Returns whether there may be new keys.
/// Before the first keys, waits for the first fetch if that is under way.
pub(crate) async fn keys_come(ctx: &ExchangeContext<'_>, keys: &LiveTokenKeys, has_none: bool) -> bool {
    let Some(remote) = &keys.remote else { return false };
    let first = if has_none { remote.first() } else { None };
    let Some(mut fetches) = first.or_else(|| remote.ask(ctx.worker.time_ns())) else { return false };
    // The keys may have arrived even if the wait timed out.
    let _ = ctx.client.deadline.within(PATIENCE, fetches.changed()).await;
    true
}

/// Verifies the token of a request with the known keys.
pub(crate) fn verify(
    ctx: &ExchangeContext<'_>,
    tokens: &Tokens,
    target: &RequestTarget,
    request: &CurrentRequest,
) -> TokenOutcome {
    let rules = &tokens.settings.rules;
    let bytes = request.head_bytes();
    let fields = RequestFields::new(&request.head, bytes);
    let token = match tokens.settings.from.find(&fields, seen::query(target, bytes)) {
        // Checked before the token is hashed or parsed, so that the work for it is bounded.
        Ok(token) if token.len() <= rules.token_bytes_max => token,
        Ok(_) => return TokenOutcome::Refused(Refusal::TooLong),
        Err(refusal) => return TokenOutcome::Refused(refusal),
    };
    // One set for the whole verification: a fetch may replace the keys meanwhile.
    let keys = tokens.keys.current();
    let Some(keys) = keys.as_ref() else { return TokenOutcome::NoKeys };
    let now_s = ctx.worker.unix_seconds();
    let (digest, bearer) = tokens.known(token, keys, now_s);
    if let Some(bearer) = bearer {
        return TokenOutcome::Verified(bearer);
    }
    match rules.check(token, &keys.set, now_s) {
        Ok(identity) => {
            let bearer = Arc::new(Vouched {
                user: identity.user().to_owned(),
                request_lines: identity.lines().to_vec(),
                response_lines: Vec::new(),
                claims: identity.claims().clone(),
            });
            tokens.keep(digest, keys, identity.until_s(), &bearer);
            TokenOutcome::Verified(bearer)
        }
        Err(refusal) => TokenOutcome::Refused(refusal),
    }
}
