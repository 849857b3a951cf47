//! Origins that can be killed, started, paused and resumed, each at an address that stays, with the faults in front of
//! them.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::error::Error;
use crate::group::Group;
use crate::origins::{Wanted, command, filled};
use crate::plan::{OriginSource, Own};
use crate::resilience::faults::Injector;
use crate::resilience::plan::{Fault, Plan};
use crate::start;

/// The origins of a run. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Servers {
    own: Own,
    servers: Vec<Server>,
    ready: Option<String>,
    capacity: Option<NonZeroUsize>,
    cores: Vec<usize>,
    folder: PathBuf,
}

#[derive(Debug)]
struct Server {
    name: String,
    address: SocketAddr,
    /// Command line; empty for a server that runs already.
    command: Vec<String>,
    group: Option<Group>,
    /// Address of its injector, if the plan has faults in front of it, or a capacity.
    injector_address: Option<SocketAddr>,
    injector: Option<Injector>,
    /// Faults in front of it now, by their index in the plan.
    faults: Vec<usize>,
}

impl Servers {
    /// Starts all of them.
    pub(crate) async fn start(own: &Own, plan: &Plan, cores: &[usize], folder: &Path) -> Result<Self, Error> {
        let ip = start::ANY_PORT.ip();
        let mut servers = Vec::new();
        for number in 1..=plan.origin_count() {
            let (address, command) = match &plan.origins.source {
                OriginSource::Running(running) => {
                    let path = plan.origins.ready.as_deref().unwrap_or(&plan.payload.path);
                    (start::running_server(&running[number - 1], path, None).await?, Vec::new())
                }
                OriginSource::Command(_, template) => {
                    let listen = start::free_address(ip)?;
                    (listen, template.iter().map(|word| filled(word, listen)).collect())
                }
                OriginSource::Own(_) | OriginSource::Nothing => {
                    let listen = start::free_address(ip)?;
                    let wanted = Wanted {
                        source: plan.origins.source.clone(),
                        ready: String::new(),
                        address: ip,
                        has_tls: false,
                        says_keep_alive: false,
                        capacity: plan.capacity,
                        tls_name: None,
                    };
                    (listen, command(own, &wanted, listen, folder))
                }
            };
            servers.push(Server {
                name: format!("origin-{number}"),
                address,
                command,
                group: None,
                injector_address: (plan.has_faults_on(number) || plan.injected_capacity().is_some())
                    .then(|| start::free_address(ip))
                    .transpose()?,
                injector: None,
                faults: Vec::new(),
            });
        }
        let ready = match plan.origins.source {
            OriginSource::Command(..) => {
                Some(plan.origins.ready.clone().unwrap_or_else(|| plan.payload.path.clone()))
            }
            _ => None,
        };
        let mut started = Self {
            own: own.clone(),
            servers,
            ready,
            capacity: plan.injected_capacity(),
            cores: cores.to_owned(),
            folder: folder.to_owned(),
        };
        for number in 1..=started.servers.len() {
            started.begin(number, &[]).await?;
        }
        Ok(started)
    }

    /// Addresses for the proxies.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(|server| server.injector_address.unwrap_or(server.address)).collect()
    }

    /// Kills an origin, and what injects faults in front of it: its clients see a machine that is gone.
    pub(crate) fn kill(&mut self, number: usize) {
        if let Some(server) = self.servers.get_mut(number - 1) {
            (server.group, server.injector) = (None, None);
        }
    }

    /// Starts an origin, and waits until it listens.
    pub(crate) async fn begin(&mut self, number: usize, faults: &[Fault]) -> Result<(), Error> {
        let Self { own, servers, ready, capacity, cores, folder } = self;
        let Some(server) = servers.get_mut(number - 1) else { return Ok(()) };
        if !server.command.is_empty() {
            let mut group = Group::start(&server.name, &server.command, cores, folder)?;
            match ready {
                Some(path) => start::until_a_server_answers(&mut group, server.address, path).await?,
                None => drop(start::until_it_says_where(&mut group, 1).await?),
            }
            server.group = Some(group);
        }
        if let Some(listen) = server.injector_address {
            let name = format!("faults-{number}");
            let to = format!("http://{}", server.address);
            let injector = Injector::start(own, &name, listen, &to, *capacity, cores, folder).await?;
            for index in &server.faults {
                injector.inject(&faults[*index].kind, &fault_name(*index)).await?;
            }
            server.injector = Some(injector);
        }
        Ok(())
    }

    /// Stops or continues an origin, and what is in front of it.
    pub(crate) fn signal(&mut self, number: usize, signal: Signal) {
        let Some(server) = self.servers.get_mut(number - 1) else { return };
        let injector = server.injector.as_mut().map(Injector::group);
        for group in server.group.as_ref().into_iter().chain(injector.as_deref()) {
            group.signal_all(signal);
        }
    }

    /// Injects a fault where its place is.
    pub(crate) async fn inject(&mut self, index: usize, fault: &Fault) -> Result<(), Error> {
        for (number, server) in (1..).zip(&mut self.servers) {
            if fault.place.is_on(number) {
                server.faults.push(index);
                if let Some(injector) = &server.injector {
                    injector.inject(&fault.kind, &fault_name(index)).await?;
                }
            }
        }
        Ok(())
    }

    /// Ends a fault.
    pub(crate) async fn lift(&mut self, index: usize, fault: &Fault) -> Result<(), Error> {
        for server in &mut self.servers {
            if server.faults.extract_if(.., |one| *one == index).next().is_some()
                && let Some(injector) = &server.injector
            {
                injector.lift(&fault.kind, &fault_name(index)).await?;
            }
        }
        Ok(())
    }
}

/// Name of a fault, unique in a run.
pub(crate) fn fault_name(index: usize) -> String {
    format!("lab-{index}")
}
