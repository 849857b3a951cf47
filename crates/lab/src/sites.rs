//! All machines of a run, and their parts: clients, proxy, origins. Often this is a single machine.
//!
//! All machines begin a measurement at the same time. Their results are combined: several clients make one load.

/// Combines the results of several machines.
mod together;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::{Duration, Instant};

use report::results::{Absent, Cores, MachinePlace, MeasurementOutcome, RunMachine, StartedProcess};

use crate::agent::words::{
    AgentLoad, AgentOrder, AgentReply, MachineResults, MachineShare, Measurement, WantedProxies,
};
use crate::certificate::{CertificatePaths, Pem};
use crate::error::Error;
use crate::generator::{Generator, GeneratorRequest};
use crate::origins::{self, Addresses};

use crate::plan::{LabPlan, OriginPayload, OriginsTls, OwnProgram};
use crate::proxies::{Installed, OriginVerification, Service};
use crate::site::{Host, RunningAgent};

/// Delay from the order to measure to the beginning: more than any message takes.
const LEAD: Duration = Duration::from_millis(250);

/// Machines for the parts of the lab. Default: all parts on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Machines of the load generators; several make one load.
    pub clients: Vec<Host>,
    pub proxy: Host,
    pub origins: Host,
}

impl Default for Placement {
    fn default() -> Self {
        Self { clients: vec![Host::default()], proxy: Host::default(), origins: Host::default() }
    }
}

/// Agents on all machines of a run. They end with all their processes when this is dropped.
#[derive(Debug)]
pub struct Sites {
    all: Vec<RunningAgent>,
    addresses: Vec<IpAddr>,
    clients: Vec<usize>,
    proxy: usize,
    origins: usize,
}

pub(crate) struct MeasureOrder<'o> {
    pub(crate) port: u16,
    pub(crate) origin_ports: Vec<u16>,
    pub(crate) every: Duration,
    pub(crate) generator: &'o Generator,
}

impl Sites {
    /// Starts an agent on each machine. `workers` is the highest number of workers of a proxy in the plan.
    pub async fn open(placement: &Placement, own: &OwnProgram, workers: NonZeroUsize) -> Result<Self, Error> {
        let mut hosts: Vec<&Host> = Vec::new();
        let mut number = |host| match hosts.iter().position(|known| *known == host) {
            Some(number) => number,
            None => {
                hosts.push(host);
                hosts.len() - 1
            }
        };
        let (proxy, origins) = (number(&placement.proxy), number(&placement.origins));
        let mut clients: Vec<usize> = placement.clients.iter().map(number).collect();
        clients.dedup();
        let mut all = Vec::new();
        for (number, host) in hosts.iter().enumerate() {
            let share = MachineShare {
                client: clients.contains(&number),
                proxy: proxy == number,
                origins: origins == number,
                workers: workers.get(),
            };
            all.push(RunningAgent::open(host, own, share).await?);
        }
        let addresses = addresses(&hosts, &all)?;
        Ok(Self { all, addresses, clients, proxy, origins })
    }

    /// The installed proxies in the wanted order, and those that are not installed.
    pub async fn look(&mut self, wanted: WantedProxies) -> Result<(Vec<Installed>, Vec<Absent>), Error> {
        let site = &mut self.all[self.proxy];
        match site.ask(&AgentOrder::Look(wanted)).await? {
            AgentReply::Looked { here, absent } => Ok((here, absent)),
            _ => Err(site.confused()),
        }
    }

    /// Why each of these services is not supported; `None` if it is.
    pub(crate) async fn refusals(
        &mut self,
        all: Vec<(Installed, Service)>,
    ) -> Result<Vec<Option<String>>, Error> {
        let site = &mut self.all[self.proxy];
        match site.ask(&AgentOrder::Refusals(all)).await? {
            AgentReply::Refusals(refusals) => Ok(refusals),
            _ => Err(site.confused()),
        }
    }

    /// Starts the origins. Returns their addresses and commands.
    pub(crate) async fn start_origins(
        &mut self,
        plan: &LabPlan,
        has_tls: bool,
    ) -> Result<(Addresses, Vec<StartedProcess>), Error> {
        let path = || plan.cases.first().map(|case| case.payload.path.clone()).unwrap_or_default();
        let ask = AgentOrder::Origins(origins::OriginSettings {
            source: plan.origins.source.clone(),
            ready: plan.origins.ready.clone().unwrap_or_else(path),
            address: self.addresses[self.origins],
            has_tls,
            says_keep_alive: plan.says_keep_alive,
            capacity: None,
            tls_name: plan.origins.tls.as_ref().map(|tls| tls.name.clone()),
        });
        let site = &mut self.all[self.origins];
        match site.ask(&ask).await? {
            AgentReply::Origins { addresses, processes } => Ok((addresses, processes)),
            _ => Err(site.confused()),
        }
    }

    /// Gives proxy and origins a certificate and its key, and clients the trust in it. Returns the proxy's paths.
    pub(crate) async fn certify(&mut self) -> Result<CertificatePaths, Error> {
        let pem = Pem::make(self.addresses[self.proxy])?;
        let here = CertificatePaths::within(&self.all[self.proxy].begun.folder);
        for (path, text) in pem.files(&here) {
            put(&mut self.all[self.proxy], path, text).await?;
        }
        if self.origins != self.proxy {
            let there = CertificatePaths::within(&self.all[self.origins].begun.folder);
            for (path, text) in pem.files(&there) {
                put(&mut self.all[self.origins], path, text).await?;
            }
        }
        let has_it = [self.proxy, self.origins];
        for &client in self.clients.iter().filter(|client| !has_it.contains(client)) {
            let there = CertificatePaths::within(&self.all[client].begun.folder);
            put(&mut self.all[client], &there.certificate, pem.certificate.clone()).await?;
        }
        Ok(here)
    }

    /// Copies the authorities of origins that are not the lab's to the machines of the proxy and of the origins.
    pub(crate) async fn trust_origins(&mut self, tls: &OriginsTls) -> Result<OriginVerification, Error> {
        let both = [Some(self.proxy), Some(self.origins).filter(|origins| *origins != self.proxy)];
        for site in both.into_iter().flatten() {
            put(&mut self.all[site], Path::new(origins::AUTHORITY), tls.authority.clone()).await?;
        }
        let authority = self.all[self.proxy].begun.folder.join(origins::AUTHORITY);
        Ok(OriginVerification { authority, name: tls.name.clone() })
    }

    pub(crate) async fn put_for_clients(&mut self, name: &str, text: &str) -> Result<(), Error> {
        for &client in &self.clients {
            put(&mut self.all[client], Path::new(name), text.to_owned()).await?;
        }
        Ok(())
    }

    /// Address for the proxy, with a port that is chosen later.
    pub(crate) fn any_port_of_proxy(&self) -> SocketAddr {
        SocketAddr::new(self.addresses[self.proxy], 0)
    }

    /// Starts a proxy. Returns its address and command; `None` if there is nothing to start.
    pub(crate) async fn start_proxy(
        &mut self,
        installed: &Installed,
        service: &Service,
        payload: &OriginPayload,
    ) -> Result<Option<(SocketAddr, StartedProcess)>, Error> {
        let (installed, service, payload) = (installed.clone(), service.clone(), payload.clone());
        let site = &mut self.all[self.proxy];
        match site.ask(&AgentOrder::Proxy { installed, service: Box::new(service), payload }).await? {
            AgentReply::Proxy(started) => Ok(started),
            _ => Err(site.confused()),
        }
    }

    pub(crate) async fn stop_proxy(&mut self) -> Result<(), Error> {
        self.all[self.proxy].ask(&AgentOrder::StopProxy).await.map(drop)
    }

    /// Checks that all required processes run, so that figures are not worthless. Measures the clocks again.
    pub(crate) async fn are_up(&mut self) -> Result<(), Error> {
        self.all[self.origins].ask(&AgentOrder::AreOriginsUp).await?;
        // A single machine begins at once, without a common clock.
        if self.all.len() > 1 {
            for site in &mut self.all {
                site.set_clock().await?;
            }
        }
        Ok(())
    }

    /// Sends load from all clients without measuring.
    pub(crate) async fn warm_up(
        &mut self,
        generator: &Generator,
        request: &GeneratorRequest,
    ) -> Result<(), Error> {
        for (part, &client) in self.clients.iter().enumerate() {
            let load = self.load(generator, request, part);
            self.all[client].tell(&AgentOrder::WarmUp(load));
        }
        let mut ended = Ok(());
        // Reads all answers, so that none is read as a later one.
        for &client in &self.clients {
            let answer = self.all[client].answer().await.map(drop);
            ended = ended.and(answer);
        }
        ended
    }

    /// Measures a load. Returns the generator's command line, and the outcome with the usage of all parts.
    pub(crate) async fn measure(
        &mut self,
        order: &MeasureOrder<'_>,
        request: &GeneratorRequest,
    ) -> Result<(String, MeasurementOutcome), Error> {
        let at = (self.all.len() > 1).then(|| Instant::now() + LEAD);
        for (number, site) in self.all.iter().enumerate() {
            let part = self.clients.iter().position(|client| *client == number);
            site.tell(&AgentOrder::Measure(Measurement {
                at: at.map(|at| site.clock.at(at)),
                every: order.every,
                port: order.port,
                origin_ports: order.origin_ports.clone(),
                load: part.map(|part| self.load(order.generator, request, part)),
            }));
        }
        let mut seen: Vec<Result<MachineResults, Error>> = Vec::new();
        for &client in &self.clients {
            seen.push(told(&mut self.all[client]).await);
        }
        for (number, site) in self.all.iter_mut().enumerate() {
            if !self.clients.contains(&number) {
                site.tell(&AgentOrder::Enough);
                seen.push(told(site).await);
            }
        }
        together::outcome(seen.into_iter().collect::<Result<_, _>>()?)
    }

    fn load(&self, generator: &Generator, request: &GeneratorRequest, part: usize) -> AgentLoad {
        let folder = &self.all[self.clients[part]].begun.folder;
        AgentLoad {
            generator: generator.name.to_owned(),
            request: request.part(part, self.clients.len()).within(folder),
        }
    }

    /// Machine of the proxies, for the report.
    pub(crate) fn machine(&self) -> RunMachine {
        self.all[self.proxy].begun.machine.clone()
    }

    /// Load averages of the proxies' machine before the run.
    pub(crate) fn load_before(&self) -> [f64; 3] {
        self.all[self.proxy].begun.load_average
    }

    /// CPU cores of each part, over all machines.
    pub(crate) fn cores(&self) -> Cores {
        let cores = |part: fn(&Cores) -> &Vec<usize>| {
            self.all.iter().flat_map(|site| part(&site.begun.cores)).copied().collect()
        };
        Cores {
            proxy: cores(|cores| &cores.proxy),
            origins: cores(|cores| &cores.origins),
            load: cores(|cores| &cores.load),
        }
    }

    /// Number of cores for the load, on the client with the fewest.
    pub(crate) fn load_cores_least(&self) -> usize {
        let cores = self.clients.iter().map(|client| self.all[*client].begun.cores.load.len());
        cores.min().unwrap_or(1)
    }

    /// All machines for the report; empty if there is only this one.
    pub(crate) fn places(&self) -> Vec<MachinePlace> {
        if self.all.len() == 1 && self.all[0].at.is_none() {
            return Vec::new();
        }
        let place = |(site, address): (&RunningAgent, &IpAddr)| MachinePlace {
            name: site.at.clone().unwrap_or_else(|| "here".to_owned()),
            address: address.to_string(),
            cores: site.begun.cores.clone(),
            machine: site.begun.machine.clone(),
            clock_uncertainty_us: u64::try_from(site.clock.uncertainty.as_micros()).unwrap_or(u64::MAX),
        };
        self.all.iter().zip(&self.addresses).map(place).collect()
    }
}

async fn told(site: &mut RunningAgent) -> Result<MachineResults, Error> {
    match site.answer().await? {
        AgentReply::Seen(seen) => Ok(*seen),
        _ => Err(site.confused()),
    }
}

async fn put(site: &mut RunningAgent, path: &Path, text: String) -> Result<(), Error> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    site.ask(&AgentOrder::Put { name, text }).await.map(drop)
}

/// Addresses of the machines for each other: from the plan, or those that ssh used. A single machine needs none.
fn addresses(hosts: &[&Host], sites: &[RunningAgent]) -> Result<Vec<IpAddr>, Error> {
    let ours = sites.iter().find_map(|site| site.begun.reached).map(|(ours, _)| ours);
    let address = |(host, site): (&&Host, &RunningAgent)| {
        let known = match (&host.ssh, site.begun.reached) {
            _ if host.address.is_some() => host.address,
            _ if sites.len() == 1 => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            (Some(_), Some((_, theirs))) => Some(theirs),
            (Some(_), None) => None,
            (None, _) => ours,
        };
        known.ok_or_else(|| Error::Unusable {
            at: host.ssh.clone().unwrap_or_else(|| "this machine".to_owned()),
            reason: "its address for the other machines is unknown: set address in the plan".to_owned(),
        })
    };
    hosts.iter().zip(sites).map(address).collect()
}
