//! Writes the secrets of sessions to a file, for debugging, where the configuration allows it.

use std::sync::Arc;

use rustls::{KeyLog, KeyLogFile};

use crate::problem::{Fault, Problem};

/// The environment variable that names the file, as browsers and curl know it.
const VARIABLE: &str = "SSLKEYLOGFILE";

/// Opens the file that the environment names, and remarks on it.
pub(crate) fn open(remarks: &mut Vec<Problem>) -> Arc<dyn KeyLog> {
    let file = std::env::var_os(VARIABLE);
    let file = file.map(|path| path.to_string_lossy().into_owned());
    remarks.push(Problem { file: None, fault: Fault::KeyLog { file } });
    // Readable by this user alone.
    Arc::new(KeyLogFile::new())
}
