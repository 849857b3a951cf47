//! Fault injection: the rules in force, and the choice of a fault for a request or connection.
//!
//! All workers share one set of rules, which is replaced as a whole: a change applies to the next request of every
//! connection. Without rules, each request and connection costs the check of one flag. `outgoing::faults` injects
//! faults into messages, `worker::broken_connections` into connections.

/// HTTP/3 connections that faults hold back.
pub(crate) mod quic;
/// Listeners that refuse connections.
pub mod listeners;

/// Fault rules and their progress, for the next process.
mod given;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use config::{Config, FaultRule, IpNet, Settings};
use route::{FieldLookup as _, FirstRequests, RouteTable};
use shape::{ConnectionFault, DatagramEffect, Dice, Directions, Draws, Fault};
use telemetry::message;
use tokio::sync::{Notify, watch};

use crate::failure::Failure;
use crate::shared::request_fields::RequestFields;
pub use given::FaultHandover;
use given::Past;

/// Number of keys whose first requests each rule counts.
const KEYS_MAX: usize = 16_384;
/// The name of the rule for faults that requests ask for.
const BY_REQUEST: &str = "asked for";

/// All fault rules, shared by the workers and the control thread.
pub struct Faults {
    is_on: AtomicBool,
    breaks_connections: AtomicBool,
    harms_datagrams: AtomicBool,
    set: ArcSwap<FaultSet>,
    held: Mutex<HeldFaults>,
    /// Notified when the rules change.
    changed: Notify,
}

struct FaultSet {
    by_request: Option<ByRequest>,
    rules: Vec<Arc<LiveFaultRule>>,
}

/// Which clients may ask for a fault, and with which header field.
struct ByRequest {
    header: String,
    clients: Vec<IpNet>,
    rule: Arc<LiveFaultRule>,
}

/// The rules by source, from which a change computes the set in force.
struct HeldFaults {
    /// As last read from the file.
    read: config::Faults,
    /// The file's rules that were not removed since.
    file: config::Faults,
    /// Rules that operators have added.
    added: Vec<Added>,
    /// The next process already has the rules, and would not see a change.
    is_lent: bool,
}

/// A rule that an operator has added.
struct Added {
    name: String,
    /// In the format of the file, which names listeners and routes.
    text: String,
    /// The rule resolved with the present file; `None` if the file lacks a listener or route that it names.
    settings: Option<FaultRule>,
}

/// A fault rule with its counts and timing.
pub struct LiveFaultRule {
    pub settings: FaultRule,
    dice: Dice,
    table: RouteTable,
    first: Option<FirstRequests>,
    /// When it came into force.
    since_ns: u64,
    /// For how long it was in force in previous processes.
    age_before: Duration,
    /// Requests that it was drawn for.
    asked: AtomicU64,
    /// Requests that it was injected into.
    injected: AtomicU64,
    /// Whether it is in force, for connections with the fault.
    standing: watch::Sender<bool>,
}

/// A fault that was drawn for a request or a connection.
#[derive(Clone)]
pub(crate) struct DrawnFault {
    pub(crate) rule: Arc<LiveFaultRule>,
    pub(crate) fault: Fault,
    /// The request's number among those that the rule was drawn for.
    pub(crate) number: u64,
}

/// Why a fault is not added or removed.
#[derive(Debug, thiserror::Error)]
pub enum FaultRefusal {
    #[error("there is a fault {0:?} already: give this one another name, or remove that one")]
    IsThere(String),
    #[error("no fault is named {0:?}")]
    NoFault(String),
    #[error("more than {RULES_MAX} faults: remove some")]
    TooMany,
    /// A successor already has the faults.
    #[error("another process is taking over: try again in a few seconds")]
    Lent,
}

const RULES_MAX: usize = 1024;

impl Faults {
    /// Creates the rules of a configuration, with those that the previous process handed over.
    pub fn new(config: &Config, parts: Vec<FaultHandover>) -> Arc<Self> {
        let (held, pasts) = given::taken(config, parts);
        let past = |settings: &FaultRule| pasts.iter().find(|past| past.is_of(settings));
        let rule =
            |settings: &FaultRule| Arc::new(LiveFaultRule::new(settings, held.file.seed, 0, past(settings)));
        let set = FaultSet::new(&held, &rule);
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

    #[inline]
    pub(crate) fn breaks_connections(&self) -> bool {
        self.breaks_connections.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn harms_datagrams(&self) -> bool {
        self.harms_datagrams.load(Ordering::Relaxed)
    }

    /// Whether any rule may apply to requests. Checked once per request.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        // Relaxed: a request that overtakes a change counts as earlier than it.
        self.is_on.load(Ordering::Relaxed)
    }

    /// Replaces the file's rules. If those are unchanged, nothing changes, and removed rules stay removed.
    pub fn reread(&self, config: &Config, now_ns: u64) {
        let mut held = self.held();
        if held.read != config.faults {
            held.read.clone_from(&config.faults);
            held.file.clone_from(&config.faults);
            held.shadow();
        }
        // Read again even if the file's rules stay: names may lead to other listeners and routes.
        held.added.iter_mut().for_each(|added| added.read(config));
        self.put(&held, now_ns);
    }

    /// Adds fault rules.
    ///
    /// # Errors
    /// Returns why nothing has changed.
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

    /// Returns the named rules that affect TCP connections only, although they apply to a listener with HTTP/3.
    pub fn of_tcp_alone(&self, names: &[String], config: &Config) -> Vec<String> {
        let rules = self.rules();
        let asked = rules.iter().map(|rule| &rule.settings).filter(|settings| names.contains(&settings.name));
        asked.filter(|settings| settings.spares_http3(config)).map(|settings| settings.name.clone()).collect()
    }

    /// Returns the named rules that can never apply, each with an earlier rule that always does.
    pub fn hidden(&self, names: &[String]) -> Vec<[String; 2]> {
        let rules = self.rules();
        let hiding = |(place, later): (usize, &Arc<LiveFaultRule>)| {
            let earlier = rules[..place].iter().find(|earlier| earlier.settings.hides(&later.settings))?;
            Some([later.settings.name.clone(), earlier.settings.name.clone()])
        };
        let asked = rules.iter().enumerate().filter(|(_, rule)| names.contains(&rule.settings.name));
        asked.filter_map(hiding).collect()
    }

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

    /// The rules in force, in order.
    pub fn rules(&self) -> Vec<Arc<LiveFaultRule>> {
        self.set.load().rules.clone()
    }

    /// Returns the configuration with the fault rules in force.
    pub fn over(&self, config: &Config) -> Settings {
        let mut settings = Settings::clone(config);
        settings.faults.rules = self.rules().iter().map(|rule| rule.settings.clone()).collect();
        settings
    }

    /// Draws a fault for a request or its response. `route` is empty if no route takes the request.
    #[inline(never)]
    pub(crate) fn draw(
        &self,
        seen: &route::RequestParts<'_, RequestFields<'_>>,
        route: &str,
        now_ns: u64,
    ) -> Result<Option<DrawnFault>, Failure> {
        let set = self.set.load();
        if let Some(drawn) = set.asked_for(seen.client, seen.fields)? {
            return Ok(Some(drawn));
        }
        // Faults of connections are drawn when a connection begins.
        let mut rules = set.rules.iter().filter(|rule| !rule.settings.fault.is_of_connections());
        Ok(rules.find_map(|rule| rule.draw(seen, route, now_ns)))
    }

    /// Draws a fault for a new TCP connection of a client.
    pub(crate) fn draw_connection(
        &self,
        listener: Option<usize>,
        client: IpAddr,
        may_happen: impl Fn(&ConnectionFault) -> bool,
        now_ns: u64,
    ) -> Option<DrawnFault> {
        let seen = connection(listener.unwrap_or(usize::MAX), client);
        let may_happen = |rule: &&Arc<LiveFaultRule>| match &rule.settings.fault {
            // Faults of listeners and datagrams are drawn elsewhere.
            Fault::Connection(ConnectionFault::Refuse | ConnectionFault::Datagrams { .. }) => false,
            Fault::Connection(fault) => may_happen(fault),
            _ => false,
        };
        self.set.load().rules.iter().filter(may_happen).find_map(|rule| rule.draw(&seen, "", now_ns))
    }

    /// Draws a fault for a datagram from a client (`is_up`) or to it: the first rule that applies.
    pub(crate) fn draw_datagram(
        &self,
        listener: Option<usize>,
        client: IpAddr,
        is_up: bool,
        now_ns: u64,
    ) -> Option<(DrawnFault, DatagramEffect)> {
        let seen = connection(listener.unwrap_or(usize::MAX), client);
        let other_way = if is_up { Directions::Down } else { Directions::Up };
        self.set.load().rules.iter().find_map(|rule| match rule.settings.fault {
            Fault::Connection(ConnectionFault::Datagrams { effect, ways }) if ways != other_way => {
                Some((rule.draw(&seen, "", now_ns)?, effect))
            }
            _ => None,
        })
    }

    /// Returns the rule because of which a listener refuses connections now.
    pub fn refuses(&self, listener: usize, now_ns: u64) -> Option<Arc<LiveFaultRule>> {
        // The rule applies to all clients of the listener.
        let seen = connection(listener, IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let refuses = |rule: &&Arc<LiveFaultRule>| rule.is_on(now_ns) && rule.table.choose(&seen).is_some();
        let set = self.set.load();
        set.refusals().find(refuses).cloned()
    }

    /// The time until the set of refusing listeners may change, unless the rules change.
    pub fn refusals_change_in(&self, now_ns: u64) -> Option<Duration> {
        let set = self.set.load();
        set.refusals().filter_map(|rule| rule.settings.occasion.changes_in(rule.age(now_ns))).min()
    }

    /// Permits changes again, after a handover of the rules without a successor.
    pub fn give_back(&self) {
        self.held().is_lent = false;
    }

    fn held_to_change(&self) -> Result<MutexGuard<'_, HeldFaults>, FaultRefusal> {
        let held = self.held();
        if held.is_lent { Err(FaultRefusal::Lent) } else { Ok(held) }
    }

    fn held(&self) -> MutexGuard<'_, HeldFaults> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the rules in force. Existing rules keep their counts and timing.
    fn put(&self, held: &HeldFaults, now_ns: u64) {
        let before = self.set.load_full();
        let (seed, by_request) = (held.file.seed, before.by_request.as_ref().map(|asked| &asked.rule));
        let rule = |settings: &FaultRule| {
            let known = before.rules.iter().chain(by_request).find(|rule| rule.is(settings, seed));
            known.cloned().unwrap_or_else(|| Arc::new(LiveFaultRule::new(settings, seed, now_ns, None)))
        };
        let set = Arc::new(FaultSet::new(held, &rule));
        // The set comes before the flags, so that a request that sees a flag finds its rules.
        self.set.store(Arc::clone(&set));
        self.is_on.store(set.is_on(), Ordering::Relaxed);
        self.breaks_connections.store(set.breaks_connections(), Ordering::Relaxed);
        self.harms_datagrams.store(set.harms_datagrams(), Ordering::Relaxed);
        // A rule that is gone also lets go of the connections that it holds up.
        for gone in before.rules.iter().filter(|rule| !set.rules.iter().any(|kept| Arc::ptr_eq(kept, rule))) {
            gone.end();
        }
        self.changed.notify_one();
    }
}

/// Describes a new connection to the table of a rule.
fn connection(listener: usize, client: IpAddr) -> route::RequestParts<'static, RequestFields<'static>> {
    let fields = &RequestFields::NONE;
    route::RequestParts {
        listener,
        host: b"",
        path: b"/",
        query: None,
        method: b"",
        client,
        fields,
        conditions: &route::NoConditions,
    }
}

impl HeldFaults {
    /// Replaces the file's rules by operators' rules of the same name. Removing such a rule removes both.
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
        // Kept as text with names, because a reload may change the indices of listeners and routes.
        Self { name: rule.name.clone(), text: config::written_rule(&rule, config), settings: Some(rule) }
    }

    /// Resolves the rule with this file. It stays inactive while the file lacks a listener or route that it names.
    fn read(&mut self, config: &Config) {
        let settings = rule_of(&self.text, config);
        if let Err(mistake) = &settings {
            message::warn(&format!("fault {:?} is inactive: {mistake}", self.name));
        }
        self.settings = settings.ok();
    }
}

/// Parses the text of one rule, with the names of this file.
fn rule_of(text: &str, config: &Config) -> Result<FaultRule, String> {
    match config::faults(text, "its text", config) {
        Ok(rules) => rules.into_iter().next().ok_or_else(|| "there is none".to_owned()),
        Err(mistakes) => Err(mistakes.first().map(ToString::to_string).unwrap_or_default()),
    }
}

impl FaultSet {
    /// Builds the set of rules; `rule` creates each.
    fn new(held: &HeldFaults, rule: &dyn Fn(&FaultRule) -> Arc<LiveFaultRule>) -> Self {
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

    fn refusals(&self) -> impl Iterator<Item = &Arc<LiveFaultRule>> {
        self.rules.iter().filter(|rule| rule.settings.fault.is_of_listeners())
    }

    /// Returns the fault that the request asks for, if its client may.
    fn asked_for(&self, client: IpAddr, fields: &RequestFields<'_>) -> Result<Option<DrawnFault>, Failure> {
        let Some(ByRequest { header, clients, rule }) = &self.by_request else { return Ok(None) };
        if !clients.iter().any(|network| network.contains(&client)) {
            return Ok(None);
        }
        let Some(value) = fields.value(header.as_bytes()) else { return Ok(None) };
        let text = std::str::from_utf8(value).map_err(|_| Failure::BadFault)?;
        let (occasion, fault) = config::injection(text).map_err(|_| Failure::BadFault)?;
        // A fault of a connection is drawn when the connection begins, before there is a request.
        if fault.is_of_connections() {
            return Err(Failure::BadFault);
        }
        let number = rule.asked.fetch_add(1, Ordering::Relaxed);
        let happens = occasion.happens(rule.dice, number);
        Ok(happens.then(|| DrawnFault { rule: Arc::clone(rule), fault, number }))
    }
}

/// The rule that stands for faults that requests ask for: its fault is a placeholder.
fn by_request() -> FaultRule {
    FaultRule {
        is_shown: true,
        ..FaultRule::new(BY_REQUEST.to_owned(), Fault::Reset, shape::Occasion::default())
    }
}

impl LiveFaultRule {
    /// Creates a rule, with the progress of the previous process, if any.
    fn new(settings: &FaultRule, seed: u64, now_ns: u64, past: Option<&Past>) -> Self {
        // Under another seed the draws differ, so the old progress says nothing.
        let past = past.filter(|past| past.seed == seed);
        let first = settings.first.as_ref().map(|first| {
            // The counts that were handed over are found by hashes under the old secret.
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

    /// Whether the rule has these settings and the same draws.
    fn is(&self, settings: &FaultRule, seed: u64) -> bool {
        self.settings == *settings && self.dice.seed() == seed
    }

    fn draw(
        self: &Arc<Self>,
        request: &route::RequestParts<'_, RequestFields<'_>>,
        route: &str,
        now_ns: u64,
    ) -> Option<DrawnFault> {
        let FaultRule { occasion, routes, fault, .. } = &self.settings;
        let matches = occasion.is_on(self.age(now_ns))
            && (routes.is_empty() || routes.iter().any(|name| name == route))
            && self.table.choose(request).is_some()
            && match request.client {
                IpAddr::V4(address) => occasion.is_for(self.dice, &address.octets()),
                IpAddr::V6(address) => occasion.is_for(self.dice, &address.octets()),
            };
        // Counted last: a request that the rule does not match uses up none of the first ones.
        if !matches || !self.first.as_ref().is_none_or(|first| first.take(request)) {
            return None;
        }
        // The draw depends on the number only, so the same requests in the same order get the same faults.
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let happens = occasion.happens(self.dice, number);
        happens.then(|| DrawnFault { rule: Arc::clone(self), fault: fault.clone(), number })
    }

    fn age(&self, now_ns: u64) -> Duration {
        self.age_before + Duration::from_nanos(now_ns.saturating_sub(self.since_ns))
    }

    pub(crate) fn stands(&self) -> bool {
        *self.standing.borrow()
    }

    /// Watches whether the rule is in force.
    pub(crate) fn standing(&self) -> watch::Receiver<bool> {
        self.standing.subscribe()
    }

    /// Ends the rule, for affected connections, too.
    pub(crate) fn end(&self) {
        self.standing.send_if_modified(|stands| std::mem::replace(stands, false));
    }

    /// Whether the rule may apply now.
    pub fn is_on(&self, now_ns: u64) -> bool {
        self.settings.occasion.is_on(self.age(now_ns))
    }

    /// The time until the rule ends for good, if it expires.
    pub fn expires_in(&self, now_ns: u64) -> Option<Duration> {
        Some(self.settings.occasion.expires?.saturating_sub(self.age(now_ns)))
    }

    pub fn count(&self) {
        self.injected.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many requests the rule was drawn for, and how many injections there were.
    pub fn counts(&self) -> (u64, u64) {
        (self.asked.load(Ordering::Relaxed), self.injected.load(Ordering::Relaxed))
    }
}

impl DrawnFault {
    /// Counts the fault, which is about to be injected.
    pub(crate) fn count(&self) {
        self.rule.count();
    }

    /// Name, seed and number of the fault, as logged.
    pub(crate) fn told(&self) -> telemetry::Injected<'_> {
        telemetry::Injected {
            rule: &self.rule.settings.name,
            seed: self.rule.dice.seed(),
            number: self.number,
        }
    }

    /// The random numbers for details of the fault.
    pub(crate) fn draws(&self) -> Draws {
        Draws::new(self.extent(), &[])
    }

    /// 64 random bits for the extent of the fault.
    pub(crate) fn extent(&self) -> u64 {
        self.rule.dice.extent(self.number)
    }

    /// Appends the field that reports the fault to a client, if configured.
    pub(crate) fn push_line(&self, out: &mut Vec<u8>) {
        if !self.rule.settings.is_shown {
            return;
        }
        let name = self.rule.settings.name.bytes();
        out.extend_from_slice(b"Vanward-Fault: ");
        // Only visible characters, and none that would end the value.
        out.extend(name.filter(|byte| matches!(byte, b' '..=b'~') && *byte != b';'));
        out.extend_from_slice(
            format!("; seed={}; number={}\r\n", self.rule.dice.seed(), self.number).as_bytes(),
        );
    }
}
