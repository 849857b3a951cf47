//! The configuration in force, for whoever reads it again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use config::{Mistake, Reading, Surroundings};
use gateway::{Cluster, Complaint, Options, Translation, settle};

use crate::machine::Machine;

/// The name of the configuration in mistakes.
const NAME: &str = "kubernetes";

/// The configuration in force, with the files that it names.
#[derive(Clone, Default)]
pub struct Current(Arc<Mutex<InForce>>);

/// A configuration, and the content of files that come from objects, by their names.
#[derive(Clone, Default, PartialEq)]
pub(crate) struct InForce {
    pub(crate) text: String,
    pub(crate) files: Files,
}

type Files = BTreeMap<String, Vec<u8>>;

impl Current {
    /// Reads the configuration. Remarks about what was made of objects are not for operators: they are in their statuses.
    pub fn examine(&self) -> Reading {
        let InForce { text, files } = self.get();
        let mut reading = read(&text, &files);
        reading.warnings.retain(|warning| warning.file != NAME);
        reading
    }

    pub(crate) fn get(&self) -> InForce {
        self.lock().clone()
    }

    pub(crate) fn set(&self, config: InForce) {
        *self.lock() = config;
    }

    fn lock(&self) -> MutexGuard<'_, InForce> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
    let translation = settle(cluster, options, &Machine { own }, |translation| {
        let reading = read(&translation.written.text, &translation.files);
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

impl From<&Translation> for InForce {
    fn from(translation: &Translation) -> Self {
        Self { text: translation.written.text.clone(), files: translation.files.clone() }
    }
}

fn read(text: &str, files: &Files) -> Reading {
    config::examine_in(text, NAME, &WithFiles(files))
}

/// This machine, with files that come from objects and are in memory alone.
struct WithFiles<'f>(&'f Files);

impl Surroundings for WithFiles<'_> {
    fn file(&self, path: &Path) -> Result<Vec<u8>, String> {
        config::Machine.file(path)
    }

    fn matches(&self, pattern: &str) -> Result<Vec<PathBuf>, String> {
        config::Machine.matches(pattern)
    }

    fn identity(&self, path: &Path) -> PathBuf {
        config::Machine.identity(path)
    }

    fn variable(&self, name: &str) -> Option<Vec<u8>> {
        config::Machine.variable(name)
    }

    fn secret(&self, path: &Path) -> Result<(Vec<u8>, bool), String> {
        config::Machine.secret(path)
    }

    fn named_file(&self, path: &Path) -> Result<Vec<u8>, String> {
        match path.to_str().and_then(|path| self.0.get(path)) {
            Some(content) => Ok(content.clone()),
            None => config::Machine.named_file(path),
        }
    }
}
