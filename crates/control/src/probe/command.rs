//! Health checks by an operator's program: exit status 0 means healthy. Never runs a shell.

use std::io;
use std::process::{ExitStatus, Stdio};

use config::ServerHost;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStderr, Command};

use crate::probe::connect;
use crate::probe::server::ProbedServer;

/// Maximum bytes of standard error in messages.
const SAID_MAX: usize = 200;

/// Runs the program to its end. Dropping the future kills the program and everything that it started.
pub(super) async fn run(subject: &ProbedServer, argv: &[String]) -> Result<(), String> {
    let Some((program, arguments)) = argv.split_first() else { return Ok(()) };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    // A separate process group, to be killed as a whole.
    command.process_group(0).kill_on_drop(true);
    introduce(subject, &mut command);
    let mut child = command.spawn().map_err(|error| format!("cannot run {program}: {error}"))?;
    let group = CheckProcesses(child.id().and_then(|id| Pid::from_raw(id.cast_signed())));
    let stderr = child.stderr.take();
    let (status, said) = end_of(&mut child, stderr).await.map_err(|error| format!("{program}: {error}"))?;
    group.has_ended();
    if status.success() {
        return Ok(());
    }
    let ended = match status.code() {
        Some(code) => format!("{program} ended with {code}"),
        None => format!("{program} was killed"),
    };
    let said = String::from_utf8_lossy(&said);
    match said.lines().next().map(str::trim).filter(|line| !line.is_empty()) {
        Some(line) => Err(format!("{ended}: {}", line.escape_debug())),
        None => Err(ended),
    }
}

/// Passes the server to the program in environment variables.
fn introduce(subject: &ProbedServer, command: &mut Command) {
    let server = &subject.server.config;
    let (address, port) = match &server.host {
        ServerHost::Unix(path) => (path.display().to_string(), String::new()),
        _ => {
            let first = connect::addresses(subject).first().copied();
            first.map(|at| (at.ip().to_string(), at.port().to_string())).unwrap_or_default()
        }
    };
    command
        .env("VANWARD_SERVER", server.label())
        .env("VANWARD_HOST", server.host.to_string())
        .env("VANWARD_ADDRESS", address)
        .env("VANWARD_PORT", port);
}

/// Waits for the program's end, and reads its standard error meanwhile: a full pipe would block the program.
async fn end_of(child: &mut Child, stderr: Option<ChildStderr>) -> io::Result<(ExitStatus, Vec<u8>)> {
    let mut said = Vec::new();
    let mut pipe = stderr;
    let mut piece = [0; 512];
    loop {
        let Some(open) = &mut pipe else { return Ok((child.wait().await?, said)) };
        tokio::select! {
            biased;
            read = open.read(&mut piece) => match read {
                Ok(count) if count > 0 => {
                    let room = SAID_MAX - said.len();
                    said.extend_from_slice(&piece[..count.min(room)]);
                }
                _ => pipe = None,
            },
            // Its children may keep the pipe open.
            status = child.wait() => return Ok((status?, said)),
        }
    }
}

/// A program and its children. Dropping it kills them.
struct CheckProcesses(Option<Pid>);

impl CheckProcesses {
    /// Called when the program has been reaped: its process ID may be reused.
    fn has_ended(mut self) {
        self.0 = None;
    }
}

impl Drop for CheckProcesses {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // It may have ended just now.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}
