//! Vanward as a fault injector: it forwards to one server from the start, so that only the fault changes when one
//! begins. The program's own commands control it, as an operator would, and report the effects of each fault.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::time::timeout;

use crate::error::Error;
use crate::group::ProcessGroup;
use crate::plan::OwnProgram;
use crate::resilience::effects::Effect;
use crate::resilience::plan::{FaultKind, PlanFault};
use crate::start;

/// Timeout of a command to an injector: far more than it takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);
/// The fault that affects only connections that are opened while it lasts.
const REFUSE: &str = "connection refuse";

/// A Vanward with an admin socket, in front of one server.
#[derive(Debug)]
pub(crate) struct Injector {
    program: PathBuf,
    socket: PathBuf,
    group: ProcessGroup,
    /// Faults in force, in the order in which they began.
    active: Vec<Active>,
}

/// A fault in force, and its counts at the last query.
#[derive(Debug)]
struct Active {
    index: usize,
    passed: u64,
    matched: u64,
    injected: u64,
}

/// The part of a status in the admin API that has the faults' counts.
#[derive(Deserialize)]
struct MetFaults {
    traffic: FaultTraffic,
    faults: Vec<FaultCounts>,
}

#[derive(Deserialize)]
struct FaultTraffic {
    requests: u64,
}

#[derive(Deserialize)]
struct FaultCounts {
    name: String,
    inject: String,
    matched: u64,
    injected: u64,
}

impl Injector {
    /// Starts an injector at this address, and waits until it listens. The server processes `capacity` requests at
    /// once; others wait in front of it until their clients give up.
    pub(crate) async fn start(
        own: &OwnProgram,
        name: &str,
        listen: SocketAddr,
        to: &str,
        capacity: Option<NonZeroUsize>,
        cores: &[usize],
        folder: &Path,
    ) -> Result<Self, Error> {
        let socket = folder.join(format!("{name}.sock"));
        // A killed injector leaves its socket behind.
        let _ = std::fs::remove_file(&socket);
        let file = folder.join(format!("{name}.toml"));
        let text = configuration(listen, to, capacity);
        std::fs::write(&file, text).map_err(|source| Error::Write { path: file.clone(), source })?;
        let command: Vec<String> = [
            own.program.to_string_lossy().into_owned(),
            "run".to_owned(),
            "--config".to_owned(),
            file.to_string_lossy().into_owned(),
            "--admin".to_owned(),
            socket.to_string_lossy().into_owned(),
        ]
        .into();
        let mut group = ProcessGroup::start(name, &command, cores, folder)?;
        start::until_it_listens(&mut group, listen).await?;
        Ok(Self { program: own.program.clone(), socket, group, active: Vec::new() })
    }

    /// Ends and injects faults, until those with these indices are in force. Of several links, the one that began last
    /// is emulated; the earlier one returns when it ends.
    pub(crate) async fn agree(
        &mut self,
        wanted: &[usize],
        faults: &[PlanFault],
        effects: &mut [Effect],
    ) -> Result<(), Error> {
        if !self.active.is_empty() {
            self.note(effects).await?;
        }
        let (before, link) = (link(&self.active(), faults), link(wanted, faults));
        let mut done = Ok(());
        for gone in self.active.extract_if(.., |active| !wanted.contains(&active.index)).collect::<Vec<_>>() {
            if let FaultKind::Inject(_) = faults[gone.index].kind {
                done = done.and(self.tell(&["faults", "remove", &name(gone.index)]).await);
            }
        }
        match link.map(|index| &faults[index].kind) {
            _ if link == before => {}
            Some(FaultKind::Profile(profile)) => {
                done = done.and(self.tell(&["shape", "set", "listener", "--profile", profile]).await);
            }
            Some(FaultKind::Inject(_)) | None => done = done.and(self.tell(&["shape", "clear"]).await),
        }
        let is_active = |index: &usize| self.active.iter().any(|active| active.index == *index);
        let new: Vec<usize> = wanted.iter().copied().filter(|index| !is_active(index)).collect();
        for &index in &new {
            if let FaultKind::Inject(fault) = &faults[index].kind {
                self.tell(&["faults", "add", fault, "--name", &name(index)]).await?;
            }
            self.active.push(Active { index, passed: 0, matched: 0, injected: 0 });
        }
        done?;
        if new.is_empty() {
            return Ok(());
        }
        // These faults did not affect earlier requests.
        let passed = self.status().await?.traffic.requests;
        for active in self.active.iter_mut().filter(|active| new.contains(&active.index)) {
            active.passed = passed;
        }
        Ok(())
    }

    /// Adds the counts since the last query to the effects of the faults in force.
    pub(crate) async fn note(&mut self, effects: &mut [Effect]) -> Result<(), Error> {
        if self.active.is_empty() {
            return Ok(());
        }
        let status = self.status().await?;
        for active in &mut self.active {
            let effect = &mut effects[active.index];
            effect.passed += status.traffic.requests.saturating_sub(active.passed);
            active.passed = status.traffic.requests;
            let name = name(active.index);
            if let Some(counted) = status.faults.iter().find(|counted| counted.name == name) {
                effect.matched += counted.matched.saturating_sub(active.matched);
                effect.injected += counted.injected.saturating_sub(active.injected);
                effect.refuses |= counted.inject == REFUSE;
                (active.matched, active.injected) = (counted.matched, counted.injected);
            }
        }
        Ok(())
    }

    pub(crate) fn active(&self) -> Vec<usize> {
        self.active.iter().map(|active| active.index).collect()
    }

    pub(crate) fn group(&mut self) -> &mut ProcessGroup {
        &mut self.group
    }

    /// Queries the admin API, which takes less time than a command.
    async fn status(&self) -> Result<MetFaults, Error> {
        let asked = async {
            let stream = UnixStream::connect(&self.socket).await?;
            let request = "GET /status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            let (_, body) = start::head_and_body(start::closed(stream, request).await?)?;
            Ok(serde_json::from_slice(&body)?)
        };
        let failed = |error: io::Error| Self::failed(&["status"], error.to_string(), String::new());
        timeout(PATIENCE, asked).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(failed)
    }

    async fn tell(&self, words: &[&str]) -> Result<(), Error> {
        let mut command = Command::new(&self.program);
        command.args(words).arg("--socket").arg(&self.socket).kill_on_drop(true);
        let told = match timeout(PATIENCE, command.output()).await {
            Ok(told) => told.map_err(|source| Error::Spawn {
                program: self.program.to_string_lossy().into_owned(),
                source,
            })?,
            Err(_) => {
                return Err(Self::failed(words, format!("no answer within {PATIENCE:?}"), String::new()));
            }
        };
        if told.status.success() {
            return Ok(());
        }
        let log = String::from_utf8_lossy(&told.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
        Err(Self::failed(words, told.status.to_string(), log))
    }

    fn failed(words: &[&str], status: String, log: String) -> Error {
        Error::Ended { name: format!("vanward {}", words.join(" ")), status, log }
    }
}

/// The emulated link: the last one.
fn link(indices: &[usize], faults: &[PlanFault]) -> Option<usize> {
    indices.iter().copied().rfind(|index| matches!(faults[*index].kind, FaultKind::Profile(_)))
}

/// Unique in a run.
fn name(index: usize) -> String {
    format!("lab-{index}")
}

/// A neutral configuration: it sheds no load, retries nothing, and ejects no server.
fn configuration(listen: SocketAddr, to: &str, capacity: Option<NonZeroUsize>) -> String {
    let most = capacity.map(|most| format!(", max_requests = {most}")).unwrap_or_default();
    format!(
        "workers = 1\n[shed]\nconcurrency = \"off\"\n[[listen]]\naddress = \"{listen}\"\n[[route]]\nupstream = \"origin\"\n\
         [upstream.origin]\nservers = [{{ url = \"{to}\"{most} }}]\neject = \"off\"\n[upstream.origin.queue]\nlength = 100000\n\
         timeout = \"1m\"\n[upstream.origin.retry]\nattempts = 1\n"
    )
}
