//! CPU time, memory and threads of a process tree: all processes in a group, and their children.
//!
//! CPU time comes from control groups (`charged`) if possible. Otherwise from the scheduler's statistics of each
//! thread, in nanoseconds; if a thread ended, or without these statistics, from the ticks of the processes. Only ticks
//! separate user from system time.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

use rustix::process::Pid;
use tokio::time::Instant;

use report::results::Usage;

use crate::charged::{self, Charged, ControlGroup};
use crate::error::Error;
use crate::stat::{ProcessFacts, ticks_per_second};

/// Maximum bytes read from /proc at once: the kernel produces them without letting other threads run.
const PIECE_BYTES: usize = 4096;

/// Root of a process tree: a started program and its children.
#[derive(Debug, Clone)]
pub(crate) struct Root {
    /// The first process; its ID is the ID of the group.
    pub(crate) process: Pid,
    pub(crate) control: Option<ControlGroup>,
}

/// CPU usage of a process tree until now.
#[derive(Debug, Clone)]
pub(crate) struct CpuReading {
    at: Instant,
    user_ticks: u64,
    system_ticks: u64,
    /// Ticks that ended children used, included in the other ticks.
    ended_ticks: u64,
    /// Statistics of the scheduler, by thread.
    scheduled: HashMap<i32, Account>,
    /// CPU time of the control groups, if each root has one.
    charged: Option<Charged>,
    processes: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Account {
    /// Nanoseconds on a CPU.
    busy_ns: u64,
    /// The thread waited for something.
    voluntary_switches: u64,
    /// The thread was preempted.
    involuntary_switches: u64,
}

pub(crate) struct Processes(Vec<ProcessFacts>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TreeMemory {
    /// Proportional set size (PSS): shared pages count in parts. Resident size if PSS cannot be read.
    pub(crate) bytes: u64,
}

impl Processes {
    /// Reads all processes. Skips those that end meanwhile.
    pub(crate) fn now() -> Result<Self, Error> {
        let error = |source| Error::System { action: "read the list of processes in /proc", source };
        ProcessFacts::all(give_way).map(Self).map_err(error)
    }

    fn tree(&self, roots: &[Root]) -> Vec<&ProcessFacts> {
        let roots: Vec<i32> = roots.iter().map(|root| root.process.as_raw_nonzero().get()).collect();
        let is_root = |stat: &&ProcessFacts| roots.contains(&stat.group) || roots.contains(&stat.pid);
        let mut inside: HashSet<i32> = self.0.iter().filter(is_root).map(|stat| stat.pid).collect();
        loop {
            let before = inside.len();
            for stat in &self.0 {
                if inside.contains(&stat.parent) {
                    inside.insert(stat.pid);
                }
            }
            if inside.len() == before {
                break;
            }
        }
        self.0.iter().filter(|stat| inside.contains(&stat.pid)).collect()
    }
}

impl CpuReading {
    pub(crate) fn new(processes: &Processes, roots: &[Root]) -> Self {
        let tree = processes.tree(roots);
        let at = Instant::now();
        let scheduled = tree.iter().flat_map(|stat| threads(stat.pid)).collect();
        Self {
            at,
            // The parent's counts include those of ended children that it has waited for.
            user_ticks: tree.iter().map(|stat| stat.user_ticks + stat.children_user_ticks).sum(),
            system_ticks: tree.iter().map(|stat| stat.system_ticks + stat.children_system_ticks).sum(),
            ended_ticks: tree.iter().map(|stat| stat.children_user_ticks + stat.children_system_ticks).sum(),
            scheduled,
            charged: charged::sum(roots.iter().map(|root| root.control.as_ref()?.charged())),
            processes: tree.len(),
        }
    }

    /// CPU time until now. Ended threads are counted only in the ticks of their process.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        let ticks = self.user_ticks + self.system_ticks;
        let by_ticks = ticks as f64 / ticks_per_second() as f64;
        by_ticks.max(self.scheduled.values().map(|account| account.busy_ns).sum::<u64>() as f64 / 1e9)
    }

    pub(crate) fn threads(&self) -> usize {
        self.scheduled.len()
    }

    pub(crate) fn at(&self) -> Instant {
        self.at
    }

    /// Usage from an earlier reading to this one. `memory` is the highest value between them.
    pub(crate) fn since(&self, earlier: &Self, memory: TreeMemory) -> Usage {
        let tick_seconds = 1.0 / ticks_per_second() as f64;
        let user = self.user_ticks.saturating_sub(earlier.user_ticks) as f64 * tick_seconds;
        let system = self.system_ticks.saturating_sub(earlier.system_ticks) as f64 * tick_seconds;
        let charged = self.charged_seconds_since(earlier);
        let (user_seconds, system_seconds) = charged.unwrap_or_else(|| {
            let by_ticks = user + system;
            // Each reading rounds down user and system time of each process.
            let rounded = 4.0 * tick_seconds * self.processes.max(earlier.processes) as f64;
            // If the ticks exceed the scheduler's time, threads came and went; only their processes' ticks have them.
            let is_whole = |scheduled: &f64| by_ticks <= scheduled + rounded;
            let both = self.scheduled_seconds_since(earlier).filter(is_whole).unwrap_or(by_ticks);
            // Without a tick the time counts as the kernel's, because most of a proxy's time is.
            let user_share = if user + system > 0.0 { user / (user + system) } else { 0.0 };
            (both * user_share, both * (1.0 - user_share))
        });
        Usage {
            seconds: (self.at - earlier.at).as_secs_f64(),
            user_seconds,
            system_seconds,
            by_control_group: charged.is_some(),
            memory_bytes: memory.bytes,
            processes: self.processes,
            threads: self.scheduled.len(),
            voluntary_switches: self.counted_since(earlier, |account| account.voluntary_switches),
            involuntary_switches: self.counted_since(earlier, |account| account.involuntary_switches),
        }
    }

    /// User and system time from control groups.
    fn charged_seconds_since(&self, earlier: &Self) -> Option<(f64, f64)> {
        let (now, before) = (self.charged?, earlier.charged?);
        let seconds = |now: u64, before: u64| now.saturating_sub(before) as f64 / 1e6;
        let user = seconds(now.user_microseconds, before.user_microseconds);
        Some((user, seconds(now.system_microseconds, before.system_microseconds)))
    }

    /// Sum of a count over the threads that still exist. Counts of ended threads are lost.
    fn counted_since(&self, earlier: &Self, count: fn(&Account) -> u64) -> u64 {
        let before = |thread: &i32| earlier.scheduled.get(thread).map_or(0, count);
        self.scheduled.iter().map(|(thread, now)| count(now).saturating_sub(before(thread))).sum()
    }

    /// CPU time from the scheduler. `None` if a thread or process ended meanwhile, because its statistics are lost.
    fn scheduled_seconds_since(&self, earlier: &Self) -> Option<f64> {
        let complete = !self.scheduled.is_empty()
            && self.ended_ticks == earlier.ended_ticks
            && earlier.scheduled.keys().all(|thread| self.scheduled.contains_key(thread));
        complete.then(|| self.counted_since(earlier, |account| account.busy_ns) as f64 / 1e9)
    }
}

impl TreeMemory {
    pub(crate) fn new(processes: &Processes, roots: &[Root]) -> Self {
        let tree = processes.tree(roots);
        let bytes =
            tree.iter().map(|stat| proportional_bytes(stat.pid, &tree).unwrap_or(stat.resident_bytes)).sum();
        Self { bytes }
    }
}

/// Threads of a process with their statistics; empty if the kernel keeps none.
fn threads(process: i32) -> Vec<(i32, Account)> {
    let Ok(entries) = fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let thread = entry.file_name().to_str()?.parse().ok()?;
            let account = read(entry.path().join("schedstat")).ok()?;
            let busy_ns = account.split_whitespace().next()?.parse().ok()?;
            let status = read(entry.path().join("status")).unwrap_or_default();
            let (voluntary_switches, involuntary_switches) = switches(&status);
            Some((thread, Account { busy_ns, voluntary_switches, involuntary_switches }))
        })
        .collect()
}

/// Voluntary and involuntary context switches, from the status of a thread.
fn switches(status: &str) -> (u64, u64) {
    let count = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.trim().parse().ok()).unwrap_or(0)
    };
    (count("voluntary_ctxt_switches:"), count("nonvoluntary_ctxt_switches:"))
}

/// Proportional set size, with the program's own file counted in full. Origins and generator run from the file of
/// Vanward's proxy, which would reduce the proxy's share.
fn proportional_bytes(process: i32, tree: &[&ProcessFacts]) -> Option<u64> {
    let program = |process: i32| fs::read_link(format!("/proc/{process}/exe"));
    let own = program(process).ok()?;
    let sharers = tree.iter().filter(|stat| program(stat.pid).is_ok_and(|other| other == own)).count().max(1);
    let maps = read(format!("/proc/{process}/smaps")).ok()?;
    Some(mapped_bytes(&maps, &own.to_string_lossy(), sharers as u64))
}

/// Sums up a process's memory mappings. Read-only mappings of `own` count in full, divided by `sharers`.
fn mapped_bytes(maps: &str, own: &str, sharers: u64) -> u64 {
    let kib = |line: &str| {
        line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok()).unwrap_or(0)
    };
    let mut is_own = false;
    let mut bytes = 0;
    for line in maps.lines() {
        if line.starts_with("Rss:") && is_own {
            bytes += kib(line) * 1024 / sharers;
        } else if line.starts_with("Pss:") && !is_own {
            bytes += kib(line) * 1024;
        } else if line.split_whitespace().next().is_some_and(|word| word.contains('-')) {
            let writable =
                line.split_whitespace().nth(1).is_some_and(|permissions| permissions.contains('w'));
            is_own = !writable && line.ends_with(own);
        }
    }
    bytes
}

/// Reads a file of /proc in pieces.
fn read(path: impl AsRef<Path>) -> io::Result<String> {
    let (mut file, mut text, mut piece) = (File::open(path)?, Vec::new(), [0; PIECE_BYTES]);
    loop {
        give_way();
        match file.read(&mut piece)? {
            0 => return String::from_utf8(text).map_err(io::Error::other),
            count => text.extend_from_slice(&piece[..count]),
        }
    }
}

/// Yields the core to waiting threads: reading /proc could delay the generator and the proxy for milliseconds.
fn give_way() {
    std::thread::yield_now();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cores;
    use crate::group::ProcessGroup;
    use std::time::Duration;

    /// A group that runs `script`, once it has printed that it is ready.
    async fn running(script: &str, folder: &std::path::Path) -> ProcessGroup {
        let command = ["sh", "-c", script].map(str::to_owned);
        let cores = cores::assign_all().expect("the kernel tells");
        let group = ProcessGroup::start("test", &command, &cores.load, folder).expect("a shell");
        while !group.output().contains("ready") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        group
    }

    fn reading(group: &ProcessGroup) -> CpuReading {
        CpuReading::new(&Processes::now().expect("the kernel tells"), &[group.root()])
    }

    #[test]
    fn switches_are_told_apart() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n";
        assert_eq!(switches(status), (150, 545));
        assert_eq!(switches(""), (0, 0));
    }

    #[test]
    fn pages_of_the_program_s_own_file_are_shared_within_the_tree_only() {
        let maps = "\
            55d0-55d9 r-xp 00000000 fe:00 123 /bin/own\nRss: 90 kB\nPss: 30 kB\nPss_Dirty: 7 kB\n\
            55d9-55da rw-p 00000000 fe:00 123 /bin/own\nRss: 8 kB\nPss: 4 kB\n\
            7f00-7f01 r-xp 00000000 fe:00 456 /lib/libc.so.6\nRss: 500 kB\nPss: 10 kB\n\
            7f01-7f02 rw-p 00000000 00:00 0\nRss: 16 kB\nPss: 16 kB\n";
        assert_eq!(mapped_bytes(maps, "/bin/own", 1), (90 + 4 + 10 + 16) * 1024);
        assert_eq!(mapped_bytes(maps, "/bin/own", 2), (45 + 4 + 10 + 16) * 1024);
        assert_eq!(mapped_bytes("", "/bin/own", 1), 0);
    }

    #[tokio::test]
    async fn the_work_of_a_grandchild_counts_and_that_of_others_does_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let idle = running("sleep 600 & echo ready; wait", folder.path()).await;
        let busy_folder = tempfile::tempdir().expect("a folder");
        let busy = running("sh -c 'echo ready; while :; do :; done' & wait", busy_folder.path()).await;
        let before = [&idle, &busy].map(reading);
        let none = TreeMemory { bytes: 0 };
        let used = |group: &ProcessGroup, before: &CpuReading| {
            let usage = reading(group).since(before, none);
            usage.user_seconds + usage.system_seconds
        };
        // Waits until it has used some CPU time; the duration depends on the machine.
        while used(&busy, &before[1]) < 0.05 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(used(&idle, &before[0]) < 0.01);
        let usage = reading(&busy).since(&before[1], none);
        assert!(
            usage.user_seconds + usage.system_seconds <= usage.seconds * 1.05,
            "one loop, one core: {usage:?}"
        );
        assert_eq!((usage.processes, usage.threads), (2, 2));
    }

    #[tokio::test]
    async fn the_time_of_a_child_that_ended_is_not_lost() {
        let folder = tempfile::tempdir().expect("a folder");
        let script = "echo ready; i=0; while [ $i -lt 300 ]; do sh -c 'j=0; while [ $j -lt 2000 ]; do j=$((j+1)); done'; \
                      i=$((i+1)); done; echo done; sleep 600";
        let group = running(script, folder.path()).await;
        let before = reading(&group);
        while !group.output().contains("done") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let usage = reading(&group).since(&before, TreeMemory { bytes: 0 });
        assert!(usage.voluntary_switches > 0, "it waited for its children: {usage:?}");
        // The shell only waits, so nearly all CPU time is its children's.
        assert!(usage.user_seconds + usage.system_seconds > 0.1, "{usage:?}");
    }

    #[tokio::test]
    async fn the_time_of_a_thread_that_came_and_went_is_not_lost() {
        let this = Root { process: rustix::process::getpid(), control: None };
        let look =
            || CpuReading::new(&Processes::now().expect("the kernel tells"), std::slice::from_ref(&this));
        let before = look();
        let busy = || {
            let time = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            while time().tv_nsec < 400_000_000 {
                std::hint::black_box(time());
            }
        };
        std::thread::spawn(busy).join().expect("it ends");
        let usage = look().since(&before, TreeMemory { bytes: 0 });
        assert!(usage.user_seconds + usage.system_seconds >= 0.35, "{usage:?}");
    }

    /// A process that ran between two samples is in neither of them.
    #[tokio::test]
    async fn a_control_group_is_charged_for_all_that_ran_in_it_and_goes_with_it() {
        let Some(control) = ControlGroup::new() else { return };
        let folder = control.folder().to_owned();
        drop(control);
        assert!(!folder.exists());
        let place = tempfile::tempdir().expect("a folder");
        let (work, go) = (place.path().join("work"), place.path().join("go"));
        std::fs::write(&work, "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo done")
            .expect("a file");
        // No parent waits for the working process, and it has left the process group.
        let (work, waits) = (work.display(), go.display());
        let script = format!(
            "echo ready; while [ ! -e {waits} ]; do sleep 0.02; done; (setsid sh {work} &); exec sleep 600"
        );
        // By its name alone, like many programs in plans.
        let command = ["sh".to_owned(), "-c".to_owned(), script];
        let cores = cores::assign_all().expect("the kernel tells");
        let group = ProcessGroup::start("test", &command, &cores.load, place.path()).expect("a shell");
        while !group.output().contains("ready") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let before = reading(&group);
        std::fs::write(&go, "").expect("a file");
        while !group.output().contains("done") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let usage = reading(&group).since(&before, TreeMemory { bytes: 0 });
        assert!(usage.by_control_group);
        assert!(usage.user_seconds + usage.system_seconds > 0.05, "{usage:?}");
        let folder = group.root().control.expect("it has one").folder().to_owned();
        assert!(folder.exists());
        drop(group);
        assert!(!folder.exists(), "its group is gone");
    }

    #[tokio::test]
    async fn memory_is_that_of_the_whole_tree() {
        let folder = tempfile::tempdir().expect("a folder");
        let one = running("echo ready; sleep 600", folder.path()).await;
        let other_folder = tempfile::tempdir().expect("a folder");
        let many =
            running("sleep 600 & sleep 600 & sleep 600 & sleep 600 & echo ready; wait", other_folder.path())
                .await;
        let processes = Processes::now().expect("the kernel tells");
        let one = TreeMemory::new(&processes, &[one.root()]).bytes;
        let many = TreeMemory::new(&processes, &[many.root()]).bytes;
        assert!(one > 0 && many > one, "{one} and {many}");
    }
}
