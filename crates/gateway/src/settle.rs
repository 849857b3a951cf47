//! From a cluster to a configuration that Vanward takes: what it refuses is told to the object that it comes from, and the rest
//! is translated without that object.

use crate::cluster::Cluster;
use crate::translate::{Machine, Options, Refused, Translation, translate};

/// How often objects that are refused are left out until the rest is valid.
const ROUNDS_MAX: usize = 100;

/// What Vanward refuses of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    /// The line of the configuration, from 1; `None` if it is about another file.
    pub line: Option<usize>,
    /// What is wrong, for the status of an object.
    pub why: String,
}

/// Translates a cluster into a valid configuration. `complaints` reads a configuration with its files and tells what is wrong
/// with it.
///
/// # Errors
/// What is wrong and comes from no object: with the operator's own file, say.
pub fn settle(
    cluster: &Cluster,
    options: &Options,
    machine: &dyn Machine,
    mut complaints: impl FnMut(&Translation) -> Vec<Complaint>,
) -> Result<Translation, String> {
    let mut refused = Refused::new();
    for _ in 0..ROUNDS_MAX {
        let translation = translate(cluster, options, &refused, machine);
        let before = refused.len();
        let mut other = None;
        for Complaint { line, why } in complaints(&translation) {
            match line
                .and_then(|line| translation.written.owner(line))
                .filter(|owner| !refused.contains_key(owner))
            {
                Some(owner) => drop(refused.insert(owner.clone(), why)),
                None => drop(other.get_or_insert(why)),
            }
        }
        match other {
            _ if refused.len() > before => {}
            None => return Ok(translation),
            Some(why) => return Err(why),
        }
    }
    Err("too many objects are refused, one after the other".to_owned())
}
