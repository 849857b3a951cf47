//! Servers that respond with their numbers, and a proxy before them.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::super::http;
use super::super::process::Process;

pub(super) const COUNT: usize = 3;
const LIMIT: Duration = Duration::from_secs(30);

pub(super) struct DiscoveryProxy {
    process: Process,
    address: SocketAddr,
}

impl DiscoveryProxy {
    pub(super) fn new(mut process: Process) -> Result<Self, String> {
        let address = process.addresses()?.first().copied().ok_or("the proxy listens nowhere")?;
        Ok(Self { process, address })
    }

    pub(super) fn said(&self) -> String {
        self.process.said()
    }

    /// Sends requests, and counts them by server.
    pub(super) fn ask(&self, count: usize) -> Result<[usize; COUNT], String> {
        let mut counts = [0; COUNT];
        let address = self.address;
        for _ in 0..count {
            let text = get(address, "/")?;
            let server = text.chars().last().and_then(|last| last.to_digit(10));
            match server.and_then(|server| counts.get_mut(server as usize)) {
                Some(count) => *count += 1,
                None => return Err(format!("no server has answered: {text}")),
            }
        }
        Ok(counts)
    }

    /// Waits until the counts of four requests meet a condition.
    pub(super) fn until(&self, what: &str, is_so: impl Fn([usize; COUNT]) -> bool) -> Result<(), String> {
        let began = Instant::now();
        loop {
            let counts = self.ask(4)?;
            if is_so(counts) {
                return Ok(());
            }
            if began.elapsed() > LIMIT {
                return Err(format!("not in time: {what}, but {counts:?}:\n{}", self.process.said()));
            }
        }
    }

    pub(super) fn until_said(&self, what: &str) -> Result<(), String> {
        let began = Instant::now();
        while !self.process.said().contains(what) {
            if began.elapsed() > LIMIT {
                return Err(format!("the proxy does not say {what:?}:\n{}", self.process.said()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

pub(super) fn get(address: SocketAddr, path: &str) -> Result<String, String> {
    http::get(address, "app.example", path)
}

/// Servers that respond with their numbers, at ports of one machine.
pub(super) struct DiscoveryServers {
    pub(super) ports: [u16; COUNT],
    _process: Process,
}

impl DiscoveryServers {
    pub(super) fn start(vanward: &Path, folder: &Path) -> Result<Self, String> {
        let server = |number: usize| {
            format!(
                "[[listen]]\nname = \"{number}\"\naddress = \"127.0.0.1:0\"\n\
                 [[route]]\nlistener = \"{number}\"\nrespond = {{ status = 200, body = \"{number}\" }}\n"
            )
        };
        let file = folder.join("servers.toml");
        let text = format!("workers = 1\n{}", (0..COUNT).map(server).collect::<String>());
        fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
        let mut command = Command::new(vanward);
        let mut process = Process::start("servers", command.args(["run", "--config"]).arg(&file), folder)?;
        let ports = process.addresses()?.iter().map(SocketAddr::port).collect::<Vec<_>>();
        let ports = ports.try_into().map_err(|ports| format!("the servers listen at {ports:?}"))?;
        Ok(Self { ports, _process: process })
    }
}
