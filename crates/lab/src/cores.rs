//! Assigns CPU cores to the parts of a run. The proxy gets its own core first, because it is measured.
//!
//! A child inherits the affinity of the thread that starts it. Running processes are not changed.

use std::fs;
use std::io;

use report::results::Cores;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::agent::words::MachineShare;
use crate::error::Error;

/// Distributes the cores that this thread may use among the parts on this machine.
pub(crate) fn assign(share: &MachineShare) -> Result<Cores, Error> {
    Ok(deal(&allowed()?, siblings, share))
}

/// Distributes the cores as for a run with all parts on this machine, and proxies with one worker.
pub fn assign_all() -> Result<Cores, Error> {
    assign(&MachineShare { client: true, proxy: true, origins: true, workers: 1 })
}

/// CPU cores that this thread may use.
pub fn allowed() -> Result<Vec<usize>, Error> {
    let allowed = sched_getaffinity(None).map_err(|source| Error::System {
        action: "read the cores of this process",
        source: source.into(),
    })?;
    Ok((0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect())
}

/// Runs `start` on this thread, limited to these cores, then restores the thread's cores.
pub fn on<T>(cores: &[usize], start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let _stay = stay_on(cores)?;
    start()
}

/// Limits this thread and its children to these cores, until the returned guard is dropped.
pub fn stay_on(cores: &[usize]) -> io::Result<Stay> {
    let before = sched_getaffinity(None)?;
    let mut wanted = CpuSet::new();
    for &core in cores {
        wanted.set(core);
    }
    sched_setaffinity(None, &wanted)?;
    Ok(Stay { before })
}

/// Guard that restores the cores of the thread when it is dropped. It must be dropped on the same thread.
#[derive(Debug)]
pub struct Stay {
    before: CpuSet,
}

impl Drop for Stay {
    fn drop(&mut self) {
        // If the kernel has since taken some of these cores away, the narrower set stays.
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// Assigns a core to each worker of the proxy, then one to the origins, and the rest to the load. With too few cores,
/// parts share cores; the proxy's core is shared last. Hyper-threading siblings stay idle if there are enough cores.
/// Parts on other machines get none.
fn deal(allowed: &[usize], siblings: impl Fn(usize) -> Vec<usize>, share: &MachineShare) -> Cores {
    let allowed = if allowed.is_empty() { &[0] } else { allowed };
    let others = usize::from(share.origins) + usize::from(share.client);
    let workers = share.workers.clamp(1, allowed.len().saturating_sub(others).max(1));
    let (proxy, rest) = allowed.split_at(if share.proxy { workers } else { 0 });
    let halves: Vec<usize> = proxy.iter().copied().flat_map(siblings).collect();
    let apart: Vec<usize> = rest.iter().copied().filter(|core| !halves.contains(core)).collect();
    let rest = match rest {
        [] => proxy,
        _ if apart.len() >= others => &apart,
        _ => rest,
    };
    let (origins, load) = match rest {
        [first, others @ ..] if share.origins && share.client && !others.is_empty() => {
            (vec![*first], others.to_vec())
        }
        all => (all.to_vec(), all.to_vec()),
    };
    let if_here = |is_here: bool, cores: Vec<usize>| if is_here { cores } else { Vec::new() };
    Cores {
        proxy: proxy.to_vec(),
        origins: if_here(share.origins, origins),
        load: if_here(share.client, load),
    }
}

/// Logical cores of the same physical core, itself included. Empty if the kernel does not report it.
fn siblings(core: usize) -> Vec<usize> {
    let path = format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list");
    fs::read_to_string(path).map(|text| core_list(&text)).unwrap_or_default()
}

/// Parses the kernel's form of a list, `0,2-4`. Skips other text.
fn core_list(text: &str) -> Vec<usize> {
    let ranges = text.trim().split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?)
    });
    ranges.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proxy_shares_its_core_last() {
        let alone = |core: usize| vec![core];
        let pairs = |core: usize| vec![core & !1, core | 1];
        let all = |workers| MachineShare { client: true, proxy: true, origins: true, workers };
        let only = MachineShare { workers: 1, ..MachineShare::default() };
        type Siblings = fn(usize) -> Vec<usize>;
        /// Allowed cores, their siblings, parts on this machine; expected cores of the proxy, the origins and the load.
        type Case = (&'static [usize], Siblings, MachineShare, [&'static [usize]; 3]);
        let cases: [Case; 13] = [
            (&[3], alone, all(1), [&[3], &[3], &[3]]),
            (&[0, 1], alone, all(1), [&[0], &[1], &[1]]),
            (&[0, 1], pairs, all(1), [&[0], &[1], &[1]]),
            (&[1, 4, 6], alone, all(1), [&[1], &[4], &[6]]),
            (&[0, 1, 2, 3], pairs, all(1), [&[0], &[2], &[3]]),
            (&[0, 1, 2, 3, 4, 5], alone, all(1), [&[0], &[1], &[2, 3, 4, 5]]),
            (&[0, 1, 2, 3, 4, 5], alone, all(4), [&[0, 1, 2, 3], &[4], &[5]]),
            (&[0, 1, 2, 3], alone, all(8), [&[0, 1], &[2], &[3]]),
            (&[0, 1], alone, all(2), [&[0], &[1], &[1]]),
            (&[0, 1], alone, MachineShare { proxy: true, ..only }, [&[0], &[], &[]]),
            (&[0, 1], alone, MachineShare { proxy: true, workers: 4, ..only }, [&[0, 1], &[], &[]]),
            (&[0, 1], alone, MachineShare { client: true, ..only }, [&[], &[], &[0, 1]]),
            (&[0, 1, 2], alone, MachineShare { client: true, origins: true, ..only }, [&[], &[0], &[1, 2]]),
        ];
        for (allowed, siblings, share, [proxy, origins, load]) in cases {
            let cores = deal(allowed, siblings, &share);
            assert_eq!(
                (&*cores.proxy, &*cores.origins, &*cores.load),
                (proxy, origins, load),
                "{allowed:?} for {share:?}"
            );
        }
    }

    #[test]
    fn lists_of_the_kernel_are_read() {
        assert_eq!(core_list("0,2-4\n"), [0, 2, 3, 4]);
        assert_eq!(core_list("7"), [7]);
        assert!(core_list("what").is_empty());
    }

    #[test]
    fn a_child_has_the_cores_of_its_start_and_the_thread_gets_its_own_back() {
        let before = assign_all().expect("the kernel tells");
        let core = *before.load.last().expect("at least one");
        let child = on(&[core], || std::process::Command::new("cat").arg("/proc/self/status").output());
        let told = String::from_utf8(child.expect("cat runs").stdout).expect("text");
        let list = told.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("a field");
        assert_eq!(core_list(list), [core]);
        assert_eq!(assign_all().expect("the kernel tells"), before);
    }
}
