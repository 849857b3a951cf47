//! Chooses the server for a request or a layer 4 connection: that of its session, else by the policy; and waits for a
//! server with room.

use std::rc::Rc;
use std::time::Instant;
use telemetry::message;

use balance::{Ask, Loss, NoneUp, Parts, Pick, Room, ServerId, SessionKey, Stuck};

use crate::context::client::Client;
use crate::context::exchange::{ExchangeContext, RoutedRequest};
use crate::context::exchange_slot::{Request, Response};
use crate::context::failure::Failure;
use crate::context::plan::{Precedence, Stickiness};
use crate::context::record::Detours;
use crate::context::seen;
use crate::context::worker::Worker;
use crate::upstream::wait_queue::WhatFor;
use crate::upstream::{PickedServer, Upstream};
use transport::deadline::Ticks;

/// How long other instances are asked for a session at most: the control side answers in a fifth of that.
const ELSEWHERE_MAX: Ticks = Ticks(1);

/// The choice of servers for one request or connection.
pub(crate) struct Choice<'a> {
    worker: &'a Worker,
    client: &'a Client,
    upstream: &'a Rc<Upstream>,
    /// For policies that hash.
    key: Option<u64>,
    session: Option<Affinity<'a>>,
    /// The tick until which it may wait for room, once it does.
    waits_until: Option<u32>,
}

/// What there is to ask.
enum Found {
    Server(usize),
    /// A server that is not up, since no other is left.
    LastResort(usize),
    /// All permitted servers are at their limits.
    Full,
    /// Other instances are to be asked first where the session is.
    Elsewhere,
}

/// The session that a request is one of.
struct Affinity<'a> {
    stickiness: &'a Stickiness,
    /// In the table, for what names itself.
    key: Option<SessionKey>,
    /// Where it is, as far as that is known.
    server: Option<ServerId>,
    /// What other instances may know of it.
    elsewhere: Elsewhere,
    /// Whether it has left its server.
    is_leaving: bool,
    /// Whether its cookie has to be made anew, or other instances be told of it, though it stays where it is.
    is_to_be_renewed: bool,
    /// Whether the client came by https.
    is_https: bool,
}

/// What other instances may know of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Elsewhere {
    /// Nothing, or no more than is known here.
    Nothing,
    /// Where it is, should it have to leave its server here.
    Another,
    /// Where it is: they are asked first.
    Where,
}

impl<'a> Choice<'a> {
    /// Reads from a request what the choice depends on.
    pub(crate) fn of_request(
        ctx: &'a ExchangeContext<'a>,
        upstream: &'a Rc<Upstream>,
        routed: &RoutedRequest,
        request: &Request,
    ) -> Self {
        let ExchangeContext { worker, client, .. } = *ctx;
        let plan = &upstream.plan;
        if !plan.fleet.hashes() && plan.stickiness.is_none() {
            return Self { worker, client, upstream, key: None, session: None, waits_until: None };
        }
        let bytes = request.head_bytes();
        let fields = Fields { fields: &request.head.fields, bytes };
        let target = &routed.target;
        let query = target.path_and_query.of(bytes).get(target.path.of(bytes).len() + 1..);
        let parts = Parts { client: routed.client, path: target.path.of(bytes), query, fields: &fields };
        let mut choice = Self::new(worker, client, upstream, &parts);
        if let Some(session) = &mut choice.session {
            session.is_https = seen::is_secure(ctx, &request.head, bytes);
        }
        choice
    }

    /// The choice for a layer 4 connection, of which only the client's address is known.
    pub(crate) fn of_connection(worker: &'a Worker, client: &'a Client, upstream: &'a Rc<Upstream>) -> Self {
        let fields = Fields { fields: &[], bytes: b"" };
        let parts = Parts { client: client.address, path: b"", query: None, fields: &fields };
        Self::new(worker, client, upstream, &parts)
    }

    fn new(
        worker: &'a Worker,
        client: &'a Client,
        upstream: &'a Rc<Upstream>,
        parts: &Parts<'_, Fields<'_>>,
    ) -> Self {
        let plan = &upstream.plan;
        let hash = |name: &[u8]| balance::Secret::default().hash(name);
        let key = plan.fleet.hashes().then(|| plan.config.hash_key.session(parts, hash)).flatten();
        let session = plan.stickiness.as_deref().map(|stickiness| Affinity::of(stickiness, worker, parts));
        Self { worker, client, upstream, key, session, waits_until: None }
    }

    /// Chooses the next server that was not tried, waiting for one with room if necessary. The request counts as under
    /// way with it from now on.
    pub(crate) async fn next(
        &mut self,
        tried: &[usize],
        detours: &mut Detours,
    ) -> Result<PickedServer, Failure> {
        let mut has_waited = false;
        // Not again at once, as there is room for others than those it is meant for.
        let mut looks_again = true;
        loop {
            match self.pick(tried, has_waited, detours)? {
                Found::Elsewhere => {
                    if let Some(session) = &mut self.session {
                        session.ask_elsewhere(self.worker).await;
                    }
                }
                Found::Full => {
                    looks_again = self.wait(tried, looks_again, detours).await?;
                    has_waited = true;
                }
                found => {
                    // Other workers ask it as well: it may have become full since.
                    if let Some(picked) = self.begin(found) {
                        return Ok(picked);
                    }
                }
            }
        }
    }

    /// Chooses a server without waiting. After `None`, `next` waits, or tells why there is none.
    #[inline]
    pub(crate) fn at_once(&mut self, tried: &[usize], detours: &mut Detours) -> Option<PickedServer> {
        let found = self.pick(tried, false, detours).ok()?;
        self.begin(found)
    }

    /// Gives back a server that is not asked after all.
    pub(crate) fn give_back(&self, picked: &PickedServer) {
        self.upstream.failed(self.worker, picked, Failure::ClientGone, false);
    }

    /// Whether there is a server that was not tried. Reserves nothing, and moves no session.
    #[cold]
    pub(crate) fn has_untried(&self, tried: &[usize], room: Room) -> bool {
        let ask = Ask { now: self.worker.coarse_time(), random: 0, key: self.key, tried };
        self.upstream.picker.borrow_mut().has_untried(&ask, room)
    }

    #[inline]
    fn begin(&self, found: Found) -> Option<PickedServer> {
        let now = self.worker.coarse_time();
        match found {
            Found::Server(server) => self.upstream.begin(server, false, now),
            Found::LastResort(server) => self.upstream.begin(server, true, now),
            Found::Full | Found::Elsewhere => None,
        }
    }

    /// A server to ask, if one has room.
    fn pick(&mut self, tried: &[usize], has_waited: bool, detours: &mut Detours) -> Result<Found, Failure> {
        if !has_waited && self.upstream.has_queue() {
            // Who came first is served first.
            return Ok(Found::Full);
        }
        let ask = Ask { now: self.worker.coarse_time(), random: fastrand::u64(..), key: self.key, tried };
        if let Some(session) = &mut self.session
            && let Some(found) = session.stay(self.worker, self.upstream, &ask, has_waited, detours)
        {
            return Ok(found);
        }
        let mut picker = self.upstream.picker.borrow_mut();
        match picker.pick(&ask) {
            Pick::Server(server) => Ok(Found::Server(server)),
            Pick::Full => Ok(Found::Full),
            Pick::None if tried.is_empty() => Err(self.nobody()),
            Pick::None => picker.last_resort(&ask).map(Found::LastResort).ok_or_else(|| self.nobody()),
        }
    }

    /// What it means that no server is left.
    #[cold]
    fn nobody(&self) -> Failure {
        match self.upstream.plan.fleet.settings().none_up {
            NoneUp::Fail => Failure::NoBackend,
            NoneUp::Refuse | NoneUp::TryAll => Failure::NoServer,
        }
    }

    /// Whether there is room now: with the server of its session, as long as it has one.
    fn is_room(&self, tried: &[usize]) -> bool {
        let ask = Ask { now: self.worker.coarse_time(), random: fastrand::u64(..), key: self.key, tried };
        let mut picker = self.upstream.picker.borrow_mut();
        match self.session.as_ref().and_then(|session| session.server) {
            Some(server) => picker.follow(server, &ask) != Err(Loss::Full),
            None => picker.pick(&ask) != Pick::Full,
        }
    }

    /// Waits for room, and notes for how long; not if there is some already, which it `looks_again` for. Says whether it had
    /// to.
    async fn wait(
        &mut self,
        tried: &[usize],
        looks_again: bool,
        detours: &mut Detours,
    ) -> Result<bool, Failure> {
        let began = Instant::now();
        let mut waits_until = self.waits_until;
        let is_room = || looks_again && self.is_room(tried);
        let has_own = self.session.as_ref().is_some_and(|session| session.server.is_some());
        let what_for = if has_own { WhatFor::ItsOwn } else { WhatFor::Any };
        let deadline = &self.client.deadline;
        let turn = self.upstream.wait(self.worker, deadline, &mut waits_until, what_for, is_room);
        let outcome = self.worker.holding.during(turn).await;
        self.waits_until = waits_until;
        if !matches!(outcome, Ok(false) | Err(Failure::UpstreamFull)) {
            *detours.queued.get_or_insert_default() += began.elapsed();
        }
        outcome.inspect_err(|_| detours.shed = Some("queue"))
    }

    /// Binds the session to the server that has responded. Adds the cookie to the response, if there is one and the
    /// session needs it.
    pub(crate) fn settle(&self, picked: &PickedServer, response: Option<&mut Response>) {
        let Some(session) = &self.session else { return };
        let worker = self.worker;
        let server = self.upstream.plan.fleet.members()[picked.server].id;
        let is_moved = session.server != Some(server);
        match session.stickiness {
            Stickiness::Cookie(cookie, _) if is_moved || session.is_to_be_renewed => {
                // A connection that is passed on has no place for one.
                let Some(Response { added, .. }) = response else { return };
                added.extend_from_slice(b"Set-Cookie: ");
                cookie.write(added, server, worker.unix_seconds(), session.is_https);
                added.extend_from_slice(b"\r\n");
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
                let Some(Response { head, buffer, .. }) = response else { return };
                let fields = Fields { fields: &head.fields, bytes: buffer.filled() };
                let learnt =
                    |name: &String| balance::learnt_cookie(&fields, name, |value| sessions.key(value));
                if let Some(key) = learns.as_ref().and_then(learnt) {
                    sessions.bind(key, server, worker.coarse_time());
                    if session.key != Some(key) {
                        tell(key, Precedence::New);
                    }
                }
            }
        }
    }
}

impl<'a> Affinity<'a> {
    #[inline(never)]
    fn of(stickiness: &'a Stickiness, worker: &Worker, parts: &Parts<'_, Fields<'_>>) -> Self {
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
                    found => {
                        let server = found.map(|found| found.server);
                        Self { server, elsewhere: Elsewhere::Where, ..unknown }
                    }
                }
            }
        }
    }

    /// A session of which nothing is known, but perhaps its key.
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

    /// Asks other instances where it is, and notes that they were asked. What they do not know they are told.
    async fn ask_elsewhere(&mut self, worker: &Worker) {
        self.elsewhere = Elsewhere::Nothing;
        let Stickiness::Table { sessions, shared: Some(shared), .. } = self.stickiness else { return };
        let Some(key) = self.key else { return };
        let Some(found) = shared.look(key) else {
            // What this instance has is all that can be known.
            self.server.iter().for_each(|server| sessions.bind(key, *server, worker.coarse_time()));
            return;
        };
        let deadline = worker.deadlines.deadline();
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

    /// The server that it has, if it has one and that may be asked.
    #[inline(never)]
    fn stay(
        &mut self,
        worker: &Worker,
        upstream: &Upstream,
        ask: &Ask<'_>,
        has_waited: bool,
        detours: &mut Detours,
    ) -> Option<Found> {
        if self.elsewhere == Elsewhere::Where {
            return Some(Found::Elsewhere);
        }
        match upstream.picker.borrow_mut().follow(self.server?, ask) {
            Ok(server) => Some(Found::Server(server)),
            Err(Loss::Full) if !has_waited => Some(Found::Full),
            // Another instance may have moved it already.
            Err(_) if self.elsewhere == Elsewhere::Another => {
                self.elsewhere = Elsewhere::Where;
                Some(Found::Elsewhere)
            }
            Err(loss) => {
                detours.session_moved = self.moves_on(worker, upstream, loss);
                None
            }
        }
    }

    /// Its server cannot be asked: it goes where the policy says, and stays there. Also says why, and which server that
    /// was.
    #[cold]
    fn moves_on(
        &mut self,
        worker: &Worker,
        upstream: &Upstream,
        loss: Loss,
    ) -> Option<(&'static str, Option<usize>)> {
        let server = self.server.take()?;
        self.is_leaving = true;
        let plan = &upstream.plan;
        let place = plan.fleet.index_of(server);
        let name = place.map_or("(removed)", |place| plan.servers[place].authority.as_str());
        let (word, why) = match loss {
            Loss::Removed => ("removed", "it is no longer configured"),
            Loss::Stopped => ("stopped", "it is not up"),
            Loss::CircuitOpen => ("circuit-open", "its circuit is open"),
            Loss::Tried => ("tried", "it did not respond"),
            Loss::Full => ("full", "it is full"),
        };
        worker.counters.sessions_moved.increment();
        message::info(&format!("upstream {}: sessions leave server {name}: {why}", plan.config.name));
        Some((word, place))
    }
}

/// Fields of a head, for those who look for names of their own.
struct Fields<'a> {
    fields: &'a [http1::Field],
    bytes: &'a [u8],
}

impl balance::Fields for Fields<'_> {
    fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let is_it =
            move |field: &&http1::Field| field.name.of(self.bytes).eq_ignore_ascii_case(name.as_bytes());
        self.fields.iter().filter(is_it).map(|field| field.value.of(self.bytes))
    }
}
