//! Messages of a stream that wait for their answer. No I/O, no clock.

use std::collections::VecDeque;
use std::time::Instant;

/// A message that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) number: u64,
    pub(crate) due: Instant,
    pub(crate) sent: Instant,
    /// Its number among the active requests of the thread, if it belongs to the measured window.
    pub(crate) under_way: Option<usize>,
}

/// What an answer answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answered {
    Next(Sent),
    /// A later one was answered before.
    Late(Sent),
    Nothing,
}

/// Messages without an answer, in the order in which they were sent.
#[derive(Debug, Default)]
pub(crate) struct Unanswered {
    /// A later message was answered.
    skipped: VecDeque<Sent>,
    waiting: VecDeque<Sent>,
}

impl Unanswered {
    pub(crate) fn push(&mut self, sent: Sent) {
        self.waiting.push_back(sent);
    }

    pub(crate) fn len(&self) -> usize {
        self.skipped.len() + self.waiting.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// When the oldest message that has not been overtaken was sent.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.waiting.front().map(|sent| sent.sent)
    }

    /// Takes the message that is answered: that of this number, or without one the first.
    pub(crate) fn answer(&mut self, number: Option<u64>) -> Answered {
        let Some(number) = number else {
            return self.waiting.pop_front().map_or(Answered::Nothing, Answered::Next);
        };
        match self.waiting.iter().position(|sent| sent.number == number) {
            Some(at) => {
                self.skipped.extend(self.waiting.drain(..at));
                self.waiting.pop_front().map_or(Answered::Nothing, Answered::Next)
            }
            None => match self.skipped.iter().position(|sent| sent.number == number) {
                Some(at) => self.skipped.remove(at).map_or(Answered::Nothing, Answered::Late),
                None => Answered::Nothing,
            },
        }
    }

    /// The messages that were overtaken by the answer to a later one.
    pub(crate) fn take_skipped(&mut self) -> impl Iterator<Item = Sent> {
        self.skipped.drain(..)
    }

    /// All messages.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Sent> {
        self.skipped.drain(..).chain(self.waiting.drain(..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_find_their_messages_and_overtaken_ones_are_known() {
        let now = Instant::now();
        let sent = |number| Sent { number, due: now, sent: now, under_way: None };
        let mut unanswered = Unanswered::default();
        (1..=6).for_each(|number| unanswered.push(sent(number)));
        assert_eq!(unanswered.answer(Some(1)), Answered::Next(sent(1)));
        assert_eq!(unanswered.answer(Some(4)), Answered::Next(sent(4)));
        assert_eq!(unanswered.answer(Some(3)), Answered::Late(sent(3)));
        assert_eq!(unanswered.answer(Some(3)), Answered::Nothing);
        assert_eq!(unanswered.answer(None), Answered::Next(sent(5)));
        assert_eq!(unanswered.len(), 2);
        assert_eq!(unanswered.take_skipped().collect::<Vec<_>>(), [sent(2)]);
        assert_eq!(unanswered.take_all().collect::<Vec<_>>(), [sent(6)]);
        assert_eq!((unanswered.answer(None), unanswered.oldest()), (Answered::Nothing, None));
    }
}
