//! Verifies the token of a request (JWT), on the worker: a signature costs less than a trip to another thread.
//!
//! A token that was seen before costs a look-up. One whose key is unknown waits a moment for keys to be fetched.

use std::sync::Arc;

use jwt::Refusal;

use crate::context::exchange::ExchangeContext;
use crate::context::exchange_slot::Request;
use crate::context::failure::Failure;
use crate::context::plan::{Keys, Tokens};
use crate::context::seen::Fields;
use crate::context::vouched::Vouched;
use transport::deadline::Ticks;

/// How long a request waits for keys to be fetched.
const PATIENCE: Ticks = Ticks(30);

/// What comes of a token.
pub(crate) enum Token {
    /// Its bearer.
    Verified(Arc<Vouched>),
    /// The token is refused.
    Refused(Refusal),
    /// No keys are known yet.
    NoKeys,
}

impl Token {
    /// Whether keys that are not known yet may verify it.
    pub(crate) fn may_wait(&self, tokens: &Tokens) -> bool {
        tokens.keys.remote.is_some() && matches!(self, Self::NoKeys | Self::Refused(Refusal::UnknownKey))
    }
}

/// The failure of a request whose token is refused.
pub(crate) fn failure(refusal: Refusal) -> Failure {
    match refusal {
        Refusal::Missing => Failure::TokenMissing,
        refusal if refusal.is_of_scope() => Failure::TokenInsufficient,
        _ => Failure::TokenRefused,
    }
}

/// Waits for keys, and verifies the token once more.
pub(crate) async fn wait(ctx: &ExchangeContext<'_>, tokens: &Tokens, request: &Request) -> Token {
    let token = verify(ctx, tokens, request);
    let has_none = matches!(token, Token::NoKeys);
    if token.may_wait(tokens) && keys_come(ctx, &tokens.keys, has_none).await {
        return verify(ctx, tokens, request);
    }
    token
}

/// Has keys fetched, unless they were too often, and waits for them. Returns whether there may be others now. Where there
/// are none so far, the first fetch may be under way.
pub(crate) async fn keys_come(ctx: &ExchangeContext<'_>, keys: &Keys, has_none: bool) -> bool {
    let Some(remote) = &keys.remote else { return false };
    let first = if has_none { remote.first() } else { None };
    let Some(mut fetches) = first.or_else(|| remote.ask(ctx.worker.time_ns())) else { return false };
    // Late or not, it is worth another look: the keys may be there.
    let _ = ctx.client.deadline.within(PATIENCE, fetches.changed()).await;
    true
}

/// Verifies the token of a request.
pub(crate) fn verify(ctx: &ExchangeContext<'_>, tokens: &Tokens, request: &Request) -> Token {
    let rules = &tokens.settings.rules;
    let fields = Fields::of(&request.head, request.head_bytes());
    let token = match tokens.settings.from.find(&fields) {
        Ok(token) if token.len() <= rules.token_bytes_max => token,
        Ok(_) => return Token::Refused(Refusal::TooLong),
        Err(refusal) => return Token::Refused(refusal),
    };
    let keys = tokens.keys.current();
    let Some(keys) = keys.as_ref() else { return Token::NoKeys };
    let now_s = ctx.worker.unix_seconds();
    let (digest, bearer) = tokens.known(token, keys, now_s);
    if let Some(bearer) = bearer {
        return Token::Verified(bearer);
    }
    match rules.check(token, &keys.set, now_s) {
        Ok(identity) => {
            let bearer = Arc::new(Vouched {
                user: identity.user().to_owned(),
                request_lines: identity.lines().to_vec(),
                response_lines: Vec::new(),
            });
            tokens.keep(digest, keys, identity.until_s(), &bearer);
            Token::Verified(bearer)
        }
        Err(refusal) => Token::Refused(refusal),
    }
}
