//! The memory limit of the process: checked on the control thread, read by every request.
//!
//! Above the limit, most new requests are rejected so that requests under way can finish. The state ends a little
//! below the limit, so that it does not flap.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::Weak;
use std::time::Duration;

use config::MemoryBound;
use telemetry::message;

use crate::change::Control;
use crate::tick::tick;

/// Minimum interval of memory checks. It grows as far as memory cannot run short in between, at the speed below.
const INTERVAL_MIN: Duration = Duration::from_millis(200);
const INTERVAL_MAX: Duration = Duration::from_secs(1);
/// Upper bound of a process's memory growth, since the kernel must provide each page.
const BYTES_PER_SECOND_MAX: f64 = 8e9;
/// Interval of reading the available memory again, because a container's limit may change.
const ASKED_AGAIN: Duration = Duration::from_secs(60);
/// The default limit as a share of the available memory.
const AUTO_PERCENT: u64 = 75;

pub(crate) async fn watch(control: Weak<Control>) {
    let statm = match File::open("/proc/self/statm") {
        Ok(statm) => statm,
        Err(error) => return message::warn(&format!("memory is not watched: /proc/self/statm: {error}")),
    };
    let mut available = available_bytes();
    let (mut pause, mut known_for) = (INTERVAL_MIN, Duration::ZERO);
    loop {
        tick(pause).await;
        let Some(control) = control.upgrade() else { return };
        known_for += pause;
        if known_for >= ASKED_AGAIN {
            (available, known_for) = (available_bytes(), Duration::ZERO);
        }
        let limit = match control.plan().config.shed.memory {
            MemoryBound::Off => None,
            MemoryBound::Bytes(bytes) => Some(bytes),
            MemoryBound::Auto => available.map(|bytes| bytes / 100 * AUTO_PERCENT),
        };
        if let Some(used) = resident_bytes(&statm) {
            control.pressure.judge(used, limit);
            let room_bytes = limit.unwrap_or(u64::MAX).saturating_sub(used);
            let room = Duration::from_secs_f64((room_bytes as f64 / BYTES_PER_SECOND_MAX).min(1.0));
            pause = room.clamp(INTERVAL_MIN, INTERVAL_MAX);
        }
    }
}

/// Returns the resident memory. Called often, so without an allocation.
fn resident_bytes(statm: &File) -> Option<u64> {
    let mut bytes = [0; 128];
    let count = statm.read_at(&mut bytes, 0).ok()?;
    let text = std::str::from_utf8(&bytes[..count]).ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Returns the available memory: the least of the machine's memory and the control groups' limits.
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

/// The limits of a control group and its parents, in cgroup v1 and v2.
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
        // Inside a container, often only its own group is mounted, at the root.
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
    use proxy::owned::pressure::Pressure;

    #[test]
    fn it_is_on_beyond_the_bound_and_off_well_below() {
        let pressure = Pressure::default();
        for (used, limit, is_on) in [
            (999, Some(1000), false),
            (1001, Some(1000), true),
            (980, Some(1000), true),
            (940, Some(1000), false),
            (980, Some(1000), false),
            (2000, Some(1000), true),
            (2000, None, false),
        ] {
            pressure.judge(used, limit);
            assert_eq!(pressure.is_on(), is_on, "{used} of {limit:?}");
        }
    }

    #[test]
    fn the_available_memory_is_found() {
        let machine = total_bytes("MemTotal:       24667868 kB\nMemFree: 1 kB\n");
        assert_eq!(machine, Some(24_667_868 * 1024));
        assert_eq!(total_bytes("MemFree: 1 kB\n"), None);
        let statm = File::open("/proc/self/statm").expect("/proc is there");
        assert!(resident_bytes(&statm).is_some_and(|bytes| bytes > 1 << 18));
        assert!(available_bytes().is_some_and(|bytes| bytes > 1 << 24));
        assert!(group_limits("nonsense\n1:cpu:/\n").is_empty());
    }
}
