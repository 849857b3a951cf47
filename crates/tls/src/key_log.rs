//! Writes the secrets of sessions to a file, for debugging, if the configuration allows it.

use std::sync::Arc;

use rustls::{KeyLog, KeyLogFile};

use crate::problem::{CertificateFault, CertificateProblem};

/// The environment variable that names the file, as in browsers and curl.
const VARIABLE: &str = "SSLKEYLOGFILE";

/// Opens the file that the environment names, and adds a remark about it.
pub(crate) fn open(remarks: &mut Vec<CertificateProblem>) -> Arc<dyn KeyLog> {
    let file = std::env::var_os(VARIABLE);
    let file = file.map(|path| path.to_string_lossy().into_owned());
    remarks.push(CertificateProblem { file: None, fault: CertificateFault::KeyLog { file } });
    // Only the user of the process may read it.
    Arc::new(KeyLogFile::new())
}
