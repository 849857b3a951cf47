//! The configuration in force, shared with the reload.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use config::{Mistake, Reading, Surroundings};
use gateway::{Cluster, Complaint, OperatorOptions, Translation, settle};

use crate::machine::ClusterMachine;

const NAME: &str = "kubernetes";

/// The configuration in force, with the files that it refers to.
#[derive(Clone, Default)]
pub struct CurrentConfig(Arc<Mutex<InForce>>);

/// A configuration, and the contents of files from objects, by name.
#[derive(Clone, Default, PartialEq)]
pub(crate) struct InForce {
    pub(crate) text: String,
    pub(crate) files: Files,
}

type Files = BTreeMap<String, Vec<u8>>;

impl CurrentConfig {
    /// Parses the configuration. Remarks on objects are left out: they are in the objects' statuses.
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

/// Translates a cluster into a valid configuration, and returns it with its ports. An object that Vanward rejects gets
/// the reason; mistakes that come from no object are returned. `own` are the ports of this process.
pub(crate) fn valid(
    cluster: &Cluster,
    options: &OperatorOptions,
    own: Option<&BTreeSet<u16>>,
) -> Result<(Translation, BTreeSet<u16>), String> {
    let mut ports = BTreeSet::new();
    let translation = settle(cluster, options, &ClusterMachine { own }, |translation| {
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

/// This machine, with files from objects that exist only in memory.
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

    fn named_file(&self, path: &Path, bytes_max: u64) -> Result<Vec<u8>, String> {
        match path.to_str().and_then(|path| self.0.get(path)) {
            Some(content) => Ok(content.clone()),
            None => config::Machine.named_file(path, bytes_max),
        }
    }
}
