//! Service discovery from a user's point of view.

/// Instances of Consul's catalog.
mod consul;
/// SRV records of BIND.
mod dns;
/// A load whose name gets other addresses.
mod load;
/// Servers, and a proxy whose responses name them.
mod scene;

use std::path::Path;

use super::programs::{self, CONSUL};
use crate::say;
use crate::scratch::Scratch;
use crate::workspace::Workspace;
use dns::NameServer;

pub(super) fn check(workspace: &Workspace, scratch: &Scratch) -> Result<(), String> {
    let vanward = programs::build_vanward(workspace)?;
    let folder: &Path = scratch.path();
    let mut names = NameServer::start(folder)?;
    dns::check(&vanward, folder, &mut names)?;
    load::check(&vanward, folder, &mut names)?;
    match CONSUL.find() {
        Ok(agent) => consul::check(&vanward, &agent, folder),
        Err(missing) => {
            say(format_args!("Consul is not asked: {missing}"));
            Ok(())
        }
    }
}
