//! Which cores each part has: the proxy's own core first, for it is what is measured.
//!
//! A child inherits the affinity of the thread that starts it; nothing here pins a running process of another.

use std::fs;
use std::io;

use report::results::Cores;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::error::Error;

/// The cores that this thread may use, dealt out.
pub fn assign() -> Result<Cores, Error> {
    Ok(deal(&allowed()?, siblings))
}

/// The cores that this thread may use.
pub fn allowed() -> Result<Vec<usize>, Error> {
    let allowed = sched_getaffinity(None).map_err(|source| Error::System {
        action: "read the cores of this process",
        source: source.into(),
    })?;
    Ok((0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect())
}

/// Runs `start` on a thread that has these cores only, and gives the thread its own back.
pub fn on<T>(cores: &[usize], start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let _stay = stay_on(cores)?;
    start()
}

/// Keeps this thread, and what it starts, to these cores until the returned guard is dropped.
pub fn stay_on(cores: &[usize]) -> io::Result<Stay> {
    let before = sched_getaffinity(None)?;
    let mut wanted = CpuSet::new();
    for &core in cores {
        wanted.set(core);
    }
    sched_setaffinity(None, &wanted)?;
    Ok(Stay { before })
}

/// Gives the thread its cores back when it is dropped, on the same thread.
#[derive(Debug)]
pub struct Stay {
    before: CpuSet,
}

impl Drop for Stay {
    fn drop(&mut self) {
        // They were its own a moment ago; should the kernel have taken them since, the narrower set stays.
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// One core for the proxy, then one for the origins, the rest for the load; what is too few is shared, the proxy's
/// last. The other half of a core with two threads stays idle where there are enough.
fn deal(allowed: &[usize], siblings: impl Fn(usize) -> Vec<usize>) -> Cores {
    let Some((&proxy, rest)) = allowed.split_first() else {
        return Cores { proxy: vec![0], origins: vec![0], load: vec![0] };
    };
    let halves = siblings(proxy);
    let apart: Vec<usize> = rest.iter().copied().filter(|core| !halves.contains(core)).collect();
    let rest = if apart.len() >= 2 { &apart } else { rest };
    let (origins, load) = match rest {
        [] => (vec![proxy], vec![proxy]),
        [only] => (vec![*only], vec![*only]),
        [first, others @ ..] => (vec![*first], others.to_vec()),
    };
    Cores { proxy: vec![proxy], origins, load }
}

/// The logical cores that are the same physical one, itself included; empty if the kernel does not tell.
fn siblings(core: usize) -> Vec<usize> {
    let path = format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list");
    fs::read_to_string(path).map(|text| core_list(&text)).unwrap_or_default()
}

/// The kernel's form of a list: `0,2-4`. What is not of this form is left out.
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
        type Siblings = fn(usize) -> Vec<usize>;
        /// Cores allowed, their siblings; cores of the proxy, the origins and the load.
        type Case = (&'static [usize], Siblings, [&'static [usize]; 3]);
        let cases: [Case; 6] = [
            (&[3], alone, [&[3], &[3], &[3]]),
            (&[0, 1], alone, [&[0], &[1], &[1]]),
            (&[0, 1], pairs, [&[0], &[1], &[1]]),
            (&[1, 4, 6], alone, [&[1], &[4], &[6]]),
            (&[0, 1, 2, 3], pairs, [&[0], &[2], &[3]]),
            (&[0, 1, 2, 3, 4, 5], alone, [&[0], &[1], &[2, 3, 4, 5]]),
        ];
        for (allowed, siblings, [proxy, origins, load]) in cases {
            let cores = deal(allowed, siblings);
            assert_eq!((&*cores.proxy, &*cores.origins, &*cores.load), (proxy, origins, load), "{allowed:?}");
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
        let before = assign().expect("the kernel tells");
        let core = *before.load.last().expect("at least one");
        let child = on(&[core], || std::process::Command::new("cat").arg("/proc/self/status").output());
        let told = String::from_utf8(child.expect("cat runs").stdout).expect("text");
        let list = told.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("a field");
        assert_eq!(core_list(list), [core]);
        assert_eq!(assign().expect("the kernel tells"), before);
    }
}
