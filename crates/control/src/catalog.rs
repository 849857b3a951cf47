//! Instances of services in Consul's catalog, asked for by blocking queries for as long as a plan has the service. Runs on the
//! control thread.
//!
//! Whatever goes wrong keeps the instances that are known.

/// What Consul answers.
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
use transport::resolve::{self, Name, News};

use self::answer::Answer;
use crate::outbound::Outbound;

/// How long Consul waits for a change before it answers anyway. It adds up to a sixteenth.
const WAIT: Duration = Duration::from_secs(60);
/// An answer that nothing is waited for, from the connection to the last byte.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// The largest answer: some thousand instances with their checks.
const ANSWER_BYTES_MAX: usize = 8 << 20;
/// Between two requests for one service, however fast it changes.
const PAUSE: Duration = Duration::from_millis(250);
/// The same where Consul gives nothing to wait for.
const PAUSE_WITHOUT_INDEX: Duration = Duration::from_secs(5);
/// After a failure the next attempt comes after this, then twice that, and so on.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// The longest token, several times what Consul makes.
const TOKEN_BYTES_MAX: usize = 1024;

/// All services of catalogs that are asked for.
pub(crate) struct Catalog {
    outbound: Rc<Outbound>,
    changed: Rc<Notify>,
    /// Services whose agent cannot be reached.
    unreachable: Cell<usize>,
}

/// Why nothing was learned about a service.
enum Failure {
    /// Nobody answers.
    Unreachable(String),
    /// What came is no answer to the question.
    Refused(String),
}

impl Catalog {
    pub(crate) fn new(outbound: Rc<Outbound>, changed: Rc<Notify>) -> Rc<Self> {
        Rc::new(Self { outbound, changed, unreachable: Cell::new(0) })
    }

    /// Asks for a service until no plan has it. `first` is dropped after the first answer or failure.
    pub(crate) fn follow(self: &Rc<Self>, name: &Arc<Name>, first: blocking::Sender<()>) {
        let Some((service, consul)) = name.of_catalog() else { return };
        let follower = Follower {
            standing: Standing { catalog: Rc::clone(self), consul: Arc::clone(consul), state: State::Well },
            service: service.clone(),
            name: Arc::downgrade(name),
            left_out: String::new(),
        };
        let mut end = name.end();
        tokio::task::spawn_local(async move {
            tokio::select! {
                // Nothing is sent: it is over.
                _ = end.changed() => {}
                () = follower.run(first) => {}
            }
        });
    }
}

/// What follows one service.
struct Follower {
    standing: Standing,
    service: CatalogService,
    name: Weak<Name>,
    /// What was said of instances that cannot be used.
    left_out: String,
}

impl Follower {
    async fn run(mut self, first: blocking::Sender<()>) {
        let mut first = Some(first);
        let (mut index, mut retry) = (0, RETRY_MIN);
        loop {
            let answer = self.ask(index).await;
            let Some(name) = self.name.upgrade() else { return };
            let wait = match answer {
                Ok(answer) => {
                    index = next_index(index, answer.index);
                    self.take(&name, answer).await;
                    retry = RETRY_MIN;
                    if index == 0 { PAUSE_WITHOUT_INDEX } else { PAUSE }
                }
                Err(failure) => {
                    // What it has by then is wanted at once.
                    index = 0;
                    name.note(self.standing.becomes(&self.service, Err(&failure)));
                    let wait = retry;
                    retry = (retry * 2).min(RETRY_MAX);
                    wait
                }
            };
            // Whoever waits for the first answer has waited enough.
            drop((name, first.take()));
            tokio::time::sleep(wait).await;
        }
    }

    async fn ask(&self, index: u64) -> Result<Answer, Failure> {
        let Consul { address, token_file, ca, certificate, name } = &*self.standing.consul;
        let url = KeyUrl { path: path(&address.path, &self.service, index), ..address.clone() };
        let mut request = Request::builder();
        if let Some(file) = token_file {
            request =
                request.header("authorization", format!("Bearer {}", token(file).map_err(Failure::Refused)?));
        }
        let request = request.body(Bytes::new()).map_err(|error| Failure::Refused(error.to_string()))?;
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
        let late = |_| Failure::Unreachable(format!("{}: no answer in time", address.server.authority()));
        answer::read(&answer.map_err(late)?.map_err(Failure::Unreachable)?).map_err(Failure::Refused)
    }

    /// Has the servers be what Consul says.
    async fn take(&mut self, name: &Name, answer: Answer) {
        self.standing.becomes(&self.service, Ok(()));
        let left_out = answer.left_out.join("; ");
        if left_out != self.left_out && !left_out.is_empty() {
            message::warn(&format!("Consul: instances of {} are left out: {left_out}", self.service));
        }
        self.left_out = left_out;
        let known = name.targets();
        let resolver = self.standing.catalog.outbound.resolver();
        let targets = resolve::with_addresses(&self.service, (answer.targets, &known), resolver).await;
        let is_blind = answer.is_denied && self.standing.consul.token_file.is_none();
        let hint = if is_blind { ", as far as can be seen without token_file" } else { "" };
        let none = format!("Consul has no healthy instance of {}{hint}", self.service);
        if targets.is_empty() && !known.is_empty() {
            message::warn(&none);
        }
        name.note(targets.is_empty().then_some(none));
        if name.take(targets) == News::Some {
            self.standing.catalog.changed.notify_one();
        }
    }
}

/// What the next request waits for a change from. Consul: an index that went back, as it does when the servers of Consul are
/// restored, is begun with anew; it is never 0 where there is something to wait for.
fn next_index(before: u64, now: u64) -> u64 {
    if now < before { 0 } else { now }
}

/// Path and query of a request: at once with the index 0, else when something has changed.
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

/// The token in the first line of a file.
fn token(file: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let token = text.lines().next().unwrap_or_default().trim();
    if token.is_empty() || token.len() > TOKEN_BYTES_MAX || !token.bytes().all(|byte| byte.is_ascii_graphic())
    {
        return Err(format!("{}: it has no token in its first line", file.display()));
    }
    Ok(token.to_owned())
}

/// How it stands with a service, so that what is so is said once.
struct Standing {
    catalog: Rc<Catalog>,
    consul: Arc<Consul>,
    state: State,
}

#[derive(PartialEq, Eq)]
enum State {
    Well,
    Unreachable,
    /// With what was said.
    Refused(String),
}

impl Standing {
    /// Takes how a request went, and says what is new. Returns what is wrong.
    fn becomes(&mut self, service: &CatalogService, outcome: Result<(), &Failure>) -> Option<String> {
        let authority = self.consul.address.server.authority();
        let (state, trouble) = match outcome {
            Ok(()) => (State::Well, None),
            Err(Failure::Unreachable(why)) => {
                let trouble = format!("Consul cannot be asked: {why}; services keep their last servers");
                (State::Unreachable, Some(trouble))
            }
            Err(Failure::Refused(why)) => {
                let trouble = format!("Consul at {authority}: {service}: {why}; its last servers stay");
                (State::Refused(trouble.clone()), Some(trouble))
            }
        };
        let before = std::mem::replace(&mut self.state, state);
        let count = &self.catalog.unreachable;
        match (&before, &self.state) {
            (State::Unreachable, State::Unreachable) => {}
            (State::Unreachable, _) => {
                count.set(count.get() - 1);
                if count.get() == 0 {
                    message::info(&format!("Consul at {authority} answers again"));
                }
            }
            (_, State::Unreachable) => {
                count.set(count.get() + 1);
                // All services have the same agent.
                if let (1, Some(trouble)) = (count.get(), &trouble) {
                    message::warn(trouble);
                }
            }
            _ => {}
        }
        match (&before, &self.state) {
            (before, now @ State::Refused(trouble)) if before != now => message::warn(trouble),
            (State::Refused(_), State::Well) => {
                message::info(&format!("Consul at {authority} answers about {service} again"));
            }
            _ => {}
        }
        trouble
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        if self.state == State::Unreachable {
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
    fn an_index_that_goes_back_is_begun_with_anew() {
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
