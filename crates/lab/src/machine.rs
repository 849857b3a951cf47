//! The machine, for the report: what a reader needs to know to compare it with another.

use std::collections::BTreeMap;
use std::fs;

use report::results::Machine;

/// Settings of the kernel that change what a proxy costs or how many connections it gets.
const SETTINGS: [(&str, &str); 5] = [
    ("net.core.somaxconn", "/proc/sys/net/core/somaxconn"),
    ("net.ipv4.ip_local_port_range", "/proc/sys/net/ipv4/ip_local_port_range"),
    ("net.ipv4.tcp_congestion_control", "/proc/sys/net/ipv4/tcp_congestion_control"),
    ("clock source", "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    ("transparent huge pages", "/sys/kernel/mm/transparent_hugepage/enabled"),
];

/// This machine. What the kernel does not tell is left out.
pub fn describe(cores: usize) -> Machine {
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
    Machine {
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

/// CPU time that all cores together spent on anything since they were started; `None` where the kernel does not tell.
pub(crate) fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    busy_ticks(&stat).map(|ticks| ticks as f64 / procfs::ticks_per_second() as f64)
}

/// User, nice, system, interrupts and what a hypervisor took: all but idle and waiting for disks.
fn busy_ticks(stat: &str) -> Option<u64> {
    let numbers: Vec<u64> = stat
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_whitespace()
        .map_while(|word| word.parse().ok())
        .collect();
    let [user, nice, system, _idle, _waiting, interrupts, soft, stolen, ..] = numbers[..] else {
        return None;
    };
    Some(user + nice + system + interrupts + soft + stolen)
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
    fn a_busy_machine_is_one_that_neither_idles_nor_waits() {
        assert_eq!(
            busy_ticks("cpu  1 2 4 800 1600 8 16 32 0 0\ncpu0 1 2 4\n"),
            Some(1 + 2 + 4 + 8 + 16 + 32)
        );
        assert_eq!(busy_ticks("cpu  1 2\n"), None);
        assert!(cpu_seconds().is_some_and(|seconds| seconds > 0.0));
    }

    #[test]
    fn this_machine_has_a_name_and_memory() {
        let machine = describe(2);
        assert!(
            !machine.processor.is_empty() && machine.memory_bytes > 0 && machine.kernel.starts_with("Linux")
        );
    }
}
