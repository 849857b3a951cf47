//! Automatic certificates of all instances, and their challenges. Both are sealed. The authority may connect to any
//! instance, so all have the response before the authority is asked to check. No request waits for Redis.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use telemetry::message;
use tls::{Challenges, ServedChallenge};
use tokio::time::Instant;

use super::engine::{Engine, Reach};
use crate::change::Control;

const EVERY: Duration = Duration::from_secs(1);
/// How long an order waits until the other instances have the response.
const SEEN_MAX: Duration = Duration::from_secs(3);
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);
/// How long responses to challenges are given.
const CHALLENGES_MAX: Duration = Duration::from_secs(600);
/// Responses of one instance: it has four concurrent orders with a challenge each.
const OFFERS_MAX: usize = 64;
const CHANGED_MAX: usize = 100_000;

/// Returns the number of the last change, names with changed certificates, and responses by instance.
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

/// A certificate does not replace a newer one.
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

const NEVER: i64 = -1;

const NUMBER: &str = "acme:number";
const CHANGED: &str = "acme:changed";
const SEEN: &str = "acme:seen";
const INSTANCES: &str = "instances";

#[derive(Serialize, Deserialize)]
pub(crate) struct SharedCertificate {
    /// The certificate and its intermediates, in PEM.
    pub(crate) chain: String,
    /// The private key, in PEM.
    pub(crate) key: String,
    /// Directory URL of the authority.
    pub(crate) directory: String,
}

impl Engine {
    /// Returns the newest certificate of a name, and the start of its validity.
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

    /// Shares a certificate with this validity, unless Redis has a newer one.
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

    pub(crate) async fn account(&self, directory: &str) -> Result<Option<Vec<u8>>, String> {
        let place = format!("acme:account:{directory}");
        let kept: Option<Vec<u8>> = self.ask(redis::cmd("GET").arg(self.key(&place))).await?;
        Ok(kept.and_then(|sealed| self.seal.open(&place, &sealed)))
    }

    pub(crate) async fn put_account(&self, directory: &str, account: &[u8]) -> Result<(), String> {
        let place = format!("acme:account:{directory}");
        let sealed = self.seal.seal(&place, account).ok_or("there is no randomness")?;
        self.ask(redis::cmd("SET").arg(self.key(&place)).arg(sealed)).await
    }

    /// Deletes an account that the authority no longer knows.
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

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Offer {
    /// HTTP-01: the key authorization for a token.
    File { token: String, text: String },
    /// TLS-ALPN-01: the digest of the key authorization for a name.
    Handshake { name: String, digest: [u8; 32] },
}

/// The responses that other instances give for this one.
#[derive(Default)]
pub(crate) struct Board(Mutex<Posted>);

#[derive(Default)]
struct Posted {
    offers: Vec<Offer>,
    version: u64,
    /// The last version written to Redis.
    told: u64,
}

/// A response that other instances give until this is dropped.
pub(crate) struct Offered {
    control: Weak<Control>,
    offer: Offer,
}

impl Drop for Offered {
    fn drop(&mut self) {
        if let Some(control) = self.control.upgrade() {
            // The next look writes the change to Redis.
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

    /// Returns the responses and their version if Redis does not have them yet.
    fn untold(&self) -> Option<(u64, Vec<Offer>)> {
        let posted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (posted.version != posted.told).then(|| (posted.version, posted.offers.clone()))
    }

    fn told(&self, version: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).told = version;
    }
}

/// Makes other instances give a response, and waits a limited time until they can. `None` if nothing is shared.
pub(crate) async fn offer(control: &Weak<Control>, offer: Offer) -> Option<Offered> {
    let strong = control.upgrade()?;
    let engine = match strong.shared.reach() {
        Reach::Up(engine) => Some(engine),
        // Written once Redis is back.
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

/// Writes the responses to Redis. Returns the number of the change, if there was one.
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

/// Follows the certificates and responses of other instances.
pub(super) struct CertificateFollower {
    control: Weak<Control>,
    /// The number of the last seen change.
    seen: i64,
    /// The responses given for other instances.
    given: HashMap<Offer, (Instant, ServedChallenge)>,
    /// Instances whose responses cannot be opened, as already reported.
    strange: HashSet<String>,
}

impl CertificateFollower {
    pub(super) fn new(control: &Weak<Control>) -> Self {
        Self { control: Weak::clone(control), seen: NEVER, given: HashMap::new(), strange: HashSet::new() }
    }

    /// Follows over a connection. Returns why Redis does not answer.
    pub(super) async fn go_on(&mut self, engine: Option<Arc<Engine>>) -> String {
        let Some(engine) = engine else { return std::future::pending().await };
        // Redis may have lost data of this instance, or have new data.
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
        let mut follower = CertificateFollower::new(&Weak::new());
        follower.give(HashSet::from([file("a"), file("b")]), &challenges);
        follower.give(HashSet::from([file("b"), file("c")]), &challenges);
        let given = ["a", "b", "c"].map(|token| challenges.file(token).is_some());
        assert_eq!(given, [false, true, true]);
        follower.give(HashSet::new(), &challenges);
        assert!(!challenges.is_any());
    }

    #[test]
    fn responses_are_written_again_only_after_a_change() {
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
