//! Verifies the signature of a bot (Web Bot Auth): RFC 9421 with Ed25519, with keys that its agent publishes.
//!
//! Only keys of the agents that the route lists are ever fetched.

use std::sync::Arc;

use http1::RequestTarget;
use jwt::Refusal;
use signatures::{BotSignature, SignatureFault, SignatureTimes, SignedMessage, bot_signature};

use crate::context::exchange_slot::CurrentRequest;
use crate::context::plan::{BotAgent, Bots};
use crate::context::routed::ExchangeContext;
use crate::context::seen::{self, RequestFields};
use crate::failure::Failure;
use crate::gate::token;
use crate::shared::vouched::Vouched;

/// Result of verifying a signature.
pub(crate) enum Bot<'b> {
    Verified(Arc<Vouched>),
    Refused(Unverified),
    /// The agent may have keys that are not known yet. The boolean is true if none are known.
    Unknown(&'b BotAgent, bool),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unverified {
    Fault(SignatureFault),
    Agent,
    Key,
    Signature,
    NoKeys,
}

impl Unverified {
    pub(crate) fn failure(self) -> Failure {
        match self {
            Self::Fault(SignatureFault::Missing) => Failure::BotUnsigned,
            Self::NoKeys => Failure::TokenKeysMissing,
            Self::Fault(_) | Self::Agent | Self::Key | Self::Signature => Failure::BotRefused,
        }
    }

    /// For the log.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Fault(SignatureFault::Missing) => "the request has no signature of a bot",
            Self::Fault(SignatureFault::Malformed) => "the fields of the signature are malformed",
            Self::Fault(SignatureFault::Repeated) => "there is more than one signature of a bot",
            Self::Fault(SignatureFault::Uncovered) => {
                "the signature does not cover the authority and Signature-Agent"
            }
            Self::Fault(SignatureFault::Parameters) => "the signature has no created, expires or keyid",
            Self::Fault(SignatureFault::Algorithm) => "the signature does not use Ed25519",
            Self::Fault(SignatureFault::Expired) => "the signature has expired, or is valid for too long",
            Self::Fault(SignatureFault::NotYetValid) => "the signature was made in the future",
            Self::Agent => "the agent is not one of web_bot_auth.agents",
            Self::Key => "the agent has published no such key",
            Self::Signature => "the signature is wrong",
            Self::NoKeys => "the keys of the agent are not known yet",
        }
    }
}

/// Verifies the signature of a request, after fetching keys if that may help. Called if `verify` returned `Unknown`.
pub(crate) async fn wait(
    ctx: &ExchangeContext<'_>,
    bots: &Bots,
    request: &CurrentRequest,
) -> Result<Arc<Vouched>, Unverified> {
    if let Bot::Unknown(agent, has_none) = verify(ctx, bots, request) {
        token::keys_come(ctx, &agent.keys, has_none).await;
    }
    // Verified again even if the wait was over: the keys may have arrived just then.
    match verify(ctx, bots, request) {
        Bot::Verified(vouched) => Ok(vouched),
        Bot::Refused(unverified) => Err(unverified),
        Bot::Unknown(_, has_none) => Err(if has_none { Unverified::NoKeys } else { Unverified::Key }),
    }
}

/// Verifies the signature of a request with the known keys.
pub(crate) fn verify<'b>(ctx: &ExchangeContext<'_>, bots: &'b Bots, request: &CurrentRequest) -> Bot<'b> {
    let signed = match signature(ctx, bots, request) {
        Ok(signed) => signed,
        Err(fault) => return Bot::Refused(Unverified::Fault(fault)),
    };
    match &signed.agent {
        Some(named) => match bots.agent(named) {
            Some(agent) => judge(agent, &signed),
            None => Bot::Refused(Unverified::Agent),
        },
        // A signature may omit the agent: then the key identifies it.
        None => {
            let judged = || bots.agents.iter().map(|agent| judge(agent, &signed));
            let verified = judged().find(|bot| matches!(bot, Bot::Verified(_)));
            let unknown = || judged().find(|bot| matches!(bot, Bot::Unknown(_, true)));
            verified.or_else(unknown).unwrap_or(Bot::Refused(Unverified::Key))
        }
    }
}

fn judge<'b>(agent: &'b BotAgent, signed: &BotSignature) -> Bot<'b> {
    let keys = agent.keys.current();
    let Some(keys) = keys.as_ref() else { return Bot::Unknown(agent, true) };
    match keys.set.verify_message(&signed.key_id, &signed.base, &signed.signature) {
        Ok(()) => Bot::Verified(Arc::clone(&agent.vouched)),
        Err(Refusal::UnknownKey) => Bot::Unknown(agent, false),
        Err(_) => Bot::Refused(Unverified::Signature),
    }
}

/// Parses the signature of a request.
fn signature(
    ctx: &ExchangeContext<'_>,
    bots: &Bots,
    request: &CurrentRequest,
) -> Result<BotSignature, SignatureFault> {
    let (head, bytes) = (&request.head, request.head_bytes());
    let fields = RequestFields::new(head, bytes);
    // Nearly all requests have none.
    if route::FieldLookup::value(&fields, b"signature-input").is_none() {
        return Err(SignatureFault::Missing);
    }
    let target = RequestTarget::from_head(head, bytes).map_err(|_| SignatureFault::Malformed)?;
    let path = target.path.for_bytes(bytes);
    let query =
        target.path_and_query.for_bytes(bytes).get(path.len()..).and_then(|rest| rest.strip_prefix(b"?"));
    let message = SignedMessage {
        method: head.start.method_span.for_bytes(bytes),
        scheme: seen::scheme(ctx, head, bytes),
        authority: seen::authority(ctx, head, bytes, &target),
        path,
        query,
        fields: route::FieldLookup::lines(&fields).collect(),
    };
    let times = SignatureTimes {
        now_s: ctx.worker.unix_seconds(),
        leeway_s: bots.settings.leeway_s,
        lifetime_max_s: bots.settings.lifetime_s,
    };
    bot_signature(&message, times)
}
