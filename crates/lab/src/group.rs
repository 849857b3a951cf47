//! Process groups that end in every case: return, error, panic, or a dropped future.
//!
//! A group is killed and reaped before its guard is gone, so that ports and files are free for the next one. A process
//! that leaves its group (a daemon) is not caught; no program is started as a daemon.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, kill_process, kill_process_group, set_child_subreaper, waitpgid,
};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::charged::ControlGroup;
use crate::cores;
use crate::error::Error;
use crate::proxies;
use crate::usage::Root;

/// Maximum bytes of a log in an error message.
const LOG_TAIL_BYTES: usize = 600;

/// Whether a program exists: by path, or by name in a folder of PATH.
fn is_there(named: &str) -> bool {
    if named.contains('/') { Path::new(named).is_file() } else { proxies::on_own_path(named).is_some() }
}

/// A started program and all its children.
#[derive(Debug)]
pub struct ProcessGroup {
    name: String,
    child: Child,
    id: Pid,
    control: Option<ControlGroup>,
    output: PathBuf,
    log: PathBuf,
}

impl ProcessGroup {
    /// Starts a program on some cores. Its output goes to `NAME.out` and `NAME.log` in the folder.
    pub fn start(name: &str, command: &[String], cores: &[usize], folder: &Path) -> Result<Self, Error> {
        let named = command.first().ok_or(Error::Empty("program"))?;
        // Without this check, a missing program would be reported as an error of the script that enters the group.
        let control = is_there(named).then(ControlGroup::new).flatten();
        let entered = control.as_ref().map(|control| control.entered(command));
        let command = entered.as_deref().unwrap_or(command);
        let (program, arguments) = command.split_first().ok_or(Error::Empty("program"))?;
        let (output, log) = (folder.join(format!("{name}.out")), folder.join(format!("{name}.log")));
        let file =
            |path: &Path| File::create(path).map_err(|source| Error::Write { path: path.to_owned(), source });
        let mut prepared = std::process::Command::new(program);
        prepared
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(file(&output)?)
            .stderr(file(&log)?)
            .process_group(0);
        let spawn_error = |source| Error::Spawn { program: program.clone(), source };
        // The workers of a killed master become children of the nearest subreaper: this process, so that it can wait
        // for their end. Without the kernel's permission they are killed all the same.
        let _ = set_child_subreaper(Some(rustix::process::getpid()));
        let child = cores::on(cores, || Command::from(prepared).spawn()).map_err(spawn_error)?;
        let id =
            child.id().and_then(|id| Pid::from_raw(id as i32)).expect("a process just started has an id");
        Ok(Self { name: name.to_owned(), child, id, control, output, log })
    }

    /// ID of the first process, which is also the ID of the group.
    pub fn id(&self) -> Pid {
        self.id
    }

    /// Process tree to read the usage from.
    pub(crate) fn root(&self) -> Root {
        Root { process: self.id, control: self.control.clone() }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn output(&self) -> String {
        std::fs::read(&self.output)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// The end of standard error, or of standard output if that is empty, on one line.
    pub fn log_tail(&self) -> String {
        let read = |path: &Path| std::fs::read(path).unwrap_or_default();
        let mut bytes = read(&self.log);
        if bytes.is_empty() {
            bytes = read(&self.output);
        }
        let tail = &bytes[bytes.len().saturating_sub(LOG_TAIL_BYTES)..];
        String::from_utf8_lossy(tail).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Error with the exit status of the first process and the end of its log; `None` while it runs.
    pub fn ended(&mut self) -> Option<Error> {
        let status = self.child.try_wait().ok().flatten()?.to_string();
        Some(Error::Ended { name: self.name.clone(), status, log: self.log_tail() })
    }

    /// Whether other processes of the group run on, after [`Group::ended`] has reported the end of the first.
    pub(crate) fn has_others(&self) -> bool {
        reap(self.id, WaitOptions::NOHANG) == Members::Running
    }

    pub async fn wait(&mut self) -> std::io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Kills all processes of the group. Dropping the group waits for them.
    pub fn kill(&self) {
        // All members descend from this process. If none is left, the group's ID may already belong to another group.
        if reap(self.id, WaitOptions::NOHANG) == Members::Running {
            let _ = kill_process_group(self.id, Signal::KILL);
        }
    }

    pub fn signal_first(&mut self, signal: Signal) {
        // The ID of an ended process may already belong to another one.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process(self.id, signal);
        }
    }

    pub fn signal_all(&self, signal: Signal) {
        if reap(self.id, WaitOptions::NOHANG) == Members::Running {
            let _ = kill_process_group(self.id, signal);
        }
    }

    /// Sends SIGTERM, waits for the first process up to `patience`, then kills the rest.
    pub async fn stop(mut self, patience: Duration) {
        if kill_process_group(self.id, Signal::TERM).is_ok() {
            let _ = timeout(patience, self.child.wait()).await;
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
        // No process can block SIGKILL, so this wait ends as soon as the kernel has removed the processes.
        reap(self.id, WaitOptions::empty());
    }
}

#[derive(PartialEq, Eq)]
enum Members {
    None,
    Running,
}

/// Reaps ended members of the group; with `NOHANG`, without waiting.
fn reap(group: Pid, options: WaitOptions) -> Members {
    loop {
        match waitpgid(group, options) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return Members::Running,
            Err(_) => return Members::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::test_kill_process_group;

    fn shell(script: &str) -> Vec<String> {
        ["sh", "-c", script].map(str::to_owned).to_vec()
    }

    fn start(script: &str, folder: &Path) -> ProcessGroup {
        let cores = cores::assign_all().expect("the kernel tells");
        ProcessGroup::start("test", &shell(script), &cores.load, folder).expect("a shell")
    }

    /// Waits until the script has printed `ready`.
    async fn ready(group: &ProcessGroup) {
        while !group.output().contains("ready") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn nothing_is_left_of_a_group_that_is_dropped() {
        let folder = tempfile::tempdir().expect("a folder");
        // Children and grandchildren that ignore SIGTERM.
        let group = start(
            "trap '' TERM; sh -c 'sleep 600 & sleep 600' & sleep 600 & echo ready; wait",
            folder.path(),
        );
        ready(&group).await;
        let id = group.id();
        assert!(test_kill_process_group(id).is_ok());
        drop(group);
        assert_eq!(test_kill_process_group(id), Err(Errno::SRCH));
    }

    #[tokio::test]
    async fn nothing_is_left_when_the_future_that_holds_it_is_dropped() {
        let folder = tempfile::tempdir().expect("a folder");
        let group = start("sleep 600 & echo ready; wait", folder.path());
        ready(&group).await;
        let id = group.id();
        let forever = async move {
            let _held = group;
            std::future::pending::<()>().await;
        };
        assert!(timeout(Duration::from_millis(1), forever).await.is_err());
        assert_eq!(test_kill_process_group(id), Err(Errno::SRCH));
    }

    #[tokio::test]
    async fn a_worker_that_outlives_its_master_is_caught() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut group = start("sleep 600 & echo ready", folder.path());
        group.wait().await.expect("the master ends by itself");
        let id = group.id();
        assert!(test_kill_process_group(id).is_ok(), "the worker should still run");
        drop(group);
        assert_eq!(test_kill_process_group(id), Err(Errno::SRCH));
    }

    #[tokio::test]
    async fn one_that_ends_when_asked_is_not_killed() {
        let folder = tempfile::tempdir().expect("a folder");
        let group =
            start("trap 'echo polite; exit 0' TERM; echo ready; while :; do sleep 0.01; done", folder.path());
        ready(&group).await;
        group.stop(Duration::from_secs(20)).await;
        let said = std::fs::read_to_string(folder.path().join("test.out")).expect("its output");
        assert!(said.contains("polite"), "{said}");
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let cores = cores::assign_all().expect("the kernel tells");
        let missing = ["/no/such/program".to_owned()];
        let refused =
            ProcessGroup::start("test", &missing, &cores.load, folder.path()).expect_err("it is not there");
        assert!(refused.to_string().contains("/no/such/program"), "{refused}");
    }
}
