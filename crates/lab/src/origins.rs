//! The test backends: our own `vanward origin`, a process each, up for the whole run.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::Path;

use report::results::Process;

use crate::error::Error;
use crate::group::Group;
use crate::plan::Own;
use crate::start;
use crate::usage::{Processes, Reading, Root};

/// Origins that run until this is dropped.
#[derive(Debug)]
pub(crate) struct Origins {
    groups: Vec<Group>,
    /// Where each listens.
    pub(crate) addresses: Vec<SocketAddr>,
    /// How each was started.
    pub(crate) processes: Vec<Process>,
}

impl Origins {
    /// Starts them on these cores, and waits until each listens.
    pub(crate) async fn start(
        own: &Own,
        count: NonZeroUsize,
        address: IpAddr,
        cores: &[usize],
        folder: &Path,
    ) -> Result<Self, Error> {
        let listen = SocketAddr::new(address, 0).to_string();
        let command = ["origin".to_owned(), "--listen".to_owned(), listen];
        let command: Vec<String> =
            [own.program.to_string_lossy().into_owned()].into_iter().chain(command).collect();
        let mut origins = Self { groups: Vec::new(), addresses: Vec::new(), processes: Vec::new() };
        for number in 1..=count.get() {
            let mut group = Group::start(&format!("origin-{number}"), &command, cores, folder)?;
            origins.addresses.push(start::until_it_says_where(&mut group).await?);
            origins.processes.push(Process { command: start::typed(&command), files: Vec::new() });
            origins.groups.push(group);
        }
        Ok(origins)
    }

    /// CPU time that all of them used until now; `None` if it can't be read.
    pub(crate) fn cpu_seconds(&self) -> Option<f64> {
        Some(Reading::of(&Processes::now().ok()?, &self.roots()).cpu_seconds())
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
