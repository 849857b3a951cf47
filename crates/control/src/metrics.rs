//! What Prometheus asks for: where, and what it is told. Workers count (`record`, `worker`); nothing is added up until
//! somebody asks, and nothing is counted by name while nobody can.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use axum::Router;
use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use balance::{Flow, Time};
use config::ListenAddress;
use telemetry::{
    AccessLog, Counters, Directory, Exposition, Names, Places, Process, Reader, RouteCell, SeriesReader,
    ServerState, Snapshot, Standing, Syntax,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use crate::StartError;
use crate::change::Control;
use crate::handover::{self, Inheritance, Purpose};
use crate::service;
use proxy::cache;
use proxy::context::failure::Failure;
use proxy::context::plan::Plan;

/// What the listener is from now on; `None` for no listener.
pub(crate) type Socket = Option<TcpListener>;

/// What is counted, and where it is asked for.
pub(crate) struct Metrics {
    directory: Mutex<Directory>,
    workers: usize,
    /// Of the workers, and of what is counted here.
    readers: Vec<Reader>,
    changes: Mutex<Counters>,
    log: Mutex<Logged>,
    listening: Mutex<Listening>,
    sockets: UnboundedSender<Socket>,
}

/// The log whose losses are told.
#[derive(Default)]
struct Logged {
    log: Option<AccessLog>,
    /// What those before it have lost: a counter only grows.
    dropped_before: u64,
}

#[derive(Default)]
struct Listening {
    /// As it is configured: its port may be 0.
    configured: Option<SocketAddr>,
    bound: Option<SocketAddr>,
    /// The socket, for a process that takes over.
    copy: Option<OwnedFd>,
}

/// A listener that is to take the place of the one that there is.
pub(crate) struct Moved {
    listening: Listening,
    socket: Socket,
}

impl Metrics {
    /// Nothing is listened on yet. `sockets` leads to the thread that serves.
    pub(crate) fn new(
        mut readers: Vec<Reader>,
        series: Vec<SeriesReader>,
        sockets: UnboundedSender<Socket>,
    ) -> Self {
        let changes = Counters::new();
        let workers = readers.len();
        readers.push(changes.reader());
        Self {
            directory: Mutex::new(Directory::new(series)),
            workers,
            readers,
            changes: Mutex::new(changes),
            log: Mutex::default(),
            listening: Mutex::default(),
            sockets,
        }
    }

    /// The log whose losses are told.
    pub(crate) fn tell_of(&self, log: Option<&AccessLog>) {
        lock(&self.log).log = log.cloned();
    }

    /// What a log has lost that is not used any more, and was told of.
    pub(crate) fn add_dropped(&self, lines: u64) {
        lock(&self.log).dropped_before += lines;
    }

    /// `None` without a log.
    pub(crate) fn log_lines_dropped(&self) -> Option<u64> {
        let Logged { log, dropped_before } = &*lock(&self.log);
        log.as_ref().map(|log| log.dropped() + dropped_before)
    }

    /// What all workers have counted so far, and how often the configuration changed.
    pub(crate) fn counters(&self) -> Snapshot {
        Snapshot::sum(&self.readers)
    }

    /// A change of the configuration was taken over, or refused.
    pub(crate) fn changed(&self, is_taken_over: bool) {
        let changes = lock(&self.changes);
        let counter = if is_taken_over { &changes.reloads } else { &changes.reload_failures };
        counter.increment();
    }

    /// Where what `plan` names is counted, if anybody can ask: what caches do is told with the status as well.
    pub(crate) fn places(&self, plan: &Plan) -> Option<Arc<Places>> {
        let is_counted = plan.config.metrics.is_some() || plan.cache.is_some();
        is_counted.then(|| lock(&self.directory).places(&names(plan)))
    }

    /// Opens the socket that the configuration wants; `None` if it is the one that there is.
    /// `inherited` are those that the process before has passed on.
    pub(crate) fn open(
        &self,
        configured: Option<SocketAddr>,
        inherited: &mut Inheritance,
    ) -> Result<Option<Moved>, StartError> {
        if lock(&self.listening).configured == configured {
            return Ok(None);
        }
        let Some(address) = configured else {
            return Ok(Some(Moved { listening: Listening::default(), socket: None }));
        };
        let inherited = inherited.take(&Purpose::Metrics(address.to_string())).pop();
        let opened = inherited.map_or_else(|| TcpListener::bind(address), |socket| Ok(socket.into()));
        let opened = opened.and_then(|socket| {
            socket.set_nonblocking(true)?;
            Ok((socket.local_addr()?, handover::copy(&socket)?, socket))
        });
        let (bound, copy, socket) =
            opened.map_err(|error| StartError::Listen { address: ListenAddress::Tcp(address), error })?;
        let listening = Listening { configured, bound: Some(bound), copy: Some(copy) };
        Ok(Some(Moved { listening, socket: Some(socket) }))
    }

    /// Listens there from now on, and nowhere else.
    pub(crate) fn listen(&self, moved: Moved) {
        *lock(&self.listening) = moved.listening;
        // A thread that has ended serves nobody.
        let _ = self.sockets.send(moved.socket);
    }

    /// Listens no more.
    pub(crate) fn close(&self) {
        self.listen(Moved { listening: Listening::default(), socket: None });
    }

    /// What is listened on, for a process that takes over.
    pub(crate) fn pass_on(&self) -> io::Result<Option<(Purpose, Vec<OwnedFd>)>> {
        let listening = lock(&self.listening);
        let Some((address, copy)) = listening.configured.zip(listening.copy.as_ref()) else {
            return Ok(None);
        };
        Ok(Some((Purpose::Metrics(address.to_string()), vec![handover::copy(copy)?])))
    }

    /// The address that is listened on.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        lock(&self.listening).bound
    }

    /// What all workers have counted for the routes of all plans in use.
    pub(crate) fn routes(&self) -> Vec<(Arc<str>, RouteCell)> {
        lock(&self.directory).totals().routes
    }

    fn page(&self, plan: &Plan, now: Time, syntax: Syntax) -> String {
        let totals = lock(&self.directory).totals();
        let (misses, refusals) = (cache::miss_words(), cache::refusal_words());
        let exposition = Exposition {
            version: env!("CARGO_PKG_VERSION"),
            workers: self.workers,
            counters: &self.counters(),
            causes: Failure::WORDS,
            totals: &totals,
            standings: &standings(plan, now),
            cache: plan.cache.as_ref().map(|cache| cache.state(&misses, &refusals)),
            log_lines_dropped: self.log_lines_dropped(),
            process: Process::now(),
        };
        exposition.write(syntax)
    }
}

/// Nothing that holds a lock here can panic halfway through a change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Names as they are in the log.
fn names(plan: &Plan) -> Names {
    let upstreams = plan.upstreams.iter().map(|upstream| {
        let servers = upstream.servers.iter().map(|server| server.label.as_str().into());
        (upstream.config.name.as_str().into(), servers.collect())
    });
    let listeners = plan.config.listeners.iter();
    let listeners = listeners.map(|listener| listener.tcp.map(|_| listener.name.as_str().into()));
    Names {
        listeners: listeners.collect(),
        routes: plan.routes.iter().map(|route| route.label.as_str().into()).collect(),
        upstreams: upstreams.collect(),
    }
}

fn standings(plan: &Plan, now: Time) -> Vec<Standing> {
    let mut standings = Vec::new();
    for upstream in &plan.upstreams {
        let name: Arc<str> = upstream.config.name.as_str().into();
        let members = upstream.fleet.members().iter().enumerate();
        for (server, (index, member)) in upstream.servers.iter().zip(members) {
            let findings = upstream.watches[index].findings();
            standings.push(Standing {
                upstream: Arc::clone(&name),
                server: server.label.as_str().into(),
                state: match member.standing.state() {
                    balance::State::Up => ServerState::Up,
                    balance::State::Draining => ServerState::Draining,
                    balance::State::Ejected => ServerState::Ejected,
                    balance::State::Down => ServerState::Down,
                },
                is_circuit_open: upstream.fleet.flow(index, now) != Flow::Closed,
                requests_active: u64::from(member.standing.in_flight()),
                ejections: findings.ejections,
                checks_passed: findings.checks - findings.failures,
                checks_failed: findings.failures,
            });
        }
    }
    standings
}

/// Serves on the socket that was told of last, until the proxy ends.
pub(crate) async fn serve(
    control: Weak<Control>,
    mut sockets: UnboundedReceiver<Socket>,
    guests: service::Guests,
) {
    let router = Router::new()
        .route("/metrics", get(answer))
        .fallback(|| async { (StatusCode::NOT_FOUND, "The metrics are at /metrics.\n") })
        .with_state(control);
    let mut serving = None;
    while let Some(socket) = sockets.recv().await {
        if let Some(task) = serving.take() {
            tokio::task::JoinHandle::abort(&task);
        }
        let listener = socket.and_then(|socket| tokio::net::TcpListener::from_std(socket).ok());
        let serve = |listener| service::serve(listener, router.clone(), guests.clone());
        serving = listener.map(|listener| tokio::task::spawn_local(serve(listener)));
    }
}

async fn answer(State(control): State<Weak<Control>>, headers: HeaderMap) -> Response {
    let Some(control) = control.upgrade() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "The proxy is ending.\n").into_response();
    };
    // RFC 9110 §5.3: several lines of a field are one list.
    let accept: Vec<&str> = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let syntax = Syntax::accepted(&accept.join(","));
    let page = control.metrics.page(&control.plan(), control.time(), syntax);
    ([(CONTENT_TYPE, syntax.content_type())], page).into_response()
}
