//! Vanward as the place where faults are injected: it forwards to one server from the start, so that only the fault
//! changes when one begins. It is told by the program's own commands, as an operator would.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use tokio::process::Command;

use crate::error::Error;
use crate::group::Group;
use crate::plan::Own;
use crate::resilience::plan::FaultKind;
use crate::start;

/// A Vanward with an admin socket, in front of one server.
#[derive(Debug)]
pub(crate) struct Injector {
    program: PathBuf,
    socket: PathBuf,
    group: Group,
}

impl Injector {
    /// Starts it at this address, and waits until it listens. The server works on `capacity` requests at once; the others
    /// wait in front of it, for as long as their clients do.
    pub(crate) async fn start(
        own: &Own,
        name: &str,
        listen: SocketAddr,
        to: &str,
        capacity: Option<NonZeroUsize>,
        cores: &[usize],
        folder: &Path,
    ) -> Result<Self, Error> {
        let socket = folder.join(format!("{name}.sock"));
        // One that was killed has left it.
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
        let mut group = Group::start(name, &command, cores, folder)?;
        start::until_it_listens(&mut group, listen).await?;
        Ok(Self { program: own.program.clone(), socket, group })
    }

    /// Injects a fault under a name.
    pub(crate) async fn inject(&self, kind: &FaultKind, name: &str) -> Result<(), Error> {
        match kind {
            FaultKind::Inject(fault) => self.tell(&["faults", "add", fault, "--name", name]).await,
            FaultKind::Profile(profile) => {
                self.tell(&["shape", "set", "listener", "--profile", profile]).await
            }
        }
    }

    /// Ends a fault.
    pub(crate) async fn lift(&self, kind: &FaultKind, name: &str) -> Result<(), Error> {
        match kind {
            FaultKind::Inject(_) => self.tell(&["faults", "remove", name]).await,
            FaultKind::Profile(_) => self.tell(&["shape", "clear"]).await,
        }
    }

    pub(crate) fn group(&mut self) -> &mut Group {
        &mut self.group
    }

    async fn tell(&self, words: &[&str]) -> Result<(), Error> {
        let mut command = Command::new(&self.program);
        command.args(words).arg("--socket").arg(&self.socket).kill_on_drop(true);
        let told = command.output().await.map_err(|source| Error::Spawn {
            program: self.program.to_string_lossy().into_owned(),
            source,
        })?;
        if told.status.success() {
            return Ok(());
        }
        let log = String::from_utf8_lossy(&told.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
        Err(Error::Ended {
            name: format!("vanward {}", words.join(" ")),
            status: told.status.to_string(),
            log,
        })
    }
}

/// A configuration that adds nothing of its own: it sheds no load, retries nothing, and ejects no server.
fn configuration(listen: SocketAddr, to: &str, capacity: Option<NonZeroUsize>) -> String {
    let most = capacity.map(|most| format!(", max_requests = {most}")).unwrap_or_default();
    format!(
        "workers = 1\n[shed]\nconcurrency = \"off\"\n[[listen]]\naddress = \"{listen}\"\n[[route]]\nupstream = \"origin\"\n\
         [upstream.origin]\nservers = [{{ url = \"{to}\"{most} }}]\neject = \"off\"\n[upstream.origin.queue]\nlength = 100000\n\
         timeout = \"1m\"\n[upstream.origin.retry]\nattempts = 1\n"
    )
}
