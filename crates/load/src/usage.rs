//! CPU time and memory of the server's process and its descendants, from /proc.

use std::collections::HashMap;
use std::time::Duration;

/// The kernel reports times in hundredths of a second (USER_HZ), on every architecture.
const TICK: Duration = Duration::from_millis(10);
const KIB: u64 = 1024;

/// CPU time and memory of processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// User and system CPU time, from their start.
    pub(crate) cpu: Duration,
    /// Resident memory; shared memory counts for each process.
    pub(crate) memory_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StatLine {
    parent: u32,
    ticks: u64,
    memory_pages: u64,
}

/// Usage of a process and its descendants; `None` if there is no such process.
pub(crate) fn usage_of(process: u32) -> Option<Usage> {
    let page_bytes = rustix::param::page_size() as u64;
    debug_assert!(page_bytes >= KIB);
    let all = all();
    all.get(&process)?;
    let is_below = |mut id: u32| {
        // Bounded, because process IDs may be reused during the reading, which could make a cycle.
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

fn all() -> HashMap<u32, StatLine> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter_map(|id| {
        let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        Some((id, StatLine::parse(&text)?))
    })
    .collect()
}

impl StatLine {
    fn parse(text: &str) -> Option<Self> {
        // The name may have spaces and brackets; only numbers follow the last bracket. proc_pid_stat(5).
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
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn a_line_is_read_whatever_the_name_is() {
        let line = "12 (a) b (c) S 3 12 12 0 -1 4194560 100 0 0 0 70 30 5 6 20 0 4 0 100 1000 250 18446744073709551615";
        let expected = StatLine { parent: 3, ticks: 100, memory_pages: 250 };
        assert_eq!(StatLine::parse(line), Some(expected));
        assert!(["", "12 (a", "12 (a) S", "12 (a) S x 1"].iter().all(|line| StatLine::parse(line).is_none()));
    }

    #[test]
    fn children_are_counted_with_their_parent() {
        let own = usage_of(std::process::id()).expect("this process");
        assert!(own.memory_bytes > KIB);
        let pipe = std::process::Stdio::piped;
        let mut child = std::process::Command::new("cat").stdin(pipe()).stdout(pipe()).spawn().expect("cat");
        // Its memory may be 0 until it runs.
        let mut sent = child.stdin.take().expect("a pipe");
        sent.write_all(b"x").expect("it reads");
        let mut echo = [0];
        child.stdout.take().expect("a pipe").read_exact(&mut echo).expect("it answers");
        let both = usage_of(std::process::id()).expect("this process");
        let alone = usage_of(child.id()).expect("a child");
        child.kill().expect("a child of ours");
        child.wait().expect("a child of ours");
        assert!(alone.memory_bytes > 0 && both.memory_bytes > alone.memory_bytes);
        assert_eq!(usage_of(child.id()), None, "it is gone");
    }
}
