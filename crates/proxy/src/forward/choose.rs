//! Chooses the server for a request or a layer 4 connection: its session's, else by the policy. Waits for a server with
//! room.

use std::rc::Rc;
use std::time::Instant;
use telemetry::message;

use balance::{NoneUp, Pick, PickInput, Room, ServerId, SessionKey, SessionLoss, SessionParts, Stuck};

use crate::context::client::FrontConnection;
use crate::context::exchange_slot::{CurrentRequest, CurrentResponse};
use crate::context::plan::{Precedence, Stickiness};
use crate::context::request_values::KeyFields;
use crate::context::routed::{ExchangeContext, RoutedRequest};
use crate::context::seen;
use crate::context::worker::Worker;
use crate::failure::Failure;
use crate::record::Detours;
use crate::upstream::wait_queue::WhatFor;
use crate::upstream::{PickedServer, WorkerUpstream};
use transport::deadline::Ticks;

/// Time limit for asking other instances about a session. The control side answers within a fifth of it.
const ELSEWHERE_MAX: Ticks = Ticks(1);

/// The choice of servers for one request or connection.
pub(crate) struct Choice<'a> {
    worker: &'a Worker,
    client: &'a FrontConnection,
    upstream: &'a Rc<WorkerUpstream>,
    /// The hash key, for policies that hash.
    key: Option<u64>,
    session: Option<Affinity<'a>>,
    /// The tick until which it may wait for room, once it waits.
    waits_until: Option<u32>,
}

enum ChosenServer {
    Server(usize),
    /// A server that is not up, because no other is left, or for a trial.
    LastResort(usize),
    /// All permitted servers are at their limits.
    Full,
    /// Other instances must be asked first where the session is.
    Elsewhere,
}

/// The session of a request.
struct Affinity<'a> {
    stickiness: &'a Stickiness,
    /// Its key in the table of sessions, if it is not bound by a cookie.
    key: Option<SessionKey>,
    /// Its server, if known.
    server: Option<ServerId>,
    elsewhere: Elsewhere,
    /// Whether it moves to another server.
    is_leaving: bool,
    /// Whether its cookie must be renewed, or other instances notified, although it stays on its server.
    is_to_be_renewed: bool,
    /// Whether the client used https.
    is_https: bool,
}

/// Knowledge about a session that other instances may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Elsewhere {
    /// Nothing that this instance does not know.
    Nothing,
    /// Its server, in case it must leave its server here.
    Another,
    /// Its server: they must be asked first.
    Where,
}

impl<'a> Choice<'a> {
    /// Reads the hash key and the session from a request. Called before its first attempt.
    pub(crate) fn of_request(
        ctx: &'a ExchangeContext<'a>,
        upstream: &'a Rc<WorkerUpstream>,
        routed: &RoutedRequest,
        request: &CurrentRequest,
    ) -> Self {
        let ExchangeContext { worker, client, .. } = *ctx;
        let plan = &upstream.plan;
        // Most upstreams need neither a key nor a session: then nothing of the request is read.
        if !plan.fleet.hashes() && plan.stickiness.is_none() {
            return Self { worker, client, upstream, key: None, session: None, waits_until: None };
        }
        let bytes = request.head_bytes();
        let fields = KeyFields::from_request(ctx, routed, request);
        let target = &routed.target;
        let query = target.path_and_query.for_bytes(bytes).get(target.path.for_bytes(bytes).len() + 1..);
        let parts = SessionParts {
            client: routed.client,
            path: target.path.for_bytes(bytes),
            query,
            fields: &fields,
        };
        let mut choice = Self::new(worker, client, upstream, &parts);
        if let Some(session) = &mut choice.session {
            session.is_https = seen::is_secure(ctx, &request.head, bytes);
        }
        choice
    }

    /// Creates the choice for a layer 4 connection: only the client's address is known.
    pub(crate) fn of_connection(
        worker: &'a Worker,
        client: &'a FrontConnection,
        upstream: &'a Rc<WorkerUpstream>,
    ) -> Self {
        let fields = KeyFields::NONE;
        let parts = SessionParts { client: client.address, path: b"", query: None, fields: &fields };
        Self::new(worker, client, upstream, &parts)
    }

    fn new(
        worker: &'a Worker,
        client: &'a FrontConnection,
        upstream: &'a Rc<WorkerUpstream>,
        parts: &SessionParts<'_, KeyFields<'_>>,
    ) -> Self {
        let plan = &upstream.plan;
        // Without a random part, so that all workers and processes find the same server for a key.
        let hash = |name: &[u8]| balance::HashSecret::default().hash(name);
        let key = plan.fleet.hashes().then(|| plan.config.hash_key.session(parts, hash)).flatten();
        let session =
            plan.stickiness.as_deref().map(|stickiness| Affinity::from_stickiness(stickiness, worker, parts));
        Self { worker, client, upstream, key, session, waits_until: None }
    }

    /// Chooses the next server that was not tried, waiting for one with room if necessary. The request counts as under
    /// way with it from now on. Called if `at_once` found none.
    pub(crate) async fn next(
        &mut self,
        tried: &[usize],
        detours: &mut Detours,
    ) -> Result<PickedServer, Failure> {
        let mut has_waited = false;
        // Looks for room once only, because free room may be reserved for others.
        let mut looks_again = true;
        loop {
            match self.pick(tried, has_waited, detours)? {
                ChosenServer::Elsewhere => {
                    if let Some(session) = &mut self.session {
                        session.ask_elsewhere(self.worker).await;
                    }
                }
                ChosenServer::Full => match self.wait(tried, looks_again, detours).await {
                    Ok(waited) => (looks_again, has_waited) = (waited, true),
                    // Its priority has no room, so the next one gets the request.
                    Err(failure) => {
                        let picked = self.backup(tried).ok_or(failure)?;
                        detours.shed = None;
                        return Ok(picked);
                    }
                },
                found => {
                    // Other workers use the server, too: it may have become full since.
                    if let Some(picked) = self.begin(found) {
                        return Ok(picked);
                    }
                }
            }
        }
    }

    /// Chooses a server without waiting. Called first for each attempt. After `None`, `next` waits or returns the
    /// failure.
    #[inline]
    pub(crate) fn at_once(&mut self, tried: &[usize], detours: &mut Detours) -> Option<PickedServer> {
        // `next` meets an error again, and returns it.
        let found = self.pick(tried, false, detours).ok()?;
        self.begin(found)
    }

    /// Begins the request on a server of a later priority with room, after a wait in vain.
    #[cold]
    fn backup(&self, tried: &[usize]) -> Option<PickedServer> {
        let ask =
            PickInput { now: self.worker.coarse_time(), random: fastrand::u64(..), key: self.key, tried };
        match self.upstream.picker.borrow_mut().backup(&ask) {
            Pick::Server(server) => self.begin(ChosenServer::Server(server)),
            Pick::Full | Pick::None => None,
        }
    }

    /// Gives back a picked server that is not used after all, so that the request no longer counts for it.
    pub(crate) fn give_back(&self, picked: &PickedServer) {
        self.upstream.abandoned(picked, Failure::ClientGone, self.worker.coarse_time());
    }

    /// Whether there is a server that was not tried. Reserves nothing, and moves no session.
    #[cold]
    pub(crate) fn has_untried(&self, tried: &[usize], room: Room) -> bool {
        let ask = PickInput { now: self.worker.coarse_time(), random: 0, key: self.key, tried };
        self.upstream.picker.borrow_mut().has_untried(&ask, room)
    }

    /// Counts the request as under way with a found server; `None` if it has become full.
    #[inline]
    fn begin(&self, found: ChosenServer) -> Option<PickedServer> {
        let now = self.worker.coarse_time();
        match found {
            ChosenServer::Server(server) => self.upstream.begin(server, false, now),
            ChosenServer::LastResort(server) => self.upstream.begin(server, true, now),
            ChosenServer::Full | ChosenServer::Elsewhere => None,
        }
    }

    /// Finds a server by session or policy, without reserving it.
    fn pick(
        &mut self,
        tried: &[usize],
        has_waited: bool,
        detours: &mut Detours,
    ) -> Result<ChosenServer, Failure> {
        if !has_waited && self.upstream.has_queue() {
            // First come, first served.
            return Ok(ChosenServer::Full);
        }
        let ask =
            PickInput { now: self.worker.coarse_time(), random: fastrand::u64(..), key: self.key, tried };
        if let Some(session) = &mut self.session
            && let Some(found) = session.stay(self.worker, self.upstream, &ask, has_waited, detours)
        {
            return Ok(found);
        }
        let mut picker = self.upstream.picker.borrow_mut();
        if tried.is_empty()
            && let Some(server) = picker.trial(ask.now)
        {
            // As the last resort: a success ends the ejection, after a failure it goes on.
            return Ok(ChosenServer::LastResort(server));
        }
        match picker.pick(&ask) {
            Pick::Server(server) => Ok(ChosenServer::Server(server)),
            Pick::Full => Ok(ChosenServer::Full),
            Pick::None if tried.is_empty() => Err(self.nobody()),
            Pick::None => picker.last_resort(&ask).map(ChosenServer::LastResort).ok_or_else(|| self.nobody()),
        }
    }

    /// Returns the failure for a request when no server is left.
    #[cold]
    fn nobody(&self) -> Failure {
        match self.upstream.plan.fleet.settings().none_up {
            NoneUp::Fail => Failure::NoBackend,
            NoneUp::Refuse | NoneUp::TryAll => Failure::NoServer,
        }
    }

    /// Whether a server has room now: the session's, if there is one.
    fn is_room(&self, tried: &[usize]) -> bool {
        let ask =
            PickInput { now: self.worker.coarse_time(), random: fastrand::u64(..), key: self.key, tried };
        let mut picker = self.upstream.picker.borrow_mut();
        match self.session.as_ref().and_then(|session| session.server) {
            Some(server) => picker.follow(server, &ask) != Err(SessionLoss::Full),
            None => picker.pick(&ask) != Pick::Full,
        }
    }

    /// Waits for room, and notes for how long. With `looks_again`, returns at once if there is room now. Returns
    /// whether it had to wait.
    async fn wait(
        &mut self,
        tried: &[usize],
        looks_again: bool,
        detours: &mut Detours,
    ) -> Result<bool, Failure> {
        let began = Instant::now();
        let mut waits_until = self.waits_until;
        let is_room = || looks_again && self.is_room(tried);
        // A session waits for one server only. Requests behind it may take any other.
        let has_own = self.session.as_ref().is_some_and(|session| session.server.is_some());
        let what_for = if has_own { WhatFor::ItsOwn } else { WhatFor::Any };
        let deadline = &self.client.deadline;
        let turn = self.upstream.wait(
            self.worker,
            self.worker.coarse_time(),
            deadline,
            &mut waits_until,
            what_for,
            is_room,
        );
        let outcome = self.worker.holding.during(turn).await;
        self.waits_until = waits_until;
        // Neither room at once nor a full queue takes time.
        if !matches!(outcome, Ok(false) | Err(Failure::UpstreamFull)) {
            *detours.queued.get_or_insert_default() += began.elapsed();
        }
        outcome.inspect_err(|_| detours.shed = Some("queue"))
    }

    /// Binds the session to the server that has responded. Adds the cookie to the response, if the session needs one.
    /// Called once a response is accepted.
    pub(crate) fn settle(&self, picked: &PickedServer, response: Option<&mut CurrentResponse>) {
        let Some(session) = &self.session else { return };
        let worker = self.worker;
        let server = self.upstream.plan.fleet.members()[picked.server].id;
        let is_moved = session.server != Some(server);
        match session.stickiness {
            Stickiness::Cookie(cookie, _) if is_moved || session.is_to_be_renewed => {
                // A layer 4 connection cannot carry a cookie.
                let Some(CurrentResponse { added, .. }) = response else { return };
                added.extend_from_slice(b"Set-Cookie: ");
                cookie.write(added, server, worker.unix_seconds(), session.is_https);
                added.extend_from_slice(b"\r\n");
                if cookie.is_private() {
                    added.extend_from_slice(b"Cache-Control: private\r\n");
                }
            }
            Stickiness::Cookie(..) => {}
            Stickiness::Table { sessions, learns, shared, .. } => {
                let tell = |key, precedence| {
                    shared.iter().for_each(|shared| shared.tell(key, server, precedence));
                };
                if let Some(key) = session.key.filter(|_| is_moved) {
                    sessions.bind(key, server, worker.coarse_time());
                    tell(key, if session.is_leaving { Precedence::New } else { Precedence::Known });
                } else if let Some(key) = session.key.filter(|_| session.is_to_be_renewed) {
                    tell(key, Precedence::Known);
                }
                let Some(CurrentResponse { head, buffer, .. }) = response else { return };
                let fields = KeyFields::from_fields(&head.fields, buffer.filled());
                let learnt =
                    |name: &String| balance::learnt_cookie(&fields, name, |value| sessions.key(value));
                if let Some(key) = learns.as_ref().and_then(learnt) {
                    sessions.bind(key, server, worker.coarse_time());
                    // A new cookie begins a session, which other instances must know before its next request.
                    if session.key != Some(key) {
                        tell(key, Precedence::New);
                    }
                }
            }
        }
    }
}

impl<'a> Affinity<'a> {
    /// Reads the session from a request.
    #[inline(never)]
    fn from_stickiness(
        stickiness: &'a Stickiness,
        worker: &Worker,
        parts: &SessionParts<'_, KeyFields<'_>>,
    ) -> Self {
        match stickiness {
            Stickiness::Cookie(cookie, _) => {
                let stuck = cookie.read(parts.fields, worker.unix_seconds());
                Self {
                    server: stuck.map(|stuck: Stuck| stuck.server),
                    is_to_be_renewed: stuck.is_some_and(|stuck| stuck.is_to_be_renewed),
                    ..Self::unknown(stickiness, None)
                }
            }
            Stickiness::Table { source, sessions, shared, .. } => {
                let now = worker.coarse_time();
                let key = source.session(parts, |name| sessions.key(name));
                let unknown = Self::unknown(stickiness, key);
                let (Some(key), Some(shared)) = (key, shared) else {
                    return Self { server: key.and_then(|key| sessions.find(key, now)), ..unknown };
                };
                let doubted_at = shared.doubted_at();
                match sessions.find_since(key, doubted_at, now) {
                    Some(found) if found.used_at >= doubted_at => Self {
                        server: Some(found.server),
                        elsewhere: Elsewhere::Another,
                        is_to_be_renewed: shared.is_due(found.used_at, now),
                        ..unknown
                    },
                    // Not used since it became doubtful: another instance may have moved it.
                    found => {
                        let server = found.map(|found| found.server);
                        Self { server, elsewhere: Elsewhere::Where, ..unknown }
                    }
                }
            }
        }
    }

    /// Creates a session without a known server.
    fn unknown(stickiness: &'a Stickiness, key: Option<SessionKey>) -> Self {
        Self {
            stickiness,
            key,
            server: None,
            elsewhere: Elsewhere::Nothing,
            is_leaving: false,
            is_to_be_renewed: false,
            is_https: false,
        }
    }

    /// Asks other instances where the session is, and notes that they were asked. Notifies them if they do not know it.
    async fn ask_elsewhere(&mut self, worker: &Worker) {
        self.elsewhere = Elsewhere::Nothing;
        let Stickiness::Table { sessions, shared: Some(shared), .. } = self.stickiness else { return };
        let Some(key) = self.key else { return };
        let Some(found) = shared.look(key) else {
            // Only this instance knows the session.
            self.server.iter().for_each(|server| sessions.bind(key, *server, worker.coarse_time()));
            return;
        };
        let deadline = worker.deadlines.deadline();
        // Too late or lost: the server that is known here is used, or the policy chooses one.
        let Ok(Ok(found)) = deadline.within(ELSEWHERE_MAX, found).await else { return };
        match (found, self.server) {
            (Some(server), _) => {
                self.server = Some(server);
                sessions.bind(key, server, worker.coarse_time());
            }
            (None, Some(server)) => {
                sessions.bind(key, server, worker.coarse_time());
                shared.tell(key, server, Precedence::Known);
            }
            (None, None) => {}
        }
    }

    /// Returns the session's server, if it has one that can be asked.
    #[inline(never)]
    fn stay(
        &mut self,
        worker: &Worker,
        upstream: &WorkerUpstream,
        ask: &PickInput<'_>,
        has_waited: bool,
        detours: &mut Detours,
    ) -> Option<ChosenServer> {
        if self.elsewhere == Elsewhere::Where {
            return Some(ChosenServer::Elsewhere);
        }
        match upstream.picker.borrow_mut().follow(self.server?, ask) {
            Ok(server) => Some(ChosenServer::Server(server)),
            // A full server is waited for once, before the session leaves it.
            Err(SessionLoss::Full) if !has_waited => Some(ChosenServer::Full),
            // Another instance may have moved the session already.
            Err(_) if self.elsewhere == Elsewhere::Another => {
                self.elsewhere = Elsewhere::Where;
                Some(ChosenServer::Elsewhere)
            }
            Err(loss) => {
                detours.session_moved = self.moves_on(worker, upstream, loss);
                None
            }
        }
    }

    /// Moves a session whose server cannot be asked to the policy's choice, where it stays. Returns the reason and the
    /// previous server.
    #[cold]
    fn moves_on(
        &mut self,
        worker: &Worker,
        upstream: &WorkerUpstream,
        loss: SessionLoss,
    ) -> Option<(&'static str, Option<usize>)> {
        let server = self.server.take()?;
        self.is_leaving = true;
        let plan = &upstream.plan;
        let place = plan.fleet.index_of(server);
        let name = place.map_or("(removed)", |place| plan.servers[place].authority.as_str());
        let (word, why) = match loss {
            SessionLoss::Removed => ("removed", "it is no longer configured"),
            SessionLoss::Stopped => ("stopped", "it is not up"),
            SessionLoss::CircuitOpen => ("circuit-open", "its circuit is open"),
            SessionLoss::Tried => ("tried", "it did not respond"),
            SessionLoss::Full => ("full", "it is full"),
        };
        worker.counters.sessions_moved.increment();
        message::info(&format!("upstream {}: sessions leave server {name}: {why}", plan.config.name));
        Some((word, place))
    }
}
