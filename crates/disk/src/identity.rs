//! The identity file of a store: the secret for its keys, and a checksum. The holder of its lock owns the store.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Write};
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use crate::disk::DiskError;

pub(crate) const IDENTITY: &str = "identity";

#[derive(Debug)]
pub(crate) struct DiskIdentity {
    file: File,
    secret: u128,
    is_locked: bool,
}

impl DiskIdentity {
    /// Reads the identity file, even if another process holds its lock. The first owner of the store creates it.
    pub(crate) fn open(folder: &Path, fresh_secret: u128) -> Result<Self, DiskError> {
        let path = folder.join(IDENTITY);
        let io = |source| DiskError::Io { path: folder.to_owned(), source };
        let mut file =
            File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(io)?;
        let is_locked = try_lock(&file).map_err(io)?;
        let mut found = Vec::new();
        file.read_to_end(&mut found).map_err(io)?;
        if found.is_empty() && is_locked {
            file.write_all(&written(fresh_secret)).and_then(|()| file.sync_all()).map_err(io)?;
            return Ok(Self { file, secret: fresh_secret, is_locked });
        }
        let secret = found.first_chunk().map(|bytes| u128::from_le_bytes(*bytes));
        secret
            .filter(|&secret| written(secret) == found)
            .map(|secret| Self { file, secret, is_locked })
            .ok_or(DiskError::Identity(path))
    }

    pub(crate) fn secret(&self) -> u128 {
        self.secret
    }

    /// Tries to lock the store. Returns whether this process owns it now.
    pub(crate) fn is_locked(&mut self) -> io::Result<bool> {
        if !self.is_locked {
            self.is_locked = try_lock(&self.file)?;
        }
        Ok(self.is_locked)
    }
}

fn try_lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn written(secret: u128) -> Vec<u8> {
    let secret = secret.to_le_bytes();
    [&secret[..], &xxh3_64(&secret).to_le_bytes()].concat()
}
