//! Automatic certificates of all instances: what others have got, and the challenges that they are asked. Both are sealed.
//! The authority may ask any instance, so each has the answers before it is told to look; no request waits for Redis.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use telemetry::message;
use tls::{Answered, Challenges};
use tokio::time::Instant;

use super::engine::{Engine, Reach};
use crate::change::Control;

/// How often an instance looks for what is new.
const EVERY: Duration = Duration::from_secs(1);
/// How long an authority is not told to look, since others have not got the answer.
const SEEN_MAX: Duration = Duration::from_secs(3);
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);
/// Answers to challenges are given for so long.
const CHALLENGES_MAX: Duration = Duration::from_secs(600);
/// Answers of one instance: it has four orders under way, with a challenge each.
const OFFERS_MAX: usize = 64;
/// Names whose certificates have changed, at most.
const CHANGED_MAX: usize = 100_000;

/// Tells what is new: the number of the last change, names with other certificates, and answers by instance.
const LOOK: &str = r"
local number = tonumber(redis.call('GET', KEYS[1]) or 0)
if ARGV[1] == string.format('%.0f', number) then return {number, {}, {}} end
local names = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. ARGV[1], '+inf')
local answers = {}
for _, instance in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
  local sealed = redis.call('GET', ARGV[2] .. instance)
  if sealed then
    answers[#answers + 1] = instance
    answers[#answers + 1] = sealed
  end
end
return {number, names, answers}";

const OFFER: &str = r"
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
return redis.call('INCR', KEYS[1])";

/// A certificate replaces none that is newer.
const PUT: &str = r"
local known = redis.call('GETRANGE', KEYS[1], 0, 20)
if tonumber(string.match(known, '^(%d+):') or -1) >= tonumber(ARGV[2]) then return 0 end
redis.call('SET', KEYS[1], ARGV[2] .. ':' .. ARGV[3], 'PX', ARGV[4])
local number = redis.call('INCR', KEYS[2])
redis.call('ZADD', KEYS[3], number, ARGV[1])
redis.call('ZREMRANGEBYRANK', KEYS[3], 0, -1 - ARGV[5])
return number";

/// Instances that follow changes, and have not seen this one.
const MISSING: &str = r"
local missing = {}
for _, instance in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  local seen = redis.call('HGET', KEYS[2], instance)
  if seen and tonumber(seen) < tonumber(ARGV[1]) then missing[#missing + 1] = instance end
end
return missing";

/// What is newer than this is all.
const NEVER: i64 = -1;

const NUMBER: &str = "acme:number";
const CHANGED: &str = "acme:changed";
const SEEN: &str = "acme:seen";
const INSTANCES: &str = "instances";

/// A certificate for other instances.
#[derive(Serialize, Deserialize)]
pub(crate) struct SharedCertificate {
    /// The certificate and its intermediates, in PEM.
    pub(crate) chain: String,
    /// The private key, in PEM.
    pub(crate) key: String,
    /// The URL of the directory of its authority.
    pub(crate) directory: String,
}

impl Engine {
    /// The newest certificate of a name, and since when it is valid.
    ///
    /// # Errors
    /// Why Redis does not answer, or what is wrong with what it has.
    pub(crate) async fn certificate(&self, name: &str) -> Result<Option<(i64, SharedCertificate)>, String> {
        let place = certificate_place(name);
        let kept: Option<Vec<u8>> = self.ask(redis::cmd("GET").arg(self.key(&place))).await?;
        let Some(kept) = kept else { return Ok(None) };
        let split = kept.iter().position(|byte| *byte == b':').map(|at| kept.split_at(at));
        let opened = split.and_then(|(from, sealed)| {
            let from = std::str::from_utf8(from).ok()?.parse().ok()?;
            let text = self.seal.open(&place, &sealed[1..])?;
            Some((from, serde_json::from_slice(&text).ok()?))
        });
        let wrong = || format!("{} was sealed with another secret, or changed", self.key(&place));
        opened.map(Some).ok_or_else(wrong)
    }

    /// Gives others a certificate, which is valid from then until then, unless they have a newer one.
    ///
    /// # Errors
    /// Why Redis does not answer.
    pub(crate) async fn put_certificate(
        &self,
        name: &str,
        certificate: &SharedCertificate,
        (from, left): (i64, Duration),
    ) -> Result<(), String> {
        let place = certificate_place(name);
        let text = serde_json::to_vec(certificate).map_err(|error| error.to_string())?;
        let sealed = self.seal.seal(&place, &text).ok_or("there is no randomness")?;
        let (from, left_ms, most) =
            (from.max(0).to_string(), left.as_millis().to_string(), CHANGED_MAX.to_string());
        let arguments = [name.as_bytes(), from.as_bytes(), &sealed, left_ms.as_bytes(), most.as_bytes()];
        self.run::<u64>(PUT, &[&place, NUMBER, CHANGED], &arguments).await.map(drop)
    }

    /// The account with an authority.
    ///
    /// # Errors
    /// Why Redis does not answer.
    pub(crate) async fn account(&self, directory: &str) -> Result<Option<Vec<u8>>, String> {
        let place = format!("acme:account:{directory}");
        let kept: Option<Vec<u8>> = self.ask(redis::cmd("GET").arg(self.key(&place))).await?;
        Ok(kept.and_then(|sealed| self.seal.open(&place, &sealed)))
    }

    /// Gives others an account.
    ///
    /// # Errors
    /// Why Redis does not answer.
    pub(crate) async fn put_account(&self, directory: &str, account: &[u8]) -> Result<(), String> {
        let place = format!("acme:account:{directory}");
        let sealed = self.seal.seal(&place, account).ok_or("there is no randomness")?;
        self.ask(redis::cmd("SET").arg(self.key(&place)).arg(sealed)).await
    }

    /// Takes it from them: the authority does not know it any more.
    ///
    /// # Errors
    /// Why Redis does not answer.
    pub(crate) async fn remove_account(&self, directory: &str) -> Result<(), String> {
        self.ask(redis::cmd("DEL").arg(self.key(&format!("acme:account:{directory}")))).await
    }
}

fn certificate_place(name: &str) -> String {
    format!("acme:certificate:{name}")
}

fn challenges_place(instance: &str) -> String {
    format!("acme:challenges:{instance}")
}

/// An answer to a challenge.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Offer {
    /// HTTP-01: the key authorization for a token.
    File { token: String, text: String },
    /// TLS-ALPN-01: the digest of the key authorization for a name.
    Handshake { name: String, digest: [u8; 32] },
}

/// The answers that other instances are to give for this one.
#[derive(Default)]
pub(crate) struct Board(Mutex<Posted>);

#[derive(Default)]
struct Posted {
    offers: Vec<Offer>,
    /// Counts the changes.
    version: u64,
    /// The last one that Redis was told.
    told: u64,
}

/// An answer that others are to give until this is dropped.
pub(crate) struct Offered {
    control: Weak<Control>,
    offer: Offer,
}

impl Drop for Offered {
    fn drop(&mut self) {
        if let Some(control) = self.control.upgrade() {
            // It is told with the next look.
            control.shared.board.change(|offers| offers.retain(|offer| *offer != self.offer));
        }
    }
}

impl Board {
    fn change(&self, change: impl FnOnce(&mut Vec<Offer>)) {
        let mut posted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut posted.offers);
        posted.version += 1;
    }

    /// What is to be told, and which version that is; `None` if it was told.
    fn untold(&self) -> Option<(u64, Vec<Offer>)> {
        let posted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (posted.version != posted.told).then(|| (posted.version, posted.offers.clone()))
    }

    fn told(&self, version: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).told = version;
    }
}

/// Has other instances give an answer, and waits until they can, for a limited time. `None` if nothing is shared.
pub(crate) async fn offer(control: &Weak<Control>, offer: Offer) -> Option<Offered> {
    let strong = control.upgrade()?;
    let engine = match strong.shared.reach() {
        Reach::Up(engine) => Some(engine),
        // It is told once Redis is back.
        Reach::Gone(_) => None,
        Reach::Nothing => return None,
    };
    strong.shared.board.change(|offers| offers.push(offer.clone()));
    let offered = Offered { control: Weak::clone(control), offer };
    let Some(engine) = engine else { return Some(offered) };
    let told = tell(&engine, &strong.shared.board).await;
    drop(strong);
    if let Ok(Some(number)) = told {
        until_seen(&engine, number).await;
    }
    Some(offered)
}

/// Tells Redis the answers that others are to give. Returns the number of the change, if there was one.
async fn tell(engine: &Engine, board: &Board) -> Result<Option<u64>, String> {
    let Some((version, offers)) = board.untold() else { return Ok(None) };
    let place = challenges_place(&engine.instance);
    let text = serde_json::to_vec(&offers).map_err(|error| error.to_string())?;
    let sealed = engine.seal.seal(&place, &text).ok_or("there is no randomness")?;
    let lifetime = CHALLENGES_MAX.as_millis().to_string();
    let number = engine.run(OFFER, &[NUMBER, &place], &[&sealed, lifetime.as_bytes()]).await?;
    board.told(version);
    Ok(Some(number))
}

async fn until_seen(engine: &Engine, number: u64) {
    let (began, number) = (Instant::now(), number.to_string());
    loop {
        let missing: Result<Vec<String>, String> =
            engine.run(MISSING, &[INSTANCES, SEEN], &[number.as_bytes()]).await;
        let is_over = began.elapsed() > SEEN_MAX;
        match missing {
            Ok(missing) if missing.iter().any(|instance| *instance != engine.instance) && !is_over => {}
            _ => return,
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
}

/// Follows what other instances share.
pub(super) struct Follower {
    control: Weak<Control>,
    /// The last change that was seen.
    seen: i64,
    /// The answers that are given for others.
    given: HashMap<Offer, (Instant, Answered)>,
    /// Instances whose answers cannot be opened, as it was said.
    strange: HashSet<String>,
}

impl Follower {
    pub(super) fn new(control: &Weak<Control>) -> Self {
        Self { control: Weak::clone(control), seen: NEVER, given: HashMap::new(), strange: HashSet::new() }
    }

    /// Follows over a connection. Returns why Redis does not answer.
    pub(super) async fn go_on(&mut self, engine: Option<Arc<Engine>>) -> String {
        let Some(engine) = engine else { return std::future::pending().await };
        // Redis may have lost what it was told, or have got what is unknown here.
        let mut is_first = true;
        loop {
            let Some(control) = self.control.upgrade() else { return "the proxy ends".to_owned() };
            if crate::acme::has_names(&control.plan()) {
                if std::mem::take(&mut is_first) {
                    control.shared.board.change(|_| {});
                    control.acme.wake_all();
                    self.seen = NEVER;
                }
                if let Err(why) = self.look(&engine, &control).await {
                    return why;
                }
            }
            drop(control);
            crate::tick::tick(EVERY).await;
        }
    }

    async fn look(&mut self, engine: &Engine, control: &Control) -> Result<(), String> {
        tell(engine, &control.shared.board).await?;
        let (seen, prefix) = (self.seen.to_string(), engine.key(&challenges_place("")));
        let (number, names, answers): (i64, Vec<String>, Vec<Vec<u8>>) =
            engine.run(LOOK, &[NUMBER, CHANGED, INSTANCES], &[seen.as_bytes(), prefix.as_bytes()]).await?;
        self.given.retain(|_, (since, _)| since.elapsed() < CHALLENGES_MAX);
        if number == self.seen {
            return Ok(());
        }
        names.iter().for_each(|name| control.acme.wake(name));
        let wanted = self.opened(engine, &answers);
        self.give(wanted, &control.plan().challenges);
        self.seen = number;
        let mut command = redis::cmd("HSET");
        engine.ask(command.arg(engine.key(SEEN)).arg(&engine.instance).arg(number)).await
    }

    /// The answers of other instances.
    fn opened(&mut self, engine: &Engine, answers: &[Vec<u8>]) -> HashSet<Offer> {
        let mut all = HashSet::new();
        for pair in answers.chunks_exact(2) {
            let instance = String::from_utf8_lossy(&pair[0]).into_owned();
            if instance == engine.instance {
                continue;
            }
            let text = engine.seal.open(&challenges_place(&instance), &pair[1]);
            let offers = text.and_then(|text| serde_json::from_slice::<Vec<Offer>>(&text).ok());
            match offers {
                Some(offers) => all.extend(offers.into_iter().take(OFFERS_MAX)),
                None => {
                    if self.strange.insert(instance.clone()) {
                        message::warn(&format!(
                            "challenges of instance {instance} were sealed with another secret: secret_file of [redis] has \
                             to be the same on all"
                        ));
                    }
                }
            }
        }
        all
    }

    fn give(&mut self, wanted: HashSet<Offer>, challenges: &Arc<Challenges>) {
        self.given.retain(|offer, _| wanted.contains(offer));
        for offer in wanted {
            if self.given.contains_key(&offer) {
                continue;
            }
            let answered = match &offer {
                Offer::File { token, text } => Ok(challenges.answer_file(token, text)),
                Offer::Handshake { name, digest } => challenges.answer_handshake(name, digest),
            };
            if let Ok(answered) = answered {
                self.given.insert(offer, (Instant::now(), answered));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_others_are_given_while_they_are_wanted() {
        let file = |token: &str| Offer::File { token: token.to_owned(), text: format!("{token}.print") };
        let challenges = Arc::new(Challenges::default());
        let mut follower = Follower::new(&Weak::new());
        follower.give(HashSet::from([file("a"), file("b")]), &challenges);
        follower.give(HashSet::from([file("b"), file("c")]), &challenges);
        let given = ["a", "b", "c"].map(|token| challenges.file(token).is_some());
        assert_eq!(given, [false, true, true]);
        follower.give(HashSet::new(), &challenges);
        assert!(!challenges.is_any());
    }

    #[test]
    fn what_was_told_is_told_again_only_after_a_change() {
        let board = Board::default();
        assert!(board.untold().is_none());
        let offer = Offer::Handshake { name: "a.example".to_owned(), digest: [7; 32] };
        board.change(|offers| offers.push(offer.clone()));
        let (version, offers) = board.untold().expect("it is new");
        assert_eq!(offers, [offer]);
        board.change(Vec::clear);
        board.told(version);
        let (version, offers) = board.untold().expect("it has changed meanwhile");
        assert!(offers.is_empty());
        board.told(version);
        assert!(board.untold().is_none());
    }
}
