//! Reads files up to a size limit, and detects changes.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::problem::{Fault, Problem};

/// The largest file that is read: twice the bundle of all public CAs, and an end to `/dev/zero`.
const LARGEST_FILE_KIB: u64 = 1024;

/// The largest revocation list: some public ones have a million entries of 35 bytes.
const LONGEST_LIST_KIB: u64 = 64 * 1024;

/// Reads a file, up to the size limit.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Problem> {
    read_up_to(path, LARGEST_FILE_KIB)
}

/// Reads a revocation list, up to the size limit.
pub(crate) fn read_long(path: &Path) -> Result<Vec<u8>, Problem> {
    read_up_to(path, LONGEST_LIST_KIB)
}

fn read_up_to(path: &Path, limit_kib: u64) -> Result<Vec<u8>, Problem> {
    let mut bytes = Vec::new();
    // A byte more than the largest tells that there is more.
    let limit = limit_kib * 1024;
    let read = File::open(path).and_then(|file| file.take(limit + 1).read_to_end(&mut bytes));
    match read {
        Err(error) => Err(Problem::new(path, Fault::Unreadable(error.to_string()))),
        Ok(length) if length as u64 > limit => Err(Problem::new(path, Fault::TooLarge(limit_kib))),
        Ok(_) => Ok(bytes),
    }
}

/// Reads the certificates of a PEM file: at least one.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Problem> {
    let text = read(path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match certificates {
        Err(error) => Err(Problem::new(path, Fault::BrokenPem(pem_fault(&error)))),
        Ok(certificates) if certificates.is_empty() => Err(Problem::new(path, Fault::NoCertificate)),
        Ok(certificates) => Ok(certificates),
    }
}

/// Turns the certificates of a file into trusted roots (CAs).
pub(crate) fn roots(
    path: &Path,
    certificates: Vec<CertificateDer<'static>>,
) -> Result<RootCertStore, Problem> {
    let mut roots = RootCertStore::empty();
    for (index, certificate) in certificates.into_iter().enumerate() {
        let added = roots.add(certificate);
        added.map_err(|_| Problem::new(path, Fault::NotACertificate(index + 1)))?;
    }
    Ok(roots)
}

/// Reads the first private key of a PEM file.
pub(crate) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, Problem> {
    let text = read(path)?;
    let has = |words: &[u8]| text.windows(words.len()).any(|window| window == words);
    // RFC 7468 §11, and the older form with headers (RFC 1421 §4.6.1.1).
    let is_encrypted = has(b"-----BEGIN ENCRYPTED PRIVATE KEY-----") || has(b"Proc-Type: 4,ENCRYPTED");
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| {
        let fault = match error {
            _ if is_encrypted => Fault::EncryptedKey,
            pem::Error::NoItemsFound => Fault::NoKey,
            error => Fault::BrokenPem(pem_fault(&error)),
        };
        Problem::new(path, fault)
    })
}

/// In our words: the parser's own quote what may be a part of a key.
pub(crate) fn pem_fault(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { .. } => "a section has no END line",
        pem::Error::IllegalSectionStart { .. } => "a BEGIN line is not well-formed",
        pem::Error::Base64Decode(_) => "a section is not base64",
        _ => "it can't be read",
    }
    .to_owned()
}

/// What tells one state of a file from another, through symbolic links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size_bytes: u64,
    modified: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size_bytes: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }
}

/// Files that belong together, and their last known state, to detect changes.
#[derive(Debug)]
pub(crate) struct Watched {
    paths: Vec<PathBuf>,
    /// When they were last read.
    read: Vec<Option<Stamp>>,
    /// When they were last looked at.
    seen: Vec<Option<Stamp>>,
}

impl Watched {
    /// Starts to watch files. Call this before reading the files, so that a change in between is detected.
    pub(crate) fn new(paths: Vec<PathBuf>) -> Self {
        let read = stamps(&paths);
        Self { seen: read.clone(), read, paths }
    }

    pub(crate) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Whether the files changed since they were read, but not since the previous check. A certificate and its key are
    /// written one after the other, and neither is usable without the other.
    pub(crate) fn has_settled_change(&mut self) -> bool {
        let now = stamps(&self.paths);
        let is_settled = now == self.seen;
        self.seen = now;
        is_settled && self.seen != self.read
    }

    /// Records the files' state as read. Call this before reading the files again.
    pub(crate) fn mark_read(&mut self) {
        self.seen = stamps(&self.paths);
        self.read = self.seen.clone();
    }
}

fn stamps(paths: &[PathBuf]) -> Vec<Option<Stamp>> {
    paths.iter().map(|path| Stamp::of(path)).collect()
}
