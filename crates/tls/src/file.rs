//! Reads files up to a size limit, and detects changes.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use config::KeyPair;
use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::encrypted_key::{self, Failed};
use crate::memory;
use crate::problem::{CertificateFault, CertificateProblem};

/// The largest file that is read: twice the bundle of all public CAs. Also ends the reading of `/dev/zero`.
const LARGEST_FILE_KIB: u64 = 1024;

/// The largest revocation list: some public ones have a million entries of 35 bytes.
const LONGEST_LIST_KIB: u64 = 64 * 1024;

/// Reads a file, up to the size limit.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, CertificateProblem> {
    read_up_to(path, LARGEST_FILE_KIB)
}

/// Reads a revocation list, up to the size limit.
pub(crate) fn read_long(path: &Path) -> Result<Vec<u8>, CertificateProblem> {
    read_up_to(path, LONGEST_LIST_KIB)
}

fn read_up_to(path: &Path, limit_kib: u64) -> Result<Vec<u8>, CertificateProblem> {
    let mut bytes = Vec::new();
    // Reads one byte more than the limit, to detect larger files.
    let limit = limit_kib * 1024;
    if memory::is_name(path) {
        let file = memory::file(path).ok_or_else(|| missing(path))?;
        return Ok(file.content.to_vec());
    }
    let read = File::open(path).and_then(|file| file.take(limit + 1).read_to_end(&mut bytes));
    match read {
        Err(error) => Err(CertificateProblem::new(path, CertificateFault::Unreadable(error.to_string()))),
        Ok(length) if length as u64 > limit => {
            Err(CertificateProblem::new(path, CertificateFault::TooLarge(limit_kib)))
        }
        Ok(_) => Ok(bytes),
    }
}

fn missing(path: &Path) -> CertificateProblem {
    CertificateProblem::new(
        path,
        CertificateFault::Unreadable("the cluster has no such object any more".to_owned()),
    )
}

/// Reads the certificates of a PEM file: at least one.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateProblem> {
    certificates_in(path, &read(path)?)
}

/// The certificates in the text of a file.
pub(crate) fn certificates_in(
    path: &Path,
    text: &[u8],
) -> Result<Vec<CertificateDer<'static>>, CertificateProblem> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    match certificates {
        Err(error) => Err(CertificateProblem::new(path, CertificateFault::BrokenPem(pem_fault(&error)))),
        Ok(certificates) if certificates.is_empty() => {
            Err(CertificateProblem::new(path, CertificateFault::NoCertificate))
        }
        Ok(certificates) => Ok(certificates),
    }
}

/// Converts the certificates of a file to trusted roots (CAs).
pub(crate) fn roots(
    path: &Path,
    certificates: Vec<CertificateDer<'static>>,
) -> Result<RootCertStore, CertificateProblem> {
    let mut roots = RootCertStore::empty();
    for (index, certificate) in certificates.into_iter().enumerate() {
        let added = roots.add(certificate);
        added.map_err(|_| CertificateProblem::new(path, CertificateFault::NotACertificate(index + 1)))?;
    }
    Ok(roots)
}

/// Reads the first private key of a PEM file. Decrypts it with the passphrase in the file `passphrase`.
pub(crate) fn private_key(
    path: &Path,
    passphrase: Option<&Path>,
) -> Result<PrivateKeyDer<'static>, CertificateProblem> {
    private_key_in(path, &read(path)?, passphrase)
}

/// The first private key in the text of a file.
pub(crate) fn private_key_in(
    path: &Path,
    text: &[u8],
    passphrase: Option<&Path>,
) -> Result<PrivateKeyDer<'static>, CertificateProblem> {
    let has = |words: &[u8]| text.windows(words.len()).any(|window| window == words);
    if let Some(passphrase) = passphrase
        && has(ENCRYPTED_BEGIN)
    {
        return decrypted_key(path, text, passphrase);
    }
    // RFC 7468 §11, and the older form with headers (RFC 1421 §4.6.1.1).
    let is_encrypted = has(ENCRYPTED_BEGIN) || has(b"Proc-Type: 4,ENCRYPTED");
    PrivateKeyDer::from_pem_slice(text).map_err(|error| {
        let fault = match error {
            _ if is_encrypted && passphrase.is_some() => CertificateFault::KeyEncryption,
            _ if is_encrypted => CertificateFault::EncryptedKey,
            pem::Error::NoItemsFound => CertificateFault::NoKey,
            error => CertificateFault::BrokenPem(pem_fault(&error)),
        };
        CertificateProblem::new(path, fault)
    })
}

/// Problems with the permissions of a key and its passphrase. A root's file that a group may read is intended: so the
/// process, which is not root, can read it.
pub(crate) fn readable_secrets(pair: &KeyPair) -> impl Iterator<Item = CertificateProblem> {
    [&pair.key].into_iter().chain(&pair.passphrase).filter_map(|path| {
        if memory::is_name(path) {
            return None;
        }
        let found = fs::metadata(path).ok()?;
        let mode = found.mode() & 0o777;
        let is_for_all = mode & 0o004 != 0;
        let is_for_group = mode & 0o040 != 0 && found.uid() != 0;
        (is_for_all || is_for_group)
            .then(|| CertificateProblem::new(path, CertificateFault::Readable { mode, is_for_all }))
    })
}

const ENCRYPTED_BEGIN: &[u8] = b"-----BEGIN ENCRYPTED PRIVATE KEY-----";
const ENCRYPTED_END: &[u8] = b"-----END ENCRYPTED PRIVATE KEY-----";

/// RFC 7468 §11.
fn decrypted_key(
    path: &Path,
    text: &[u8],
    passphrase: &Path,
) -> Result<PrivateKeyDer<'static>, CertificateProblem> {
    let find = |text: &[u8], words: &[u8]| text.windows(words.len()).position(|window| window == words);
    let behind = |text, words: &[u8]| find(text, words).map(|at| at + words.len());
    let inside = behind(text, ENCRYPTED_BEGIN).map(|start| &text[start..]);
    let inside = inside.and_then(|inside| inside.get(..find(inside, ENCRYPTED_END)?));
    let no_end = CertificateFault::BrokenPem("a section has no END line".to_owned());
    let inside = inside.ok_or_else(|| CertificateProblem::new(path, no_end))?;
    let inside: Vec<u8> = inside.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let der = BASE64_STANDARD.decode(inside);
    let der = der.map_err(|_| {
        CertificateProblem::new(path, CertificateFault::BrokenPem("a section is not base64".to_owned()))
    })?;
    let words = read(passphrase)?;
    // Editors end files with a newline, which is not part of the passphrase.
    let words = words.strip_suffix(b"\n").unwrap_or(&words);
    let words = words.strip_suffix(b"\r").unwrap_or(words);
    match encrypted_key::decrypt(&der, words) {
        Ok(key) => Ok(PrivateKeyDer::Pkcs8(key.into())),
        Err(Failed::Algorithm) => Err(CertificateProblem::new(path, CertificateFault::KeyEncryption)),
        Err(Failed::Passphrase) => {
            Err(CertificateProblem::new(path, CertificateFault::Passphrase(passphrase.to_owned())))
        }
    }
}

/// Describes the error without the parser's message, which may quote a part of a key.
pub(crate) fn pem_fault(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { .. } => "a section has no END line",
        pem::Error::IllegalSectionStart { .. } => "a BEGIN line is not well-formed",
        pem::Error::Base64Decode(_) => "a section is not base64",
        _ => "it can't be read",
    }
    .to_owned()
}

/// Identifies the state of a file, through symbolic links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    device: u64,
    inode: u64,
    size_bytes: u64,
    modified: (i64, i64),
}

impl FileStamp {
    fn from_path(path: &Path) -> Option<Self> {
        if memory::is_name(path) {
            let file = memory::file(path)?;
            let size_bytes = file.content.len() as u64;
            return Some(Self { device: 0, inode: file.change, size_bytes, modified: (0, 0) });
        }
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
pub(crate) struct WatchedFiles {
    paths: Vec<PathBuf>,
    /// The states when the files were last read.
    read: Vec<Option<FileStamp>>,
    /// The states at the last check.
    seen: Vec<Option<FileStamp>>,
}

impl WatchedFiles {
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

fn stamps(paths: &[PathBuf]) -> Vec<Option<FileStamp>> {
    paths.iter().map(|path| FileStamp::from_path(path)).collect()
}
