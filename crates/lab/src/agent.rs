//! Agent: the part of the lab that runs on each machine, controlled over standard input and output.
//!
//! It starts, watches and ends processes as the lab orders. All processes that it started end with it. It ends when its
//! input ends, or after too long without an order.

/// Messages between the lab and its agents.
pub(crate) mod words;

use std::io::{BufRead as _, Read as _, Write as _};
use std::net::IpAddr;
use std::time::Duration;

use report::results::{Cores, MeasurementOutcome};
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::connections::Ports;
use crate::error::Error;
use crate::group::ProcessGroup;
use crate::machine::Idled;
use crate::origins::Origins;
use crate::plan::OwnProgram;
use crate::start::Started;
use crate::traffic::Sockets;
use crate::usage::Processes;
use crate::watch::{WatchedPart, watching};
use crate::{cores, generator, machine, network, proxies, start};
use words::{AgentLoad, AgentOrder, AgentReply, Begun, MachineResults, MachineShare, Measurement};

/// Time that a process gets to end after SIGTERM.
const GRACE: Duration = Duration::from_millis(500);
/// Minimum free disk space of the agent's folder.
const ROOM_BYTES_LEAST: u64 = 64 * 1024;
/// Interval between checks whether the proxy still runs.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);
/// Maximum number of queued orders: at most a measurement and its end.
const ASKS_WAITING_MOST: usize = 16;
/// Maximum length of a message line: a list of URLs is the longest message.
const LINE_BYTES_MOST: u64 = 256 * 1024 * 1024;
/// Environment variable of sshd with the connection: `CLIENT PORT SERVER PORT`.
const CONNECTION: &str = "SSH_CONNECTION";

/// Executes orders from standard input until it ends, or until no order has arrived for `silence`.
///
/// All started processes end with the returned future.
pub async fn agent(own: &OwnProgram, silence: Option<Duration>) -> Result<(), Error> {
    let (heard, asks) = listen();
    tokio::select! {
        biased;
        () = until_silent(heard, silence) => Ok(()),
        ended = MachineAgent::work(own, asks) => ended,
    }
}

/// Reads orders in a separate thread, because standard input of a process can only be read blocking.
fn listen() -> (watch::Receiver<()>, mpsc::Receiver<AgentOrder>) {
    let (hear, heard) = watch::channel(());
    let (ask, asks) = mpsc::channel(ASKS_WAITING_MOST);
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = input.by_ref().take(LINE_BYTES_MOST).read_until(b'\n', &mut line);
            // A line that is not an order comes from another version: ending is the best answer.
            let (Ok(1..), Ok(next)) = (read, serde_json::from_slice(&line)) else { return };
            hear.send_replace(());
            if !matches!(next, AgentOrder::Alive) && ask.blocking_send(next).is_err() {
                return;
            }
        }
    });
    (heard, asks)
}

/// Ready when the input ends, or no order has arrived for `silence`.
async fn until_silent(mut heard: watch::Receiver<()>, silence: Option<Duration>) {
    loop {
        let next = heard.changed();
        let is_there = match silence {
            Some(silence) => timeout(silence, next).await.is_ok_and(|next| next.is_ok()),
            None => next.await.is_ok(),
        };
        if !is_there {
            return;
        }
    }
}

struct MachineAgent<'o> {
    own: &'o OwnProgram,
    began: Instant,
    folder: TempDir,
    /// CPU cores that this process may use.
    allowed: Vec<usize>,
    cores: Cores,
    origins: Option<Origins>,
    proxy: Option<(Started, TempDir)>,
    _stay: cores::Stay,
}

impl Drop for MachineAgent<'_> {
    /// Kills all processes before it waits for any. A process that ends slowly then keeps no other one alive, even if
    /// this process is killed meanwhile.
    fn drop(&mut self) {
        if let Some((started, _)) = &self.proxy {
            started.group.kill();
        }
        if let Some(origins) = &self.origins {
            origins.kill();
        }
    }
}

impl<'o> MachineAgent<'o> {
    async fn work(own: &'o OwnProgram, mut asks: mpsc::Receiver<AgentOrder>) -> Result<(), Error> {
        let began = Instant::now();
        let Some(AgentOrder::Begin(share)) = asks.recv().await else { return Ok(()) };
        let mut agent = match Self::begin(own, share, began) {
            Ok((agent, begun)) => {
                say(&AgentReply::Begun(Box::new(begun)))?;
                agent
            }
            Err(error) => return say(&AgentReply::Failed(error.to_string())),
        };
        while let Some(ask) = asks.recv().await {
            // If the measurement ended first, its answer is already sent; another would be taken for the next order's.
            if matches!(ask, AgentOrder::Enough) {
                continue;
            }
            let answer = agent.done(ask, &mut asks).await;
            say(&answer.unwrap_or_else(|error| AgentReply::Failed(agent.explained(&error))))?;
        }
        Ok(())
    }

    fn begin(own: &'o OwnProgram, share: MachineShare, began: Instant) -> Result<(Self, Begun), Error> {
        let load_average = machine::load_average();
        let allowed = cores::allowed()?;
        let cores = cores::assign(&share)?;
        // This process reads /proc during measurements: not on the proxy's core, if there is another.
        let apart = [&cores.load, &cores.origins].into_iter().find(|cores| !cores.is_empty());
        let stay = cores::stay_on(apart.unwrap_or(&allowed))
            .map_err(|source| Error::System { action: "choose the cores of this process", source })?;
        let folder = tempfile::Builder::new().prefix("vanward-lab-").tempdir();
        let folder = folder.map_err(|source| Error::Write { path: std::env::temp_dir(), source })?;
        let begun = Begun {
            version: own.version.clone(),
            machine: machine::describe(allowed.len()),
            cores: cores.clone(),
            load_average,
            folder: folder.path().to_owned(),
            reached: std::env::var(CONNECTION).ok().and_then(|told| reached(&told)),
        };
        Ok((Self { own, began, folder, allowed, cores, origins: None, proxy: None, _stay: stay }, begun))
    }

    /// Error text with a hint if the disk is full, because programs report in different words that they cannot write.
    fn explained(&self, error: &Error) -> String {
        let folder = self.folder.path();
        let room =
            rustix::fs::statvfs(folder).map_or(u64::MAX, |disk| disk.f_bavail.saturating_mul(disk.f_frsize));
        if room >= ROOM_BYTES_LEAST || matches!(error, Error::Write { .. }) {
            return error.to_string();
        }
        format!(
            "{error}; there is no room for files in {}: free some, or set TMPDIR to another folder",
            folder.display()
        )
    }

    async fn done(
        &mut self,
        ask: AgentOrder,
        asks: &mut mpsc::Receiver<AgentOrder>,
    ) -> Result<AgentReply, Error> {
        Ok(match ask {
            AgentOrder::Clock => AgentReply::Clock(self.began.elapsed()),
            AgentOrder::Look(wanted) => {
                let (here, absent) = proxies::chosen(&wanted, self.own);
                AgentReply::Looked { here, absent }
            }
            AgentOrder::Refusals(all) => {
                let refusal = |(installed, service): &(proxies::Installed, proxies::Service)| {
                    installed.configure(service, self.folder.path()).err().map(|error| error.to_string())
                };
                AgentReply::Refusals(all.iter().map(refusal).collect())
            }
            AgentOrder::Put { name, text } => {
                start::put_private(&self.folder.path().join(name), &text)?;
                AgentReply::Done
            }
            AgentOrder::Origins(wanted) => {
                let folder = self.folder.path();
                let origins = Origins::start(self.own, &wanted, &self.cores.origins, folder).await?;
                let (addresses, processes) = (origins.addresses.clone(), origins.processes.clone());
                self.origins = Some(origins);
                AgentReply::Origins { addresses, processes }
            }
            AgentOrder::AreOriginsUp => match self.origins.as_mut().and_then(Origins::ended) {
                Some(error) => return Err(error),
                None => AgentReply::Done,
            },
            AgentOrder::Proxy { installed, service, payload } => {
                self.stop_proxy().await;
                let folder = self.folder_for(&installed.name)?;
                let cores = &self.cores.proxy;
                let started = start::proxy(&installed, &service, cores, folder.path(), &payload).await?;
                let told = started.as_ref().map(|started| (started.address, started.process.clone()));
                self.proxy = started.map(|started| (started, folder));
                AgentReply::Proxy(told)
            }
            AgentOrder::StopProxy => {
                self.stop_proxy().await;
                AgentReply::Done
            }
            AgentOrder::WarmUp(load) => {
                let folder = self.folder_for("load")?;
                let generator = known(&load)?;
                let load = load.request.start(generator, self.own, &self.cores.load, folder.path())?;
                load.finish().await?;
                AgentReply::Done
            }
            AgentOrder::Measure(measurement) => {
                AgentReply::Seen(Box::new(self.measure(&measurement, asks).await?))
            }
            // A repeated Begin needs no action.
            AgentOrder::Begin(_) | AgentOrder::Enough | AgentOrder::Alive => AgentReply::Done,
        })
    }

    /// Watches all processes on this machine, from the agreed time until the load or the measurement ends.
    async fn measure(
        &mut self,
        measurement: &Measurement,
        asks: &mut mpsc::Receiver<AgentOrder>,
    ) -> Result<MachineResults, Error> {
        let folder = self.folder_for("load")?;
        let made_before = self.connections_made().await;
        if let Some(at) = measurement.at {
            sleep_until(self.began + at).await;
        }
        let processes = Processes::now()?;
        let Measurement { port, origin_ports, every, .. } = measurement;
        let sockets = Sockets::now();
        let part = |roots, of, to| WatchedPart::begin(&processes, sockets.as_ref(), roots, Ports { of, to });
        let mut proxy = self
            .proxy
            .as_ref()
            .map(|(started, _)| part(vec![started.group.root()], vec![*port], origin_ports.clone()));
        let mut origins =
            self.origins.as_ref().map(|origins| part(origins.roots(), origin_ports.clone(), Vec::new()));
        let origins_used = || self.origins.as_ref().and_then(Origins::cpu_seconds);
        let (origins_before, idled_before) = (origins_used(), Idled::now(&self.allowed));
        let counted_before = network::now();
        let load = match &measurement.load {
            Some(load) => {
                let generator = known(load)?;
                let typed = load.request.typed(generator, self.own, folder.path());
                let running = load.request.start(generator, self.own, &self.cores.load, folder.path())?;
                Some((typed, running))
            }
            None => None,
        };
        let mut sender =
            load.as_ref().map(|(_, running)| part(vec![running.root()], Vec::new(), vec![*port]));
        let group = self.proxy.as_mut().map(|(started, _)| &mut started.group);
        let until_enough = async {
            match load {
                // If a number of requests ends the load, it could run long against a proxy that has ended.
                Some((typed, running)) => tokio::select! {
                    outcome = running.finish() => outcome.map(|outcome| Some((typed, outcome))),
                    ended = until_it_ends(group) => Err(ended),
                },
                None => {
                    asks.recv().await;
                    Ok(None)
                }
            }
        };
        let mut parts: Vec<&mut WatchedPart> =
            [&mut proxy, &mut origins, &mut sender].into_iter().flatten().collect();
        let load: Option<(String, MeasurementOutcome)> = watching(&mut parts, *every, until_enough).await??;
        let processes = Processes::now()?;
        let (origins_now, idled_now) = (origins_used(), Idled::now(&self.allowed));
        let made_now = self.connections_made().await;
        let proxy_end = self.proxy.as_mut().and_then(|(started, _)| started.group.ended());
        Ok(MachineResults {
            load,
            proxy: proxy.map(|part| part.until(&processes)),
            proxy_end: proxy_end.map(|error| error.to_string()),
            origins: origins.map(|part| part.until(&processes)),
            generator: sender.and_then(WatchedPart::until_its_end),
            origins_cpu_seconds: origins_now.zip(origins_before).map(|(now, before)| (now - before).max(0.0)),
            origin_connections: made_now.zip(made_before).map(|(now, before)| now.saturating_sub(before)),
            machine_cpu_seconds: idled_now
                .zip(idled_before)
                .map(|(now, before)| now.busy_seconds_since(&before)),
            network: network::since(network::now(), counted_before),
        })
    }

    /// Number of connections that the origins on this machine have accepted so far.
    async fn connections_made(&mut self) -> Option<u64> {
        self.origins.as_mut()?.connections().await
    }

    async fn stop_proxy(&mut self) {
        if let Some((started, _folder)) = self.proxy.take() {
            started.group.stop(GRACE).await;
        }
    }

    fn folder_for(&self, name: &str) -> Result<TempDir, Error> {
        let made = tempfile::Builder::new().prefix(name).tempdir_in(self.folder.path());
        made.map_err(|source| Error::Write { path: self.folder.path().to_owned(), source })
    }
}

/// Ready when a process of the group ends unexpectedly. Never ready without a group.
async fn until_it_ends(group: Option<&mut ProcessGroup>) -> Error {
    let Some(group) = group else { return std::future::pending().await };
    loop {
        if let Some(ended) = group.ended() {
            return ended;
        }
        sleep(BETWEEN_LOOKS).await;
    }
}

fn known(load: &AgentLoad) -> Result<&'static generator::Generator, Error> {
    generator::named(&load.generator).ok_or_else(|| Error::Generator {
        reason: format!("no generator is called {}", load.generator),
        log: String::new(),
    })
}

/// Writes an answer to standard output. Fails if the reader is gone.
fn say(answer: &AgentReply) -> Result<(), Error> {
    let mut line =
        serde_json::to_vec(answer).expect("answers have string keys and finite numbers by their types");
    line.push(b'\n');
    let mut output = std::io::stdout().lock();
    let said = output.write_all(&line).and_then(|()| output.flush());
    said.map_err(|source| Error::System { action: "answer on standard output", source })
}

/// Parses the two addresses of [`CONNECTION`].
fn reached(told: &str) -> Option<(IpAddr, IpAddr)> {
    let mut words = told.split_whitespace();
    Some((words.next()?.parse().ok()?, words.nth(1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sshd_tells_both_ends() {
        let told = reached("10.0.0.1 50112 10.0.0.2 22").map(|(one, two)| (one.to_string(), two.to_string()));
        assert_eq!(told, Some(("10.0.0.1".to_owned(), "10.0.0.2".to_owned())));
        assert_eq!(reached("10.0.0.1 50112"), None);
        assert_eq!(reached(""), None);
    }

    #[tokio::test]
    async fn it_ends_with_its_input_or_after_too_long_a_silence() {
        let (hear, heard) = watch::channel(());
        until_silent(heard, Some(Duration::from_millis(1))).await;
        drop(hear);

        let (hear, heard) = watch::channel(());
        let mut waiting = std::pin::pin!(until_silent(heard, None));
        hear.send_replace(());
        tokio::select! {
            biased;
            () = &mut waiting => panic!("it was spoken to"),
            () = tokio::task::yield_now() => {}
        }
        drop(hear);
        waiting.await;
    }
}
