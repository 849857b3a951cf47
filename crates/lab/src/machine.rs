//! Description of the machine, for the report: the facts that matter when results are compared.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use report::results::RunMachine;

/// Kernel settings that affect the cost of a proxy or its number of connections.
const SETTINGS: [(&str, &str); 5] = [
    ("net.core.somaxconn", "/proc/sys/net/core/somaxconn"),
    ("net.ipv4.ip_local_port_range", "/proc/sys/net/ipv4/ip_local_port_range"),
    ("net.ipv4.tcp_congestion_control", "/proc/sys/net/ipv4/tcp_congestion_control"),
    ("clock source", "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    ("transparent huge pages", "/sys/kernel/mm/transparent_hugepage/enabled"),
];

/// Describes this machine. Omits facts that the kernel does not report.
pub fn describe(cores: usize) -> RunMachine {
    let system = rustix::system::uname();
    let architecture = system.machine().to_string_lossy().into_owned();
    let kernel = format!("{} {}", system.sysname().to_string_lossy(), system.release().to_string_lossy());
    let mut settings: BTreeMap<String, String> =
        SETTINGS.iter().filter_map(|(name, path)| Some(((*name).to_owned(), line(path)?))).collect();
    let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    settings.insert(
        "open files (limit)".to_owned(),
        descriptors.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string()),
    );
    RunMachine {
        processor: processor(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default())
            .unwrap_or_else(|| format!("unnamed {architecture} processor")),
        architecture,
        cores,
        memory_bytes: memory_bytes(&fs::read_to_string("/proc/meminfo").unwrap_or_default()),
        kernel,
        governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        settings,
    }
}

/// Load averages over 1, 5 and 15 minutes.
pub(crate) fn load_average() -> [f64; 3] {
    let text = line("/proc/loadavg").unwrap_or_default();
    let mut numbers = text.split_whitespace().map(|word| word.parse().unwrap_or(0.0));
    std::array::from_fn(|_| numbers.next().unwrap_or(0.0))
}

/// Idle time of the cores at one moment, for computing busy time. The kernel measures idle time exactly, and other
/// times by ticks, which miscount work that a clock drives (a constant rate).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Idled {
    at: Instant,
    by: MachineIdle,
}

/// Idle time since the kernel's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MachineIdle {
    cores: u32,
    /// Idle time of all cores together, including waits for disks.
    ticks: u64,
}

impl Idled {
    /// Idle time of `cores` until now; `None` if the kernel does not report it.
    pub(crate) fn now(cores: &[usize]) -> Option<Self> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        Some(Self { at: Instant::now(), by: MachineIdle::parse(&stat, cores)? })
    }

    /// CPU time that all cores together were busy since `earlier`: programs, interrupts, time taken by a hypervisor.
    pub(crate) fn busy_seconds_since(&self, earlier: &Self) -> f64 {
        let idle_ticks = self.by.ticks.saturating_sub(earlier.by.ticks);
        let all = (self.at - earlier.at).as_secs_f64() * f64::from(self.by.cores);
        (all - idle_ticks as f64 / crate::stat::ticks_per_second() as f64).max(0.0)
    }
}

impl MachineIdle {
    fn parse(stat: &str, cores: &[usize]) -> Option<Self> {
        let idle_of = |line: &str| {
            let mut words = line.strip_prefix("cpu")?.split_whitespace();
            let core: usize = words.next()?.parse().ok()?;
            // Skips user, nice and system time.
            let mut ticks = words.skip(3).map_while(|word| word.parse::<u64>().ok());
            Some((core, ticks.next()? + ticks.next()?))
        };
        // The first line is the sum of the others.
        let by_core = stat.lines().skip(1).map_while(idle_of).filter(|(core, _)| cores.contains(core));
        let ticks: Vec<u64> = by_core.map(|(_, ticks)| ticks).collect();
        let count = u32::try_from(ticks.len()).ok().filter(|count| *count > 0)?;
        Some(Self { cores: count, ticks: ticks.iter().sum() })
    }
}

fn processor(cpuinfo: &str) -> Option<String> {
    let (_, name) = cpuinfo
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == "model name")?;
    Some(name.trim().to_owned())
}

fn memory_bytes(meminfo: &str) -> u64 {
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    total.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

fn line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    (!words.is_empty()).then_some(words)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_kernel_s_files_are_read() {
        assert_eq!(
            processor("processor\t: 0\nmodel name\t: Fast One @ 3GHz\n").as_deref(),
            Some("Fast One @ 3GHz")
        );
        assert_eq!(processor("CPU part\t: 0xd0c\n"), None);
        assert_eq!(memory_bytes("MemTotal:       24 kB\nMemFree: 1 kB\n"), 24 * 1024);
        assert_eq!(memory_bytes(""), 0);
    }

    #[test]
    fn a_machine_is_busy_while_its_cores_neither_idle_nor_wait() {
        let stat = "cpu  1 2 4 1100 2200 8 16 32 0 0\ncpu0 1 2 4 800 1600 8 16 32 0 0\ncpu1 0 0 0 200 400 0 0 0 0 0\n\
                    cpu2 0 0 0 100 200 0 0 0 0 0\nintr 7 7 7 7 7 7\n";
        assert_eq!(MachineIdle::parse(stat, &[0, 1, 2]), Some(MachineIdle { cores: 3, ticks: 3300 }));
        assert_eq!(
            MachineIdle::parse(stat, &[1, 2, 9]),
            Some(MachineIdle { cores: 2, ticks: 900 }),
            "those that may be used"
        );
        assert_eq!(MachineIdle::parse(stat, &[9]), None);
        assert_eq!(MachineIdle::parse("cpu  1 2\n", &[0]), None);

        let now = Instant::now();
        let reading = |seconds: u64, ticks: u64| Idled {
            at: now + Duration::from_secs(seconds),
            by: MachineIdle { cores: 2, ticks },
        };
        let a_second = crate::stat::ticks_per_second();
        let busy = |idle_ticks: u64| reading(3, 100 + idle_ticks).busy_seconds_since(&reading(0, 100));
        assert_eq!([busy(0), busy(a_second), busy(6 * a_second), busy(7 * a_second)], [6.0, 5.0, 0.0, 0.0]);
        let cores = crate::cores::allowed().expect("the kernel tells");
        assert!(Idled::now(&cores).is_some_and(|read| read.by.cores as usize == cores.len()), "this one too");
    }

    #[test]
    fn this_machine_has_a_name_and_memory() {
        let machine = describe(2);
        assert!(
            !machine.processor.is_empty() && machine.memory_bytes > 0 && machine.kernel.starts_with("Linux")
        );
    }
}
