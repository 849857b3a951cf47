//! The chain of toxics in one direction of a connection. Bytes go in, and come out late, cut or not at all; the chain
//! says when to call again. Toxics may be added, changed and removed while bytes are in the chain.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Buf, Bytes};

use crate::draw::Draws;
use crate::toxic::{DirectionEnding, Effect};
use crate::toxic_stage::{StageStep, ToxicStage, TransitPiece};

#[derive(Debug, Clone)]
pub struct ChainLink {
    /// Identifies the toxic, also after changes.
    pub id: u64,
    pub effect: Effect,
    /// The random numbers for this direction of this connection.
    pub draws: Draws,
}

/// The toxics between a sender and a receiver, with the bytes that they hold.
#[derive(Debug, Default)]
pub struct Chain {
    stages: Vec<ToxicStage>,
    out: VecDeque<Bytes>,
    ended: Option<DirectionEnding>,
}

impl Chain {
    /// Replaces the toxics. Bytes held by a removed toxic pass to the next one.
    pub fn set(&mut self, now: Duration, links: &[ChainLink]) {
        let is_kept = |stage: &ToxicStage| links.iter().any(|link| link.id == stage.id);
        while let Some(at) = self.stages.iter().position(|stage| !is_kept(stage)) {
            let (pieces, ended) = self.stages.remove(at).dissolve();
            match self.stages.get_mut(at) {
                Some(next) => {
                    pieces.into_iter().for_each(|piece| next.push(piece));
                    if let Some((ending, at)) = ended {
                        next.end(ending, at);
                    }
                }
                None => {
                    self.out.extend(pieces.into_iter().map(|piece| piece.bytes));
                    self.ended = self.ended.or(ended.map(|(ending, _)| ending));
                }
            }
        }
        let mut before = std::mem::take(&mut self.stages);
        for ChainLink { id, effect, draws } in links {
            self.stages.push(match before.iter().position(|stage| stage.id == *id) {
                Some(at) => {
                    let mut stage = before.remove(at);
                    stage.become_effect(*effect, now);
                    stage
                }
                None => ToxicStage::new(*id, *effect, now, draws.clone()),
            });
        }
    }

    /// Whether more bytes may be added. Otherwise they stay with the sender.
    pub fn has_room(&self) -> bool {
        self.ended.is_none()
            && !self.stages.iter().any(|stage| stage.is_done)
            && self.stages.first().map_or(self.out.is_empty(), ToxicStage::has_room)
    }

    /// Adds bytes that have arrived, at least one.
    pub fn push(&mut self, now: Duration, bytes: Bytes) {
        match self.stages.first_mut() {
            Some(first) => first.push(TransitPiece { bytes, at: now }),
            None => self.out.push_back(bytes),
        }
    }

    /// Records how the sender ended the stream. The end follows all earlier bytes.
    pub fn end(&mut self, now: Duration, ending: DirectionEnding) {
        match self.stages.first_mut() {
            Some(first) => first.end(ending, now),
            None => self.ended = self.ended.or(Some(ending)),
        }
    }

    /// Moves bytes that are due. Returns when to call again; `None` means after the next change of input or output.
    pub fn advance(&mut self, now: Duration) -> Option<Duration> {
        loop {
            let (mut has_moved, mut wake) = (false, None);
            for index in 0..self.stages.len() {
                let (stage, mut next) = match &mut self.stages[index..] {
                    [stage, next, ..] => (stage, Some(next)),
                    [stage] => (stage, None),
                    [] => break,
                };
                while !stage.is_done && next.as_ref().map_or(self.out.is_empty(), |next| next.has_room()) {
                    match (stage.step(now), &mut next) {
                        (StageStep::Pass(piece), Some(next)) => next.push(piece),
                        (StageStep::Pass(piece), None) => self.out.push_back(piece.bytes),
                        (StageStep::End(ending, at), next) => {
                            stage.is_done = true;
                            match next {
                                Some(next) => next.end(ending, at),
                                None => self.ended = self.ended.or(Some(ending)),
                            }
                        }
                        (StageStep::Wait(due), _) => {
                            wake = [wake, due].into_iter().flatten().min();
                            break;
                        }
                    }
                    has_moved = true;
                }
            }
            if !has_moved {
                return wake;
            }
        }
    }

    /// Returns the piece of bytes to write next.
    pub fn front(&self) -> Option<&[u8]> {
        self.out.front().map(|bytes| &**bytes)
    }

    /// Removes the first `count` bytes of the front piece, which have been written.
    pub fn written(&mut self, count: usize) {
        if let Some(front) = self.out.front_mut() {
            front.advance(count.min(front.len()));
            if front.is_empty() {
                self.out.pop_front();
            }
        }
    }

    /// Returns how the direction has ended, once everything before the end is written.
    pub fn ending(&self) -> Option<DirectionEnding> {
        self.ended.filter(|_| self.out.is_empty())
    }

    /// Whether the chain holds nothing that may still be written.
    pub fn is_empty(&self) -> bool {
        self.out.is_empty() && self.stages.iter().all(ToxicStage::is_empty)
    }

    /// Whether the chain is empty and has no toxics, so that bytes may bypass it.
    pub fn is_clear(&self) -> bool {
        self.stages.is_empty() && self.out.is_empty() && self.ended.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toxic::ToxicKind;

    /// Makes a chain of these toxics at time zero.
    fn chain(toxics: &[(&str, [i64; 3])]) -> Chain {
        let mut chain = Chain::default();
        chain.set(Duration::ZERO, &links(toxics));
        chain
    }

    fn links(toxics: &[(&str, [i64; 3])]) -> Vec<ChainLink> {
        let link = |(id, (name, values)): (usize, &(&str, [i64; 3]))| {
            let kind = ToxicKind::named(name).unwrap_or_else(|| panic!("{name} is a kind"));
            ChainLink { id: id as u64, effect: kind.effect(*values), draws: Draws::new(1, &[id as u64]) }
        };
        toxics.iter().enumerate().map(link).collect()
    }

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// Collects everything that comes out, and when, into a sink that is always ready, until nothing is due any more.
    fn run(chain: &mut Chain, from: Duration) -> Vec<(Duration, Vec<u8>)> {
        let (mut out, mut now) = (Vec::new(), from);
        loop {
            let wake = chain.advance(now);
            if let Some(front) = chain.front() {
                out.push((now, front.to_vec()));
                chain.written(usize::MAX);
                continue;
            }
            match wake {
                Some(wake) => now = wake,
                None => return out,
            }
        }
    }

    fn text(out: &[(Duration, Vec<u8>)]) -> String {
        out.iter().map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned()).collect()
    }

    #[test]
    fn latency_delays_every_piece_and_not_the_end() {
        let mut chain = chain(&[("latency", [100, 0, 0])]);
        chain.push(ms(0), Bytes::from_static(b"a"));
        chain.push(ms(30), Bytes::from_static(b"b"));
        chain.end(ms(31), DirectionEnding::End);
        assert_eq!(run(&mut chain, ms(31)), [(ms(100), b"a".to_vec()), (ms(130), b"b".to_vec())]);
        assert_eq!(chain.ending(), Some(DirectionEnding::End));
    }

    #[test]
    fn the_reset_of_a_source_overtakes_nothing() {
        for toxic in ["latency", "slow_start", "slow_close"] {
            let mut chain = chain(&[(toxic, [100, 0, 0])]);
            chain.push(ms(0), Bytes::from_static(b"a"));
            chain.end(ms(1), DirectionEnding::Reset);
            chain.advance(ms(1));
            assert_eq!(chain.ending(), None, "{toxic}");
            assert_eq!(text(&run(&mut chain, ms(1))), "a", "{toxic}");
            assert_eq!(chain.ending(), Some(DirectionEnding::Reset), "{toxic}");
        }
    }

    #[test]
    fn jitter_stays_within_its_bounds_and_changes_no_order() {
        let mut chain = chain(&[("latency", [100, 40, 0])]);
        for index in 0..100u8 {
            chain.push(ms(u64::from(index)), Bytes::from(vec![index]));
        }
        let out = run(&mut chain, ms(99));
        assert_eq!(out.len(), 100);
        for (index, (at, bytes)) in out.iter().enumerate() {
            assert_eq!(bytes, &[index as u8]);
            // An earlier piece may delay this one, by at most the difference between the two delays.
            assert!(*at >= ms(60 + index as u64) && *at <= ms(140 + index as u64), "{index} at {at:?}");
        }
        assert!(out.windows(2).any(|pair| pair[1].0 != pair[0].0 + ms(1)), "it varies");
    }

    #[test]
    fn delays_of_two_toxics_add_up() {
        let mut chain = chain(&[("latency", [100, 0, 0]), ("latency", [50, 0, 0])]);
        chain.push(ms(0), Bytes::from_static(b"a"));
        assert_eq!(run(&mut chain, ms(0)), [(ms(150), b"a".to_vec())]);
    }

    #[test]
    fn a_delay_counts_from_when_the_toxic_before_has_let_go() {
        for (first, left_ms) in [
            (("slow_start", [100, 0, 0]), &[100, 100][..]),
            (("slicer", [1, 0, 30_000]), &[0, 30]),
            (("latency", [70, 0, 0]), &[70]),
        ] {
            let mut chain = chain(&[first, ("latency", [50, 0, 0]), ("slow_close", [40, 0, 0])]);
            chain.push(ms(0), Bytes::from_static(b"a"));
            if left_ms.len() > 1 {
                chain.push(ms(0), Bytes::from_static(b"b"));
            }
            chain.end(ms(1), DirectionEnding::End);
            let mut due = ms(1);
            let mut out = Vec::new();
            while chain.ending().is_none() {
                let wake = chain.advance(due);
                if chain.front().is_some() {
                    out.push(due);
                    chain.written(usize::MAX);
                } else if let Some(wake) = wake {
                    due = wake;
                }
            }
            let late: Vec<_> = left_ms.iter().map(|left_ms| ms(left_ms + 50)).collect();
            assert_eq!(out, late, "{first:?}");
            // The latency adds nothing for the pause that the slicer makes behind its last piece.
            assert_eq!(Some(due), late.last().map(|last| *last + ms(40)), "{first:?}");
        }
    }

    #[test]
    fn a_slow_close_behind_another_is_later_still() {
        let mut chain = chain(&[("slow_close", [100, 0, 0]), ("slow_close", [50, 0, 0])]);
        chain.end(ms(0), DirectionEnding::End);
        assert_eq!((chain.advance(ms(100)), chain.ending()), (Some(ms(150)), None));
        chain.advance(ms(150));
        assert_eq!(chain.ending(), Some(DirectionEnding::End));
    }

    #[test]
    fn a_bandwidth_is_kept_over_pieces_of_any_size() {
        for size in [1usize, 700, 8192, 65536] {
            let mut chain = chain(&[("bandwidth", [100, 0, 0])]);
            let (mut sent, mut received, mut now, mut last) = (0, 0, ms(0), ms(0));
            while received < 200_000 {
                while sent < 200_000 && chain.has_room() {
                    let count = size.min(200_000 - sent);
                    chain.push(now, Bytes::from(vec![0; count]));
                    sent += count;
                }
                let wake = chain.advance(now);
                while let Some(front) = chain.front() {
                    received += front.len();
                    last = now;
                    chain.written(usize::MAX);
                    chain.advance(now);
                }
                now = wake.unwrap_or(now).max(now);
            }
            // 200 kB at 100 kB/s.
            assert!((ms(1990)..=ms(2010)).contains(&last), "{size}: {last:?}");
        }
    }

    #[test]
    fn a_bandwidth_of_nothing_holds_everything_until_it_is_removed() {
        let mut chain = chain(&[("bandwidth", [0, 0, 0])]);
        chain.push(ms(0), Bytes::from_static(b"kept"));
        chain.end(ms(1), DirectionEnding::End);
        assert!(run(&mut chain, ms(5000)).is_empty());
        assert_eq!(chain.ending(), None);
        chain.set(ms(6000), &[]);
        assert_eq!(text(&run(&mut chain, ms(6000))), "kept");
        assert_eq!(chain.ending(), Some(DirectionEnding::End));
    }

    #[test]
    fn no_credit_is_saved_while_nothing_flows() {
        let mut chain = chain(&[("bandwidth", [1, 0, 0])]);
        chain.push(ms(10_000), Bytes::from(vec![0; 1000]));
        let out = run(&mut chain, ms(10_000));
        assert_eq!(out.last().map(|(at, _)| *at), Some(ms(11_000)));
    }

    #[test]
    fn a_slow_close_delays_nothing_but_the_end() {
        let mut chain = chain(&[("slow_close", [500, 0, 0])]);
        chain.push(ms(0), Bytes::from_static(b"a"));
        chain.end(ms(10), DirectionEnding::End);
        chain.advance(ms(10));
        assert_eq!(chain.front(), Some(&b"a"[..]));
        chain.written(1);
        assert_eq!((chain.advance(ms(20)), chain.ending()), (Some(ms(510)), None));
        assert_eq!((chain.advance(ms(510)), chain.ending()), (None, Some(DirectionEnding::End)));
    }

    #[test]
    fn a_timeout_swallows_everything_and_then_closes() {
        let mut chain = chain(&[("timeout", [200, 0, 0])]);
        chain.push(ms(0), Bytes::from_static(b"lost"));
        assert_eq!(chain.advance(ms(0)), Some(ms(200)));
        chain.push(ms(150), Bytes::from_static(b"lost"));
        assert_eq!(chain.advance(ms(160)), Some(ms(350)), "it begins anew with each piece");
        assert!(run(&mut chain, ms(350)).is_empty());
        assert_eq!(chain.ending(), Some(DirectionEnding::Close));
    }

    #[test]
    fn a_timeout_that_becomes_another_begins_anew() {
        let mut chain = chain(&[("timeout", [0, 0, 0])]);
        chain.push(ms(100), Bytes::from_static(b"lost"));
        assert_eq!(chain.advance(ms(100)), None);
        chain.set(ms(1500), &links(&[("timeout", [1000, 0, 0])]));
        assert_eq!((chain.advance(ms(1500)), chain.ending()), (Some(ms(2500)), None));
        // Setting the same toxics again changes nothing.
        chain.set(ms(2000), &links(&[("timeout", [1000, 0, 0])]));
        assert_eq!(chain.advance(ms(2000)), Some(ms(2500)));
        chain.advance(ms(2500));
        assert_eq!(chain.ending(), Some(DirectionEnding::Close));
    }

    #[test]
    fn a_timeout_of_none_closes_when_it_is_removed() {
        let mut chain = chain(&[("timeout", [0, 0, 0])]);
        chain.push(ms(0), Bytes::from_static(b"lost"));
        assert_eq!(chain.advance(ms(100_000)), None);
        chain.set(ms(100_000), &[]);
        assert_eq!((chain.front(), chain.ending()), (None, Some(DirectionEnding::Close)));
    }

    #[test]
    fn a_peer_is_reset_after_its_first_byte() {
        let mut chain = chain(&[("reset_peer", [50, 0, 0])]);
        assert_eq!(chain.advance(ms(1000)), None, "nothing has come");
        chain.push(ms(1000), Bytes::from_static(b"lost"));
        chain.push(ms(1040), Bytes::from_static(b"lost"));
        assert_eq!(chain.advance(ms(1040)), Some(ms(1050)));
        assert!(run(&mut chain, ms(1050)).is_empty());
        assert_eq!(chain.ending(), Some(DirectionEnding::Reset));
    }

    #[test]
    fn a_reset_that_is_to_come_goes_by_another_time() {
        for (after_ms, due_ms) in [(500, 510), (20, 40)] {
            let mut chain = chain(&[("reset_peer", [100, 0, 0])]);
            chain.push(ms(10), Bytes::from_static(b"lost"));
            assert_eq!(chain.advance(ms(10)), Some(ms(110)));
            chain.set(ms(40), &links(&[("reset_peer", [after_ms, 0, 0])]));
            let due = chain.advance(ms(40)).unwrap_or(ms(40));
            assert_eq!(due, ms(due_ms), "counted from the first byte");
            chain.advance(due);
            assert_eq!(chain.ending(), Some(DirectionEnding::Reset));
        }
    }

    #[test]
    fn a_way_whose_bytes_were_dropped_does_not_outlive_the_reset_that_was_to_come() {
        let mut lossy = chain(&[("reset_peer", [100, 0, 0])]);
        lossy.push(ms(10), Bytes::from_static(b"lost"));
        lossy.advance(ms(10));
        lossy.set(ms(20), &[]);
        lossy.advance(ms(20));
        assert_eq!((lossy.front(), lossy.ending()), (None, Some(DirectionEnding::Reset)));
        let mut whole = chain(&[("reset_peer", [100, 0, 0])]);
        whole.advance(ms(10));
        whole.set(ms(20), &[]);
        assert!(whole.is_clear(), "nothing is missing");
    }

    #[test]
    fn resets_come_by_time_and_by_bytes() {
        let mut by_time = chain(&[("reset_after", [30, 0, 0])]);
        by_time.push(ms(1), Bytes::from_static(b"a"));
        assert_eq!(text(&run(&mut by_time, ms(1))), "a");
        assert_eq!(by_time.ending(), Some(DirectionEnding::Reset));
        let mut by_bytes = chain(&[("reset_data", [3, 0, 0])]);
        by_bytes.push(ms(1), Bytes::from_static(b"abcde"));
        assert_eq!(text(&run(&mut by_bytes, ms(1))), "abc");
        assert_eq!(by_bytes.ending(), Some(DirectionEnding::Reset));
    }

    #[test]
    fn slices_are_of_the_size_that_was_asked_for_and_in_their_order() {
        for (average, variation) in [(10, 0), (10, 4), (1, 0), (100, 99), (7, 1000)] {
            let mut chain = chain(&[("slicer", [average, variation, 2000])]);
            let sent: Vec<u8> = (0..1000u32).map(|index| index as u8).collect();
            chain.push(ms(0), Bytes::from(sent.clone()));
            let out = run(&mut chain, ms(0));
            let received: Vec<u8> = out.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
            assert_eq!(received, sent);
            let variation = variation.min(average - 1);
            let largest = out.iter().map(|(_, bytes)| bytes.len()).max().unwrap_or(0) as i64;
            assert!(largest <= average + variation, "{largest} of {average} ± {variation}");
            assert!(out.iter().all(|(_, bytes)| !bytes.is_empty()));
            for (index, (at, _)) in out.iter().enumerate() {
                assert_eq!(*at, ms(2 * index as u64), "2 ms between two");
            }
        }
    }

    #[test]
    fn so_much_data_passes_and_then_the_connection_is_closed() {
        let mut limited = chain(&[("limit_data", [5, 0, 0])]);
        limited.push(ms(0), Bytes::from_static(b"abc"));
        limited.push(ms(0), Bytes::from_static(b"defg"));
        assert_eq!(text(&run(&mut limited, ms(0))), "abcde");
        assert_eq!((limited.ending(), limited.has_room()), (Some(DirectionEnding::Close), false));
        let mut none = chain(&[("limit_data", [0, 0, 0])]);
        none.advance(ms(0));
        assert_eq!(none.ending(), None, "before the first byte");
        none.push(ms(0), Bytes::from_static(b"a"));
        assert!(run(&mut none, ms(0)).is_empty());
        assert_eq!(none.ending(), Some(DirectionEnding::Close));
    }

    #[test]
    fn what_has_passed_counts_over_a_change() {
        let mut chain = chain(&[("limit_data", [5, 0, 0])]);
        chain.push(ms(0), Bytes::from_static(b"abc"));
        assert_eq!(text(&run(&mut chain, ms(0))), "abc");
        chain.set(ms(1), &links(&[("limit_data", [4, 0, 0])]));
        chain.push(ms(2), Bytes::from_static(b"def"));
        assert_eq!(text(&run(&mut chain, ms(2))), "d");
    }

    #[test]
    fn a_half_open_way_tells_neither_bytes_nor_the_end() {
        let mut chain = chain(&[("half_open", [2, 0, 0])]);
        chain.push(ms(0), Bytes::from_static(b"abc"));
        chain.end(ms(1), DirectionEnding::End);
        assert!(!chain.is_empty());
        assert_eq!(text(&run(&mut chain, ms(100_000))), "ab");
        assert_eq!((chain.ending(), chain.is_empty()), (None, true));
    }

    #[test]
    fn a_half_open_way_of_which_nothing_is_missing_goes_on_without_its_toxic() {
        for (sent, ending) in [("abc", None), ("abcd", Some(DirectionEnding::Close))] {
            let mut chain = chain(&[("half_open", [3, 0, 0])]);
            chain.push(ms(0), Bytes::from_static(sent.as_bytes()));
            assert_eq!(text(&run(&mut chain, ms(0))), "abc");
            chain.set(ms(1), &[]);
            assert_eq!(chain.ending(), ending, "{sent}");
        }
    }

    #[test]
    fn a_half_open_way_that_swallowed_bytes_passes_none_that_follow_them() {
        for (sent, rest) in [("abcd", ""), ("ab", "ef")] {
            let mut chain = chain(&[("half_open", [2, 0, 0])]);
            chain.push(ms(0), Bytes::from_static(sent.as_bytes()));
            assert_eq!(text(&run(&mut chain, ms(0))), "ab");
            chain.set(ms(1), &links(&[("half_open", [100, 0, 0])]));
            chain.push(ms(2), Bytes::from_static(b"ef"));
            assert_eq!(text(&run(&mut chain, ms(2))), rest, "{sent}");
        }
    }

    #[test]
    fn one_byte_of_so_many_is_another() {
        for (every, sizes) in [(10, &[1usize, 9, 30, 60][..]), (1, &[100]), (1000, &[100])] {
            let mut chain = chain(&[("corrupt", [every, 0, 0])]);
            for &size in sizes {
                chain.push(ms(0), Bytes::from(vec![0; size]));
            }
            let received: Vec<u8> = run(&mut chain, ms(0)).into_iter().flat_map(|(_, bytes)| bytes).collect();
            for block in received.chunks(every as usize).filter(|block| block.len() == every as usize) {
                assert_eq!(block.iter().filter(|byte| **byte != 0).count(), 1, "{every}: {block:?}");
            }
        }
    }

    #[test]
    fn a_slow_start_holds_what_came_first() {
        let mut chain = chain(&[("slow_start", [100, 0, 0])]);
        assert_eq!(chain.advance(ms(0)), None);
        chain.push(ms(10), Bytes::from_static(b"hello"));
        assert_eq!(run(&mut chain, ms(10)), [(ms(100), b"hello".to_vec())]);
        chain.push(ms(150), Bytes::from_static(b"!"));
        assert_eq!(run(&mut chain, ms(150)), [(ms(150), b"!".to_vec())]);
    }

    #[test]
    fn a_packet_that_is_lost_holds_up_what_is_behind_it_and_nothing_before() {
        // Every packet is lost: all bytes arrive late, once, and in order.
        let mut all = chain(&[("packet_loss", [1_000_000, 200, 0])]);
        all.push(ms(0), Bytes::from(vec![0; 5000]));
        all.push(ms(150), Bytes::from_static(b"b"));
        all.end(ms(150), DirectionEnding::End);
        let out = run(&mut all, ms(150));
        assert_eq!(
            out.iter().map(|(at, bytes)| (*at, bytes.len())).collect::<Vec<_>>(),
            [(ms(200), 5000), (ms(350), 1)]
        );
        assert_eq!(all.ending(), Some(DirectionEnding::End));
        // One of ten is lost. Each piece is a packet, 1 ms apart.
        let mut some = chain(&[("packet_loss", [100_000, 20, 0])]);
        for index in 0..10_000u64 {
            some.push(ms(index), Bytes::from((index as u16).to_be_bytes().to_vec()));
        }
        let mut out = Vec::new();
        for now in 0..11_000 {
            out.extend(
                run(&mut some, ms(now))
                    .into_iter()
                    .map(|(at, bytes)| (at, u16::from_be_bytes([bytes[0], bytes[1]]))),
            );
        }
        assert!(
            out.iter().enumerate().all(|(index, (_, number))| index == usize::from(*number)),
            "in their order"
        );
        let late = |index: usize| out[index].0 - ms(index as u64);
        assert!((0..10_000).all(|index| late(index) <= ms(20)));
        // Pieces with the full delay were lost; the others wait behind one.
        let lost = (0..10_000).filter(|index| late(*index) == ms(20)).count();
        assert!((900..=1100).contains(&lost), "{lost} of 10000");
        let waited = (0..10_000).filter(|index| late(*index) > ms(0)).count();
        assert!(waited > 3 * lost, "{waited} wait behind {lost}");
        assert!(waited < 10_000, "and some do not");
    }

    #[test]
    fn what_is_ahead_of_a_lost_packet_of_a_piece_is_in_time() {
        let mut chain = chain(&[("packet_loss", [50_000, 200, 0])]);
        for _ in 0..200 {
            chain.push(ms(0), Bytes::from(vec![0; 14_600]));
        }
        let out = run(&mut chain, ms(0));
        assert_eq!(out.iter().map(|(_, bytes)| bytes.len()).sum::<usize>(), 200 * 14_600);
        let first: Vec<&(Duration, Vec<u8>)> = out.iter().take_while(|(at, _)| *at == ms(0)).collect();
        let ahead: usize = first.iter().map(|(_, bytes)| bytes.len()).sum();
        assert!(ahead < 200 * 14_600 && ahead.is_multiple_of(1460), "{ahead} bytes");
        assert!(
            out[first.len()..].iter().all(|(at, _)| *at == ms(200)),
            "the rest comes with what was lost first"
        );
        assert!(
            out.iter().any(|(_, bytes)| bytes.len() < 14_600 && bytes.len() % 1460 == 0),
            "pieces are parted"
        );
    }

    #[test]
    fn a_loss_that_is_removed_or_changed_holds_nothing_back() {
        let mut chain = chain(&[("packet_loss", [1_000_000, 10_000, 0])]);
        chain.push(ms(0), Bytes::from_static(b"a"));
        assert_eq!(chain.advance(ms(0)), Some(ms(10_000)));
        chain.set(ms(5), &links(&[("packet_loss", [1_000_000, 20, 0])]));
        assert_eq!(run(&mut chain, ms(5)), [(ms(20), b"a".to_vec())]);
        chain.push(ms(30), Bytes::from_static(b"b"));
        assert_eq!(chain.advance(ms(30)), Some(ms(50)));
        chain.set(ms(31), &links(&[("packet_loss", [0, 20, 0])]));
        assert_eq!(run(&mut chain, ms(31)), [(ms(31), b"b".to_vec())]);
        chain.push(ms(40), Bytes::from_static(b"c"));
        chain.set(ms(41), &[]);
        assert_eq!(text(&run(&mut chain, ms(41))), "c");
    }

    #[test]
    fn a_toxic_that_comes_takes_what_is_behind_it_and_one_that_goes_holds_nothing_back() {
        let mut chain = Chain::default();
        assert!(chain.is_clear());
        chain.push(ms(0), Bytes::from_static(b"a"));
        assert_eq!(chain.front(), Some(&b"a"[..]));
        chain.set(ms(1), &links(&[("latency", [1000, 0, 0]), ("slicer", [1, 0, 0])]));
        chain.push(ms(2), Bytes::from_static(b"bc"));
        chain.advance(ms(2));
        chain.written(1);
        assert_eq!((chain.advance(ms(2)), chain.front()), (Some(ms(1002)), None));
        // The slicer stays, formerly as the second toxic.
        chain.set(ms(3), &links(&[("latency", [1000, 0, 0]), ("slicer", [1, 0, 0])])[1..]);
        let out = run(&mut chain, ms(3));
        assert_eq!((out.len(), text(&out)), (2, "bc".to_owned()));
        chain.set(ms(4), &[]);
        assert!(chain.is_clear());
    }

    #[test]
    fn a_change_holds_for_what_waits_as_well() {
        let mut chain = chain(&[("latency", [10_000, 0, 0])]);
        chain.push(ms(0), Bytes::from_static(b"a"));
        assert_eq!(chain.advance(ms(0)), Some(ms(10_000)));
        chain.set(ms(5), &links(&[("latency", [20, 0, 0])]));
        assert_eq!(run(&mut chain, ms(5)), [(ms(20), b"a".to_vec())]);
    }

    #[test]
    fn what_does_not_fit_stays_with_its_source() {
        for (kind, value, most) in [
            ("bandwidth", 1000, 96 << 10),
            ("bandwidth", 1_000_000, 9 << 20),
            ("latency", 1_000_000, 33 << 20),
            ("packet_loss", 1_000_000, 33 << 20),
        ] {
            let mut chain = chain(&[(kind, [value, 0, 0])]);
            let mut held = 0;
            while chain.has_room() {
                chain.push(ms(0), Bytes::from(vec![0; 32 << 10]));
                held += 32 << 10;
            }
            assert!(held > 0 && held <= most, "{kind} {value} holds {held}");
        }
    }

    #[test]
    fn a_fast_link_is_kept_busy_by_whoever_wakes_late() {
        for rate_kbytes in [10_000, 100_000, 1_000_000] {
            let mut chain = chain(&[("bandwidth", [rate_kbytes, 0, 0])]);
            let (mut now, mut passed) = (Duration::ZERO, 0);
            while now < ms(1000) {
                while chain.has_room() {
                    chain.push(now, Bytes::from(vec![0; 32 << 10]));
                }
                let due = chain.advance(now);
                while let Some(bytes) = chain.front() {
                    let count = bytes.len();
                    passed += count;
                    chain.written(count);
                    chain.advance(now);
                }
                now = due.unwrap_or(now).max(now) + Duration::from_micros(1300);
            }
            let error = passed as f64 / (rate_kbytes as f64 * 1e3) - 1.0;
            assert!(error.abs() < 0.03, "{rate_kbytes} kB/s: {error:+.3}");
        }
    }
}
