//! CPU time and memory of the server's process and its descendants, from /proc.

use std::collections::HashMap;
use std::time::Duration;

/// The kernel tells times in hundredths of a second (USER_HZ), on every architecture.
const TICK: Duration = Duration::from_millis(10);
const KIB: u64 = 1024;

/// What processes have used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// User and system CPU time, from their start.
    pub(crate) cpu: Duration,
    /// Resident memory; what they share is counted for each.
    pub(crate) memory_bytes: u64,
}

/// A line of /proc/PID/stat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    parent: u32,
    ticks: u64,
    memory_pages: u64,
}

/// Usage of a process and its descendants; `None` if there is no such process.
pub(crate) fn of(process: u32) -> Option<Usage> {
    let page_bytes = rustix::param::page_size() as u64;
    debug_assert!(page_bytes >= KIB);
    let all = all();
    all.get(&process)?;
    let is_below = |mut id: u32| {
        // Bounded: a process may end, and its number be another's, while all are read.
        for _ in 0..64 {
            if id == process {
                return true;
            }
            match all.get(&id) {
                Some(stat) => id = stat.parent,
                None => return false,
            }
        }
        false
    };
    let mut usage = Usage::default();
    for stat in all.iter().filter(|(id, _)| is_below(**id)).map(|(_, stat)| stat) {
        usage.cpu += TICK * u32::try_from(stat.ticks).unwrap_or(u32::MAX);
        usage.memory_bytes += stat.memory_pages * page_bytes;
    }
    Some(usage)
}

fn all() -> HashMap<u32, Stat> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter_map(|id| {
        let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        Some((id, Stat::parse(&text)?))
    })
    .collect()
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The name may have spaces and brackets: what follows the last bracket is numbers. proc_pid_stat(5).
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(Self {
            parent: u32::try_from(number(1)?).ok()?,
            ticks: number(11)? + number(12)?,
            memory_pages: number(21)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_whatever_the_name_is() {
        let line = "12 (a) b (c) S 3 12 12 0 -1 4194560 100 0 0 0 70 30 5 6 20 0 4 0 100 1000 250 18446744073709551615";
        let expected = Stat { parent: 3, ticks: 100, memory_pages: 250 };
        assert_eq!(Stat::parse(line), Some(expected));
        assert!(["", "12 (a", "12 (a) S", "12 (a) S x 1"].iter().all(|line| Stat::parse(line).is_none()));
    }

    #[test]
    fn children_are_counted_with_their_parent() {
        let own = of(std::process::id()).expect("this process");
        assert!(own.memory_bytes > KIB);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let both = of(std::process::id()).expect("this process");
        let alone = of(child.id()).expect("a child");
        child.kill().expect("a child of ours");
        child.wait().expect("a child of ours");
        assert!(alone.memory_bytes > 0 && both.memory_bytes > alone.memory_bytes);
        assert_eq!(of(child.id()), None, "it is gone");
    }
}
