//! Automatic certificates (ACME, RFC 8555). A task for each name on the control thread orders a certificate, stores
//! it in the folder, puts it in force, and renews it.
//!
//! After a failure the certificate in use stays.

/// Decides when to order a certificate.
mod schedule;
/// The folder of certificates and accounts.
mod folder;
/// Accounts with authorities.
mod account;
/// A single order of a certificate.
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
/// Reasons why a certificate was not issued.
mod failure;
/// State of each name, for operators.
mod progress;
/// Certificates in files.
mod known;
/// Certificates shared by instances through Redis.
mod instances;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use config::{Acme, Authority, Certificates, ChallengePorts, Config};
use instant_acme::{RevocationReason, RevocationRequest};
use proxy::context::plan::Plan;
use telemetry::message;
use tls::Challenges;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use crate::change::Control;
use crate::outbound::Outbound;
use account::{AccountSession, Accounts};
use failure::{AcmeFailure, AcmeFailureKind};
use folder::{CertificateFolder, CertificateOrigin, Issued};
use instances::Leave;
use known::UsableCertificate;
use order::{IssuedPair, OrderedNames};
use schedule::{Attempt, Failures, RenewalWindow, Spread};

use progress::EarlyRenewal;
pub(crate) use progress::{AcmeProgress, NameState, Suggested};

const ORDERS_MAX: usize = 4;
/// Maximum time between checks of a name: the clock may have been set, or another process may have renewed.
const LOOK: Duration = Duration::from_secs(60);
/// Interval of checks while another process orders.
const LOOK_AT_OTHERS: Duration = Duration::from_secs(5);
/// Seconds until an authority without a suggestion is asked again.
const UNKNOWN_WINDOW: i64 = 3600;
/// Orders or revocations repeated at once because their nonces were rejected.
const AGAIN_MAX: usize = 8;

/// The current time in seconds since 1970.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// Orders the certificates of the plan in force until the proxy ends.
pub(crate) async fn run(control: Weak<Control>, outbound: Rc<Outbound>) {
    let Some(mut changes) = control.upgrade().map(|control| control.changes.subscribe()) else { return };
    let mut issuer: Option<Rc<Issuer>> = None;
    let mut tasks: HashMap<String, AcmeTask> = HashMap::new();
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
        let wanted = certificates(&plan.config);
        if let Some(control) = control.upgrade() {
            control.acme.keep(|name| wanted.values().flatten().any(|known| known == name));
        }
        for (name, names) in wanted {
            let same = before.remove(&name).filter(|task| task.names == names);
            let task = same.unwrap_or_else(|| issuer.begin(names));
            tasks.insert(name, task);
        }
        drop((plan, before));
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// The distinct names of each automatic certificate, by its first name.
fn certificates(config: &Config) -> BTreeMap<String, Vec<String>> {
    let mut certificates = BTreeMap::new();
    for tls in config.listeners.iter().filter_map(|listener| listener.tls.as_ref()) {
        match &tls.certificates {
            Certificates::Automatic { names, is_one: true, .. } => {
                certificates.extend(names.first().map(|first| (first.clone(), names.clone())));
            }
            Certificates::Automatic { names, .. } => {
                certificates.extend(names.iter().map(|name| (name.clone(), vec![name.clone()])));
            }
            Certificates::Files(_) | Certificates::SelfSigned => {}
        }
    }
    certificates
}

#[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "instances share them through Redis"))]
pub(crate) fn has_names(plan: &Plan) -> bool {
    let mut tls = plan.config.listeners.iter().filter_map(|listener| listener.tls.as_ref());
    tls.any(|tls| matches!(&tls.certificates, Certificates::Automatic { names, .. } if !names.is_empty()))
}

struct AcmeTask {
    names: Vec<String>,
    handle: AbortHandle,
}

impl Drop for AcmeTask {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

/// State shared by the tasks of all names.
struct Issuer {
    control: Weak<Control>,
    settings: Acme,
    folder: CertificateFolder,
    accounts: Accounts,
    challenges: Arc<Challenges>,
    orders: Semaphore,
}

struct CertificateTask {
    issuer: Rc<Issuer>,
    name: String,
    names: Vec<String>,
    failures: Failures,
    /// The authority's suggestion for the certificate with this serial number, and until when it is valid.
    suggestion: Option<Suggestion>,
    /// Requests by an operator.
    wanted: Arc<EarlyRenewal>,
    /// The last message about sharing.
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
            folder: CertificateFolder::new(&plan.config.acme.folder),
            accounts: Accounts::new(outbound),
            challenges: Arc::clone(&plan.challenges),
            orders: Semaphore::new(ORDERS_MAX),
        }
    }

    fn begin(self: &Rc<Self>, names: Vec<String>) -> AcmeTask {
        let wanted = self.control.upgrade().map(|control| control.acme.wanted(&names)).unwrap_or_default();
        let follower = CertificateTask {
            issuer: Rc::clone(self),
            name: names.first().cloned().unwrap_or_default(),
            names: names.clone(),
            failures: Failures::default(),
            suggestion: None,
            wanted,
            said: RefCell::default(),
        };
        AcmeTask { names, handle: tokio::task::spawn_local(follower.follow()).abort_handle() }
    }

    fn authorities(&self) -> Vec<&Authority> {
        [&self.settings.authority].into_iter().chain(&self.settings.fallback).collect()
    }

    /// The authority that issued a certificate; `None` if unknown or not configured.
    fn authority_of(&self, name: &str) -> Option<&Authority> {
        let CertificateOrigin { directory } = self.folder.origin(name)?;
        self.authorities().into_iter().find(|authority| authority.directory.to_string() == directory)
    }
}

impl CertificateTask {
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
                    "certificate of {}: no usable one exists yet, so a self-signed one is in use; requesting one \
                     from {}",
                    self.name,
                    self.issuer.settings.authority.directory.server.authority()
                ));
            }
            is_first = false;
            let (at, attempt) = self.next(known.as_ref(), is_ordered_by_operator).await;
            let suggested = self.suggested(known.as_ref());
            self.put_state(&control, |state| (state.next_at, state.suggested) = (at, suggested.clone()));
            drop(control);
            let wait = at - now();
            if wait > 0 {
                let wait = LOOK.min(Duration::from_secs(wait.unsigned_abs()));
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = self.wanted.found() => {}
                    () = self.wanted.ordered() => {
                        // An operator's order ignores earlier failures.
                        self.failures = Failures::default();
                        is_ordered_by_operator = true;
                    }
                }
                continue;
            }
            let outcome = self.attempt(attempt, known.clone(), is_ordered_by_operator).await;
            if let Some(control) = self.issuer.control.upgrade() {
                let is_elsewhere = matches!(outcome, AttemptOutcome::Busy);
                self.put_state(&control, |state| state.is_elsewhere = is_elsewhere);
            }
            match outcome {
                AttemptOutcome::Issued => {
                    self.failures = Failures::default();
                    is_ordered_by_operator = false;
                    if let Some(known) = known.filter(|_| self.wanted.takes_revocation()) {
                        self.revoke(&known).await;
                    }
                }
                AttemptOutcome::Busy | AttemptOutcome::Waits => {
                    let _ = tokio::time::timeout(LOOK_AT_OTHERS, self.wanted.found()).await;
                }
                AttemptOutcome::Failed(failure) => self.failed(attempt, &failure),
            }
        }
    }

    /// The usable certificate in the folder, if all names have it.
    fn known(&self) -> Option<UsableCertificate> {
        let mut all = self
            .names
            .iter()
            .map(|name| UsableCertificate::read(&self.issuer.folder.files(name), &self.names));
        let first = all.next()??;
        all.all(|known| known.is_some_and(|known| known.serial == first.serial)).then_some(first)
    }

    async fn next(&mut self, known: Option<&UsableCertificate>, is_ordered: bool) -> (i64, Attempt) {
        let authorities = self.issuer.authorities().len();
        let spread = Spread::from_name(&self.name, known.map_or("", |known| &known.serial));
        let due = match known {
            None => now(),
            // A certificate of another authority, such as a former test one, is replaced.
            Some(_) if self.is_of_another_authority() => now(),
            Some(known) => schedule::renewal_at(known.validity, self.window(known).await, spread),
        };
        if due > now() && !is_ordered {
            // Another process may have renewed.
            self.failures = Failures::default();
            let (_, attempt) = self.failures.next(authorities, spread, now());
            return (due, attempt);
        }
        self.failures.next(authorities, spread, now())
    }

    fn is_of_another_authority(&self) -> bool {
        self.issuer.folder.origin(&self.name).is_some() && self.issuer.authority_of(&self.name).is_none()
    }

    /// Returns the authority's renewal window for a certificate (RFC 9773).
    async fn window(&mut self, known: &UsableCertificate) -> Option<RenewalWindow> {
        let is_good = self.suggestion.as_ref().is_some_and(|suggestion| {
            suggestion.serial == known.serial && schedule::is_window_good(suggestion.good_until, now())
        });
        if !is_good {
            let asked = self.ask_for_window(known).await;
            let (suggested, good_for) =
                asked.map_or((None, UNKNOWN_WINDOW), |(suggested, good_for)| (Some(suggested), good_for));
            // RFC 9773 §4.3.3: if the request fails, the last suggestion stays valid.
            let suggested = suggested.or(self.suggested(Some(known)));
            let good_until = now() + good_for;
            self.suggestion = Some(Suggestion { serial: known.serial.clone(), suggested, good_until });
        }
        self.suggested(Some(known)).map(|suggested| suggested.window)
    }

    fn suggested(&self, known: Option<&UsableCertificate>) -> Option<Suggested> {
        let suggestion = self
            .suggestion
            .as_ref()
            .filter(|suggestion| Some(&suggestion.serial) == known.map(|known| &known.serial));
        suggestion?.suggested.clone()
    }

    async fn ask_for_window(&self, known: &UsableCertificate) -> Option<(Suggested, i64)> {
        let authority = self.issuer.authority_of(&self.name)?;
        let id = known.id.as_ref()?;
        let _permit = self.issuer.orders.acquire().await.ok()?;
        let session = self.session(authority).await.ok()?;
        let (info, good_for) = session.account.renewal_info(id).await.ok()?;
        let (start, end) = (info.suggested_window.start, info.suggested_window.end);
        let window = RenewalWindow { start: start.unix_timestamp(), end: end.unix_timestamp() };
        let good_for = i64::try_from(good_for.as_secs()).unwrap_or(i64::MAX);
        let why = info.explanation_url.map(|url| failure::one_line(&url));
        // RFC 9773 §4.2: a window that does not end after its start is invalid.
        (window.end > window.start).then(|| (Suggested { window, why }, schedule::window_good_for(good_for)))
    }

    async fn session(&self, authority: &Authority) -> Result<Rc<AccountSession>, AcmeFailure> {
        let Issuer { accounts, settings, folder, control, .. } = &*self.issuer;
        let engine = control.upgrade().and_then(|control| control.shared.engine());
        accounts.session(authority, settings, (folder, engine.as_deref())).await
    }

    async fn attempt(
        &self,
        attempt: Attempt,
        before: Option<UsableCertificate>,
        is_ordered: bool,
    ) -> AttemptOutcome {
        let issuer = &self.issuer;
        // The semaphore is never closed.
        let Ok(_permit) = issuer.orders.acquire().await else { return AttemptOutcome::Busy };
        // Held until the certificate is shared.
        let _lease = match self.leave(before.as_ref(), is_ordered).await {
            Leave::Alone => None,
            Leave::Held(lease) => Some(lease),
            Leave::Taken => return AttemptOutcome::Busy,
            Leave::Waits => return AttemptOutcome::Waits,
        };
        // Another instance may have been first.
        self.exchange().await;
        let lock = match issuer.folder.lock(&self.name) {
            Ok(Some(lock)) => lock,
            Ok(None) => return AttemptOutcome::Busy,
            Err(error) => {
                return AttemptOutcome::Failed(AcmeFailure::folder(&issuer.settings.folder, &error));
            }
        };
        // Another process may have been first.
        if self.known().map(|known| known.serial) != before.as_ref().map(|known| known.serial.clone()) {
            return AttemptOutcome::Busy;
        }
        let authorities = issuer.authorities();
        let authority = authorities[attempt.authority.min(authorities.len() - 1)];
        let ordered = self.order(authority, attempt, before).await;
        let outcome = match ordered.and_then(|pair| self.put(authority, &pair)) {
            Ok(()) => AttemptOutcome::Issued,
            Err(failure) => AttemptOutcome::Failed(failure),
        };
        drop(lock);
        if matches!(outcome, AttemptOutcome::Issued) {
            self.put_in_force(authority);
            self.exchange().await;
        }
        outcome
    }

    async fn order(
        &self,
        authority: &Authority,
        attempt: Attempt,
        before: Option<UsableCertificate>,
    ) -> Result<IssuedPair, AcmeFailure> {
        let issuer = &self.issuer;
        // RFC 9773 §5: only for the authority that issued the certificate.
        let is_same = self.issuer.authority_of(&self.name).is_some_and(|of| of == authority);
        let mut replaces = before.and_then(|known| known.id).filter(|_| is_same);
        let mut again = 0;
        let plan = issuer.control.upgrade().map(|control| control.plan());
        let ports =
            plan.map(|plan| ChallengePorts::from_listeners(&plan.config.listeners)).unwrap_or_default();
        loop {
            let session = self.session(authority).await?;
            let wanted = OrderedNames {
                names: &self.names,
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
                AcmeFailureKind::Again => {}
                AcmeFailureKind::NoAccount => {
                    let engine = issuer.control.upgrade().and_then(|control| control.shared.engine());
                    let kept = (&issuer.folder, engine.as_deref());
                    issuer.accounts.forget(&authority.directory, kept).await;
                }
                // The authority may have stopped offering suggestions, or counted a replacement whose response was
                // lost.
                AcmeFailureKind::NotReplaceable if replaces.is_some() => replaces = None,
                AcmeFailureKind::NotReplaceable | AcmeFailureKind::Refused | AcmeFailureKind::Later => {
                    return Err(failure);
                }
            }
        }
    }

    /// Revokes a replaced certificate whose key has leaked.
    async fn revoke(&self, old: &UsableCertificate) {
        let revoked = match self.issuer.authority_of(&self.name) {
            None => Err("its authority is not in [acme]".to_owned()),
            Some(authority) => self.revoke_at(authority, old).await.map_err(|failure| failure.what),
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

    /// Asks the authority to revoke a certificate. Repeats the request if nonces are rejected (RFC 8555 §6.5).
    async fn revoke_at(&self, authority: &Authority, old: &UsableCertificate) -> Result<(), AcmeFailure> {
        let session = self.session(authority).await?;
        let mut again = 0;
        loop {
            let request =
                RevocationRequest { certificate: &old.der, reason: Some(RevocationReason::KeyCompromise) };
            let Err(error) = session.account.revoke(&request).await else { return Ok(()) };
            let failure = AcmeFailure::from_error(&error);
            if failure.kind != AcmeFailureKind::Again || again == AGAIN_MAX {
                return Err(failure);
            }
            again += 1;
        }
    }

    fn put_state(&self, control: &Control, change: impl Fn(&mut NameState)) {
        self.names.iter().for_each(|name| control.acme.put(name, &change));
    }

    fn put(&self, authority: &Authority, pair: &IssuedPair) -> Result<(), AcmeFailure> {
        let origin = CertificateOrigin { directory: authority.directory.to_string() };
        let issued = Issued { chain: &pair.chain, key: &pair.key, origin };
        let check = |files: &config::KeyPair| {
            tls::check(files)
                .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
        };
        self.names
            .iter()
            .try_for_each(|name| self.issuer.folder.put(name, &issued, check).map_err(AcmeFailure::said))
    }

    fn reload(&self) {
        let Some(control) = self.issuer.control.upgrade() else { return };
        for server in control.plan().listeners.iter().filter_map(|listener| listener.tls.as_ref()) {
            let reloads = self.names.iter().flat_map(|name| server.reload_automatic(name).problems);
            reloads.for_each(|problem| message::warn(&problem.to_string()));
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
        self.put_state(&control, |state| {
            state.failures = 0;
            state.last_failure = None;
            state.issued += 1;
        });
    }

    fn failed(&mut self, attempt: Attempt, failure: &AcmeFailure) {
        self.failures.failed(attempt, now(), failure.retry_after);
        let known = self.known();
        let spread = Spread::from_name(&self.name, known.as_ref().map_or("", |known| &known.serial));
        let (at, _) = self.failures.next(self.issuer.authorities().len(), spread, now());
        let authorities = self.issuer.authorities();
        let asked = authorities[attempt.authority.min(authorities.len() - 1)];
        let consequence = match &known {
            Some(known) => {
                format!("the one in use is valid until {}", tls::written_time(known.validity.until))
            }
            None => "a self-signed one is in use".to_owned(),
        };
        let wait = config::written_duration(Duration::from_secs((at - now()).max(0).unsigned_abs()));
        message::warn(&format!(
            "certificate of {}: {} did not issue it: {}; {consequence}; next attempt in {wait}",
            self.name,
            asked.directory.server.authority(),
            failure.what
        ));
        if let Some(control) = self.issuer.control.upgrade() {
            self.put_state(&control, |state| {
                state.failures = self.failures.count();
                state.last_failure = Some((now(), failure.what.clone()));
                state.failed += 1;
            });
        }
    }
}

enum AttemptOutcome {
    Issued,
    /// Another process or instance orders the certificate, or has received it.
    Busy,
    /// Instances share through Redis, which is unreachable.
    Waits,
    Failed(AcmeFailure),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_have_certificates_of_one_name_or_of_all() {
        let tls = |port: u16, names: &str, more: &str| {
            format!(
                "{{ address = \"127.0.0.1:{port}\", tls = {{ certificates = \"auto\", names = {names}{more} }} }}"
            )
        };
        let (one, listeners) = (", one_certificate = true", |list: &[String]| list.join(", "));
        let both = "[\"b.example\", \"a.example\"]";
        for (listen, expected) in [
            (tls(1, both, ""), &[("a.example", "a.example"), ("b.example", "b.example")][..]),
            (tls(1, both, one), &[("b.example", "b.example a.example")]),
            (
                listeners(&[tls(1, both, one), tls(2, both, one), tls(3, "[\"c.example\"]", "")]),
                &[("b.example", "b.example a.example"), ("c.example", "c.example")],
            ),
        ] {
            let text = format!(
                "listen = [{listen}, {{ address = \"127.0.0.1:4\" }}]\nroute = [{{ upstream = \"app\" }}]\n\
                 upstream.app.servers = [\"http://127.0.0.1:9000\"]\n"
            );
            let found = certificates(&config::parse(&text, "f").expect("is valid"));
            let found: Vec<(String, String)> =
                found.into_iter().map(|(first, names)| (first, names.join(" "))).collect();
            let expected: Vec<(String, String)> =
                expected.iter().map(|(first, names)| ((*first).to_owned(), (*names).to_owned())).collect();
            assert_eq!(found, expected, "{listen}");
        }
    }
}
