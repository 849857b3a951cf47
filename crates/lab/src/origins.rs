//! Servers behind the proxies for the whole run: processes of `vanward origin` or another program, or running servers.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use report::results::{OriginProtocol, StartedProcess};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use crate::certificate::{CIPHER, CertificatePaths};
use crate::error::Error;
use crate::group::ProcessGroup;
use crate::plan::{OriginSource, OwnProgram};
use crate::proxies::OriginVerification;
use crate::start;
use crate::usage::{CpuReading, Processes, Root};

/// File with the certificates of authorities of origins that are not the lab's.
pub(crate) const AUTHORITY: &str = "origins-ca.pem";
/// Timeout of a request for an origin's counters.
const TELLING: Duration = Duration::from_secs(2);

/// Listening addresses of the origins, in the same order in both lists.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Addresses {
    /// Addresses for HTTP/1.1 and HTTP/2 without TLS.
    pub(crate) plain: Vec<SocketAddr>,
    /// Addresses for TLS; empty if no case uses them.
    pub(crate) tls: Vec<SocketAddr>,
}

impl Addresses {
    pub(crate) fn that_speak(&self, upstream: OriginProtocol) -> &[SocketAddr] {
        match upstream {
            OriginProtocol::Http | OriginProtocol::H2 => &self.plain,
            OriginProtocol::Https => &self.tls,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OriginSettings {
    pub(crate) source: OriginSource,
    /// Path that is requested from another program until it answers.
    pub(crate) ready: String,
    pub(crate) address: IpAddr,
    /// Whether the origins also use TLS, with the certificate in the agent's folder.
    pub(crate) has_tls: bool,
    /// Whether responses have `Connection: keep-alive`.
    pub(crate) says_keep_alive: bool,
    /// Requests that `vanward origin` processes at once; `None` for no limit.
    pub(crate) capacity: Option<NonZeroUsize>,
    /// Name in the certificates of servers that run already and use TLS, with [`AUTHORITY`] in the agent's folder.
    pub(crate) tls_name: Option<String>,
}

/// Running origins. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Origins {
    groups: Vec<ProcessGroup>,
    pub(crate) addresses: Addresses,
    /// Command and configuration of each origin.
    pub(crate) processes: Vec<StartedProcess>,
    /// Whether they have counters that can be read.
    have_counters: bool,
    /// Connections that the lab used to read the counters.
    looks: u64,
}

impl Origins {
    /// Starts the origins on these cores, and waits until each listens.
    pub(crate) async fn start(
        own: &OwnProgram,
        wanted: &OriginSettings,
        cores: &[usize],
        folder: &Path,
    ) -> Result<Self, Error> {
        let mut origins = Self {
            groups: Vec::new(),
            addresses: Addresses::default(),
            processes: Vec::new(),
            have_counters: matches!(wanted.source, OriginSource::Own(_)),
            looks: 0,
        };
        match &wanted.source {
            OriginSource::Own(count) => {
                let command = command(own, wanted, SocketAddr::new(wanted.address, 0), folder);
                for number in 1..=count.get() {
                    let mut group =
                        ProcessGroup::start(&format!("origin-{number}"), &command, cores, folder)?;
                    let said =
                        start::until_it_says_where(&mut group, 1 + usize::from(wanted.has_tls)).await?;
                    origins.addresses.tls.extend(said.get(1));
                    origins.started(group, said[0], &command);
                }
            }
            OriginSource::Command(count, template) => {
                for number in 1..=count.get() {
                    let listen = start::free_address(wanted.address)?;
                    let command: Vec<String> = template.iter().map(|word| filled(word, listen)).collect();
                    let mut group =
                        ProcessGroup::start(&format!("origin-{number}"), &command, cores, folder)?;
                    start::until_a_server_answers(&mut group, listen, &wanted.ready).await?;
                    origins.started(group, listen, &command);
                }
            }
            OriginSource::Running(servers) => {
                let verified = wanted.tls_name.as_ref().map(|name| {
                    let authority = folder.join(AUTHORITY);
                    OriginVerification { authority, name: name.clone() }
                });
                for server in servers {
                    let address = start::running_server(server, &wanted.ready, verified.as_ref()).await?;
                    let addresses = &mut origins.addresses;
                    let reached = if verified.is_some() { &mut addresses.tls } else { &mut addresses.plain };
                    reached.push(address);
                }
            }
            OriginSource::Nothing => {}
        }
        Ok(origins)
    }

    fn started(&mut self, group: ProcessGroup, address: SocketAddr, command: &[String]) {
        self.addresses.plain.push(address);
        self.processes.push(StartedProcess { command: start::typed(command), files: Vec::new() });
        self.groups.push(group);
    }

    /// CPU time of all origins until now; `None` if it cannot be read, or they are not the lab's.
    pub(crate) fn cpu_seconds(&self) -> Option<f64> {
        if self.groups.is_empty() {
            return None;
        }
        Some(CpuReading::new(&Processes::now().ok()?, &self.roots()).cpu_seconds())
    }

    /// Connections that the origins accepted until now, without those that read the counters. `None` if an origin does
    /// not answer, or has no counters.
    pub(crate) async fn connections(&mut self) -> Option<u64> {
        if !self.have_counters {
            return None;
        }
        let mut sum = 0;
        for address in &self.addresses.plain {
            // This query opens a connection, too.
            self.looks += 1;
            let told = timeout(TELLING, start::body(*address, "/stats")).await.ok()?.ok()?;
            let told: serde_json::Value = serde_json::from_slice(&told).ok()?;
            sum += told.get("connections")?.as_u64()?;
        }
        sum.checked_sub(self.looks)
    }

    /// Process trees to read the usage from.
    pub(crate) fn roots(&self) -> Vec<Root> {
        self.groups.iter().map(ProcessGroup::root).collect()
    }

    /// Kills all origins, without waiting.
    pub(crate) fn kill(&self) {
        self.groups.iter().for_each(ProcessGroup::kill);
    }

    /// Error about the first origin that has ended, with the end of its log. Further figures would be worthless.
    pub(crate) fn ended(&mut self) -> Option<Error> {
        self.groups.iter_mut().find_map(ProcessGroup::ended)
    }
}

/// A word of a program's command line, with its address filled in.
pub(crate) fn filled(word: &str, listen: SocketAddr) -> String {
    word.replace("{listen}", &listen.to_string())
        .replace("{port}", &listen.port().to_string())
        .replace("{host}", &listen.ip().to_string())
}

pub(crate) fn command(
    own: &OwnProgram,
    wanted: &OriginSettings,
    listen: SocketAddr,
    folder: &Path,
) -> Vec<String> {
    let listen = listen.to_string();
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut command = vec![text(&own.program), "origin".to_owned(), "--listen".to_owned(), listen.clone()];
    if wanted.has_tls {
        let CertificatePaths { certificate, key, .. } = CertificatePaths::within(folder);
        let flags = [
            "--listen-tls",
            &listen,
            "--cert",
            &text(&certificate),
            "--key",
            &text(&key),
            "--cipher",
            CIPHER,
        ];
        command.extend(flags.map(str::to_owned));
    }
    command.extend(wanted.says_keep_alive.then(|| "--say-keep-alive".to_owned()));
    command.extend(wanted.capacity.iter().flat_map(|most| ["--capacity".to_owned(), most.to_string()]));
    command
}
