//! Verifies the signature of a bot (Web Bot Auth): RFC 9421 with Ed25519, by keys that its agent publishes.
//!
//! Only keys of the agents that the route lists are ever fetched.

use std::sync::Arc;

use http1::Target;
use jwt::Refusal;
use signatures::{BotSignature, Fault, Message, Times, bot_signature};

use crate::context::exchange::ExchangeContext;
use crate::context::exchange_slot::Request;
use crate::context::failure::Failure;
use crate::context::plan::{Agent, Bots};
use crate::context::seen::{self, Fields};
use crate::context::vouched::Vouched;
use crate::forward::token;

/// What comes of a signature.
pub(crate) enum Bot<'b> {
    /// Who has signed.
    Verified(Arc<Vouched>),
    /// The signature is refused.
    Refused(Unverified),
    /// The agent may have keys that are not known yet; whether none are known.
    Unknown(&'b Agent, bool),
}

/// Why a signature is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unverified {
    Fault(Fault),
    Agent,
    Key,
    Signature,
    NoKeys,
}

impl Unverified {
    /// The failure of the request.
    pub(crate) fn failure(self) -> Failure {
        match self {
            Self::Fault(Fault::Missing) => Failure::BotUnsigned,
            Self::NoKeys => Failure::TokenKeysMissing,
            _ => Failure::BotRefused,
        }
    }

    /// The reason, for the log.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Fault(Fault::Missing) => "the request has no signature of a bot",
            Self::Fault(Fault::Malformed) => "the fields of the signature are malformed",
            Self::Fault(Fault::Repeated) => "there is more than one signature of a bot",
            Self::Fault(Fault::Uncovered) => "the signature does not cover the authority and Signature-Agent",
            Self::Fault(Fault::Parameters) => "the signature has no created, expires or keyid",
            Self::Fault(Fault::Algorithm) => "the signature is not of Ed25519",
            Self::Fault(Fault::Expired) => "the signature has expired, or is valid for too long",
            Self::Fault(Fault::NotYetValid) => "the signature was made in the future",
            Self::Agent => "the agent is not one of web_bot_auth.agents",
            Self::Key => "the agent has published no such key",
            Self::Signature => "the signature is wrong",
            Self::NoKeys => "the keys of the agent are not known yet",
        }
    }
}

/// Waits for keys where that may help, and verifies the signature of a request.
pub(crate) async fn wait(
    ctx: &ExchangeContext<'_>,
    bots: &Bots,
    request: &Request,
) -> Result<Arc<Vouched>, Unverified> {
    if let Bot::Unknown(agent, has_none) = verify(ctx, bots, request) {
        token::keys_come(ctx, &agent.keys, has_none).await;
    }
    match verify(ctx, bots, request) {
        Bot::Verified(vouched) => Ok(vouched),
        Bot::Refused(unverified) => Err(unverified),
        Bot::Unknown(_, has_none) => Err(if has_none { Unverified::NoKeys } else { Unverified::Key }),
    }
}

/// Verifies the signature of a request.
pub(crate) fn verify<'b>(ctx: &ExchangeContext<'_>, bots: &'b Bots, request: &Request) -> Bot<'b> {
    let signed = match signature(ctx, bots, request) {
        Ok(signed) => signed,
        Err(fault) => return Bot::Refused(Unverified::Fault(fault)),
    };
    match &signed.agent {
        Some(named) => match bots.agent(named) {
            Some(agent) => judge(agent, &signed),
            None => Bot::Refused(Unverified::Agent),
        },
        // A bot may leave its name to its key.
        None => {
            let judged = || bots.agents.iter().map(|agent| judge(agent, &signed));
            let verified = judged().find(|bot| matches!(bot, Bot::Verified(_)));
            let unknown = || judged().find(|bot| matches!(bot, Bot::Unknown(_, true)));
            verified.or_else(unknown).unwrap_or(Bot::Refused(Unverified::Key))
        }
    }
}

fn judge<'b>(agent: &'b Agent, signed: &BotSignature) -> Bot<'b> {
    let keys = agent.keys.current();
    let Some(keys) = keys.as_ref() else { return Bot::Unknown(agent, true) };
    match keys.set.verify_message(&signed.key_id, &signed.base, &signed.signature) {
        Ok(()) => Bot::Verified(Arc::clone(&agent.vouched)),
        Err(Refusal::UnknownKey) => Bot::Unknown(agent, false),
        Err(_) => Bot::Refused(Unverified::Signature),
    }
}

fn signature(ctx: &ExchangeContext<'_>, bots: &Bots, request: &Request) -> Result<BotSignature, Fault> {
    let (head, bytes) = (&request.head, request.head_bytes());
    let fields = Fields::of(head, bytes);
    // Nearly all requests have none.
    if route::Fields::value(&fields, b"signature-input").is_none() {
        return Err(Fault::Missing);
    }
    let target = Target::of(head, bytes).map_err(|_| Fault::Malformed)?;
    let path = target.path.of(bytes);
    let query = target.path_and_query.of(bytes).get(path.len()..).and_then(|rest| rest.strip_prefix(b"?"));
    let message = Message {
        method: head.start.method_span.of(bytes),
        scheme: seen::scheme(ctx, head, bytes),
        authority: seen::authority(ctx, head, bytes, &target),
        path,
        query,
        fields: route::Fields::lines(&fields).collect(),
    };
    let times = Times {
        now_s: ctx.worker.unix_seconds(),
        leeway_s: bots.settings.leeway_s,
        lifetime_max_s: bots.settings.lifetime_s,
    };
    bot_signature(&message, times)
}
