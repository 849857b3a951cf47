//! Processes, as in `/proc/PID/stat` (proc_pid_stat(5)).

use std::fs;
use std::io;

use rustix::param::{clock_ticks_per_second, page_size};

#[derive(Debug, PartialEq)]
pub(crate) struct ProcessFacts {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) user_ticks: u64,
    pub(crate) system_ticks: u64,
    /// CPU time of children that ended and were waited for, in ticks.
    pub(crate) children_user_ticks: u64,
    pub(crate) children_system_ticks: u64,
    pub(crate) resident_bytes: u64,
}

impl ProcessFacts {
    pub(crate) fn own() -> Option<Self> {
        Self::read("self")
    }

    /// The process in this folder of /proc.
    fn read(folder: &str) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{folder}/stat")).ok()?)
    }

    /// All processes. `between` is called before each is read; skips those that end meanwhile.
    pub(crate) fn all(between: fn()) -> io::Result<Vec<Self>> {
        let entries = fs::read_dir("/proc")?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let processes = names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
        let stat = |process: String| {
            between();
            Self::read(&process)
        };
        Ok(processes.filter_map(stat).collect())
    }

    fn parse(stat: &str) -> Option<Self> {
        // The program's name may have spaces and parentheses; the field after it is the third.
        let (pid, rest) = stat.split_once(" (")?;
        let (_, rest) = rest.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).copied();
        let ticks =
            |number| field(number)?.parse::<i64>().ok().map(|ticks| u64::try_from(ticks).unwrap_or(0));
        Some(Self {
            pid: pid.parse().ok()?,
            parent: field(4)?.parse().ok()?,
            group: field(5)?.parse().ok()?,
            user_ticks: ticks(14)?,
            system_ticks: ticks(15)?,
            children_user_ticks: ticks(16)?,
            children_system_ticks: ticks(17)?,
            resident_bytes: field(24)?.parse::<u64>().ok()? * page_size() as u64,
        })
    }
}

pub(crate) fn ticks_per_second() -> u64 {
    clock_ticks_per_second()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_behind_the_name() {
        let stat = "7 (a) 1 (b) S 1 8 7 0 -1 4194560 900 0 5 0 31 12 3 -4 20 0 6 0 8100 73728000 2 18446744073709551615 1\n";
        let expected = ProcessFacts {
            pid: 7,
            parent: 1,
            group: 8,
            user_ticks: 31,
            system_ticks: 12,
            children_user_ticks: 3,
            children_system_ticks: 0,
            resident_bytes: 2 * page_size() as u64,
        };
        assert_eq!(ProcessFacts::parse(stat), Some(expected));
        for less in ["", "7 (a) S 1 7", "7 a S"] {
            assert_eq!(ProcessFacts::parse(less), None, "{less}");
        }
    }

    #[test]
    fn this_process_is_one_of_all() {
        let own = ProcessFacts::own().expect("/proc can be read");
        assert_eq!(own.pid.unsigned_abs(), std::process::id());
        let all = ProcessFacts::all(|| ()).expect("/proc can be read");
        assert!(all.iter().any(|stat| stat.pid == own.pid && stat.parent == own.parent));
    }
}
