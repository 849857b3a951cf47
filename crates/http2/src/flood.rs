//! Floods of frames that cost their sender nothing: counted as they arrive, and bounded over a second.

use crate::frame::{ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, Head, PING, PRIORITY, SETTINGS};

/// What a peer keeps us busy with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flood {
    /// Requests that are reset before their responses have begun (CVE-2023-44487).
    Resets,
    /// Settings that change nothing.
    Settings,
    /// Pings, beyond those that accompany data: gRPC's ends measure the way with one for each frame that they receive.
    Pings,
    /// Priorities. They mean nothing any more (RFC 9113 §5.3.2), but browsers still send some.
    Priorities,
    /// DATA or CONTINUATION without a byte and without an end.
    EmptyFrames,
    /// More of something else than any peer has a use for.
    Excess,
}

/// Frames of a kind that a connection may send within a second, whatever else it does.
const PER_SECOND: [(Flood, u32); 6] = [
    (Flood::Resets, 200),
    (Flood::Settings, 50),
    (Flood::Pings, 100),
    (Flood::Priorities, 500),
    (Flood::EmptyFrames, 90),
    // Streams that are reset for what is wrong on them (CVE-2025-8671).
    (Flood::Excess, 64),
];

/// More frames than are on their way at once, with the windows that we give.
const CARRIED_MAX: u32 = 1024;

/// What the frame with this head would be a flood of. Of resets and of what is wrong, only the stream can tell.
fn flood_of(head: &Head) -> Option<Flood> {
    Some(match head.kind {
        DATA if head.len == 0 && !head.has(END_STREAM) => Flood::EmptyFrames,
        CONTINUATION if head.len == 0 && !head.has(END_HEADERS) => Flood::EmptyFrames,
        PRIORITY => Flood::Priorities,
        SETTINGS if !head.has(ACK) => Flood::Settings,
        PING if !head.has(ACK) => Flood::Pings,
        _ => return None,
    })
}

/// What a connection has sent within this second.
#[derive(Default)]
pub(crate) struct Counts {
    second: u32,
    counts: [u32; PER_SECOND.len()],
    /// Frames with a part of a body in them, either way, that no ping has come for yet.
    carried: u32,
}

impl Counts {
    /// Takes note of a frame that came in this second, which is counted from anywhere.
    pub(crate) fn note(&mut self, head: &Head, second: u32) -> Result<(), Flood> {
        match flood_of(head) {
            Some(Flood::Pings) if self.carried > 0 => {
                self.carried -= 1;
                Ok(())
            }
            Some(flood) => self.count(flood, second),
            None => {
                if head.kind == DATA {
                    self.carry();
                }
                Ok(())
            }
        }
    }

    /// Counts one more of a kind in this second.
    pub(crate) fn count(&mut self, flood: Flood, second: u32) -> Result<(), Flood> {
        if second != self.second {
            self.second = second;
            self.counts = Default::default();
        }
        let counts = self.counts.iter_mut().zip(PER_SECOND).find(|(_, (kind, _))| *kind == flood);
        let Some((count, (_, limit))) = counts else { return Ok(()) };
        *count += 1;
        if *count > limit { Err(flood) } else { Ok(()) }
    }

    /// Takes note of a frame with a part of a body, received or sent.
    pub(crate) fn carry(&mut self) {
        self.carried = (self.carried + 1).min(CARRIED_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(kind: u8, flags: u8, len: usize) -> Head {
        Head { len, kind, flags, stream: 1 }
    }

    #[test]
    fn each_kind_has_its_limit_within_a_second() {
        let rows = [
            (head(SETTINGS, 0, 0), Some((50, Flood::Settings))),
            (head(PING, 0, 8), Some((100, Flood::Pings))),
            (head(PRIORITY, 0, 5), Some((500, Flood::Priorities))),
            (head(DATA, 0, 0), Some((90, Flood::EmptyFrames))),
            (head(CONTINUATION, 0, 0), Some((90, Flood::EmptyFrames))),
            (head(SETTINGS, ACK, 0), None),
            (head(PING, ACK, 8), None),
            (head(DATA, END_STREAM, 0), None),
            (head(CONTINUATION, END_HEADERS, 0), None),
            (head(DATA, 0, 1), None),
        ];
        for (head, limit) in rows {
            let mut counts = Counts::default();
            let mut tripped = None;
            for second in 0..3 {
                for at in 0..1000 {
                    if let Err(flood) = counts.note(&head, second) {
                        tripped = tripped.or(Some((second, at, flood)));
                    }
                }
            }
            assert_eq!(tripped, limit.map(|(count, flood)| (0, count, flood)), "{head:?}");
            // In the next second all is well again.
            assert_eq!(counts.note(&head, 9), Ok(()));
        }
    }

    #[test]
    fn a_ping_for_each_frame_of_data_is_no_flood() {
        let ping = head(PING, 0, 8);
        let mut counts = Counts::default();
        for _ in 0..1000 {
            assert_eq!(counts.note(&head(DATA, 0, 9), 0), Ok(()));
            assert_eq!(counts.note(&ping, 0), Ok(()));
            counts.carry();
            assert_eq!(counts.note(&ping, 0), Ok(()));
        }
        // However much was carried, what may follow has an end.
        (0..1_000_000).for_each(|_| counts.carry());
        let taken = (0..1_000_000).take_while(|_| counts.note(&ping, 0).is_ok()).count();
        assert_eq!(taken, CARRIED_MAX as usize + 100);
    }
}
