//! Link profiles: built-in ones, and those that a file defines.
//!
//! The figures of the built-in ones are rounded from common descriptions of such links; none was measured here.

use std::num::NonZeroU64;

use balance::AddressPrefixes;
use shape::{Delay, Jitter, Limit, LinkLoss};

use crate::document::reader::Span;
use crate::option::bandwidth::{BANDWIDTH, Bandwidth, Bandwidths, Scope};
use crate::option::delay::{DELAY, LOSS};
use crate::option::kind::Maybe;
use crate::option::pairs::OneOrMany;
use crate::option::table::{Element, Table, key};
use crate::tables::listen::Listen;
use crate::tables::settings::Settings;
use crate::tables::shaping::Link;

const KBIT: u64 = 125;
const MBIT: u64 = 1000 * KBIT;
const MS: u64 = 1_000_000;

/// A built-in link profile. Each client gets a separate link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    pub name: &'static str,
    pub doc: &'static str,
    down_bytes_per_second: u64,
    up_bytes_per_second: u64,
    round_trip_ms: u64,
    /// The jitter of each piece of data, in each direction.
    jitter_ms: u64,
    /// Lost packets per million, which are sent again.
    lost_per_million: u32,
}

/// All built-in profiles, the slowest first.
pub const PROFILES: &[Profile] = &[
    profile("dial-up", "a modem, 49 and 30 kbit/s, 120 ms", [49 * KBIT, 30 * KBIT], [120, 10], 0),
    profile("edge", "2G, 240 and 200 kbit/s, 840 ms", [240 * KBIT, 200 * KBIT], [840, 60], 5_000),
    profile(
        "slow-3g",
        "3G at its edge, 400 kbit/s both ways, 400 ms",
        [400 * KBIT, 400 * KBIT],
        [400, 40],
        5_000,
    ),
    profile("3g", "1.6 Mbit/s and 768 kbit/s, 300 ms", [1600 * KBIT, 768 * KBIT], [300, 30], 2_000),
    profile("dsl", "8 and 1 Mbit/s, 50 ms", [8 * MBIT, MBIT], [50, 3], 0),
    profile("4g", "9 Mbit/s both ways, 170 ms", [9 * MBIT, 9 * MBIT], [170, 15], 1_000),
    profile("lte", "12 Mbit/s both ways, 70 ms", [12 * MBIT, 12 * MBIT], [70, 10], 1_000),
    profile("satellite", "geostationary, 25 and 3 Mbit/s, 600 ms", [25 * MBIT, 3 * MBIT], [600, 20], 2_000),
    profile("wifi", "30 and 15 Mbit/s on a busy channel, 5 ms", [30 * MBIT, 15 * MBIT], [5, 2], 3_000),
    profile("cable", "50 and 10 Mbit/s, 28 ms", [50 * MBIT, 10 * MBIT], [28, 2], 0),
    profile("fibre", "200 and 100 Mbit/s, 4 ms", [200 * MBIT, 100 * MBIT], [4, 0], 0),
    profile("transatlantic", "1 Gbit/s both ways, 80 ms", [1000 * MBIT, 1000 * MBIT], [80, 1], 100),
    profile("transpacific", "1 Gbit/s both ways, 150 ms", [1000 * MBIT, 1000 * MBIT], [150, 2], 200),
];

const fn profile(
    name: &'static str,
    doc: &'static str,
    [down_bytes_per_second, up_bytes_per_second]: [u64; 2],
    [round_trip_ms, jitter_ms]: [u64; 2],
    lost_per_million: u32,
) -> Profile {
    Profile {
        name,
        doc,
        down_bytes_per_second,
        up_bytes_per_second,
        round_trip_ms,
        jitter_ms,
        lost_per_million,
    }
}

impl Profile {
    /// The built-in profile with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        PROFILES.iter().find(|profile| profile.name == name)
    }

    /// The rates of the link.
    pub fn bandwidths(&self) -> Bandwidths {
        let of = |bytes_per_second| {
            let limit = NonZeroU64::new(bytes_per_second).map(Limit::link);
            let scope = Scope::Client(AddressPrefixes::default());
            limit.map(|limit| Bandwidth { limit, scope }).into_iter().collect()
        };
        Bandwidths { down: of(self.down_bytes_per_second), up: of(self.up_bytes_per_second) }
    }

    /// The delays of the link: half the round trip in each direction, and the whole round trip to connect.
    pub fn link(&self) -> Link {
        let jitter = |spread_ns| if spread_ns == 0 { Jitter::None } else { Jitter::Uniform { spread_ns } };
        let delay = |mean_ns, spread_ns| Some(Delay { mean_ns, jitter: jitter(spread_ns) });
        let (round_trip_ns, jitter_ns) = (self.round_trip_ms * MS, self.jitter_ms * MS);
        // A sender notices a loss after a round trip, and not before the shortest time-out of TCP (RFC 6298 §2.4, as it
        // is in practice).
        let stall_ns = round_trip_ns + 200 * MS;
        let loss = LinkLoss { per_million: self.lost_per_million, stall_ns };
        Link {
            connect_delay: delay(round_trip_ns, 2 * jitter_ns),
            latency: delay(round_trip_ns / 2, jitter_ns),
            loss: (loss.per_million > 0).then_some(loss),
        }
    }
}

/// A link profile that a file defines.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OwnProfile {
    pub name: String,
    /// The rates of the link.
    pub bandwidths: Bandwidths,
    /// The delays of the link.
    pub link: Link,
}

impl Settings {
    /// The link profile with this name. The file's own profiles take precedence over built-in ones.
    pub fn profile(&self, name: &str) -> Option<(Bandwidths, Link)> {
        match self.profiles.iter().find(|own| own.name == name) {
            Some(own) => Some((own.bandwidths.clone(), own.link.clone())),
            None => Profile::named(name).map(|known| (known.bandwidths(), known.link())),
        }
    }

    /// The names of all profiles, the file's own first.
    pub fn profile_names(&self) -> impl Iterator<Item = &str> {
        let own = self.profiles.iter().map(|own| own.name.as_str());
        own.chain(PROFILES.iter().map(|profile| profile.name))
    }
}

pub(crate) static PROFILE: Table<OwnProfile> = Table {
    options: &[
        key!(
            "rate",
            OneOrMany(BANDWIDTH),
            OwnProfile.bandwidths.down,
            "Rate of response bodies: see `rate` of `[[listen]]`. With `per client` each client has its \
             own link.",
        ),
        key!(
            "upload_rate",
            OneOrMany(BANDWIDTH),
            OwnProfile.bandwidths.up,
            "Limits the rate of request bodies, like `rate`.",
        ),
        key!(
            "connect_delay",
            Maybe(DELAY),
            OwnProfile.link.connect_delay,
            "See `connect_delay` of `[[listen]]`.",
        ),
        key!("latency", Maybe(DELAY), OwnProfile.link.latency, "See `latency` of `[[listen]]`.",),
        key!("loss", Maybe(LOSS), OwnProfile.link.loss, "See `loss` of `[[listen]]`.",),
    ],
};

/// Applies profiles to the options of listeners. The file's own profiles take precedence over built-in ones.
pub(crate) fn with_profiles(listeners: &mut [Element<Listen>], profiles: &[(Span, String, OwnProfile)]) {
    for Element { value: listen, .. } in listeners {
        let Some(name) = listen.profile.take() else { continue };
        let own = profiles.iter().find(|(_, own, _)| *own == name.value);
        let own = own.map(|(_, _, own)| (own.bandwidths.clone(), own.link.clone()));
        let known = || Profile::named(&name.value).map(|known| (known.bandwidths(), known.link()));
        let Some((mut bandwidths, of_profile)) = own.or_else(known) else { continue };
        // All rates apply together. Options of the link that the listener has replace those of the profile.
        bandwidths.down.append(&mut listen.bandwidths.down);
        bandwidths.up.append(&mut listen.bandwidths.up);
        listen.bandwidths = bandwidths;
        let Link { connect_delay, latency, loss } = std::mem::take(&mut listen.link);
        listen.link = Link {
            connect_delay: connect_delay.or(of_profile.connect_delay),
            latency: latency.or(of_profile.latency),
            loss: loss.or(of_profile.loss),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_a_link_of_its_client() {
        let lte = Profile::named("lte").unwrap();
        let Bandwidths { down, up } = lte.bandwidths();
        assert_eq!(
            [down[0].limit.rate_bytes_per_second.get(), up[0].limit.rate_bytes_per_second.get()],
            [1_500_000; 2]
        );
        assert!(matches!(down[0].scope, Scope::Client(_)));
        let Link { connect_delay, latency, loss } = lte.link();
        assert_eq!([connect_delay.unwrap().mean_ns, latency.unwrap().mean_ns], [70 * MS, 35 * MS]);
        assert_eq!(loss, Some(LinkLoss { per_million: 1_000, stall_ns: 270 * MS }));
        assert_eq!(Profile::named("LTE"), None);
        // A piece that came before it was sent would be none.
        assert!(PROFILES.iter().all(|profile| 2 * profile.jitter_ms <= profile.round_trip_ms));
    }
}
