//! Finds the signature of a bot in a request (draft-meunier-web-bot-auth-architecture): its key, its agent, and its
//! validity.

use crate::base::SignedMessage;
use crate::structured::{Bare, Item, Parameters, SignatureMember, dictionary, item};

/// The value of the parameter `tag` in signatures of bots.
const TAG: &str = "web-bot-auth";
/// The maximum number of signatures in a request; it may have others besides the bot's.
const SIGNATURES_MAX: usize = 8;
/// The maximum size of `keyid`, and of Signature-Agent's value.
const NAME_BYTES_MAX: usize = 256;

/// The reason why a request has no valid signature of a bot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureFault {
    Missing,
    /// A field is malformed, or Signature-Input and Signature do not match.
    Malformed,
    /// Several signatures have the tag of bots, or one covers Signature-Agent twice.
    Repeated,
    /// The signature does not cover the authority, or not Signature-Agent although the request has that field; or it
    /// covers a component that the request lacks.
    Uncovered,
    /// `created`, `expires` or `keyid` is missing or invalid.
    Parameters,
    /// The algorithm is not Ed25519.
    Algorithm,
    /// The signature has expired, or its lifetime is longer than allowed.
    Expired,
    /// `created` is in the future.
    NotYetValid,
}

/// The present and the limits for signatures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignatureTimes {
    /// In seconds since 1970.
    pub now_s: u64,
    /// The maximum difference between the clocks of bot and proxy, in seconds.
    pub leeway_s: u64,
    /// The maximum time from `created` to `expires`, in seconds.
    pub lifetime_max_s: u64,
}

/// A bot's signature that the caller must verify.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BotSignature {
    /// The thumbprint of the key (RFC 7638).
    pub key_id: String,
    /// The URL in Signature-Agent; `None` if the request has no such field.
    pub agent: Option<String>,
    pub base: Vec<u8>,
    pub signature: Vec<u8>,
}

/// Finds a bot's signature, and checks its parameters.
///
/// # Errors
/// If there is none to be verified.
pub fn bot_signature(
    message: &SignedMessage<'_>,
    times: SignatureTimes,
) -> Result<BotSignature, SignatureFault> {
    let (inputs, signatures) = match (message.field("signature-input"), message.field("signature")) {
        (None, _) | (_, None) => return Err(SignatureFault::Missing),
        (Some(inputs), Some(signatures)) => (inputs, signatures),
    };
    let inputs = dictionary(&inputs).ok_or(SignatureFault::Malformed)?;
    let signatures = dictionary(&signatures).ok_or(SignatureFault::Malformed)?;
    if inputs.len() > SIGNATURES_MAX {
        return Err(SignatureFault::Malformed);
    }
    let is_tag = |parameters: &Parameters| text(parameters, "tag") == Some(TAG);
    let mut of_bots = inputs.iter().filter_map(|(label, member)| match member {
        SignatureMember::List(components, parameters) if is_tag(parameters) => {
            Some((label, components, parameters))
        }
        _ => None,
    });
    let (label, components, parameters) = of_bots.next().ok_or(SignatureFault::Missing)?;
    if of_bots.next().is_some() {
        return Err(SignatureFault::Repeated);
    }
    let signature = signatures.into_iter().find(|(known, _)| known == label);
    let Some((_, SignatureMember::Item(Item { bare: Bare::Bytes(signature), .. }))) = signature else {
        return Err(SignatureFault::Malformed);
    };
    check_times(parameters, times)?;
    // RFC 9421 §3.3.6: without `alg`, the key determines the algorithm.
    if parameters.iter().any(|(key, _)| key == "alg") && text(parameters, "alg") != Some("ed25519") {
        return Err(SignatureFault::Algorithm);
    }
    let key_id = text(parameters, "keyid")
        .filter(|id| id.len() <= NAME_BYTES_MAX)
        .ok_or(SignatureFault::Parameters)?;
    let agent = agent(message, components)?;
    let covers = |name: &str| components.iter().any(|item| item.bare == Bare::Text(name.to_owned()));
    if !covers("@authority") && !covers("@target-uri") {
        return Err(SignatureFault::Uncovered);
    }
    let base = message.base(components, parameters).ok_or(SignatureFault::Uncovered)?;
    Ok(BotSignature { key_id: key_id.to_owned(), agent, base: base.into_bytes(), signature })
}

fn text<'p>(parameters: &'p Parameters, name: &str) -> Option<&'p str> {
    parameters.iter().find_map(|(key, value)| match value {
        Bare::Text(text) if key == name => Some(text.as_str()),
        _ => None,
    })
}

fn check_times(parameters: &Parameters, times: SignatureTimes) -> Result<(), SignatureFault> {
    let SignatureTimes { now_s, leeway_s, lifetime_max_s } = times;
    let time = |name: &str| {
        let found = parameters.iter().find(|(key, _)| key == name);
        let Some((_, Bare::Integer(seconds))) = found else { return Err(SignatureFault::Parameters) };
        u64::try_from(*seconds).map_err(|_| SignatureFault::Parameters)
    };
    let (created, expires) = (time("created")?, time("expires")?);
    if created > now_s.saturating_add(leeway_s) {
        return Err(SignatureFault::NotYetValid);
    }
    if now_s >= expires.saturating_add(leeway_s) || expires.saturating_sub(created) > lifetime_max_s {
        return Err(SignatureFault::Expired);
    }
    Ok(())
}

/// Returns the URL of the agent, which the signature must cover.
///
/// Signature-Agent is a string in some versions of the draft, and in others a dictionary, of which the signature covers
/// a member.
fn agent(message: &SignedMessage<'_>, components: &[Item]) -> Result<Option<String>, SignatureFault> {
    const NAME: &str = "signature-agent";
    let Some(value) = message.field(NAME) else { return Ok(None) };
    let mut covered = components.iter().filter(|item| item.bare == Bare::Text(NAME.to_owned()));
    let (component, None) = (covered.next().ok_or(SignatureFault::Uncovered)?, covered.next()) else {
        return Err(SignatureFault::Repeated);
    };
    let found = match text(&component.parameters, "key") {
        None => item(&value),
        Some(key) => dictionary(&value).and_then(|members| {
            members.into_iter().find_map(|(known, member)| match member {
                SignatureMember::Item(item) if known == key => Some(item),
                _ => None,
            })
        }),
    };
    match found {
        Some(Item { bare: Bare::Text(agent), .. }) if agent.len() <= NAME_BYTES_MAX => Ok(Some(agent)),
        _ => Err(SignatureFault::Malformed),
    }
}
