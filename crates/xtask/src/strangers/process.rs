//! A running program: its addresses, output and end. Its output goes to a file, so that it never waits for a reader,
//! and every wait has a timeout.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::step;

/// Time that a server gets to start, on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(30);
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// A started program. Dropping it kills the program.
pub(crate) struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program. `name` is unique in the folder, where the output is written to `NAME.log`.
    pub(crate) fn start(name: &str, command: &mut Command, folder: &Path) -> Result<Self, String> {
        let log = folder.join(format!("{name}.log"));
        let failed = |error| format!("{} cannot be written: {error}", log.display());
        let output = File::create(&log).map_err(failed)?;
        let errors = output.try_clone().map_err(failed)?;
        let spawned = command.stdin(Stdio::null()).stdout(output).stderr(errors).spawn();
        let child = spawned.map_err(|error| format!("`{}` cannot be run: {error}", step::shown(command)))?;
        Ok(Self { name: name.to_owned(), child, log })
    }

    pub(crate) fn said(&self) -> String {
        fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Waits for the line with the listening addresses, in the format of `vanward`, and returns the addresses.
    pub(crate) fn addresses(&mut self) -> Result<Vec<SocketAddr>, String> {
        self.until(|process| {
            let addresses = process.said().lines().map(listened_on).find(|found| !found.is_empty());
            addresses.ok_or("it does not print its listen address")
        })
    }

    pub(crate) fn listening_on(mut self, address: SocketAddr) -> Result<Self, String> {
        self.until(|_| TcpStream::connect(address).map(drop).map_err(|_| "it does not listen"))?;
        Ok(self)
    }

    pub(crate) fn listening_at(mut self, socket: &Path) -> Result<Self, String> {
        self.until(|_| UnixStream::connect(socket).map(drop).map_err(|_| "it does not listen"))?;
        Ok(self)
    }

    /// Sends a signal, named as kill(1) does: `-STOP`.
    pub(crate) fn signal(&self, signal: &str) -> Result<(), String> {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        let is_sent = sent.map_err(|error| format!("kill cannot be run: {error}"))?.success();
        if is_sent { Ok(()) } else { Err(self.problem("has ended")) }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until the program ends, at most `limit`. Returns its exit status and complete output.
    pub(crate) fn finish(mut self, limit: Duration) -> Result<(ExitStatus, String), String> {
        let began = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Ok((status, self.said())),
                Ok(None) if began.elapsed() < limit => thread::sleep(BETWEEN_LOOKS),
                Ok(None) => {
                    let problem = format!("has not ended after {} s", limit.as_secs());
                    return Err(self.problem(&problem));
                }
                Err(error) => return Err(self.problem(&error.to_string())),
            }
        }
    }

    fn until<T>(&mut self, look: impl Fn(&Self) -> Result<T, &'static str>) -> Result<T, String> {
        let began = Instant::now();
        loop {
            let problem = match look(self) {
                Ok(found) => return Ok(found),
                Err(problem) => problem,
            };
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(self.problem(&format!("ended with {status}")));
            }
            if began.elapsed() > START_LIMIT {
                return Err(self.problem(problem));
            }
            thread::sleep(BETWEEN_LOOKS);
        }
    }

    fn problem(&self, what: &str) -> String {
        format!("{}: {what}; it said:\n{}", self.name, self.said().trim_end())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Addresses in lines such as `listening http://ADDRESS`, `Listening on http://ADDRESS/`, `listening on ADDRESS,
/// ADDRESS`.
fn listened_on(line: &str) -> Vec<SocketAddr> {
    let Some((_, said)) = line.split_once("istening ") else { return Vec::new() };
    let words = said.split([' ', ',']).map(|word| {
        let word = word.trim_end_matches('/');
        word.rsplit('/').next().unwrap_or(word)
    });
    words.filter_map(|word| word.parse().ok()).collect()
}

/// Returns a loopback address with a currently free port, for programs that cannot let the kernel select one. It is
/// below the kernel's range for outgoing connections, so that none of them takes it meanwhile.
pub(crate) fn free_address() -> Result<SocketAddr, String> {
    const PORTS: std::ops::Range<u32> = 16_384..32_768;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Concurrent processes begin at different ports.
    let first = std::process::id().wrapping_mul(97);
    for _ in PORTS {
        let place = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % (PORTS.end - PORTS.start);
        let port = u16::try_from(PORTS.start + place).map_err(|error| error.to_string())?;
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            return listener.local_addr().map_err(|error| error.to_string());
        }
    }
    Err("no port on 127.0.0.1 is free".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_from_the_line_that_has_them() {
        let addresses = |line| listened_on(line).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(addresses("listening http://127.0.0.1:9000"), ["127.0.0.1:9000"]);
        assert_eq!(addresses("Listening on http://[::]:3/"), ["[::]:3"]);
        assert_eq!(addresses("vanward: listening on 127.0.0.1:1, [::1]:2"), ["127.0.0.1:1", "[::1]:2"]);
        assert_eq!(addresses("vanward: listening on https://127.0.0.1:1"), ["127.0.0.1:1"]);
        assert_eq!(addresses("vanward: the certificate is for 127.0.0.1:1"), [""; 0]);
    }
}
