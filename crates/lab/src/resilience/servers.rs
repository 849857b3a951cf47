//! Origins that can be killed, started, paused and resumed, each at a fixed address, with the faults in front of them.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::timeout;

use crate::error::Error;
use crate::group::ProcessGroup;
use crate::origins::{OriginSettings, command, filled};
use crate::plan::{OriginSource, OwnProgram};
use crate::resilience::effects::Effect;
use crate::resilience::faults::Injector;
use crate::resilience::plan::{PlanFault, ResiliencePlan};
use crate::start;

/// Timeout for an origin's count of requests. Without an answer it counts as used.
const TELLING: Duration = Duration::from_millis(200);

/// The origins of a run. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct PlanServers {
    own: OwnProgram,
    servers: Vec<PlanServer>,
    ready: Option<String>,
    capacity: Option<NonZeroUsize>,
    cores: Vec<usize>,
    folder: PathBuf,
}

#[derive(Debug)]
struct PlanServer {
    name: String,
    address: SocketAddr,
    /// Command line; empty for a server that runs already.
    command: Vec<String>,
    group: Option<ProcessGroup>,
    /// Address of its injector, if the plan has faults in front of it, or a capacity.
    injector_address: Option<SocketAddr>,
    injector: Option<Injector>,
    /// Faults in front of it now, by their index in the plan. While it is paused, its injector may have others.
    faults: Vec<usize>,
    is_paused: bool,
    /// Whether it is `vanward origin`, which counts its requests.
    has_counters: bool,
}

impl PlanServers {
    pub(crate) async fn start(
        own: &OwnProgram,
        plan: &ResiliencePlan,
        cores: &[usize],
        folder: &Path,
    ) -> Result<Self, Error> {
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
                    let wanted = OriginSettings {
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
            servers.push(PlanServer {
                name: format!("origin-{number}"),
                address,
                command,
                group: None,
                injector_address: (plan.has_faults_on(number) || plan.injected_capacity().is_some())
                    .then(|| start::free_address(ip))
                    .transpose()?,
                injector: None,
                faults: Vec::new(),
                is_paused: false,
                has_counters: plan.origins.is_own(),
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
            started.begin(number, &[], &mut []).await?;
        }
        Ok(started)
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(|server| server.injector_address.unwrap_or(server.address)).collect()
    }

    /// Kills an origin, and the injector in front of it, so that its clients see a lost machine.
    pub(crate) async fn kill(&mut self, number: usize, effects: &mut [Effect]) -> Result<(), Error> {
        let Some(server) = self.servers.get_mut(number - 1) else { return Ok(()) };
        let ended = server.ended().map_or(Ok(()), Err);
        let noted = match &mut server.injector {
            Some(injector) if !server.is_paused => injector.note(effects).await,
            _ => Ok(()),
        };
        let used = server.is_used().await;
        (server.group, server.injector, server.is_paused) = (None, None, false);
        ended.and(noted).and(used)
    }

    /// Error if an origin, or its injector, has ended unplanned.
    pub(crate) fn ended(&mut self) -> Option<Error> {
        self.servers.iter_mut().find_map(PlanServer::ended)
    }

    /// Starts an origin, and waits until it listens.
    pub(crate) async fn begin(
        &mut self,
        number: usize,
        faults: &[PlanFault],
        effects: &mut [Effect],
    ) -> Result<(), Error> {
        let Self { own, servers, ready, capacity, cores, folder } = self;
        let Some(server) = servers.get_mut(number - 1) else { return Ok(()) };
        if !server.command.is_empty() {
            let mut group = ProcessGroup::start(&server.name, &server.command, cores, folder)?;
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
            server.injector = Some(injector);
        }
        server.agree(faults, effects).await
    }

    pub(crate) async fn pause(&mut self, number: usize) -> Result<(), Error> {
        let Some(server) = self.servers.get_mut(number - 1) else { return Ok(()) };
        let used = server.is_used().await;
        server.is_paused = true;
        server.signal(Signal::STOP);
        used
    }

    /// Continues an origin and its injector, with the faults that have begun and ended meanwhile.
    pub(crate) async fn resume(
        &mut self,
        number: usize,
        faults: &[PlanFault],
        effects: &mut [Effect],
    ) -> Result<(), Error> {
        let Some(server) = self.servers.get_mut(number - 1) else { return Ok(()) };
        server.is_paused = false;
        server.signal(Signal::CONT);
        server.agree(faults, effects).await
    }

    /// Injects a fault at its place, or ends it.
    pub(crate) async fn change(
        &mut self,
        index: usize,
        is_on: bool,
        faults: &[PlanFault],
        effects: &mut [Effect],
    ) -> Result<(), Error> {
        let mut done = Ok(());
        for (number, server) in (1..).zip(&mut self.servers) {
            if faults[index].place.is_on(number) {
                server.faults.retain(|one| *one != index);
                server.faults.extend(is_on.then_some(index));
                done = done.and(server.agree(faults, effects).await);
            }
        }
        done
    }

    /// Adds the counts of the faults in force to the effects.
    pub(crate) async fn note(&mut self, effects: &mut [Effect]) -> Result<(), Error> {
        for server in self.servers.iter_mut().filter(|server| !server.is_paused) {
            if let Some(injector) = &mut server.injector {
                injector.note(effects).await?;
            }
        }
        Ok(())
    }
}

impl PlanServer {
    fn ended(&mut self) -> Option<Error> {
        let injector = self.injector.as_mut().map(Injector::group);
        self.group.as_mut().into_iter().chain(injector).find_map(ProcessGroup::ended)
    }

    /// Fails for a server that has served no request since it began, if it counts them.
    async fn is_used(&self) -> Result<(), Error> {
        let counted = async {
            let told = start::body(self.address, "/stats").await.ok()?;
            serde_json::from_slice::<serde_json::Value>(&told).ok()?.get("requests")?.as_u64()
        };
        if !self.has_counters || self.is_paused {
            return Ok(());
        }
        match timeout(TELLING, counted).await {
            Ok(Some(0)) => Err(Error::Unused(self.name.clone())),
            _ => Ok(()),
        }
    }

    fn signal(&mut self, signal: Signal) {
        let injector = self.injector.as_mut().map(Injector::group);
        for group in self.group.as_ref().into_iter().chain(injector.as_deref()) {
            group.signal_all(signal);
        }
    }

    /// Puts its faults in force. A paused or dead server gets them later.
    async fn agree(&mut self, faults: &[PlanFault], effects: &mut [Effect]) -> Result<(), Error> {
        match &mut self.injector {
            Some(injector) if !self.is_paused => injector.agree(&self.faults, faults, effects).await,
            _ => Ok(()),
        }
    }
}
