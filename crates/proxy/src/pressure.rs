//! A bound on the memory of the process: looked at from the control thread, read by every request.
//!
//! Beyond it new requests are refused but for a few, which let what is under way come to its end; the bound is left again
//! a little below where it began, so that it does not flutter.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use config::MemoryBound;

use crate::control::notice;

/// How often memory is looked at.
pub(crate) const INTERVAL: Duration = Duration::from_millis(200);
/// Requests of a worker that are admitted all the same.
pub(crate) const ADMITTED_MIN: u64 = 16;
/// The share of the bound, in percent, below which there is enough again.
const ENOUGH_PERCENT: u64 = 95;
/// The share of what the process may use that is the bound unless written.
const AUTO_PERCENT: u64 = 75;

/// Whether memory is short.
#[derive(Debug, Default)]
pub(crate) struct Pressure(AtomicBool);

impl Pressure {
    /// Whether requests are to be refused.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Looks at the memory that the process uses now.
    pub(crate) fn look(&self, bound: MemoryBound) {
        let limit = match bound {
            MemoryBound::Off => None,
            MemoryBound::Bytes(bytes) => Some(bytes),
            MemoryBound::Auto => available_bytes().map(|bytes| bytes / 100 * AUTO_PERCENT),
        };
        let (Some(limit), Some(used)) = (limit, resident_bytes()) else {
            return self.0.store(false, Ordering::Relaxed);
        };
        let was_on = self.is_on();
        let is_on = used > if was_on { limit / 100 * ENOUGH_PERCENT } else { limit };
        self.0.store(is_on, Ordering::Relaxed);
        if is_on && !was_on {
            notice(&format!(
                "memory is short: {used} bytes of at most {limit} are in use, and most requests are refused; \
                 [shed] memory sets the bound"
            ));
        } else if was_on && !is_on {
            notice("memory suffices again");
        }
    }
}

/// What the process holds in memory.
fn resident_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// What it may hold: the least of the machine's memory and the limits of its control groups.
fn available_bytes() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_bytes(&text));
    let groups = fs::read_to_string("/proc/self/cgroup").ok();
    let limits = groups.iter().flat_map(|groups| group_limits(groups));
    limits.chain(machine).min()
}

fn total_bytes(meminfo: &str) -> Option<u64> {
    let kibibytes = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = kibibytes.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// The limits of the group and of all above it, in both versions of control groups.
fn group_limits(groups: &str) -> Vec<u64> {
    let mut limits = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        // Inside a container its own group is often all that is mounted, at the root.
        let groups = std::path::Path::new(path).ancestors().filter_map(|group| group.strip_prefix("/").ok());
        for group in groups {
            let limit = fs::read_to_string(std::path::Path::new(root).join(group).join(file)).ok();
            limits.extend(limit.and_then(|limit| limit.trim().parse::<u64>().ok()));
        }
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_on_beyond_the_bound_and_off_well_below() {
        let used = resident_bytes().expect("/proc is there");
        let pressure = Pressure::default();
        for (bound, is_on) in [
            (MemoryBound::Bytes(used * 2), false),
            (MemoryBound::Bytes(used / 2), true),
            (MemoryBound::Bytes(used * 2), false),
            (MemoryBound::Bytes(1), true),
            (MemoryBound::Off, false),
        ] {
            pressure.look(bound);
            assert_eq!(pressure.is_on(), is_on, "{bound:?}");
        }
    }

    #[test]
    fn what_may_be_used_is_found() {
        let machine = total_bytes("MemTotal:       24667868 kB\nMemFree: 1 kB\n");
        assert_eq!(machine, Some(24_667_868 * 1024));
        assert_eq!(total_bytes("MemFree: 1 kB\n"), None);
        assert!(available_bytes().is_some_and(|bytes| bytes > 1 << 24));
        assert!(group_limits("nonsense\n1:cpu:/\n").is_empty());
    }
}
