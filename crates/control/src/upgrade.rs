//! Upgrade: starts a new process with the same arguments from the current program file, hands over all listening
//! sockets, and waits until the new process serves. If it never does, nothing has changed.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, Signal, kill_process};

use crate::StartError;
use crate::change::Control;
use crate::handover::{self, Handover, HandoverAnswer, VARIABLE};
use crate::watchdog;

/// Maximum time until the new process serves. It resolves names and reads certificates meanwhile.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
pub(crate) struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

/// Why an upgrade failed, and this process continues.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpgradeError {
    #[error("cannot start {}: {error}", path.display())]
    Start { path: PathBuf, error: io::Error },
    #[error("cannot hand over to the new process: {0}")]
    HandOver(#[from] io::Error),
    #[error("the new process ended before it was ready: {0}")]
    Ended(ExitStatus),
    #[error("the new process was not ready within {} s", PATIENCE.as_secs())]
    Silent,
    #[error("{0}")]
    NotNow(#[from] StartError),
}

impl Program {
    /// Records the program. Call it at the start, because an upgrade starts the later file at this path.
    pub(crate) fn of_this_process() -> Self {
        let mut arguments = std::env::args_os();
        let name = arguments.next().unwrap_or_default();
        Self { path: path_of(Path::new(&name)), arguments: arguments.collect() }
    }
}

/// The path that started the program. Links are followed only at the upgrade, so they may lead to another version.
fn path_of(name: &Path) -> PathBuf {
    let of_process = || std::env::current_exe().unwrap_or_else(|_| name.to_owned());
    if name.components().count() > 1 {
        return std::path::absolute(name).unwrap_or_else(|_| of_process());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(of_process)
}

/// Starts a process that takes over. Blocks until it serves, and returns its ID. After an error this process continues.
pub(crate) fn upgrade(
    control: &Control,
    program: &Program,
    successors: &Successors,
) -> Result<u32, UpgradeError> {
    control.hand_over(|handover| {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(io::Error::from)?;
        let mut child = start(program, theirs)?;
        successors.begins(&child);
        let outcome = give_and_wait(&ours, handover);
        // It is independent now, or was reaped: its process ID may be reused.
        successors.is_settled();
        match outcome {
            Ok(HandoverAnswer::Serving) => {}
            outcome => return Err(failed(&mut child, outcome)),
        }
        let process = child.id();
        // Reaps it if it ends before this process does.
        let reap = std::thread::Builder::new().name("successor".to_owned());
        let _ = reap.spawn(move || child.wait());
        Ok((process, ours))
    })
}

/// The process that is taking over: a signal that ends this process must end it, too.
#[derive(Debug, Default)]
pub(crate) struct Successors(Mutex<Succession>);

#[derive(Debug, Default)]
struct Succession {
    /// A process that does not serve yet and was not reaped.
    process: Option<Pid>,
    is_over: bool,
}

impl Successors {
    /// Ends the process that is taking over, and prevents later upgrades. If it serves already, it drains.
    pub(crate) fn end(&self) {
        let mut succession = self.succession();
        succession.is_over = true;
        succession.end();
    }

    fn begins(&self, child: &Child) {
        let mut succession = self.succession();
        succession.process = Some(Pid::from_child(child));
        if succession.is_over {
            succession.end();
        }
    }

    fn is_settled(&self) {
        self.succession().process = None;
    }

    fn succession(&self) -> MutexGuard<'_, Succession> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Succession {
    fn end(&self) {
        if let Some(process) = self.process {
            // It may have ended already.
            let _ = kill_process(process, Signal::TERM);
        }
    }
}

/// Its standard input is the channel. Unlike other descriptors, it is passed without a moment in which a
/// concurrently started child could inherit it.
fn start(program: &Program, channel: OwnedFd) -> Result<Child, UpgradeError> {
    let started = Command::new(&program.path)
        .args(&program.arguments)
        .env(VARIABLE, std::process::id().to_string())
        // The service manager monitors the new process from now on.
        .env_remove(watchdog::PROCESS)
        .stdin(Stdio::from(channel))
        .spawn();
    started.map_err(|error| UpgradeError::Start { path: program.path.clone(), error })
}

fn give_and_wait(channel: &OwnedFd, handover: &Handover) -> io::Result<HandoverAnswer> {
    set_socket_timeout(channel, Timeout::Send, Some(PATIENCE))?;
    handover::give(channel, handover)?;
    handover::word(channel, PATIENCE)
}

/// Ends the useless new process, if it still runs.
fn failed(child: &mut Child, outcome: io::Result<HandoverAnswer>) -> UpgradeError {
    let is_gone = match &outcome {
        Ok(_) => true,
        Err(error) => matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset),
    };
    // A process that closed the channel is about to end; its exit status says more than a signal.
    let ended = if is_gone { ended_soon(child) } else { None };
    if let Some(status) = ended {
        return UpgradeError::Ended(status);
    }
    let _ = child.kill();
    let _ = child.wait();
    match outcome {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => UpgradeError::HandOver(error),
        _ => UpgradeError::Silent,
    }
}

fn ended_soon(child: &mut Child) -> Option<ExitStatus> {
    const LOOKS: u32 = 200;
    for _ in 0..LOOKS {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_as_a_shell_would() {
        assert_eq!(path_of(Path::new("/opt/vanward")), Path::new("/opt/vanward"));
        assert!(path_of(Path::new("./vanward")).is_absolute());
        assert!(path_of(Path::new("sh")).ends_with("sh") && path_of(Path::new("sh")).is_absolute());
        let own = std::env::current_exe().expect("it has one");
        assert_eq!(path_of(Path::new("no such program")), own);
    }
}
