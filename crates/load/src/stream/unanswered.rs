//! Messages of a stream that wait for their answer. No I/O, no clock.

use std::collections::VecDeque;
use std::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SentMessage {
    pub(crate) number: u64,
    pub(crate) due: Instant,
    pub(crate) sent: Instant,
    /// Its number among the active requests of the thread, if it belongs to the measured window.
    pub(crate) under_way: Option<usize>,
}

/// The message that an answer belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestOfAnswer {
    Next(SentMessage),
    /// A later message was answered first.
    Late(SentMessage),
    Nothing,
}

/// Unanswered messages, in the order in which they were sent.
#[derive(Debug, Default)]
pub(crate) struct Unanswered {
    /// A later message was answered.
    skipped: VecDeque<SentMessage>,
    waiting: VecDeque<SentMessage>,
}

impl Unanswered {
    pub(crate) fn push(&mut self, sent: SentMessage) {
        self.waiting.push_back(sent);
    }

    pub(crate) fn len(&self) -> usize {
        self.skipped.len() + self.waiting.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Send time of the oldest message that has not been overtaken.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.waiting.front().map(|sent| sent.sent)
    }

    /// Takes the answered message: the one with this number; without a number, the first.
    pub(crate) fn answer(&mut self, number: Option<u64>) -> RequestOfAnswer {
        let Some(number) = number else {
            return self.waiting.pop_front().map_or(RequestOfAnswer::Nothing, RequestOfAnswer::Next);
        };
        match self.waiting.iter().position(|sent| sent.number == number) {
            Some(at) => {
                self.skipped.extend(self.waiting.drain(..at));
                self.waiting.pop_front().map_or(RequestOfAnswer::Nothing, RequestOfAnswer::Next)
            }
            None => match self.skipped.iter().position(|sent| sent.number == number) {
                Some(at) => self.skipped.remove(at).map_or(RequestOfAnswer::Nothing, RequestOfAnswer::Late),
                None => RequestOfAnswer::Nothing,
            },
        }
    }

    /// Takes the messages that the answer to a later one has overtaken.
    pub(crate) fn take_skipped(&mut self) -> impl Iterator<Item = SentMessage> {
        self.skipped.drain(..)
    }

    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = SentMessage> {
        self.skipped.drain(..).chain(self.waiting.drain(..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_find_their_messages_and_overtaken_ones_are_known() {
        let now = Instant::now();
        let sent = |number| SentMessage { number, due: now, sent: now, under_way: None };
        let mut unanswered = Unanswered::default();
        (1..=6).for_each(|number| unanswered.push(sent(number)));
        assert_eq!(unanswered.answer(Some(1)), RequestOfAnswer::Next(sent(1)));
        assert_eq!(unanswered.answer(Some(4)), RequestOfAnswer::Next(sent(4)));
        assert_eq!(unanswered.answer(Some(3)), RequestOfAnswer::Late(sent(3)));
        assert_eq!(unanswered.answer(Some(3)), RequestOfAnswer::Nothing);
        assert_eq!(unanswered.answer(None), RequestOfAnswer::Next(sent(5)));
        assert_eq!(unanswered.len(), 2);
        assert_eq!(unanswered.take_skipped().collect::<Vec<_>>(), [sent(2)]);
        assert_eq!(unanswered.take_all().collect::<Vec<_>>(), [sent(6)]);
        assert_eq!((unanswered.answer(None), unanswered.oldest()), (RequestOfAnswer::Nothing, None));
    }
}
