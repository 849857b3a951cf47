//! Kinds of toxics, their attributes, and their effects on the bytes of a connection, which `toxic_stage` applies.

use std::time::Duration;

use crate::delay_line::LinkLoss;

/// Maximum number of attributes of a kind.
pub const ATTRIBUTES_MAX: usize = 3;

#[derive(Debug)]
pub struct ToxicKind {
    /// Toxiproxy's name, if Toxiproxy has this kind.
    pub name: &'static str,
    pub attributes: &'static [Attribute],
    effect: fn([i64; ATTRIBUTES_MAX]) -> Effect,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attribute {
    pub name: &'static str,
    pub unit: ToxicUnit,
    pub default: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToxicUnit {
    Whole,
    /// From 0 to 100, stored in millionths.
    Percent,
}

/// A whole number with default 0.
const fn whole(name: &'static str) -> Attribute {
    Attribute { name, unit: ToxicUnit::Whole, default: 0 }
}

/// Toxiproxy's kinds first, then additional ones.
pub const KINDS: &[ToxicKind] = &[
    // Delays each piece by `latency` ± `jitter` ms.
    ToxicKind {
        name: "latency",
        attributes: &[whole("latency"), whole("jitter")],
        effect: |[latency_ms, jitter_ms, _]| Effect::Latency { latency_ms, jitter_ms: jitter_ms.max(0) },
    },
    // Limits the rate to `rate` kB/s; 0 lets nothing pass.
    ToxicKind {
        name: "bandwidth",
        attributes: &[whole("rate")],
        effect: |[rate, ..]| Effect::Bandwidth { bytes_per_second: unsigned(rate).saturating_mul(1000) },
    },
    // Delays the end of the stream by `delay` ms.
    ToxicKind {
        name: "slow_close",
        attributes: &[whole("delay")],
        effect: |[delay, ..]| Effect::SlowClose { delay: milliseconds(delay) },
    },
    // Drops all bytes, and closes the connection after `timeout` ms without a byte; never with 0.
    ToxicKind {
        name: "timeout",
        attributes: &[whole("timeout")],
        effect: |[timeout, ..]| Effect::Timeout { after: (timeout > 0).then(|| milliseconds(timeout)) },
    },
    // Resets the connection `timeout` ms after the first byte.
    ToxicKind {
        name: "reset_peer",
        attributes: &[whole("timeout")],
        effect: |[timeout, ..]| Effect::ResetPeer { after: milliseconds(timeout) },
    },
    // Cuts bytes into pieces of `average_size` ± `size_variation`, with a pause of `delay` µs after each.
    ToxicKind {
        name: "slicer",
        attributes: &[whole("average_size"), whole("size_variation"), whole("delay")],
        effect: |[average, variation, delay]| Effect::Slicer {
            average_bytes: unsigned(average).max(1),
            // A variation as large as the average would make empty pieces.
            variation_bytes: unsigned(variation).min(unsigned(average).max(1) - 1),
            delay: Duration::from_micros(unsigned(delay)),
        },
    },
    // Closes the connection after `bytes` bytes.
    ToxicKind {
        name: "limit_data",
        attributes: &[whole("bytes")],
        effect: |[bytes, ..]| Effect::LimitData { bytes: unsigned(bytes), ending: DirectionEnding::Close },
    },
    // Resets the connection after `bytes` bytes.
    ToxicKind {
        name: "reset_data",
        attributes: &[whole("bytes")],
        effect: |[bytes, ..]| Effect::LimitData { bytes: unsigned(bytes), ending: DirectionEnding::Reset },
    },
    // Resets the connection `timeout` ms after its start, even if no byte has arrived.
    ToxicKind {
        name: "reset_after",
        attributes: &[whole("timeout")],
        effect: |[timeout, ..]| Effect::ResetAfter { after: milliseconds(timeout) },
    },
    // Drops everything after `bytes` bytes, including the end, as if the peer had lost its power.
    ToxicKind {
        name: "half_open",
        attributes: &[whole("bytes")],
        effect: |[bytes, ..]| Effect::HalfOpen { bytes: unsigned(bytes) },
    },
    // Changes one byte of each `every` bytes; with 1, every byte.
    ToxicKind {
        name: "corrupt",
        attributes: &[whole("every")],
        effect: |[every, ..]| Effect::Corrupt { every_bytes: unsigned(every).max(1) },
    },
    // Lets nothing pass for `delay` ms after the connection's start, then everything.
    ToxicKind {
        name: "slow_start",
        attributes: &[whole("delay")],
        effect: |[delay, ..]| Effect::SlowStart { delay: milliseconds(delay) },
    },
    // Loses `percent` % of all packets. A lost packet and the bytes behind it arrive `delay` ms later, as after TCP's
    // retransmission. The default is Linux's minimum retransmission time-out.
    ToxicKind {
        name: "packet_loss",
        attributes: &[
            Attribute { name: "percent", unit: ToxicUnit::Percent, default: 0 },
            Attribute { name: "delay", unit: ToxicUnit::Whole, default: 200 },
        ],
        effect: |[per_million, delay_ms, _]| {
            Effect::PacketLoss(LinkLoss {
                per_million: unsigned(per_million).min(1_000_000) as u32,
                stall_ns: unsigned(delay_ms).saturating_mul(1_000_000),
            })
        },
    },
];

fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

fn milliseconds(value: i64) -> Duration {
    Duration::from_millis(unsigned(value))
}

impl ToxicKind {
    pub fn named(name: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.name == name)
    }

    pub fn defaults(&self) -> [i64; ATTRIBUTES_MAX] {
        std::array::from_fn(|index| self.attributes.get(index).map_or(0, |attribute| attribute.default))
    }

    pub fn effect(&self, attributes: [i64; ATTRIBUTES_MAX]) -> Effect {
        (self.effect)(attributes)
    }
}

/// An effect on the bytes in one direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    Latency {
        /// Negative values count as 0.
        latency_ms: i64,
        /// Maximum difference from `latency_ms`.
        jitter_ms: i64,
    },
    /// Limits the rate. Idle time saves no credit.
    Bandwidth {
        /// 0 lets nothing pass.
        bytes_per_second: u64,
    },
    SlowClose {
        delay: Duration,
    },
    Timeout {
        /// Time without a byte until the connection is closed; `None` leaves it open.
        after: Option<Duration>,
    },
    /// Resets the connection after the first piece.
    ResetPeer {
        /// The time from the first piece to the reset.
        after: Duration,
    },
    ResetAfter {
        /// The time from when the toxic takes effect to the reset.
        after: Duration,
    },
    Slicer {
        average_bytes: u64,
        /// Maximum difference from the average.
        variation_bytes: u64,
        /// The delay between two pieces.
        delay: Duration,
    },
    /// Ends the connection after a number of bytes.
    LimitData {
        bytes: u64,
        ending: DirectionEnding,
    },
    /// Drops all data after a number of bytes, without closing the connection.
    HalfOpen {
        bytes: u64,
    },
    Corrupt {
        /// Size of a block in which one byte is changed.
        every_bytes: u64,
    },
    SlowStart {
        delay: Duration,
    },
    /// Emulates packet loss: a lost packet is sent again, and the bytes behind it wait.
    PacketLoss(LinkLoss),
}

/// The end of one direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectionEnding {
    /// The sender has finished; the other direction continues.
    End,
    Close,
    Reset,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_names_of_their_own_and_take_what_they_are_told() {
        for (index, kind) in KINDS.iter().enumerate() {
            assert!(kind.attributes.len() <= ATTRIBUTES_MAX, "{}", kind.name);
            assert!(KINDS[..index].iter().all(|other| other.name != kind.name), "{}", kind.name);
            assert_eq!(ToxicKind::named(kind.name).map(|found| found.name), Some(kind.name));
            // No value from a client may be too large or too small.
            for value in [i64::MIN, -1, 0, 1, i64::MAX] {
                let _ = kind.effect([value; ATTRIBUTES_MAX]);
            }
        }
        assert!(ToxicKind::named("noop").is_none());
    }

    #[test]
    fn units_are_those_of_toxiproxy() {
        let effect = |name: &str, values| ToxicKind::named(name).map(|kind| kind.effect(values));
        assert_eq!(
            effect("bandwidth", [5, 0, 0]),
            Some(Effect::Bandwidth { bytes_per_second: 5000 }),
            "kB a second"
        );
        assert_eq!(
            effect("slicer", [10, 20, 1500]),
            Some(Effect::Slicer {
                average_bytes: 10,
                variation_bytes: 9,
                delay: Duration::from_micros(1500)
            })
        );
        assert_eq!(effect("timeout", [0; 3]), Some(Effect::Timeout { after: None }));
        let loss = ToxicKind::named("packet_loss").map(|kind| kind.effect(kind.defaults()));
        assert_eq!(loss, Some(Effect::PacketLoss(LinkLoss { per_million: 0, stall_ns: 200_000_000 })));
    }
}
