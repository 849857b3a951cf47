//! Samples the usage of the parts while load runs (proxy, generator, origins), once a second, and in total.

use std::pin::pin;
use std::time::Duration;

use report::results::{Usage, UsageSample, WatchedUsage};
use tokio::time::sleep;

use crate::connections::{Connections, Ports};
use crate::error::Error;
use crate::traffic::{PartTraffic, Sockets};
use crate::usage::{CpuReading, Processes, Root, TreeMemory};

#[derive(Debug)]
pub(crate) struct WatchedPart {
    roots: Vec<Root>,
    ports: Ports,
    counted: PartTraffic,
    first: CpuReading,
    last: CpuReading,
    most: TreeMemory,
    samples: Vec<UsageSample>,
}

impl WatchedPart {
    pub(crate) fn begin(
        processes: &Processes,
        sockets: Option<&Sockets>,
        roots: Vec<Root>,
        ports: Ports,
    ) -> Self {
        let first = CpuReading::new(processes, &roots);
        let most = TreeMemory::new(processes, &roots);
        let counted = PartTraffic::begin(sockets, &ports);
        Self { roots, ports, counted, last: first.clone(), first, most, samples: Vec::new() }
    }

    fn sample(&mut self, processes: &Processes, connections: &Connections, sockets: Option<&Sockets>) {
        let now = CpuReading::new(processes, &self.roots);
        let memory = TreeMemory::new(processes, &self.roots);
        // An ended part has no usage; the load reports the consequences.
        if now.threads() == 0 {
            return;
        }
        let used = now.since(&self.last, memory);
        let cores = |seconds: f64| seconds / used.seconds.max(f64::MIN_POSITIVE);
        self.samples.push(UsageSample {
            at_seconds: (now.at() - self.first.at()).as_secs_f64(),
            busy_cores: cores(used.user_seconds + used.system_seconds),
            system_cores: cores(used.system_seconds),
            memory_bytes: memory.bytes,
            threads: now.threads(),
            connections: connections.established(&self.ports),
            other_connections: connections.others(&self.ports),
            switches: used.voluntary_switches + used.involuntary_switches,
            traffic: sockets.map(|sockets| self.counted.since_last(sockets, &self.ports)),
        });
        self.most = self.most.max(memory);
        self.last = now;
    }

    /// Usage from the beginning until now.
    pub(crate) fn until(mut self, processes: &Processes) -> WatchedUsage {
        self.most = self.most.max(TreeMemory::new(processes, &self.roots));
        let usage = CpuReading::new(processes, &self.roots).since(&self.first, self.most);
        WatchedUsage { usage, samples: self.samples }
    }

    /// Usage until the last sample, for a part that has ended. `None` if it ended before the first sample.
    pub(crate) fn until_its_end(self) -> Option<WatchedUsage> {
        let usage: Usage = self.last.since(&self.first, self.most);
        (!self.samples.is_empty()).then_some(WatchedUsage { usage, samples: self.samples })
    }
}

/// Waits for `load`, and samples all parts meanwhile.
pub(crate) async fn watching<T>(
    parts: &mut [&mut WatchedPart],
    every: Duration,
    load: impl Future<Output = T>,
) -> Result<T, Error> {
    let mut load = pin!(load);
    loop {
        tokio::select! {
            done = &mut load => return Ok(done),
            () = sleep(every) => {
                // All parts share one reading, because it is expensive.
                let (processes, sockets) = (Processes::now()?, Sockets::now());
                let connections = sockets.as_ref().map_or_else(Connections::listed, Sockets::connections);
                for part in &mut *parts {
                    part.sample(&processes, &connections, sockets.as_ref());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cores;
    use crate::group::ProcessGroup;

    #[tokio::test]
    async fn what_is_busy_shows_it_in_every_sample_and_over_all() {
        let folder = tempfile::tempdir().expect("a folder");
        let command = ["sh", "-c", "while :; do :; done"].map(str::to_owned);
        let cores = cores::assign_all().expect("the kernel tells");
        let group = ProcessGroup::start("busy", &command, &cores.load, folder.path()).expect("a shell");
        let processes = Processes::now().expect("processes");
        let mut part = WatchedPart::begin(&processes, None, vec![group.root()], Ports::default());
        let rounds = async {
            // Takes as many samples as needed; the duration depends on the machine.
            while CpuReading::new(&Processes::now().expect("processes"), &[group.root()]).cpu_seconds() < 0.1
            {
                sleep(Duration::from_millis(20)).await;
            }
            sleep(Duration::from_millis(60)).await;
        };
        watching(&mut [&mut part], Duration::from_millis(5), rounds).await.expect("the kernel tells");
        let watched = part.until(&Processes::now().expect("processes"));
        assert!(watched.samples.iter().any(|sample| sample.busy_cores > 0.0), "{watched:?}");
        assert!(watched.usage.user_seconds + watched.usage.system_seconds > 0.0, "{watched:?}");
        assert!(watched.samples.iter().all(|sample| sample.threads == 1), "{watched:?}");
    }
}
