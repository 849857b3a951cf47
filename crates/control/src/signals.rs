//! Signal handling: SIGHUP reloads, SIGUSR1 reopens the log, SIGUSR2 upgrades, SIGTERM and SIGINT drain.

use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;

use telemetry::message;
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::spawn_blocking;

use crate::Running;
use crate::change::Control;
use crate::notify::{self, PidFile};
use crate::upgrade::{Program, Successors, upgrade};
use crate::watchdog;
use proxy::context::worker::WorkerMessage;

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    reopen: Signal,
    upgrade: Signal,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    End,
    Reload,
    Reopen,
    Upgrade,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            reopen: signal(SignalKind::user_defined1())?,
            upgrade: signal(SignalKind::user_defined2())?,
        })
    }

    async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.terminate.recv() => Wish::End,
            _ = self.interrupt.recv() => Wish::End,
            _ = self.hang_up.recv() => Wish::Reload,
            _ = self.reopen.recv() => Wish::Reopen,
            _ = self.upgrade.recv() => Wish::Upgrade,
        }
    }
}

/// Runs until a signal ends the proxy, or another process has taken over. Calls `announce` once signals are handled, so
/// that its readers can send one. `pid_file` has the process ID meanwhile. Fails if signals cannot be handled, the PID
/// file cannot be written, or a worker has panicked.
pub fn run_until_signal(
    mut running: Running,
    pid_file: Option<&Path>,
    announce: impl FnOnce(&Running),
) -> io::Result<()> {
    let program = Program::of_this_process();
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(async {
        let mut signals = Signals::new()?;
        let pid_file = pid_file.map(PidFile::write).transpose()?;
        running.take_over();
        notify::tell(&format!("READY=1\nMAINPID={}", std::process::id()));
        announce(&running);
        let mut stage = serve(&mut running, &program, &mut signals).await;
        let has_failed = stage == ShutdownStage::Failed;
        let control = Arc::clone(&running.control);
        let mut ended = spawn_blocking(move || running.wait());
        loop {
            tokio::select! {
                _ = &mut ended => break,
                wish = signals.next() => match wish {
                    Wish::End => stage = end(&control, stage),
                    // Its last requests are logged as well, and the file may be rotated meanwhile.
                    Wish::Reopen => control.reopen_log(),
                    _ => message::warn("this process is ending: it handles only SIGTERM, SIGINT and SIGUSR1"),
                },
            }
        }
        drop(pid_file);
        if has_failed { Err(io::Error::other("a worker has panicked")) } else { Ok(()) }
    });
    // A thread that waits for another process must not block the end.
    runtime.shutdown_background();
    outcome
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ShutdownStage {
    /// Another process has taken over: this one ends when its clients have gone.
    Retiring,
    Draining,
    /// Draining, because a worker has panicked.
    Failed,
}

async fn serve(running: &mut Running, program: &Program, signals: &mut Signals) -> ShutdownStage {
    let (_, never) = unbounded_channel();
    let mut panicked = std::mem::replace(&mut running.panicked, never);
    let (taken_over, mut succeeded) = unbounded_channel();
    let successors = Arc::new(Successors::default());
    let mut watchdog = pin!(watchdog::run(&running.control));
    loop {
        let wish = tokio::select! {
            _ = succeeded.recv() => return ShutdownStage::Retiring,
            wish = signals.next() => wish,
            Some(worker) = panicked.recv() => {
                notify::tell("STOPPING=1");
                successors.end();
                message::error(&format!(
                    "worker {worker} has panicked, so its clients get no response: this process drains the other \
                     workers and ends"
                ));
                running.drain();
                return ShutdownStage::Failed;
            }
            () = &mut watchdog => continue,
        };
        // Each reload or upgrade waits for the one before, but later signals do not: they may end the process.
        let control = Arc::clone(&running.control);
        match wish {
            Wish::End => {
                notify::tell("STOPPING=1");
                successors.end();
                message::info("draining: running requests finish, a second signal stops at once");
                running.drain();
                return ShutdownStage::Draining;
            }
            Wish::Reload => drop(spawn_blocking(move || reload(&control))),
            Wish::Reopen => control.reopen_log(),
            Wish::Upgrade => {
                let (program, taken_over) = (program.clone(), taken_over.clone());
                let successors = Arc::clone(&successors);
                drop(spawn_blocking(move || match upgrade(&control, &program, &successors) {
                    Ok(process) => {
                        notify::tell(&format!("MAINPID={process}"));
                        message::info(&format!(
                            "process {process} has taken over: this one ends when its last client leaves"
                        ));
                        let _ = taken_over.send(());
                    }
                    Err(error) => message::error(&format!("not upgraded, nothing has changed: {error}")),
                }));
            }
        }
    }
}

/// Handles a signal to end: a retiring process ends sooner.
fn end(control: &Control, stage: ShutdownStage) -> ShutdownStage {
    match stage {
        ShutdownStage::Retiring => {
            message::info("draining: running requests finish, a second signal stops at once");
            control.tell_workers(|| WorkerMessage::Drain);
        }
        ShutdownStage::Draining | ShutdownStage::Failed => control.tell_workers(|| WorkerMessage::Stop),
    }
    ShutdownStage::Draining
}

fn reload(control: &Control) {
    notify::tell_of_reload();
    // `reload` reports its own outcome.
    let _: Result<_, _> = control.reload("");
    notify::tell("READY=1");
}
