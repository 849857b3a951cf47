//! Which server a request is tried on: that of its session, else the policy's choice; and the wait for one with room.

use std::rc::Rc;
use std::time::Instant;

use balance::{Ask, Loss, Parts, Pick, ServerId, SessionKey, Stuck};

use crate::control::notice;
use crate::exchange::{Admitted, Call};
use crate::failure::Failure;
use crate::lane::{Request, Response};
use crate::plan::Stickiness;
use crate::record::Record;
use crate::upstream::{Asked, Upstream};

/// The choice of servers for one request.
pub(crate) struct Choice<'a> {
    call: &'a Call<'a>,
    upstream: &'a Rc<Upstream>,
    /// For policies that hash.
    key: Option<u64>,
    session: Option<Session<'a>>,
    /// The tick until which it may wait for room, once it does.
    waits_until: Option<u32>,
}

/// What there is to ask.
enum Found {
    Server(usize),
    /// One that is not up, for want of another.
    LastResort(usize),
    /// All that may be asked have as much under way as they may have.
    Full,
}

/// The session that a request is one of.
struct Session<'a> {
    stickiness: &'a Stickiness,
    /// In the table, for what names itself.
    key: Option<SessionKey>,
    /// Where it is, as far as that is known.
    server: Option<ServerId>,
    /// Whether its cookie has to be made anew though it stays where it is.
    is_to_be_renewed: bool,
}

impl<'a> Choice<'a> {
    /// Reads from the request what its upstream goes by.
    pub(crate) fn new(
        call: &'a Call<'a>,
        upstream: &'a Rc<Upstream>,
        admitted: &Admitted,
        request: &Request,
    ) -> Self {
        let plan = &upstream.plan;
        if !plan.fleet.hashes() && plan.stickiness.is_none() {
            return Self { call, upstream, key: None, session: None, waits_until: None };
        }
        let bytes = request.head_bytes();
        let fields = Fields { fields: &request.head.fields, bytes };
        let target = &admitted.target;
        let query = target.path_and_query.of(bytes).get(target.path.of(bytes).len() + 1..);
        let parts = Parts { client: admitted.client, path: target.path.of(bytes), query, fields: &fields };
        let hash = |name: &[u8]| balance::Secret::default().hash(name);
        let key = plan.fleet.hashes().then(|| plan.config.hash_key.session(&parts, hash)).flatten();
        let session = plan.stickiness.as_deref().map(|stickiness| Session::of(stickiness, call, &parts));
        Self { call, upstream, key, session, waits_until: None }
    }

    /// The next server, but for those that the request was tried on; it is under way there from now on.
    pub(crate) async fn next(&mut self, tried: &[usize], record: &mut Record<'_>) -> Result<Asked, Failure> {
        let mut has_waited = false;
        loop {
            let found = self.pick(tried, has_waited, record)?;
            let asked = match found {
                Found::Server(server) | Found::LastResort(server) => self.upstream.begin(server),
                Found::Full => {
                    self.wait(record).await?;
                    has_waited = true;
                    continue;
                }
            };
            // Other workers ask it as well: it may have become full since.
            if let Some(mut asked) = asked {
                asked.is_last_resort = matches!(found, Found::LastResort(_));
                return Ok(asked);
            }
        }
    }

    /// A server to ask, if one has room.
    fn pick(&mut self, tried: &[usize], has_waited: bool, record: &mut Record<'_>) -> Result<Found, Failure> {
        let worker = self.call.worker;
        if !has_waited && self.upstream.has_queue() {
            // Who came first is served first.
            return Ok(Found::Full);
        }
        let ask = Ask { now: worker.coarse_time(), random: fastrand::u64(..), key: self.key, tried };
        let mut picker = self.upstream.picker.borrow_mut();
        if let Some(session) = &mut self.session
            && let Some(server) = session.server
        {
            match picker.follow(server, &ask) {
                Ok(server) => return Ok(Found::Server(server)),
                Err(Loss::Full) if !has_waited => return Ok(Found::Full),
                Err(loss) => session.moves_on(self.upstream, loss, record),
            }
        }
        match picker.pick(&ask) {
            Pick::Server(server) => Ok(Found::Server(server)),
            Pick::Full => Ok(Found::Full),
            Pick::None if tried.is_empty() => Err(Failure::NoServer),
            Pick::None => picker.last_resort(&ask).map(Found::LastResort).ok_or(Failure::NoServer),
        }
    }

    /// Waits for room, and notes for how long.
    async fn wait(&mut self, record: &mut Record<'_>) -> Result<(), Failure> {
        let Call { worker, client, .. } = *self.call;
        let began = Instant::now();
        let outcome = self.upstream.wait(worker, &client.deadline, &mut self.waits_until).await;
        if outcome != Err(Failure::UpstreamFull) {
            *record.queued.get_or_insert_default() += began.elapsed();
        }
        outcome.inspect_err(|_| record.shed = Some("queue"))
    }

    /// A server has answered: the session is there from now on. The response is added a line where that takes one.
    pub(crate) fn settle(&self, asked: &Asked, response: &mut Response) {
        let Some(session) = &self.session else { return };
        let Response { head, buffer, added, .. } = response;
        let worker = self.call.worker;
        let server = self.upstream.plan.fleet.members()[asked.server].id;
        let is_moved = session.server != Some(server);
        match session.stickiness {
            Stickiness::Cookie(cookie, _) if is_moved || session.is_to_be_renewed => {
                added.extend_from_slice(b"Set-Cookie: ");
                cookie.write(added, server, worker.unix_seconds());
                added.extend_from_slice(b"\r\n");
            }
            Stickiness::Cookie(..) => {}
            Stickiness::Table { sessions, learns, .. } => {
                if let Some(key) = session.key.filter(|_| is_moved) {
                    sessions.bind(key, server, worker.coarse_time());
                }
                let fields = Fields { fields: &head.fields, bytes: buffer.filled() };
                let learnt =
                    |name: &String| balance::learnt_cookie(&fields, name, |value| sessions.key(value));
                if let Some(key) = learns.as_ref().and_then(learnt) {
                    sessions.bind(key, server, worker.coarse_time());
                }
            }
        }
    }
}

impl<'a> Session<'a> {
    fn of(stickiness: &'a Stickiness, call: &Call<'_>, parts: &Parts<'_, Fields<'_>>) -> Self {
        match stickiness {
            Stickiness::Cookie(cookie, _) => {
                let stuck = cookie.read(parts.fields, call.worker.unix_seconds());
                Self {
                    stickiness,
                    key: None,
                    server: stuck.map(|stuck: Stuck| stuck.server),
                    is_to_be_renewed: stuck.is_some_and(|stuck| stuck.is_to_be_renewed),
                }
            }
            Stickiness::Table { source, sessions, .. } => {
                let key = source.session(parts, |name| sessions.key(name));
                let server = key.and_then(|key| sessions.find(key, call.worker.coarse_time()));
                Self { stickiness, key, server, is_to_be_renewed: false }
            }
        }
    }

    /// Its server cannot be asked: it goes where the policy says, and stays there.
    fn moves_on(&mut self, upstream: &Upstream, loss: Loss, record: &mut Record<'_>) {
        let Some(server) = self.server.take() else { return };
        let plan = &upstream.plan;
        let place = plan.fleet.index_of(server);
        let name = place.map_or("one that is gone", |place| plan.servers[place].authority.as_str());
        let (word, why) = match loss {
            Loss::Removed => ("removed", "it is not configured any more"),
            Loss::Stopped => ("stopped", "it is not up"),
            Loss::CircuitOpen => ("circuit-open", "its circuit is open"),
            Loss::Tried => ("tried", "it did not answer"),
            Loss::Full => ("full", "it has no room"),
        };
        record.session_moved(word, place);
        notice(&format!("upstream {}: sessions of server {name} move on: {why}", plan.config.name));
    }
}

/// Fields of a head, for those who look for names of their own.
struct Fields<'a> {
    fields: &'a [wire::Field],
    bytes: &'a [u8],
}

impl balance::Fields for Fields<'_> {
    fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let is_it =
            move |field: &&wire::Field| field.name.of(self.bytes).eq_ignore_ascii_case(name.as_bytes());
        self.fields.iter().filter(is_it).map(|field| field.value.of(self.bytes))
    }
}
