//! The received, lost and awaited messages of a stream, and their records.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::order::{MessageOrder, MessagePlace};
use super::plan::Workload;
use super::tally::Tally;
use super::unanswered::{RequestOfAnswer, SentMessage, Unanswered};
use crate::arrivals::RequestTurn;
use crate::failure::LoadFailure;
use crate::worker::LoadWorker;

/// The messages of one stream. Dropping it counts the missing ones.
pub(super) struct Ledger {
    worker: Rc<LoadWorker>,
    number: u64,
    /// Whether it receives messages of others, so that its gaps count.
    receives: bool,
    order: MessageOrder,
    pub(super) unanswered: Unanswered,
    /// When the last counted message arrived.
    last: Option<Instant>,
}

impl Ledger {
    pub(super) fn new(worker: &Rc<LoadWorker>, number: usize, receives: bool) -> Self {
        let worker = Rc::clone(worker);
        Self {
            worker,
            number: number as u64,
            receives,
            order: MessageOrder::default(),
            unanswered: Unanswered::default(),
            last: None,
        }
    }

    pub(super) fn tally(&self, count: impl FnOnce(&mut Tally)) {
        let mut record = self.worker.record.borrow_mut();
        count(record.tally.get_or_insert_with(|| Box::new(Tally::new())));
    }

    /// Records a sent message. `waits` is whether it expects an answer.
    pub(super) fn sent(
        &mut self,
        number: u64,
        turn: RequestTurn,
        free: Instant,
        sent: Instant,
        bytes: usize,
        waits: bool,
    ) {
        let under_way = turn.counted.then(|| self.worker.departure(&turn, free, sent, None));
        if turn.counted {
            self.tally(|tally| {
                tally.counts.sent += 1;
                tally.counts.sent_bytes += bytes as u64;
            });
        }
        if waits {
            self.unanswered.push(SentMessage { number, due: turn.due, sent, under_way });
        } else if let Some(under_way) = under_way {
            self.worker.settled(under_way);
        }
    }

    /// Records that all messages of a call were sent, the last at `sent`. Its one response answers them.
    pub(super) fn awaits(&mut self, number: u64, turn: RequestTurn, sent: Instant) {
        let under_way = turn.counted.then(|| self.worker.under_way.borrow_mut().add(turn.due, sent, None));
        self.unanswered.push(SentMessage { number, due: turn.due, sent, under_way });
    }

    /// Records a received message that answers a sent one.
    pub(super) fn answered(&mut self, payload: &[u8], now: Instant) {
        let Some(prepared) = &self.worker.shared.streams else { return };
        let stamp = if prepared.is_numbered { prepared.stamps.read(payload) } else { Default::default() };
        let answered = match stamp.sender {
            Some(sender) if sender != self.number => RequestOfAnswer::Nothing,
            _ => self.unanswered.answer(stamp.number),
        };
        let is_late = matches!(answered, RequestOfAnswer::Late(_));
        let (RequestOfAnswer::Next(sent) | RequestOfAnswer::Late(sent)) = answered else {
            if self.worker.is_measured(now) {
                self.tally(|tally| tally.counts.duplicates += 1);
            }
            return;
        };
        if let Some(under_way) = sent.under_way {
            self.arrived(now, payload.len(), Some((now - sent.due, now - sent.sent)), is_late);
            self.worker.settled(under_way);
        }
    }

    /// Records a message that answers none of ours; true if it counts. `number` overrides the number in its stamp.
    pub(super) fn received(&mut self, payload: &[u8], number: Option<u64>, now: Instant) -> bool {
        let Some(prepared) = &self.worker.shared.streams else { return false };
        let stamp = prepared.stamps.read(payload);
        let is_fan_out = matches!(prepared.plan.workload, Workload::FanOut { .. });
        let place = stamp.number.or(number).map(|number| self.order.take(stamp.sender.unwrap_or(0), number));
        let unix_ns = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let age_ns = stamp.sent_unix_ns.map(|sent| unix_ns as i128 - i128::from(sent));
        let delay = age_ns.map(|age| Duration::from_nanos(u64::try_from(age.max(0)).unwrap_or(u64::MAX)));
        if is_fan_out && place != Some(MessagePlace::Duplicate) {
            self.worker.arrived.set(self.worker.arrived.get() + 1);
        }
        // Our own messages of the warm-up are not counted as sent.
        let first = stamp.sender.filter(|_| prepared.is_numbered).and_then(|sender| {
            prepared
                .first_measured
                .get(usize::try_from(sender).ok()?)
                .map(|first| first.load(Ordering::Acquire))
        });
        let is_warm_up = first.zip(stamp.number).is_some_and(|(first, number)| number < first);
        if is_warm_up || !self.worker.is_measured(now) {
            return false;
        }
        if place == Some(MessagePlace::Duplicate) {
            self.tally(|tally| tally.counts.duplicates += 1);
            return true;
        }
        if age_ns.is_some_and(|age| age < 0) {
            self.tally(|tally| tally.counts.from_future += 1);
        }
        self.arrived(
            now,
            payload.len(),
            delay.map(|delay| (delay, delay)),
            place == Some(MessagePlace::OutOfOrder),
        );
        true
    }

    /// Records a message. `times` are from when it was due and from when it was sent.
    pub(super) fn arrived(
        &mut self,
        now: Instant,
        bytes: usize,
        times: Option<(Duration, Duration)>,
        is_late: bool,
    ) {
        let last = self.last.replace(now);
        self.tally(|tally| {
            tally.counts.received += 1;
            tally.counts.received_bytes += bytes as u64;
            tally.counts.out_of_order += u64::from(is_late);
            if let Some(last) = last {
                tally.gap(now - last);
            }
        });
        let (delay, service) = times.unzip();
        self.worker.record.borrow_mut().message(delay, service, now);
        self.worker.publish();
    }

    /// The stream broke or ended: waiting messages will not be answered, and the numbers may restart.
    pub(super) fn interrupted(&mut self) {
        let waiting: Vec<SentMessage> = self.unanswered.take_all().collect();
        self.lose(waiting);
        // Senders of a fan-out continue their numbers.
        if !self.is_fan_out() {
            let order = std::mem::take(&mut self.order);
            self.tally(|tally| tally.counts.lost += order.lost());
        }
    }

    /// Records that the waiting messages failed.
    pub(super) fn forget(&mut self, failure: Option<&LoadFailure>) {
        let is_late = matches!(failure, Some(LoadFailure::Timeout { .. }));
        for under_way in self.unanswered.take_all().filter_map(|sent| sent.under_way) {
            match is_late {
                true => self.worker.unanswered(under_way, Instant::now()),
                false => self.worker.settled(under_way),
            }
        }
    }

    /// Records that a whole call answers the first waiting message.
    pub(super) fn called(&mut self, bytes: usize, now: Instant) {
        let RequestOfAnswer::Next(sent) = self.unanswered.answer(None) else { return };
        if let Some(under_way) = sent.under_way {
            self.arrived(now, bytes, Some((now - sent.due, now - sent.sent)), false);
            self.worker.settled(under_way);
        }
    }

    fn is_fan_out(&self) -> bool {
        let prepared = self.worker.shared.streams.as_ref();
        prepared.is_some_and(|prepared| !prepared.sent.is_empty())
    }

    fn lose(&self, lost: Vec<SentMessage>) {
        for under_way in lost.into_iter().filter_map(|sent| sent.under_way) {
            self.tally(|tally| tally.counts.lost += 1);
            self.worker.unanswered(under_way, Instant::now());
        }
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        let Some(prepared) = &self.worker.shared.streams else { return };
        let skipped: Vec<SentMessage> = self.unanswered.take_skipped().collect();
        self.lose(skipped);
        if self.receives && prepared.is_numbered {
            for (sender, sent) in (0..).zip(&prepared.sent) {
                self.order.end(sender, 1, sent.load(Ordering::Relaxed) + 1);
            }
        }
        let lost = self.order.lost();
        let (window, now) = (self.worker.window(), Instant::now());
        let silent = window.filter(|_| self.receives).map(|window| {
            let end = window.end.map_or(now, |end| end.min(now));
            end.saturating_duration_since(self.last.map_or(window.start, |last| last.max(window.start)))
        });
        self.tally(|tally| {
            tally.counts.lost += lost;
            tally.longest_gap = tally.longest_gap.max(silent.unwrap_or_default());
        });
    }
}
