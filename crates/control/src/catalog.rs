//! Instances of services in Consul's catalog, followed by blocking queries while a plan has the service. Runs on
//! the control thread.
//!
//! After any failure the known instances stay.

/// Consul's responses.
mod answer;

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Weak, mpsc as blocking};
use std::time::Duration;

use bytes::Bytes;
use config::{CatalogService, Consul, KeyUrl, UpstreamTls};
use http::Request;
use telemetry::message;
use tokio::sync::Notify;
use transport::resolve::{self, News, ResolvedName};

use self::answer::CatalogAnswer;
use crate::outbound::Outbound;

/// How long Consul holds a query without a change. It adds up to a sixteenth.
const WAIT: Duration = Duration::from_secs(60);
/// Maximum time for a query that does not wait, from the connection to the last byte.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// The largest response: some thousand instances with their checks.
const ANSWER_BYTES_MAX: usize = 8 << 20;
/// Minimum interval of queries for one service, however fast it changes.
const PAUSE: Duration = Duration::from_millis(250);
/// Interval if Consul gives no index to wait for.
const PAUSE_WITHOUT_INDEX: Duration = Duration::from_secs(5);
/// Delay after the first failure; each further one doubles it.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// Several times the length of Consul's tokens.
const TOKEN_BYTES_MAX: usize = 1024;

pub(crate) struct Catalog {
    outbound: Rc<Outbound>,
    changed: Rc<Notify>,
    /// Services whose agent is unreachable.
    unreachable: Cell<usize>,
}

enum CatalogFailure {
    Unreachable(String),
    Refused(String),
}

impl Catalog {
    pub(crate) fn new(outbound: Rc<Outbound>, changed: Rc<Notify>) -> Rc<Self> {
        Rc::new(Self { outbound, changed, unreachable: Cell::new(0) })
    }

    /// Follows a service until no plan has it. `first` is dropped after the first response or failure.
    pub(crate) fn follow(self: &Rc<Self>, name: &Arc<ResolvedName>, first: blocking::Sender<()>) {
        let Some((service, consul)) = name.of_catalog() else { return };
        let follower = ServiceFollower {
            standing: ServiceStanding {
                catalog: Rc::clone(self),
                consul: Arc::clone(consul),
                state: CatalogState::Well,
            },
            service: service.clone(),
            name: Arc::downgrade(name),
            left_out: String::new(),
        };
        let mut end = name.end();
        tokio::task::spawn_local(async move {
            tokio::select! {
                // Nothing is sent: the channel was closed.
                _ = end.changed() => {}
                () = follower.run(first) => {}
            }
        });
    }
}

struct ServiceFollower {
    standing: ServiceStanding,
    service: CatalogService,
    name: Weak<ResolvedName>,
    /// The last message about unusable instances.
    left_out: String,
}

impl ServiceFollower {
    async fn run(mut self, first: blocking::Sender<()>) {
        let mut first = Some(first);
        let (mut index, mut retry) = (0, RETRY_MIN);
        loop {
            let is_known = self.name.upgrade().is_some_and(|name| !name.targets().is_empty());
            let answer = self.ask(index, is_known).await;
            let Some(name) = self.name.upgrade() else { return };
            let taken = match answer {
                Ok(answer) => {
                    let next = next_index(index, answer.index);
                    self.take(&name, answer).await.map(|()| next)
                }
                Err(failure) => Err(failure),
            };
            let wait = match taken {
                Ok(next) => {
                    (index, retry) = (next, RETRY_MIN);
                    if index == 0 { PAUSE_WITHOUT_INDEX } else { PAUSE }
                }
                Err(failure) => {
                    // The next response is wanted at once.
                    index = 0;
                    if let Some(trouble) = self.standing.becomes(&self.service, Err(&failure)) {
                        name.note(trouble, true);
                    }
                    let wait = retry;
                    retry = (retry * 2).min(RETRY_MAX);
                    wait
                }
            };
            // The start of the proxy waits no longer for the first response.
            drop((name, first.take()));
            tokio::time::sleep(wait).await;
        }
    }

    async fn ask(&self, index: u64, is_known: bool) -> Result<CatalogAnswer, CatalogFailure> {
        let Consul { address, token_file, ca, certificate, name } = &*self.standing.consul;
        let url = KeyUrl { path: path(&address.path, &self.service, index), ..address.clone() };
        let mut request = Request::builder();
        if let Some(file) = token_file {
            request = request
                .header("authorization", format!("Bearer {}", token(file).map_err(CatalogFailure::Refused)?));
        }
        let request =
            request.body(Bytes::new()).map_err(|error| CatalogFailure::Refused(error.to_string()))?;
        let tls = UpstreamTls {
            ca: ca.clone(),
            certificate: certificate.clone(),
            name: name.clone(),
            table: "consul",
            ..UpstreamTls::default()
        };
        let exchange =
            self.standing.catalog.outbound.exchange("consul", (&url, tls), &request, ANSWER_BYTES_MAX);
        let most = if index == 0 { ANSWER_MAX } else { ANSWER_MAX + WAIT + WAIT / 16 };
        let answer = tokio::time::timeout(most, exchange).await;
        let late =
            |_| CatalogFailure::Unreachable(format!("{}: no answer in time", address.server.authority()));
        let answer = answer.map_err(late)?.map_err(CatalogFailure::Unreachable)?;
        answer::read(&answer, is_known).map_err(CatalogFailure::Refused)
    }

    /// Sets the servers to the instances in a response. If no instance has an address, it fails, and the last servers
    /// stay.
    async fn take(&mut self, name: &ResolvedName, answer: CatalogAnswer) -> Result<(), CatalogFailure> {
        let known = name.targets();
        let resolver = self.standing.catalog.outbound.resolver();
        let has_instances = !answer.targets.is_empty();
        let (targets, lacks) =
            resolve::with_addresses(&self.service, (answer.targets, &known), resolver).await;
        if has_instances && targets.is_empty() {
            return Err(CatalogFailure::Refused(format!("no instance has an address: {}", lacks.join("; "))));
        }
        self.standing.becomes(&self.service, Ok(()));
        let left_out = answer.left_out.join("; ");
        if left_out != self.left_out && !left_out.is_empty() {
            message::warn(&format!("Consul: instances of {} are left out: {left_out}", self.service));
        }
        self.left_out = left_out;
        let is_blind = answer.is_denied && self.standing.consul.token_file.is_none();
        let hint = if is_blind { ", or none is visible without token_file" } else { "" };
        let none = format!("Consul has no healthy instance of {}{hint}", self.service);
        if targets.is_empty() && !known.is_empty() {
            message::warn(&none);
        }
        if lacks.is_empty() {
            name.settle(targets.is_empty().then_some(none));
        } else {
            name.fail(format!("Consul: {}: {}", self.service, lacks.join("; ")));
        }
        if name.take(targets) == News::Some {
            self.standing.catalog.changed.notify_one();
        }
        Ok(())
    }
}

/// Returns the index for the next query. If Consul's index went back, as after a restored backup, it starts again
/// at 0. Consul never sends 0 if it supports waiting.
fn next_index(before: u64, now: u64) -> u64 {
    if now < before { 0 } else { now }
}

/// Builds path and query of a request. Index 0 returns at once, any other after a change.
fn path(prefix: &str, service: &CatalogService, index: u64) -> String {
    let CatalogService { name, tags, datacenter } = service;
    let mut path = format!("{}/v1/health/service/{name}?passing=true", prefix.trim_end_matches('/'));
    if index > 0 {
        path += &format!("&index={index}&wait={}s", WAIT.as_secs());
    }
    for (option, value) in tags.iter().map(|tag| ("tag", tag)).chain(datacenter.iter().map(|dc| ("dc", dc))) {
        path += &format!("&{option}={value}");
    }
    path
}

fn token(file: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let token = text.lines().next().unwrap_or_default().trim();
    if token.is_empty() || token.len() > TOKEN_BYTES_MAX || !token.bytes().all(|byte| byte.is_ascii_graphic())
    {
        return Err(format!("{}: it has no token in its first line", file.display()));
    }
    Ok(token.to_owned())
}

/// The state of a service, so that repeated failures are reported once.
struct ServiceStanding {
    catalog: Rc<Catalog>,
    consul: Arc<Consul>,
    state: CatalogState,
}

#[derive(PartialEq, Eq)]
enum CatalogState {
    Well,
    Unreachable,
    /// With the last message.
    Refused(String),
}

impl ServiceStanding {
    /// Records the outcome of a query, and reports changes. Returns the failure.
    fn becomes(&mut self, service: &CatalogService, outcome: Result<(), &CatalogFailure>) -> Option<String> {
        let authority = self.consul.address.server.authority();
        let (state, trouble) = match outcome {
            Ok(()) => (CatalogState::Well, None),
            Err(CatalogFailure::Unreachable(why)) => {
                let trouble = format!("Consul cannot be queried: {why}; services keep their last servers");
                (CatalogState::Unreachable, Some(trouble))
            }
            Err(CatalogFailure::Refused(why)) => {
                let trouble = format!("Consul at {authority}: {service}: {why}; its last servers stay");
                (CatalogState::Refused(trouble.clone()), Some(trouble))
            }
        };
        let before = std::mem::replace(&mut self.state, state);
        let count = &self.catalog.unreachable;
        match (&before, &self.state) {
            (CatalogState::Unreachable, CatalogState::Unreachable) => {}
            (CatalogState::Unreachable, _) => {
                count.set(count.get() - 1);
                if count.get() == 0 {
                    message::info(&format!("Consul at {authority} answers again"));
                }
            }
            (_, CatalogState::Unreachable) => {
                count.set(count.get() + 1);
                // All services use the same agent, so the first failure speaks for all.
                if let (1, Some(trouble)) = (count.get(), &trouble) {
                    message::warn(trouble);
                }
            }
            _ => {}
        }
        match (&before, &self.state) {
            (before, now @ CatalogState::Refused(trouble)) if before != now => message::warn(trouble),
            (CatalogState::Refused(_), CatalogState::Well) => {
                message::info(&format!("Consul at {authority} answers about {service} again"));
            }
            _ => {}
        }
        trouble
    }
}

impl Drop for ServiceStanding {
    fn drop(&mut self) {
        if self.state == CatalogState::Unreachable {
            self.catalog.unreachable.set(self.catalog.unreachable.get() - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_say_what_is_asked_for() {
        let service = CatalogService { name: "web".to_owned(), tags: Vec::new(), datacenter: None };
        assert_eq!(path("/", &service, 0), "/v1/health/service/web?passing=true");
        let tags = vec!["v2".to_owned(), "a%20b".to_owned()];
        let service = CatalogService { tags, datacenter: Some("eu".to_owned()), ..service };
        let query = "passing=true&index=7&wait=60s&tag=v2&tag=a%20b&dc=eu";
        assert_eq!(path("/consul/", &service, 7), format!("/consul/v1/health/service/web?{query}"));
    }

    #[test]
    fn an_index_that_goes_back_starts_again_at_zero() {
        for (before, now, next) in [(0, 5, 5), (5, 5, 5), (5, 9, 9), (9, 5, 0), (5, 0, 0), (0, 0, 0)] {
            assert_eq!(next_index(before, now), next, "{before} {now}");
        }
    }

    #[test]
    fn a_token_is_the_first_line_of_its_file() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("token");
        let long = "a".repeat(TOKEN_BYTES_MAX + 1);
        for (text, expected) in [
            ("b1gs33cr3t\n# of edge\n", Some("b1gs33cr3t")),
            (" t \r\n", Some("t")),
            ("", None),
            ("\nt", None),
            ("a b", None),
            (&long, None),
        ] {
            std::fs::write(&file, text).expect("it is writable");
            assert_eq!(token(&file).ok().as_deref(), expected, "{text:?}");
        }
        assert!(token(&folder.path().join("none")).is_err_and(|why| why.contains("No such file")));
    }
}
