//! Makes a valid configuration of a cluster. A complaint goes to the object that caused it, and the rest is
//! translated again without the object.

use crate::cluster::Cluster;
use crate::translate::{MachineFacts, OperatorOptions, Refused, Translation, translate};

/// Maximum number of translations until the rest is valid.
const ROUNDS_MAX: usize = 100;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    /// Line of the configuration, from 1; `None` for another file.
    pub line: Option<usize>,
    pub why: String,
}

/// Translates a cluster into a valid configuration. `complaints` parses a configuration with its files and returns the
/// mistakes. Fails with a mistake that no object caused, such as one in the operator's own file.
pub fn settle(
    cluster: &Cluster,
    options: &OperatorOptions,
    machine: &dyn MachineFacts,
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
