//! The test backends: our own `vanward origin`, a process each, up for the whole run.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use report::results::{Process, Upstream};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use crate::certificate::{CIPHER, Certificate};
use crate::error::Error;
use crate::group::Group;
use crate::plan::Own;
use crate::start;
use crate::usage::{Processes, Reading, Root};

/// An origin that is slower to tell what it counted does not tell.
const TELLING: Duration = Duration::from_secs(2);

/// Where origins listen, each in the same place of both lists.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Addresses {
    /// For HTTP/1.1 and HTTP/2 in the clear.
    pub(crate) plain: Vec<SocketAddr>,
    /// For TLS; none where nobody asks for it.
    pub(crate) tls: Vec<SocketAddr>,
}

impl Addresses {
    /// Those that speak it.
    pub(crate) fn that_speak(&self, upstream: Upstream) -> &[SocketAddr] {
        match upstream {
            Upstream::Http | Upstream::H2 => &self.plain,
            Upstream::Https => &self.tls,
        }
    }
}

/// What origins are to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Wanted {
    /// How many.
    pub(crate) count: NonZeroUsize,
    /// Where they listen.
    pub(crate) address: IpAddr,
    /// Whether they speak TLS too, with the certificate that is in the agent's folder.
    pub(crate) has_tls: bool,
    /// Whether they say `Connection: keep-alive`.
    pub(crate) says_keep_alive: bool,
}

/// Origins that run until this is dropped.
#[derive(Debug)]
pub(crate) struct Origins {
    groups: Vec<Group>,
    /// Where they listen.
    pub(crate) addresses: Addresses,
    /// How each was started.
    pub(crate) processes: Vec<Process>,
    /// Connections over which they were asked what they had counted.
    looks: u64,
}

impl Origins {
    /// Starts them on these cores, and waits until each listens.
    pub(crate) async fn start(
        own: &Own,
        wanted: &Wanted,
        cores: &[usize],
        folder: &Path,
    ) -> Result<Self, Error> {
        let command = command(own, wanted, folder);
        let mut origins =
            Self { groups: Vec::new(), addresses: Addresses::default(), processes: Vec::new(), looks: 0 };
        for number in 1..=wanted.count.get() {
            let mut group = Group::start(&format!("origin-{number}"), &command, cores, folder)?;
            let said = start::until_it_says_where(&mut group, 1 + usize::from(wanted.has_tls)).await?;
            origins.addresses.plain.push(said[0]);
            origins.addresses.tls.extend(said.get(1));
            origins.processes.push(Process { command: start::typed(&command), files: Vec::new() });
            origins.groups.push(group);
        }
        Ok(origins)
    }

    /// CPU time that all of them used until now; `None` if it can't be read.
    pub(crate) fn cpu_seconds(&self) -> Option<f64> {
        Some(Reading::of(&Processes::now().ok()?, &self.roots()).cpu_seconds())
    }

    /// Connections that they accepted until now, but for those of such looks; `None` if one does not tell.
    pub(crate) async fn connections(&mut self) -> Option<u64> {
        let mut sum = 0;
        for address in &self.addresses.plain {
            // This look has a connection of its own.
            self.looks += 1;
            let told = timeout(TELLING, start::body(*address, "/stats")).await.ok()?.ok()?;
            let told: serde_json::Value = serde_json::from_slice(&told).ok()?;
            sum += told.get("connections")?.as_u64()?;
        }
        sum.checked_sub(self.looks)
    }

    /// What the usage of each is read by.
    pub(crate) fn roots(&self) -> Vec<Root> {
        self.groups.iter().map(Group::root).collect()
    }

    /// Kills them all, and waits for none.
    pub(crate) fn kill(&self) {
        self.groups.iter().for_each(Group::kill);
    }

    /// The first of them that has ended, with its last words: no figure is worth anything after that.
    pub(crate) fn ended(&mut self) -> Option<Error> {
        self.groups.iter_mut().find_map(Group::ended)
    }
}

/// How one is started.
fn command(own: &Own, wanted: &Wanted, folder: &Path) -> Vec<String> {
    let listen = SocketAddr::new(wanted.address, 0).to_string();
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut command = vec![text(&own.program), "origin".to_owned(), "--listen".to_owned(), listen.clone()];
    if wanted.has_tls {
        let Certificate { certificate, key, .. } = Certificate::within(folder);
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
    command
}
