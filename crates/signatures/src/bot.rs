//! The signature of a bot (draft-meunier-web-bot-auth-architecture): which one of a request it is, who signed it, until
//! when it counts.

use crate::base::Message;
use crate::structured::{Bare, Item, Member, Parameters, dictionary, item};

/// The tag of signatures by bots.
const TAG: &str = "web-bot-auth";
/// Signatures of one request; others may be there besides the bot's.
const SIGNATURES_MAX: usize = 8;
/// The longest name of a key, and of an agent.
const NAME_BYTES_MAX: usize = 256;

/// Why a request is not one of a bot that can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The request has no signature of a bot.
    Missing,
    /// The fields about signatures are no dictionaries, or do not belong together.
    Malformed,
    /// There are several signatures of bots.
    Repeated,
    /// The signature does not cover what it has to: the authority, and Signature-Agent where that is.
    Uncovered,
    /// A parameter is missing that has to be there: `created`, `expires`, `keyid`.
    Parameters,
    /// The signature is of another algorithm than Ed25519.
    Algorithm,
    /// The signature has expired, or counts for longer than is allowed.
    Expired,
    /// The signature was made in the future.
    NotYetValid,
}

/// When signatures count, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// The present.
    pub now_s: u64,
    /// How far the clocks may be apart.
    pub leeway_s: u64,
    /// From `created` to `expires` at most.
    pub lifetime_max_s: u64,
}

/// The signature of a bot, which is still to be verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BotSignature {
    /// The thumbprint of the key (RFC 7638).
    pub key_id: String,
    /// The agent, as Signature-Agent names it: a URL; `None` if the request has no such field.
    pub agent: Option<String>,
    /// What was signed.
    pub base: Vec<u8>,
    /// The signature.
    pub signature: Vec<u8>,
}

/// Finds the signature of a bot in a request.
///
/// # Errors
/// Why there is none that could be verified now.
pub fn bot_signature(message: &Message<'_>, times: Times) -> Result<BotSignature, Fault> {
    let (inputs, signatures) = match (message.field("signature-input"), message.field("signature")) {
        (None, _) | (_, None) => return Err(Fault::Missing),
        (Some(inputs), Some(signatures)) => (inputs, signatures),
    };
    let inputs = dictionary(&inputs).ok_or(Fault::Malformed)?;
    let signatures = dictionary(&signatures).ok_or(Fault::Malformed)?;
    if inputs.len() > SIGNATURES_MAX {
        return Err(Fault::Malformed);
    }
    let is_tag = |parameters: &Parameters| text(parameters, "tag") == Some(TAG);
    let mut of_bots = inputs.iter().filter_map(|(label, member)| match member {
        Member::List(components, parameters) if is_tag(parameters) => Some((label, components, parameters)),
        _ => None,
    });
    let (label, components, parameters) = of_bots.next().ok_or(Fault::Missing)?;
    if of_bots.next().is_some() {
        return Err(Fault::Repeated);
    }
    let signature = signatures.into_iter().find(|(known, _)| known == label);
    let Some((_, Member::Item(Item { bare: Bare::Bytes(signature), .. }))) = signature else {
        return Err(Fault::Malformed);
    };
    check_times(parameters, times)?;
    // RFC 9421 §3.3.6. Without `alg` the key decides.
    if parameters.iter().any(|(key, _)| key == "alg") && text(parameters, "alg") != Some("ed25519") {
        return Err(Fault::Algorithm);
    }
    let key_id =
        text(parameters, "keyid").filter(|id| id.len() <= NAME_BYTES_MAX).ok_or(Fault::Parameters)?;
    let agent = agent(message, components)?;
    let covers = |name: &str| components.iter().any(|item| item.bare == Bare::Text(name.to_owned()));
    if !covers("@authority") && !covers("@target-uri") {
        return Err(Fault::Uncovered);
    }
    let base = message.base(components, parameters).ok_or(Fault::Uncovered)?;
    Ok(BotSignature { key_id: key_id.to_owned(), agent, base: base.into_bytes(), signature })
}

fn text<'p>(parameters: &'p Parameters, name: &str) -> Option<&'p str> {
    parameters.iter().find_map(|(key, value)| match value {
        Bare::Text(text) if key == name => Some(text.as_str()),
        _ => None,
    })
}

fn check_times(parameters: &Parameters, times: Times) -> Result<(), Fault> {
    let Times { now_s, leeway_s, lifetime_max_s } = times;
    let time = |name: &str| {
        let found = parameters.iter().find(|(key, _)| key == name);
        let Some((_, Bare::Integer(seconds))) = found else { return Err(Fault::Parameters) };
        u64::try_from(*seconds).map_err(|_| Fault::Parameters)
    };
    let (created, expires) = (time("created")?, time("expires")?);
    if created > now_s.saturating_add(leeway_s) {
        return Err(Fault::NotYetValid);
    }
    if now_s >= expires.saturating_add(leeway_s) || expires.saturating_sub(created) > lifetime_max_s {
        return Err(Fault::Expired);
    }
    Ok(())
}

/// The agent that the signature covers.
///
/// It is a string in some versions of the draft, and a dictionary in others, of which the signature covers a member.
fn agent(message: &Message<'_>, components: &[Item]) -> Result<Option<String>, Fault> {
    const NAME: &str = "signature-agent";
    let Some(value) = message.field(NAME) else { return Ok(None) };
    let mut covered = components.iter().filter(|item| item.bare == Bare::Text(NAME.to_owned()));
    let (component, None) = (covered.next().ok_or(Fault::Uncovered)?, covered.next()) else {
        return Err(Fault::Repeated);
    };
    let found = match text(&component.parameters, "key") {
        None => item(&value),
        Some(key) => dictionary(&value).and_then(|members| {
            members.into_iter().find_map(|(known, member)| match member {
                Member::Item(item) if known == key => Some(item),
                _ => None,
            })
        }),
    };
    match found {
        Some(Item { bare: Bare::Text(agent), .. }) if agent.len() <= NAME_BYTES_MAX => Ok(Some(agent)),
        _ => Err(Fault::Malformed),
    }
}
