//! Data for operators who watch the proxy: live requests of a worker, and the clients with the most requests.
//!
//! With an admin API or a dashboard, a request leaves a note in its exchange slot. A worker reads the notes when asked,
//! and then counts clients for a minute.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use api::live::{RequestError, RequestStage, RequestUnderWay};
use telemetry::Busiest;

use crate::context::recent_errors::RecentErrors;
use crate::context::snapshot::Snapshot;

/// How long clients are counted after a question.
const WATCH: Duration = Duration::from_secs(60);
/// Length of a counting period. The previous period's counts are included.
const PERIOD: Duration = Duration::from_secs(10);
/// Maximum length of the noted method and path.
const LINE_BYTES_MAX: usize = 128;

/// A worker's answer to an operator.
pub struct WorkerView {
    /// The requests under way that take longest, the longest first.
    pub requests: Vec<RequestUnderWay>,
    /// The last failed requests, the newest last.
    pub errors: Vec<RequestError>,
    /// The requests of clients in the last seconds.
    pub clients: Busiest,
    /// The time that `clients` covers.
    pub clients_time: Duration,
}

/// A note about the request of an exchange slot.
#[derive(Default)]
pub(crate) struct SlotNote(RefCell<Noted>);

#[derive(Default)]
struct Noted {
    /// The plan of the request, which its indices refer to; `None` while there is no request.
    snapshot: Option<Rc<Snapshot>>,
    began: Option<Instant>,
    client: Option<IpAddr>,
    route: usize,
    /// Indices of upstream and server.
    server: Option<(usize, usize)>,
    is_answered: bool,
    line: Vec<u8>,
}

/// Facts about a request when it is noted.
pub(crate) struct RequestStart<'r> {
    pub(crate) snapshot: &'r Rc<Snapshot>,
    pub(crate) began: Instant,
    pub(crate) client: IpAddr,
    pub(crate) route: usize,
    pub(crate) method: &'r [u8],
    pub(crate) target: &'r [u8],
}

impl SlotNote {
    /// Notes a request that has begun.
    pub(crate) fn begin(&self, beginning: &RequestStart<'_>) {
        let RequestStart { snapshot, began, client, route, method, target } = *beginning;
        let noted = &mut *self.0.borrow_mut();
        noted.line.clear();
        noted.line.extend_from_slice(method);
        noted.line.push(b' ');
        // A query may contain secrets.
        let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
        let room = LINE_BYTES_MAX.saturating_sub(noted.line.len());
        noted.line.extend_from_slice(&path[..path.len().min(room)]);
        noted.snapshot = Some(Rc::clone(snapshot));
        noted.began = Some(began);
        noted.client = Some(client);
        noted.route = route;
        noted.server = None;
        noted.is_answered = false;
    }

    /// Notes the server that is about to be asked.
    pub(crate) fn asks(&self, upstream: usize, server: usize) {
        let noted = &mut *self.0.borrow_mut();
        noted.server = Some((upstream, server));
        noted.is_answered = false;
    }

    /// Notes that the server has begun to respond.
    pub(crate) fn is_answered(&self) {
        self.0.borrow_mut().is_answered = true;
    }

    /// Notes the end of the request.
    pub(crate) fn end(&self) {
        self.0.borrow_mut().snapshot = None;
    }

    fn began(&self) -> Option<Instant> {
        let noted = self.0.borrow();
        noted.began.filter(|_| noted.snapshot.is_some())
    }

    fn told(&self, now: Instant) -> Option<RequestUnderWay> {
        let noted = self.0.borrow();
        let plan = &noted.snapshot.as_ref()?.plan;
        let upstream = noted.server.and_then(|(upstream, _)| plan.upstreams.get(upstream));
        let server = noted.server.and_then(|(_, server)| upstream?.servers.get(server));
        Some(RequestUnderWay {
            seconds: now.saturating_duration_since(noted.began?).as_secs_f64(),
            client: noted.client?.to_string(),
            // The path is the client's text. Escaped, it cannot control a terminal.
            line: noted.line.escape_ascii().to_string(),
            route: plan.routes.get(noted.route)?.label.clone(),
            upstream: upstream.map(|upstream| upstream.config.name.clone()),
            server: server.map(|server| server.label.clone()),
            stage: match (noted.is_answered, noted.server) {
                (true, _) => RequestStage::Response,
                (false, Some(_)) => RequestStage::Server,
                (false, None) => RequestStage::Proxy,
            },
        })
    }
}

/// The notes and counts of a worker.
#[derive(Default)]
pub(crate) struct WatchedWorker {
    /// The notes of exchange slots. Notes of dropped slots are removed as the list grows.
    notes: RefCell<Vec<Weak<SlotNote>>>,
    is_on: Cell<bool>,
    counting: RefCell<Counting>,
    pub(crate) errors: RecentErrors,
}

#[derive(Default)]
struct Counting {
    /// Counts of this period and of the previous one.
    clients: Busiest,
    before: Busiest,
    /// When both began, on the worker's clock.
    began: Duration,
    before_began: Duration,
    /// When counting ends, unless it is asked for again.
    until: Duration,
}

impl Counting {
    /// Begins the next period, if this one is over.
    fn turn(&mut self, now: Duration) {
        if now.saturating_sub(self.began) >= PERIOD {
            self.before = std::mem::take(&mut self.clients);
            self.before_began = std::mem::replace(&mut self.began, now);
        }
    }
}

impl WatchedWorker {
    /// Creates the note of a new exchange slot.
    pub(crate) fn note(&self) -> Rc<SlotNote> {
        let mut notes = self.notes.borrow_mut();
        // Notes of dropped slots are only removed when the list would grow, which keeps the cost per slot constant.
        if notes.len() == notes.capacity() {
            notes.retain(|note| note.strong_count() > 0);
            let spare = notes.len().max(8);
            notes.reserve(spare);
        }
        let note = Rc::new(SlotNote::default());
        notes.push(Rc::downgrade(&note));
        note
    }

    /// Counts a request of a client, if counting is on.
    pub(crate) fn count(&self, client: IpAddr) {
        if self.is_on.get() {
            self.counting.borrow_mut().clients.count(client);
        }
    }

    /// Begins periods, and stops counting a minute after the last question. Called once a second; `now` is the time
    /// since the start.
    pub(crate) fn turn(&self, now: Duration) {
        if !self.is_on.get() {
            return;
        }
        let counting = &mut *self.counting.borrow_mut();
        if counting.until < now {
            self.is_on.set(false);
            *counting = Counting::default();
        } else {
            counting.turn(now);
        }
    }

    /// Returns the present data, and counts clients from now on.
    pub(crate) fn look(&self, requests_max: usize, clock: Instant, now: Duration) -> WorkerView {
        let counting = &mut *self.counting.borrow_mut();
        if !self.is_on.replace(true) {
            // The first question finds empty counts, which cover no time yet.
            *counting = Counting { began: now, before_began: now, ..Counting::default() };
        }
        counting.until = now + WATCH;
        counting.turn(now);
        let mut clients = counting.before.clone();
        clients.add(&counting.clients);
        WorkerView {
            requests: self.longest(requests_max, clock),
            errors: self.errors.all(),
            clients,
            clients_time: now.saturating_sub(counting.before_began),
        }
    }

    fn longest(&self, requests_max: usize, clock: Instant) -> Vec<RequestUnderWay> {
        let notes = self.notes.borrow();
        let mut under_way: Vec<(Instant, Rc<SlotNote>)> = notes
            .iter()
            .filter_map(|note| {
                let note = note.upgrade()?;
                Some((note.began()?, note))
            })
            .collect();
        under_way.sort_unstable_by_key(|(began, _)| *began);
        under_way.iter().take(requests_max).filter_map(|(_, note)| note.told(clock)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_counted_for_a_minute_after_a_question_and_twenty_seconds_are_told() {
        let (watched, clock) = (WatchedWorker::default(), Instant::now());
        let client: IpAddr = "192.0.2.1".parse().expect("an address");
        let seconds = Duration::from_secs;
        let look = |at: u64| {
            let view = watched.look(10, clock, seconds(at));
            (view.clients.total(), view.clients_time)
        };
        watched.count(client);
        assert_eq!(look(100), (0, seconds(0)));
        watched.count(client);
        assert_eq!(look(105), (1, seconds(5)));
        watched.count(client);
        assert_eq!(look(110), (2, seconds(10)));
        watched.count(client);
        assert_eq!(look(119), (3, seconds(19)));
        // The first period is over.
        assert_eq!(look(120), (1, seconds(10)));
        watched.count(client);
        (121..=180).for_each(|second| watched.turn(seconds(second)));
        watched.count(client);
        assert_eq!(look(180), (1, seconds(10)), "somebody has asked within a minute");
        (181..=241).for_each(|second| watched.turn(seconds(second)));
        watched.count(client);
        assert_eq!(look(242), (0, seconds(0)));
    }

    #[test]
    fn notes_of_slots_that_are_gone_are_let_go_of() {
        let watched = WatchedWorker::default();
        let kept: Vec<_> = (0..3).map(|_| watched.note()).collect();
        for _ in 0..1000 {
            watched.note();
        }
        assert!(watched.notes.borrow().capacity() < 40, "{}", watched.notes.borrow().capacity());
        assert_eq!(watched.notes.borrow().iter().filter(|note| note.strong_count() > 0).count(), kept.len());
    }
}
