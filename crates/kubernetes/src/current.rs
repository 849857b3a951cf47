//! The configuration in force, for whoever reads it again.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use config::{Mistake, Reading};
use gateway::{Cluster, Complaint, Options, Translation, settle};

use crate::machine::Machine;

/// The name of the configuration in mistakes.
const NAME: &str = "kubernetes";

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

/// Translates a cluster into a valid configuration: what Vanward refuses is told to the object that it comes from. Returns the
/// ports of the configuration, too. `own` are those of this process, as the machine has them.
///
/// # Errors
/// Mistakes that come from no object: those of the operator's own file.
pub(crate) fn valid(
    cluster: &Cluster,
    options: &Options,
    own: Option<&BTreeSet<u16>>,
) -> Result<(Translation, BTreeSet<u16>), String> {
    let mut ports = BTreeSet::new();
    let translation = settle(cluster, options, &Machine { own }, |text| {
        let reading = read(text);
        let listeners = reading.config.iter().flat_map(|config| &config.listeners);
        ports = listeners.filter_map(|listener| listener.address.port()).collect();
        let complaint = |mistake: Mistake| match mistake.file == NAME {
            true => Complaint { line: Some(mistake.line), why: mistake.sentence() },
            false => Complaint { line: None, why: mistake.to_string() },
        };
        reading.mistakes.into_iter().map(complaint).collect()
    })?;
    Ok((translation, ports))
}

fn read(text: &str) -> Reading {
    config::examine(text, NAME)
}
