//! Automatic certificates (ACME, RFC 8555): a task for each name, on the control thread, which asks for a certificate, puts
//! it into the folder and in force, and renews it.
//!
//! A failure changes nothing: what is in use stays in use.

/// When a certificate is asked for.
mod schedule;
/// The folder of certificates and accounts.
mod folder;
/// Accounts with authorities.
mod account;
/// One order of a certificate.
mod order;
/// Proofs of control over a name.
mod proof;
/// DNS records by a command.
mod dns_command;
/// DNS records by dynamic updates.
mod dns_update;
/// Messages of dynamic DNS updates.
mod dns_message;
/// Signatures of DNS messages.
mod dns_tsig;
/// HTTPS requests to authorities.
mod http;
/// Why a certificate was not issued.
mod failure;
/// What each name waits for, for operators.
mod progress;
/// Certificates in files.
mod known;
/// Certificates of instances that share through Redis.
mod instances;

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use config::{Acme, Authority, Certificates, ChallengePorts};
use instant_acme::{RevocationReason, RevocationRequest};
use proxy::context::plan::Plan;
use telemetry::message;
use tls::Challenges;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use crate::change::Control;
use crate::outbound::Outbound;
use account::{Accounts, Session};
use failure::{Failure, Kind};
use folder::{Folder, Issued, Origin};
use instances::Leave;
use known::Known;
use order::{Pair, Wanted};
use schedule::{Attempt, Failures, Spread, Window};

use progress::Renewal;
pub(crate) use progress::{Progress, State, Suggested};

/// Orders under way at the same time.
const ORDERS_MAX: usize = 4;
/// A name is looked at again after this, whatever it waits for: the clock may have been set, and another process may
/// have renewed.
const LOOK: Duration = Duration::from_secs(60);
/// Between looks at a name that another process asks for.
const LOOK_AT_OTHERS: Duration = Duration::from_secs(5);
/// After this an authority that suggested nothing is asked again, in seconds.
const UNKNOWN_WINDOW: i64 = 3600;
/// Orders that are begun anew at once, since their nonces were refused again and again.
const AGAIN_MAX: usize = 8;

/// The current time, in seconds since 1970.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// Asks for the certificates of the plan in force, until the proxy ends.
pub(crate) async fn run(control: Weak<Control>, outbound: Rc<Outbound>) {
    let Some(mut changes) = control.upgrade().map(|control| control.changes.subscribe()) else { return };
    let mut issuer: Option<Rc<Issuer>> = None;
    let mut tasks: HashMap<String, Task> = HashMap::new();
    loop {
        changes.mark_unchanged();
        let Some(plan) = control.upgrade().map(|control| control.plan()) else { return };
        if issuer.as_ref().is_none_or(|issuer| issuer.settings != plan.config.acme) {
            tasks.clear();
            let outbound = Rc::clone(&outbound);
            issuer = Some(Rc::new(Issuer::new(Weak::clone(&control), outbound, &plan)));
        }
        let Some(issuer) = &issuer else { return };
        let mut before = std::mem::take(&mut tasks);
        for name in names(&plan) {
            let task = before.remove(&name).unwrap_or_else(|| issuer.begin(&name));
            tasks.insert(name, task);
        }
        if let Some(control) = control.upgrade() {
            control.acme.keep(|name| tasks.contains_key(name));
        }
        drop((plan, before));
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// The names of automatic certificates, without duplicates.
fn names(plan: &Plan) -> BTreeSet<String> {
    let tls = plan.config.listeners.iter().filter_map(|listener| listener.tls.as_ref());
    let names = tls.filter_map(|tls| match &tls.certificates {
        Certificates::Automatic { names, .. } => Some(names),
        _ => None,
    });
    names.flatten().cloned().collect()
}

/// Whether a plan has automatic certificates.
pub(crate) fn has_names(plan: &Plan) -> bool {
    let mut tls = plan.config.listeners.iter().filter_map(|listener| listener.tls.as_ref());
    tls.any(|tls| matches!(&tls.certificates, Certificates::Automatic { names, .. } if !names.is_empty()))
}

struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What the tasks of all names share.
struct Issuer {
    control: Weak<Control>,
    settings: Acme,
    folder: Folder,
    accounts: Accounts,
    challenges: Arc<Challenges>,
    orders: Semaphore,
}

/// A name's task.
struct Follower {
    issuer: Rc<Issuer>,
    name: String,
    failures: Failures,
    /// What the authority has suggested for the certificate with this serial number, and until when that is good.
    suggestion: Option<Suggestion>,
    /// What an operator wants.
    wanted: Arc<Renewal>,
    /// What was said last of sharing.
    said: RefCell<String>,
}

struct Suggestion {
    serial: String,
    suggested: Option<Suggested>,
    good_until: i64,
}

impl Issuer {
    fn new(control: Weak<Control>, outbound: Rc<Outbound>, plan: &Plan) -> Self {
        Self {
            control,
            settings: plan.config.acme.clone(),
            folder: Folder::new(&plan.config.acme.folder),
            accounts: Accounts::new(outbound),
            challenges: Arc::clone(&plan.challenges),
            orders: Semaphore::new(ORDERS_MAX),
        }
    }

    fn begin(self: &Rc<Self>, name: &str) -> Task {
        let wanted = self.control.upgrade().map(|control| control.acme.wanted(name)).unwrap_or_default();
        let follower = Follower {
            issuer: Rc::clone(self),
            name: name.to_owned(),
            failures: Failures::default(),
            suggestion: None,
            wanted,
            said: RefCell::default(),
        };
        Task(tokio::task::spawn_local(follower.follow()).abort_handle())
    }

    fn authorities(&self) -> Vec<&Authority> {
        [&self.settings.authority].into_iter().chain(&self.settings.fallback).collect()
    }

    /// The authority that has issued a certificate; `None` if that is not known, or is none of those that are asked.
    fn authority_of(&self, name: &str) -> Option<&Authority> {
        let Origin { directory } = self.folder.origin(name)?;
        self.authorities().into_iter().find(|authority| authority.directory.to_string() == directory)
    }
}

impl Follower {
    async fn follow(mut self) {
        let mut is_first = true;
        let mut is_ordered_by_operator = false;
        loop {
            self.exchange().await;
            let Some(control) = self.issuer.control.upgrade().filter(|control| !control.is_leaving()) else {
                return;
            };
            let known = self.known();
            if is_first && known.is_none() {
                message::info(&format!(
                    "certificate of {}: there is none yet, a self-signed one stands in; {} is asked for one",
                    self.name,
                    self.issuer.settings.authority.directory.server.authority()
                ));
            }
            is_first = false;
            let (at, attempt) = self.next(known.as_ref(), is_ordered_by_operator).await;
            let suggested = self.suggested(known.as_ref());
            control.acme.put(&self.name, |state| (state.next_at, state.suggested) = (at, suggested));
            drop(control);
            let wait = at - now();
            if wait > 0 {
                let wait = LOOK.min(Duration::from_secs(wait.unsigned_abs()));
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = self.wanted.found() => {}
                    () = self.wanted.ordered() => {
                        // Whatever has failed before.
                        self.failures = Failures::default();
                        is_ordered_by_operator = true;
                    }
                }
                continue;
            }
            let outcome = self.attempt(attempt, known.clone(), is_ordered_by_operator).await;
            if let Some(control) = self.issuer.control.upgrade() {
                let is_elsewhere = matches!(outcome, Outcome::Busy);
                control.acme.put(&self.name, |state| state.is_elsewhere = is_elsewhere);
            }
            match outcome {
                Outcome::Issued => {
                    self.failures = Failures::default();
                    is_ordered_by_operator = false;
                    if let Some(known) = known.filter(|_| self.wanted.takes_revocation()) {
                        self.revoke(&known).await;
                    }
                }
                Outcome::Busy | Outcome::Waits => {
                    let _ = tokio::time::timeout(LOOK_AT_OTHERS, self.wanted.found()).await;
                }
                Outcome::Failed(failure) => self.failed(attempt, &failure),
            }
        }
    }

    /// The certificate in the folder, if it can be used at all.
    fn known(&self) -> Option<Known> {
        Known::read(&self.issuer.folder.files(&self.name), &self.name)
    }

    /// When to ask for a certificate, and how.
    async fn next(&mut self, known: Option<&Known>, is_ordered: bool) -> (i64, Attempt) {
        let authorities = self.issuer.authorities().len();
        let spread = Spread::of(&self.name, known.map_or("", |known| &known.serial));
        let due = match known {
            None => now(),
            // What another authority has issued is replaced, such as the one for tests before.
            Some(_) if self.is_of_another_authority() => now(),
            Some(known) => schedule::renewal_at(known.validity, self.window(known).await, spread),
        };
        if due > now() && !is_ordered {
            // Another process may have got it.
            self.failures = Failures::default();
            let (_, attempt) = self.failures.next(authorities, spread, now());
            return (due, attempt);
        }
        self.failures.next(authorities, spread, now())
    }

    fn is_of_another_authority(&self) -> bool {
        self.issuer.folder.origin(&self.name).is_some() && self.issuer.authority_of(&self.name).is_none()
    }

    /// When the authority of a certificate suggests to renew it (RFC 9773).
    async fn window(&mut self, known: &Known) -> Option<Window> {
        let is_good = self.suggestion.as_ref().is_some_and(|suggestion| {
            suggestion.serial == known.serial && schedule::is_window_good(suggestion.good_until, now())
        });
        if !is_good {
            let asked = self.ask_for_window(known).await;
            let (suggested, good_for) =
                asked.map_or((None, UNKNOWN_WINDOW), |(suggested, good_for)| (Some(suggested), good_for));
            // RFC 9773 §4.3.3: if it cannot be had, what was suggested before still holds.
            let suggested = suggested.or(self.suggested(Some(known)));
            let good_until = now() + good_for;
            self.suggestion = Some(Suggestion { serial: known.serial.clone(), suggested, good_until });
        }
        self.suggested(Some(known)).map(|suggested| suggested.window)
    }

    /// What the authority has suggested for a certificate.
    fn suggested(&self, known: Option<&Known>) -> Option<Suggested> {
        let suggestion = self
            .suggestion
            .as_ref()
            .filter(|suggestion| Some(&suggestion.serial) == known.map(|known| &known.serial));
        suggestion?.suggested.clone()
    }

    async fn ask_for_window(&self, known: &Known) -> Option<(Suggested, i64)> {
        let authority = self.issuer.authority_of(&self.name)?;
        let id = known.id.as_ref()?;
        let _permit = self.issuer.orders.acquire().await.ok()?;
        let session = self.session(authority).await.ok()?;
        let (info, good_for) = session.account.renewal_info(id).await.ok()?;
        let (start, end) = (info.suggested_window.start, info.suggested_window.end);
        let window = Window { start: start.unix_timestamp(), end: end.unix_timestamp() };
        let good_for = i64::try_from(good_for.as_secs()).unwrap_or(i64::MAX);
        let why = info.explanation_url.map(|url| failure::one_line(&url));
        // RFC 9773 §4.2: a window whose end is not behind its start is none.
        (window.end > window.start).then(|| (Suggested { window, why }, schedule::window_good_for(good_for)))
    }

    async fn session(&self, authority: &Authority) -> Result<Rc<Session>, Failure> {
        let Issuer { accounts, settings, folder, control, .. } = &*self.issuer;
        let engine = control.upgrade().and_then(|control| control.shared.engine());
        accounts.session(authority, settings, (folder, engine.as_deref())).await
    }

    async fn attempt(&self, attempt: Attempt, before: Option<Known>, is_ordered: bool) -> Outcome {
        let issuer = &self.issuer;
        // It is never closed.
        let Ok(_permit) = issuer.orders.acquire().await else { return Outcome::Busy };
        // Held until the certificate is shared.
        let _lease = match self.leave(before.as_ref(), is_ordered).await {
            Leave::Alone => None,
            Leave::Held(lease) => Some(lease),
            Leave::Taken => return Outcome::Busy,
            Leave::Waits => return Outcome::Waits,
        };
        // Another instance may have been first.
        self.exchange().await;
        let lock = match issuer.folder.lock(&self.name) {
            Ok(Some(lock)) => lock,
            Ok(None) => return Outcome::Busy,
            Err(error) => return Outcome::Failed(Failure::folder(&issuer.settings.folder, &error)),
        };
        // Another process may have been first.
        if self.known().map(|known| known.serial) != before.as_ref().map(|known| known.serial.clone()) {
            return Outcome::Busy;
        }
        let authorities = issuer.authorities();
        let authority = authorities[attempt.authority.min(authorities.len() - 1)];
        let ordered = self.order(authority, attempt, before).await;
        let outcome = match ordered.and_then(|pair| self.put(authority, &pair)) {
            Ok(()) => Outcome::Issued,
            Err(failure) => Outcome::Failed(failure),
        };
        drop(lock);
        if matches!(outcome, Outcome::Issued) {
            self.put_in_force(authority);
            self.exchange().await;
        }
        outcome
    }

    async fn order(
        &self,
        authority: &Authority,
        attempt: Attempt,
        before: Option<Known>,
    ) -> Result<Pair, Failure> {
        let issuer = &self.issuer;
        // RFC 9773 §5: only to the authority that has issued it.
        let is_same = self.issuer.authority_of(&self.name).is_some_and(|of| of == authority);
        let mut replaces = before.and_then(|known| known.id).filter(|_| is_same);
        let mut again = 0;
        let plan = issuer.control.upgrade().map(|control| control.plan());
        let ports = plan.map(|plan| ChallengePorts::of(&plan.config.listeners)).unwrap_or_default();
        loop {
            let session = self.session(authority).await?;
            let wanted = Wanted {
                name: &self.name,
                authority,
                settings: &issuer.settings,
                ports: &ports,
                challenge: attempt.challenge,
                replaces: replaces.clone(),
                challenges: &issuer.challenges,
                control: &issuer.control,
            };
            let failure = match order::order(&session, &wanted).await {
                Ok(pair) => return Ok(pair),
                Err(failure) => failure,
            };
            again += 1;
            match failure.kind {
                _ if again > AGAIN_MAX => return Err(failure),
                Kind::Again => {}
                Kind::NoAccount => {
                    let engine = issuer.control.upgrade().and_then(|control| control.shared.engine());
                    let kept = (&issuer.folder, engine.as_deref());
                    issuer.accounts.forget(&authority.directory, kept).await;
                }
                // The authority may know no suggestions any more, or have seen a replacement that was lost.
                Kind::NotReplaceable if replaces.is_some() => replaces = None,
                Kind::NotReplaceable | Kind::Refused | Kind::Later => return Err(failure),
            }
        }
    }

    /// Revokes a certificate that was replaced, because its key has leaked.
    async fn revoke(&self, old: &Known) {
        let revoked = match self.issuer.authority_of(&self.name) {
            None => Err("its authority is not in [acme]".to_owned()),
            Some(authority) => match self.session(authority).await {
                Err(failure) => Err(failure.what),
                Ok(session) => {
                    let (certificate, reason) = (&old.der, Some(RevocationReason::KeyCompromise));
                    let revoked = session.account.revoke(&RevocationRequest { certificate, reason }).await;
                    revoked.map_err(|error| Failure::of(&error).what)
                }
            },
        };
        match revoked {
            Ok(()) => message::info(&format!("certificate of {}: {} was revoked", self.name, old.serial)),
            Err(why) => {
                message::warn(&format!(
                    "certificate of {}: {} was not revoked: {why}",
                    self.name, old.serial
                ));
            }
        }
    }

    fn put(&self, authority: &Authority, pair: &Pair) -> Result<(), Failure> {
        let origin = Origin { directory: authority.directory.to_string() };
        let issued = Issued { chain: &pair.chain, key: &pair.key, origin };
        let check = |files: &config::KeyPair| {
            tls::check(files)
                .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
        };
        self.issuer.folder.put(&self.name, &issued, check).map_err(Failure::said)
    }

    /// Has listeners take the certificate that is in the folder.
    fn reload(&self) {
        let Some(control) = self.issuer.control.upgrade() else { return };
        for server in control.plan().listeners.iter().filter_map(|listener| listener.tls.as_ref()) {
            for problem in server.reload_automatic(&self.name).problems {
                message::warn(&problem.to_string());
            }
        }
    }

    fn put_in_force(&self, authority: &Authority) {
        self.reload();
        let Some(control) = self.issuer.control.upgrade() else { return };
        let until = self.known().map(|known| tls::written_time(known.validity.until)).unwrap_or_default();
        message::info(&format!(
            "certificate of {}: issued by {} and in force, valid until {until}",
            self.name,
            authority.directory.server.authority()
        ));
        control.acme.put(&self.name, |state| {
            state.failures = 0;
            state.last_failure = None;
            state.issued += 1;
        });
    }

    /// Notes a failure, and tells of it.
    fn failed(&mut self, attempt: Attempt, failure: &Failure) {
        self.failures.failed(attempt, now(), failure.retry_after);
        let known = self.known();
        let spread = Spread::of(&self.name, known.as_ref().map_or("", |known| &known.serial));
        let (at, _) = self.failures.next(self.issuer.authorities().len(), spread, now());
        let authorities = self.issuer.authorities();
        let asked = authorities[attempt.authority.min(authorities.len() - 1)];
        let consequence = match &known {
            Some(known) => {
                format!("the one in use is valid until {}", tls::written_time(known.validity.until))
            }
            None => "a self-signed one stands in".to_owned(),
        };
        let wait = config::written_duration(Duration::from_secs((at - now()).max(0).unsigned_abs()));
        message::warn(&format!(
            "certificate of {}: {} did not issue it: {}; {consequence}; next attempt in {wait}",
            self.name,
            asked.directory.server.authority(),
            failure.what
        ));
        if let Some(control) = self.issuer.control.upgrade() {
            control.acme.put(&self.name, |state| {
                state.failures = self.failures.count();
                state.last_failure = Some((now(), failure.what.clone()));
                state.failed += 1;
            });
        }
    }
}

/// The result of an attempt.
enum Outcome {
    Issued,
    /// Another process or instance asks for it, or has got it.
    Busy,
    /// Instances share through a Redis that is gone.
    Waits,
    Failed(Failure),
}
