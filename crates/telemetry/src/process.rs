//! Facts about this process from the system, under the names that Prometheus exporters share.

use procfs::process::LimitValue;
use procfs::{ProcResult, WithCurrentSystemInfo};

/// The state of this process at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Process {
    /// User and system CPU time of all threads, in seconds.
    pub cpu_seconds: f64,
    /// Start time, in seconds since the Unix epoch.
    pub started_seconds: f64,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Virtual memory in bytes.
    pub virtual_bytes: u64,
    /// The number of threads.
    pub threads: u64,
    /// The number of open file descriptors.
    pub descriptors: u64,
    /// The limit on open file descriptors; `None` if there is none.
    pub descriptors_max: Option<u64>,
}

impl Process {
    /// Reads the current state; `None` if /proc cannot be read.
    #[must_use]
    pub fn now() -> Option<Self> {
        Self::read().ok()
    }

    fn read() -> ProcResult<Self> {
        let own = procfs::process::Process::myself()?;
        let stat = own.stat()?;
        let ticks_per_second = procfs::ticks_per_second() as f64;
        let since_boot = stat.starttime as f64 / ticks_per_second;
        Ok(Self {
            cpu_seconds: (stat.utime + stat.stime) as f64 / ticks_per_second,
            started_seconds: procfs::boot_time_secs()? as f64 + since_boot,
            resident_bytes: stat.rss_bytes().get(),
            virtual_bytes: stat.vsize,
            threads: stat.num_threads.unsigned_abs(),
            descriptors: own.fd_count()? as u64,
            descriptors_max: match own.limits()?.max_open_files.soft_limit {
                LimitValue::Value(limit) => Some(limit),
                LimitValue::Unlimited => None,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn it_runs_since_a_moment_ago_and_holds_something() {
        let process = Process::now().expect("/proc can be read");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64();
        assert!(process.started_seconds > 0.0 && process.started_seconds < now + 2.0, "{process:?} at {now}");
        assert!(process.resident_bytes > 100_000 && process.virtual_bytes >= process.resident_bytes);
        assert!(process.threads >= 1 && process.descriptors >= 3, "{process:?}");
    }
}
