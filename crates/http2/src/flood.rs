//! Floods of frames that cost their sender nothing: counted as they arrive, and bounded over a second.

use crate::frame::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, Head, PING, PRIORITY, RST_STREAM, SETTINGS,
};

/// What a peer keeps us busy with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flood {
    /// Streams that are reset as soon as they are there (CVE-2023-44487).
    Resets,
    /// Settings that change nothing.
    Settings,
    /// Pings.
    Pings,
    /// Priorities. They mean nothing any more (RFC 9113 §5.3.2), but browsers still send some.
    Priorities,
    /// DATA or CONTINUATION without a byte and without an end.
    EmptyFrames,
    /// More of something else than any peer has a use for.
    Excess,
}

/// Frames of a kind that a connection may send within a second, whatever else it does.
const PER_SECOND: [(Flood, u32); 5] = [
    (Flood::Resets, 200),
    (Flood::Settings, 50),
    (Flood::Pings, 100),
    (Flood::Priorities, 500),
    (Flood::EmptyFrames, 90),
];

/// What the frame with this head would be a flood of.
fn flood_of(head: &Head) -> Option<Flood> {
    Some(match head.kind {
        DATA if head.len == 0 && !head.has(END_STREAM) => Flood::EmptyFrames,
        CONTINUATION if head.len == 0 && !head.has(END_HEADERS) => Flood::EmptyFrames,
        PRIORITY => Flood::Priorities,
        RST_STREAM => Flood::Resets,
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
}

impl Counts {
    /// Takes note of a frame that came in this second, which is counted from anywhere.
    pub(crate) fn note(&mut self, head: &Head, second: u32) -> Result<(), Flood> {
        let Some(flood) = flood_of(head) else { return Ok(()) };
        if second != self.second {
            *self = Self { second, counts: Default::default() };
        }
        let counts = self.counts.iter_mut().zip(PER_SECOND).find(|(_, (kind, _))| *kind == flood);
        let Some((count, (_, limit))) = counts else { return Ok(()) };
        *count += 1;
        if *count > limit { Err(flood) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_limit_within_a_second() {
        let head = |kind, flags, len| Head { len, kind, flags, stream: 1 };
        let rows = [
            (head(RST_STREAM, 0, 4), Some((200, Flood::Resets))),
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
}
