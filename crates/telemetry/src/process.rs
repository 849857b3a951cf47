//! Facts about this process from the system, under the names that Prometheus exporters share.

use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

/// The state of this process at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProcessState {
    /// User and system CPU time of all threads.
    pub cpu_seconds: f64,
    /// Since the Unix epoch.
    pub started_seconds: f64,
    pub resident_bytes: u64,
    pub virtual_bytes: u64,
    pub threads: u64,
    /// Open file descriptors.
    pub descriptors: u64,
    /// The limit on open file descriptors; `None` if there is none.
    pub descriptors_max: Option<u64>,
}

impl ProcessState {
    /// `None` if /proc cannot be read.
    #[must_use]
    pub fn now() -> Option<Self> {
        let read = |file| fs::read_to_string(file).ok();
        let stat = StatFields::parse(&read("/proc/self/stat")?)?;
        let seconds = |ticks: u64| ticks as f64 / clock_ticks_per_second() as f64;
        Some(Self {
            cpu_seconds: seconds(stat.cpu_ticks),
            started_seconds: booted_seconds(&read("/proc/stat")?)? + seconds(stat.started_ticks),
            resident_bytes: stat.resident_pages * page_size() as u64,
            virtual_bytes: stat.virtual_bytes,
            threads: stat.threads,
            descriptors: descriptors()?,
            descriptors_max: getrlimit(Resource::Nofile).current,
        })
    }
}

/// The fields of `/proc/PID/stat` that are reported (proc_pid_stat(5)).
#[derive(Debug, PartialEq)]
struct StatFields {
    cpu_ticks: u64,
    threads: u64,
    started_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl StatFields {
    fn parse(stat: &str) -> Option<Self> {
        // The name of the program may contain spaces and parentheses; the field behind it is the third.
        let (_, rest) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            cpu_ticks: field(14)? + field(15)?,
            threads: field(20)?,
            started_ticks: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

fn descriptors() -> Option<u64> {
    // Since Linux 6.2 the size of the folder is their number.
    match fs::metadata("/proc/self/fd").ok()?.len() {
        // One of them is that of the folder.
        0 => Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as u64),
        count => Some(count),
    }
}

/// When the system was started, in seconds since the Unix epoch, from `/proc/stat`.
fn booted_seconds(stat: &str) -> Option<f64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn it_runs_since_a_moment_ago_and_holds_something() {
        let process = ProcessState::now().expect("/proc can be read");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64();
        assert!(process.started_seconds > 0.0 && process.started_seconds < now + 2.0, "{process:?} at {now}");
        assert!(process.resident_bytes > 100_000 && process.virtual_bytes >= process.resident_bytes);
        assert!(process.threads >= 1 && process.descriptors >= 3, "{process:?}");
    }

    #[test]
    fn fields_are_counted_behind_the_name() {
        let stat = "7 (a) 1 (b) S 1 7 7 0 -1 4194560 900 0 5 0 31 12 3 4 20 0 6 0 8100 73728000 2100 18446744073709551615 1 1\n";
        let expected = StatFields {
            cpu_ticks: 43,
            threads: 6,
            started_ticks: 8100,
            virtual_bytes: 73_728_000,
            resident_pages: 2100,
        };
        assert_eq!(StatFields::parse(stat), Some(expected));
        for less in ["", "7 (a) S 1 7", "7 a S"] {
            assert_eq!(StatFields::parse(less), None, "{less}");
        }
        assert_eq!(booted_seconds("cpu 1 2\nbtime 1700000000\nprocesses 9\n"), Some(1.7e9));
        assert_eq!(booted_seconds("cpu 1 2\n"), None);
    }
}
