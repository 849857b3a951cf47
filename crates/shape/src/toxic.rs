//! Kinds of toxics, their attributes, and their effects on the bytes of a connection. `toxic_stage` applies the
//! effects.

use std::time::Duration;

use crate::delay_line::Loss;

/// The most attributes that a kind of toxic has.
pub const ATTRIBUTES_MAX: usize = 3;

/// A kind of toxic.
#[derive(Debug)]
pub struct Kind {
    /// The name; that of Toxiproxy if Toxiproxy has this kind.
    pub name: &'static str,
    /// The attributes, in a fixed order.
    pub attributes: &'static [Attribute],
    effect: fn([i64; ATTRIBUTES_MAX]) -> Effect,
}

/// A numeric attribute of a toxic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attribute {
    /// The name, as clients write it.
    pub name: &'static str,
    /// The unit.
    pub unit: Unit,
    /// The default value.
    pub default: i64,
}

/// The unit of an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A whole number.
    Whole,
    /// A percentage from 0 to 100, stored in millionths.
    Percent,
}

/// An attribute that is a whole number, 0 by default.
const fn whole(name: &'static str) -> Attribute {
    Attribute { name, unit: Unit::Whole, default: 0 }
}

/// All kinds: those of Toxiproxy first, then additional ones.
pub const KINDS: &[Kind] = &[
    // Each piece is late by `latency` ± `jitter` ms.
    Kind {
        name: "latency",
        attributes: &[whole("latency"), whole("jitter")],
        effect: |[latency_ms, jitter_ms, _]| Effect::Latency { latency_ms, jitter_ms: jitter_ms.max(0) },
    },
    // At most `rate` kB a second; none at all with 0.
    Kind {
        name: "bandwidth",
        attributes: &[whole("rate")],
        effect: |[rate, ..]| Effect::Bandwidth { bytes_per_second: unsigned(rate).saturating_mul(1000) },
    },
    // The end comes `delay` ms late.
    Kind {
        name: "slow_close",
        attributes: &[whole("delay")],
        effect: |[delay, ..]| Effect::SlowClose { delay: milliseconds(delay) },
    },
    // Nothing passes, and after `timeout` ms without a byte the connection is closed; never with 0.
    Kind {
        name: "timeout",
        attributes: &[whole("timeout")],
        effect: |[timeout, ..]| Effect::Timeout { after: (timeout > 0).then(|| milliseconds(timeout)) },
    },
    // `timeout` ms after the first byte the connection is reset.
    Kind {
        name: "reset_peer",
        attributes: &[whole("timeout")],
        effect: |[timeout, ..]| Effect::ResetPeer { after: milliseconds(timeout) },
    },
    // Pieces of `average_size` ± `size_variation` bytes, with `delay` µs behind each.
    Kind {
        name: "slicer",
        attributes: &[whole("average_size"), whole("size_variation"), whole("delay")],
        effect: |[average, variation, delay]| Effect::Slicer {
            average_bytes: unsigned(average).max(1),
            // As large as the average it would leave pieces of nothing.
            variation_bytes: unsigned(variation).min(unsigned(average).max(1) - 1),
            delay: Duration::from_micros(unsigned(delay)),
        },
    },
    // After `bytes` bytes the connection is closed.
    Kind {
        name: "limit_data",
        attributes: &[whole("bytes")],
        effect: |[bytes, ..]| Effect::LimitData { bytes: unsigned(bytes), ending: Ending::Close },
    },
    // After `bytes` bytes the connection is reset.
    Kind {
        name: "reset_data",
        attributes: &[whole("bytes")],
        effect: |[bytes, ..]| Effect::LimitData { bytes: unsigned(bytes), ending: Ending::Reset },
    },
    // `timeout` ms after it begins the connection is reset, whether a byte has come or not.
    Kind {
        name: "reset_after",
        attributes: &[whole("timeout")],
        effect: |[timeout, ..]| Effect::ResetAfter { after: milliseconds(timeout) },
    },
    // After `bytes` bytes nothing passes any more, neither bytes nor the end, as if the peer had lost its power.
    Kind {
        name: "half_open",
        attributes: &[whole("bytes")],
        effect: |[bytes, ..]| Effect::HalfOpen { bytes: unsigned(bytes) },
    },
    // Of each `every` bytes one is another than was sent; all are with 1.
    Kind {
        name: "corrupt",
        attributes: &[whole("every")],
        effect: |[every, ..]| Effect::Corrupt { every_bytes: unsigned(every).max(1) },
    },
    // Nothing passes for `delay` ms after the connection began; then all does.
    Kind {
        name: "slow_start",
        attributes: &[whole("delay")],
        effect: |[delay, ..]| Effect::SlowStart { delay: milliseconds(delay) },
    },
    // Of all packets `percent` % are lost: such a packet, and what is behind it, comes `delay` ms late, by when TCP has sent
    // it again. By default that is the shortest time-out of Linux for a retransmission.
    Kind {
        name: "packet_loss",
        attributes: &[
            Attribute { name: "percent", unit: Unit::Percent, default: 0 },
            Attribute { name: "delay", unit: Unit::Whole, default: 200 },
        ],
        effect: |[per_million, delay_ms, _]| {
            Effect::PacketLoss(Loss {
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

impl Kind {
    /// The kind with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.name == name)
    }

    /// The default values of the attributes.
    pub fn defaults(&self) -> [i64; ATTRIBUTES_MAX] {
        std::array::from_fn(|index| self.attributes.get(index).map_or(0, |attribute| attribute.default))
    }

    /// The effect of this kind with these attribute values.
    pub fn effect(&self, attributes: [i64; ATTRIBUTES_MAX]) -> Effect {
        (self.effect)(attributes)
    }
}

/// An effect on the bytes in one direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Delays each piece.
    Latency {
        /// The delay; negative values count as 0.
        latency_ms: i64,
        /// The most that a delay differs from `latency_ms`.
        jitter_ms: i64,
    },
    /// Limits the rate. Idle time saves no credit.
    Bandwidth {
        /// The rate; 0 lets nothing pass.
        bytes_per_second: u64,
    },
    /// Delays the end of the stream.
    SlowClose {
        /// The delay.
        delay: Duration,
    },
    /// Drops all data.
    Timeout {
        /// Closes the connection after this time without a byte; `None` leaves it open.
        after: Option<Duration>,
    },
    /// Resets the connection after the first piece.
    ResetPeer {
        /// The time from the first piece to the reset.
        after: Duration,
    },
    /// Resets the connection after a fixed time.
    ResetAfter {
        /// The time from when the toxic takes effect to the reset.
        after: Duration,
    },
    /// Splits data into small pieces.
    Slicer {
        /// The average size of a piece.
        average_bytes: u64,
        /// The most that a size differs from the average.
        variation_bytes: u64,
        /// The delay between two pieces.
        delay: Duration,
    },
    /// Ends the connection after a number of bytes.
    LimitData {
        /// The number of bytes that pass.
        bytes: u64,
        /// How the connection ends.
        ending: Ending,
    },
    /// Drops all data after a number of bytes, without closing the connection.
    HalfOpen {
        /// The number of bytes that pass.
        bytes: u64,
    },
    /// Corrupts bytes.
    Corrupt {
        /// One byte in this many is changed.
        every_bytes: u64,
    },
    /// Delays the first bytes.
    SlowStart {
        /// The delay.
        delay: Duration,
    },
    /// Emulates packet loss: a lost packet is sent again, and the bytes behind it wait.
    PacketLoss(Loss),
}

/// How one direction of a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The sender has finished; the other direction goes on.
    End,
    /// The connection is closed in both directions.
    Close,
    /// The connection is reset in both directions.
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
            assert_eq!(Kind::named(kind.name).map(|found| found.name), Some(kind.name));
            // Nothing that a client sends is too much or too little.
            for value in [i64::MIN, -1, 0, 1, i64::MAX] {
                let _ = kind.effect([value; ATTRIBUTES_MAX]);
            }
        }
        assert!(Kind::named("noop").is_none());
    }

    #[test]
    fn units_are_those_of_toxiproxy() {
        let effect = |name: &str, values| Kind::named(name).map(|kind| kind.effect(values));
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
        let loss = Kind::named("packet_loss").map(|kind| kind.effect(kind.defaults()));
        assert_eq!(loss, Some(Effect::PacketLoss(Loss { per_million: 0, stall_ns: 200_000_000 })));
    }
}
