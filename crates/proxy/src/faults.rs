//! Fault injection: the rules in force, and the choice of a fault for a request or connection.
//!
//! All workers share one set of rules, which is replaced as a whole: a change applies to the next request of every
//! connection. Without rules, a request and a connection cost the check of one flag each. Faults of messages are in
//! `messages`, of connections in `connections`.

/// Injects faults into connections.
pub(crate) mod connections;
/// Listeners that refuse connections.
pub mod listeners;
/// Injects faults into HTTP messages.
pub(crate) mod messages;

/// Fault rules and their progress, for the next process.
mod given;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use config::{Config, FaultRule, IpNet, Settings};
use route::{Fields as _, FirstRequests, RouteTable};
use shape::{ConnectionFault, DatagramEffect, Dice, Directions, Draws, Fault};
use telemetry::message;
use tokio::sync::{Notify, watch};

use crate::context::exchange::{ExchangeContext, RoutedRequest};
use crate::context::exchange_slot::Request;
use crate::context::failure::Failure;
use crate::context::seen::{self, Fields};
pub use given::FaultHandover;
use given::Past;

/// Keys of each rule whose first requests are counted.
const KEYS_MAX: usize = 16_384;
/// The name of what a request asks for itself.
const BY_REQUEST: &str = "asked for";

/// All fault rules, shared by the workers and the control thread.
pub struct Faults {
    is_on: AtomicBool,
    breaks_connections: AtomicBool,
    harms_datagrams: AtomicBool,
    set: ArcSwap<Set>,
    held: Mutex<Held>,
    /// Told when there are other rules.
    changed: Notify,
}

/// The rules in force.
struct Set {
    by_request: Option<ByRequest>,
    rules: Vec<Arc<Rule>>,
}

/// Who may ask for a fault, and with which header field.
struct ByRequest {
    header: String,
    clients: Vec<IpNet>,
    rule: Arc<Rule>,
}

/// What a change starts from.
struct Held {
    /// As the file has them.
    read: config::Faults,
    /// Those of them that were not removed since.
    file: config::Faults,
    /// Beside those of the file.
    added: Vec<Added>,
    /// The next process has been told of them: what changes now, it would not know.
    is_lent: bool,
}

/// A rule of an operator's.
struct Added {
    name: String,
    /// As a file would have it, which names listeners and routes.
    text: String,
    /// What that means with the file that there is; `None` if it has what is named no more.
    settings: Option<FaultRule>,
}

/// A fault rule with its counts and timing.
pub struct Rule {
    /// The configuration of the rule.
    pub settings: FaultRule,
    dice: Dice,
    table: RouteTable,
    first: Option<FirstRequests>,
    /// When it came in force.
    since_ns: u64,
    /// How long it had been in force by then, in the processes before.
    age_before: Duration,
    /// Requests that it was asked about.
    asked: AtomicU64,
    /// Those that it happened to.
    injected: AtomicU64,
    /// Whether it is in force, for connections that it happened to.
    standing: watch::Sender<bool>,
}

/// A fault that was drawn for a request or a connection.
#[derive(Clone)]
pub(crate) struct Drawn {
    pub(crate) rule: Arc<Rule>,
    pub(crate) fault: Fault,
    /// The request's number among those that the rule decided about.
    pub(crate) number: u64,
}

/// Why a fault is not added or removed.
#[derive(Debug, thiserror::Error)]
pub enum FaultRefusal {
    /// A fault with this name exists.
    #[error("there is a fault {0:?} already: give this one another name, or remove that one")]
    IsThere(String),
    /// No fault has this name.
    #[error("no fault is named {0:?}")]
    NoFault(String),
    /// The maximum number of faults is reached.
    #[error("more than {RULES_MAX} faults: remove some")]
    TooMany,
    /// A successor already has the faults.
    #[error("another process is taking over: ask again once it has")]
    Lent,
}

/// Rules at a time.
const RULES_MAX: usize = 1024;

impl Faults {
    /// Creates the rules of a configuration, with those that the previous process handed over.
    pub fn new(config: &Config, parts: Vec<FaultHandover>) -> Arc<Self> {
        let (held, pasts) = given::taken(config, parts);
        let past = |settings: &FaultRule| pasts.iter().find(|past| past.is_of(settings));
        let rule = |settings: &FaultRule| Arc::new(Rule::new(settings, held.file.seed, 0, past(settings)));
        let set = Set::new(&held, &rule);
        Arc::new(Self {
            is_on: AtomicBool::new(set.is_on()),
            breaks_connections: AtomicBool::new(set.breaks_connections()),
            harms_datagrams: AtomicBool::new(set.harms_datagrams()),
            set: ArcSwap::from_pointee(set),
            held: Mutex::new(held),
            changed: Notify::new(),
        })
    }

    /// Returns once the rules have changed since the last call. For a single caller.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Whether there is any fault rule for connections.
    #[inline]
    pub(crate) fn breaks_connections(&self) -> bool {
        self.breaks_connections.load(Ordering::Relaxed)
    }

    /// Whether there is any fault rule for datagrams.
    #[inline]
    pub(crate) fn harms_datagrams(&self) -> bool {
        self.harms_datagrams.load(Ordering::Relaxed)
    }

    /// Whether there is any fault rule for requests.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        // A request that overtakes a change is one that came before it.
        self.is_on.load(Ordering::Relaxed)
    }

    /// Replaces the rules of the file. If the file's rules are unchanged, so is everything, and removed rules stay
    /// removed.
    pub fn reread(&self, config: &Config, now_ns: u64) {
        let mut held = self.held();
        if held.read != config.faults {
            held.read.clone_from(&config.faults);
            held.file.clone_from(&config.faults);
            held.shadow();
        }
        held.added.iter_mut().for_each(|added| added.read(config));
        self.put(&held, now_ns);
    }

    /// Adds fault rules.
    ///
    /// # Errors
    /// Why nothing has changed.
    pub fn add(&self, rules: Vec<FaultRule>, config: &Config, now_ns: u64) -> Result<(), FaultRefusal> {
        let mut held = self.held_to_change()?;
        if let Some(rule) = rules.iter().find(|rule| held.has(&rule.name)) {
            return Err(FaultRefusal::IsThere(rule.name.clone()));
        }
        if held.file.rules.len() + held.added.len() + rules.len() > RULES_MAX {
            return Err(FaultRefusal::TooMany);
        }
        held.added.extend(rules.into_iter().map(|rule| Added::new(rule, config)));
        self.put(&held, now_ns);
        Ok(())
    }

    /// Those of these rules that never happen, each with an earlier one that always does.
    pub fn hidden(&self, names: &[String]) -> Vec<[String; 2]> {
        let rules = self.rules();
        let hiding = |(place, later): (usize, &Arc<Rule>)| {
            let earlier = rules[..place].iter().find(|earlier| earlier.settings.hides(&later.settings))?;
            Some([later.settings.name.clone(), earlier.settings.name.clone()])
        };
        let asked = rules.iter().enumerate().filter(|(_, rule)| names.contains(&rule.settings.name));
        asked.filter_map(hiding).collect()
    }

    /// Removes a fault rule.
    pub fn remove(&self, name: &str, now_ns: u64) -> Result<(), FaultRefusal> {
        let mut held = self.held_to_change()?;
        if !held.has(name) {
            return Err(FaultRefusal::NoFault(name.to_owned()));
        }
        held.added.retain(|added| added.name != name);
        held.file.rules.retain(|rule| rule.name != name);
        self.put(&held, now_ns);
        Ok(())
    }

    /// Removes all fault rules. Returns how many there were.
    pub fn clear(&self, now_ns: u64) -> Result<usize, FaultRefusal> {
        let mut held = self.held_to_change()?;
        let count = held.file.rules.len() + held.added.len();
        held.added.clear();
        held.file.rules.clear();
        held.file.header = None;
        self.put(&held, now_ns);
        Ok(count)
    }

    /// The rules in force, in their order.
    pub fn rules(&self) -> Vec<Arc<Rule>> {
        self.set.load().rules.clone()
    }

    /// The settings in force, with the fault rules in force.
    pub fn over(&self, config: &Config) -> Settings {
        let mut settings = Settings::clone(config);
        settings.faults.rules = self.rules().iter().map(|rule| rule.settings.clone()).collect();
        settings
    }

    /// Draws a fault for a request or its response. `route` is `None` if no route takes the request.
    #[inline(never)]
    pub(crate) fn draw(
        &self,
        ctx: &ExchangeContext<'_>,
        routed: &RoutedRequest,
        route: Option<usize>,
        request: &Request,
    ) -> Result<Option<Drawn>, Failure> {
        let set = self.set.load();
        let bytes = request.head_bytes();
        let fields = Fields::of(&request.head, bytes);
        if let Some(drawn) = set.asked_for(routed.client, &fields)? {
            return Ok(Some(drawn));
        }
        let seen = seen::request(ctx, &routed.target, bytes, routed.client, &fields, &request.head);
        let route = route.map_or("", |route| &ctx.snapshot.plan.routes[route].label);
        let now_ns = ctx.worker.time_ns();
        let mut rules = set.rules.iter().filter(|rule| !rule.settings.fault.is_of_connections());
        Ok(rules.find_map(|rule| rule.draw(&seen, route, now_ns)))
    }

    /// Draws a fault for a client's connection, of which no byte has been read.
    pub(crate) fn draw_connection(
        &self,
        listener: Option<usize>,
        client: IpAddr,
        has_tls: bool,
        now_ns: u64,
    ) -> Option<Drawn> {
        let seen = connection(listener.unwrap_or(usize::MAX), client);
        let may_happen = |rule: &&Arc<Rule>| match rule.settings.fault {
            Fault::Connection(ConnectionFault::BadHandshake) => has_tls,
            Fault::Connection(ConnectionFault::Toxic { .. }) => true,
            _ => false,
        };
        self.set.load().rules.iter().filter(may_happen).find_map(|rule| rule.draw(&seen, "", now_ns))
    }

    /// Draws what becomes of a datagram from a client (`is_up`) or to it: the first fault of those that happen.
    pub(crate) fn draw_datagram(
        &self,
        listener: Option<usize>,
        client: IpAddr,
        is_up: bool,
        now_ns: u64,
    ) -> Option<(Drawn, DatagramEffect)> {
        let seen = connection(listener.unwrap_or(usize::MAX), client);
        let other_way = if is_up { Directions::Down } else { Directions::Up };
        self.set.load().rules.iter().find_map(|rule| match rule.settings.fault {
            Fault::Connection(ConnectionFault::Datagrams { effect, ways }) if ways != other_way => {
                Some((rule.draw(&seen, "", now_ns)?, effect))
            }
            _ => None,
        })
    }

    /// The rule because of which a listener refuses connections now.
    pub fn refuses(&self, listener: usize, now_ns: u64) -> Option<Arc<Rule>> {
        // Whose they would be does not count.
        let seen = connection(listener, IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let refuses = |rule: &&Arc<Rule>| rule.is_on(now_ns) && rule.table.choose(&seen).is_some();
        let set = self.set.load();
        set.refusals().find(refuses).cloned()
    }

    /// The time until the set of refusing listeners may change, unless the rules change.
    pub fn refusals_change_in(&self, now_ns: u64) -> Option<Duration> {
        let set = self.set.load();
        set.refusals().filter_map(|rule| rule.settings.occasion.changes_in(rule.age(now_ns))).min()
    }

    /// Permits changes again, if a handover of the rules ended without a successor.
    pub fn give_back(&self) {
        self.held().is_lent = false;
    }

    fn held_to_change(&self) -> Result<MutexGuard<'_, Held>, FaultRefusal> {
        let held = self.held();
        if held.is_lent { Err(FaultRefusal::Lent) } else { Ok(held) }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rules that were there before go on as they are.
    fn put(&self, held: &Held, now_ns: u64) {
        let before = self.set.load_full();
        let (seed, by_request) = (held.file.seed, before.by_request.as_ref().map(|asked| &asked.rule));
        let rule = |settings: &FaultRule| {
            let known = before.rules.iter().chain(by_request).find(|rule| rule.is(settings, seed));
            known.cloned().unwrap_or_else(|| Arc::new(Rule::new(settings, seed, now_ns, None)))
        };
        let set = Arc::new(Set::new(held, &rule));
        self.set.store(Arc::clone(&set));
        self.is_on.store(set.is_on(), Ordering::Relaxed);
        self.breaks_connections.store(set.breaks_connections(), Ordering::Relaxed);
        self.harms_datagrams.store(set.harms_datagrams(), Ordering::Relaxed);
        for gone in before.rules.iter().filter(|rule| !set.rules.iter().any(|kept| Arc::ptr_eq(kept, rule))) {
            gone.end();
        }
        self.changed.notify_one();
    }
}

/// A connection, of which nothing has been read.
fn connection(listener: usize, client: IpAddr) -> route::Request<'static, Fields<'static>> {
    let fields = &Fields::NONE;
    route::Request { listener, host: b"", path: b"/", query: None, method: b"", client, fields }
}

impl Held {
    /// An operator's rule stands in the place of one of the file that has its name, until it is removed with it.
    fn shadow(&mut self) {
        for rule in
            self.file.rules.extract_if(.., |rule| self.added.iter().any(|added| added.name == rule.name))
        {
            message::warn(&format!(
                "fault {:?} of the file is not injected: an added fault has the same name",
                rule.name
            ));
        }
    }

    /// Whether a rule has this name, in force or not.
    fn has(&self, name: &str) -> bool {
        self.file.rules.iter().any(|rule| rule.name == name)
            || self.added.iter().any(|added| added.name == name)
    }
}

impl Added {
    fn new(rule: FaultRule, config: &Config) -> Self {
        Self { name: rule.name.clone(), text: config::written_rule(&rule, config), settings: Some(rule) }
    }

    /// Takes it as it is meant with this file. One that names what that has not waits for a file that has.
    fn read(&mut self, config: &Config) {
        let settings = rule_of(&self.text, config);
        if let Err(mistake) = &settings {
            message::warn(&format!("fault {:?} is inactive: {mistake}", self.name));
        }
        self.settings = settings.ok();
    }
}

/// What a text of one rule means with this file.
fn rule_of(text: &str, config: &Config) -> Result<FaultRule, String> {
    match config::faults(text, "its text", config) {
        Ok(rules) => rules.into_iter().next().ok_or_else(|| "there is none".to_owned()),
        Err(mistakes) => Err(mistakes.first().map(ToString::to_string).unwrap_or_default()),
    }
}

impl Set {
    /// What is held, each by a rule.
    fn new(held: &Held, rule: &dyn Fn(&FaultRule) -> Arc<Rule>) -> Self {
        let by_request = held.file.header.as_ref().map(|header| ByRequest {
            header: header.clone(),
            clients: held.file.header_clients.clone(),
            rule: rule(&by_request()),
        });
        let added = held.added.iter().filter_map(|added| added.settings.as_ref());
        Self { by_request, rules: held.file.rules.iter().chain(added).map(rule).collect() }
    }

    fn is_on(&self) -> bool {
        self.rules.iter().any(|rule| !rule.settings.fault.is_of_connections()) || self.by_request.is_some()
    }

    fn breaks_connections(&self) -> bool {
        let is_of_them =
            |fault: &Fault| fault.is_of_connections() && !fault.is_of_listeners() && !fault.is_of_datagrams();
        self.rules.iter().any(|rule| is_of_them(&rule.settings.fault))
    }

    fn harms_datagrams(&self) -> bool {
        self.rules.iter().any(|rule| rule.settings.fault.is_of_datagrams())
    }

    fn refusals(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.rules.iter().filter(|rule| rule.settings.fault.is_of_listeners())
    }

    /// What a request asks for itself, if it may.
    fn asked_for(&self, client: IpAddr, fields: &Fields<'_>) -> Result<Option<Drawn>, Failure> {
        let Some(ByRequest { header, clients, rule }) = &self.by_request else { return Ok(None) };
        if !clients.iter().any(|network| network.contains(&client)) {
            return Ok(None);
        }
        let Some(value) = fields.value(header.as_bytes()) else { return Ok(None) };
        let text = std::str::from_utf8(value).map_err(|_| Failure::BadFault)?;
        let (occasion, fault) = config::injection(text).map_err(|_| Failure::BadFault)?;
        if fault.is_of_connections() {
            return Err(Failure::BadFault);
        }
        let number = rule.asked.fetch_add(1, Ordering::Relaxed);
        let happens = occasion.happens(rule.dice, number);
        Ok(happens.then(|| Drawn { rule: Arc::clone(rule), fault, number }))
    }
}

/// The rule of what requests ask for themselves, as far as there is one: they say what happens.
fn by_request() -> FaultRule {
    FaultRule {
        is_shown: true,
        ..FaultRule::of(BY_REQUEST.to_owned(), Fault::Reset, shape::Occasion::default())
    }
}

impl Rule {
    /// One that goes on from what it had come to.
    fn new(settings: &FaultRule, seed: u64, now_ns: u64, past: Option<&Past>) -> Self {
        let past = past.filter(|past| past.seed == seed);
        let first = settings.first.as_ref().map(|first| {
            let secret = past.and_then(|past| past.secret);
            let secret = secret.unwrap_or_else(|| [fastrand::u64(..), fastrand::u64(..)]);
            let counted = FirstRequests::new(first.count.get(), first.key.clone(), KEYS_MAX, secret);
            past.iter().flat_map(|past| &past.first).for_each(|count| counted.go_on(*count));
            counted
        });
        Self {
            dice: Dice::new(seed, &settings.name),
            table: RouteTable::compile(settings.rules.clone()),
            first,
            since_ns: now_ns,
            age_before: past.map_or(Duration::ZERO, |past| past.age),
            asked: AtomicU64::new(past.map_or(0, |past| past.asked)),
            injected: AtomicU64::new(past.map_or(0, |past| past.injected)),
            standing: watch::Sender::new(true),
            settings: settings.clone(),
        }
    }

    /// Whether it is the one that is meant, and draws alike.
    fn is(&self, settings: &FaultRule, seed: u64) -> bool {
        self.settings == *settings && self.dice.seed() == seed
    }

    fn draw(
        self: &Arc<Self>,
        request: &route::Request<'_, Fields<'_>>,
        route: &str,
        now_ns: u64,
    ) -> Option<Drawn> {
        let FaultRule { occasion, routes, fault, .. } = &self.settings;
        let matches = occasion.is_on(self.age(now_ns))
            && (routes.is_empty() || routes.iter().any(|name| name == route))
            && self.table.choose(request).is_some()
            && match request.client {
                IpAddr::V4(address) => occasion.is_for(self.dice, &address.octets()),
                IpAddr::V6(address) => occasion.is_for(self.dice, &address.octets()),
            };
        if !matches || !self.first.as_ref().is_none_or(|first| first.take(request)) {
            return None;
        }
        // The number is all that the draw depends on: the same requests in the same order fare alike.
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let happens = occasion.happens(self.dice, number);
        happens.then(|| Drawn { rule: Arc::clone(self), fault: fault.clone(), number })
    }

    fn age(&self, now_ns: u64) -> Duration {
        self.age_before + Duration::from_nanos(now_ns.saturating_sub(self.since_ns))
    }

    /// Watches whether the rule is in force.
    pub(crate) fn standing(&self) -> watch::Receiver<bool> {
        self.standing.subscribe()
    }

    /// Ends the rule, for affected connections as well.
    pub(crate) fn end(&self) {
        self.standing.send_if_modified(|stands| std::mem::replace(stands, false));
    }

    /// Whether the rule may apply now.
    pub fn is_on(&self, now_ns: u64) -> bool {
        self.settings.occasion.is_on(self.age(now_ns))
    }

    /// The time until the rule ends for good, if it does.
    pub fn expires_in(&self, now_ns: u64) -> Option<Duration> {
        Some(self.settings.occasion.expires?.saturating_sub(self.age(now_ns)))
    }

    /// Counts an injection.
    pub fn count(&self) {
        self.injected.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of requests that the rule decided about, and the number of injections.
    pub fn counts(&self) -> (u64, u64) {
        (self.asked.load(Ordering::Relaxed), self.injected.load(Ordering::Relaxed))
    }
}

impl Drawn {
    /// Counts the fault, which is about to be injected.
    pub(crate) fn count(&self) {
        self.rule.count();
    }

    /// The fault as the log shows it.
    pub(crate) fn told(&self) -> telemetry::Injected<'_> {
        telemetry::Injected {
            rule: &self.rule.settings.name,
            seed: self.rule.dice.seed(),
            number: self.number,
        }
    }

    /// The random numbers for the details of the fault.
    pub(crate) fn draws(&self) -> Draws {
        Draws::new(self.extent(), &[])
    }

    /// 64 random bits for the extent of the fault.
    pub(crate) fn extent(&self) -> u64 {
        self.rule.dice.extent(self.number)
    }

    /// Appends the header line that tells a client of the fault, if clients are told.
    pub(crate) fn push_line(&self, out: &mut Vec<u8>) {
        if !self.rule.settings.is_shown {
            return;
        }
        let name = self.rule.settings.name.bytes();
        out.extend_from_slice(b"Vanward-Fault: ");
        // What is no visible character, or would end the text, is left out.
        out.extend(name.filter(|byte| matches!(byte, b' '..=b'~') && *byte != b';'));
        out.extend_from_slice(
            format!("; seed={}; number={}\r\n", self.rule.dice.seed(), self.number).as_bytes(),
        );
    }
}
