//! The configuration in force, for whoever reads it again.

use std::sync::{Arc, Mutex, PoisonError};

use config::Reading;
use gateway::{Cluster, Options, Refused, Translation, translate};

use crate::machine::Machine;

/// The name of the configuration in mistakes.
const NAME: &str = "kubernetes";
/// How often objects that are refused are left out until the rest is valid.
const ROUNDS_MAX: usize = 100;

/// The configuration in force.
#[derive(Clone, Default)]
pub struct Current(Arc<Mutex<String>>);

impl Current {
    /// Reads the configuration. Remarks about what was made of objects are not for operators: they are in their statuses.
    pub fn examine(&self) -> Reading {
        let text = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut reading = read(&text);
        reading.warnings.retain(|warning| warning.file != NAME);
        reading
    }

    pub(crate) fn get(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, text: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }
}

/// Translates a cluster into a valid configuration: what Vanward refuses is told to the object that it comes from.
///
/// # Errors
/// Mistakes that come from no object: those of the operator's own file.
pub(crate) fn valid(cluster: &Cluster, options: &Options) -> Result<Translation, String> {
    let mut refused = Refused::new();
    for _ in 0..ROUNDS_MAX {
        let translation = translate(cluster, options, &refused, &Machine);
        let before = refused.len();
        let mut other = None;
        for mistake in read(&translation.written.text).mistakes {
            let owner = Some(&mistake).filter(|mistake| mistake.file == NAME);
            match owner.and_then(|mistake| translation.written.owner(mistake.line)) {
                Some(owner) => drop(refused.entry(owner.clone()).or_insert_with(|| mistake.sentence())),
                None => drop(other.get_or_insert_with(|| mistake.to_string())),
            }
        }
        match other {
            None if refused.len() == before => return Ok(translation),
            Some(mistake) if refused.len() == before => return Err(mistake),
            _ => {}
        }
    }
    Err("too many objects are refused, one after the other".to_owned())
}

fn read(text: &str) -> Reading {
    config::examine(text, NAME)
}
