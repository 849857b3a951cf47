//! The folder of certificates, keys and accounts. Several processes may share it: each name and account has a lock,
//! and a certificate is replaced atomically with its key.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use config::{Certificates, KeyPair, KeyUrl};
use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CertificateFolder(PathBuf);

/// Facts about a certificate that are not in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CertificateOrigin {
    /// Directory URL of the authority.
    pub(crate) directory: String,
}

pub(crate) struct Issued<'a> {
    /// The certificate and its intermediates, in PEM.
    pub(crate) chain: &'a str,
    pub(crate) key: &'a str,
    pub(crate) origin: CertificateOrigin,
}

/// A lock, released on drop or at the end of the process.
#[derive(Debug)]
pub(crate) struct Locked(File);

impl Drop for Locked {
    fn drop(&mut self) {
        // A child process between `fork` and `exec` has the file open too, so closing it here is not enough.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

const ACCOUNTS: &str = "_accounts";
const LOCKS: &str = "_locks";
const ORIGIN: &str = "origin.json";

impl CertificateFolder {
    pub(crate) fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    pub(crate) fn files(&self, name: &str) -> KeyPair {
        Certificates::automatic_files(&self.0, name)
    }

    /// Locks a name against orders by other processes. `None` if another process holds the lock.
    pub(crate) fn lock(&self, name: &str) -> io::Result<Option<Locked>> {
        self.lock_file(&file_name(name))
    }

    /// Locks the accounts of an authority. `None` if another process holds the lock.
    pub(crate) fn lock_account(&self, directory: &KeyUrl) -> io::Result<Option<Locked>> {
        self.lock_file(&format!("_account_{}", account_name(directory)))
    }

    fn lock_file(&self, name: &str) -> io::Result<Option<Locked>> {
        let folder = self.0.join(LOCKS);
        make(&self.0)?;
        make(&folder)?;
        // The lock file stays: if it were removed, two processes could hold the lock.
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(folder.join(name))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Locked(file))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn origin(&self, name: &str) -> Option<CertificateOrigin> {
        let file = self.files(name).cert.with_file_name(ORIGIN);
        serde_json::from_slice(&fs::read(file).ok()?).ok()
    }

    /// Replaces a certificate and its key atomically. `check` verifies the files before.
    pub(crate) fn put(
        &self,
        name: &str,
        issued: &Issued<'_>,
        check: impl FnOnce(&KeyPair) -> Result<(), String>,
    ) -> Result<(), String> {
        let failed = |error: io::Error| format!("{} cannot be written: {error}", self.0.display());
        let target = self.0.join(file_name(name));
        let draft = self.0.join(format!("_new_{}", file_name(name)));
        // Left by a killed process.
        remove(&draft).map_err(failed)?;
        make(&self.0).and_then(|()| make(&draft)).map_err(failed)?;
        let origin = serde_json::to_string(&issued.origin).map_err(|error| error.to_string())?;
        let write = |file: &str, text: &str| write(&draft.join(file), text.as_bytes()).map_err(failed);
        write("privkey.pem", issued.key)?;
        write("fullchain.pem", issued.chain)?;
        write(ORIGIN, &origin)?;
        let files =
            KeyPair { passphrase: None, cert: draft.join("fullchain.pem"), key: draft.join("privkey.pem") };
        check(&files)?;
        File::open(&draft).and_then(|folder| folder.sync_all()).map_err(failed)?;
        exchange(&draft, &target).map_err(failed)?;
        File::open(&self.0).and_then(|folder| folder.sync_all()).map_err(failed)?;
        // The old files; leaving them does no harm.
        let _ = remove(&draft);
        Ok(())
    }

    pub(crate) fn account(&self, directory: &KeyUrl) -> io::Result<Option<Vec<u8>>> {
        match fs::read(self.account_file(directory)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn put_account(&self, directory: &KeyUrl, account: &[u8]) -> io::Result<()> {
        make(&self.0)?;
        make(&self.0.join(ACCOUNTS))?;
        let target = self.account_file(directory);
        let draft = target.with_extension("new");
        match fs::remove_file(&draft) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        write(&draft, account)?;
        fs::rename(draft, target)
    }

    pub(crate) fn remove_account(&self, directory: &KeyUrl) -> io::Result<()> {
        fs::remove_file(self.account_file(directory))
    }

    fn account_file(&self, directory: &KeyUrl) -> PathBuf {
        self.0.join(ACCOUNTS).join(account_name(directory)).with_added_extension("json")
    }
}

fn file_name(name: &str) -> String {
    let files = Certificates::automatic_files(Path::new(""), name);
    files.cert.parent().map(|folder| folder.display().to_string()).unwrap_or_default()
}

/// A file name that is unique for each directory URL.
fn account_name(directory: &KeyUrl) -> String {
    let text = directory.to_string();
    let text = text.strip_prefix("https://").unwrap_or(&text);
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' => (byte as char).to_string(),
        b'/' => "_".to_owned(),
        other => format!("%{other:02x}"),
    };
    text.bytes().map(byte).collect()
}

fn make(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().recursive(true).mode(0o700).create(folder) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(io::Error::new(
            ErrorKind::PermissionDenied,
            format!("{error}; create the folder for the user of the process, or set folder in [acme]"),
        )),
        made => made,
    }
}

fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Writes a new file that only this user may read, and syncs it to disk.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    // Regardless of the umask.
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn exchange(draft: &Path, target: &Path) -> io::Result<()> {
    match renameat_with(CWD, draft, CWD, target, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(()),
        Err(Errno::NOENT) => fs::rename(draft, target),
        // The file system does not support that: for a moment there is no target. Readers then keep what they have.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            let old = draft.with_added_extension("old");
            remove(&old)?;
            fs::rename(target, &old)?;
            fs::rename(draft, target)?;
            remove(&old)
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issued<'a>(chain: &'a str, key: &'a str) -> Issued<'a> {
        Issued { chain, key, origin: CertificateOrigin { directory: "https://ca.example/dir".to_owned() } }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("it is there").permissions().mode() & 0o777
    }

    #[test]
    fn a_pair_is_put_whole_and_for_this_user_alone() {
        let place = tempfile::tempdir().expect("a temporary folder");
        let folder = CertificateFolder::new(&place.path().join("deep/acme"));
        let files = folder.files("*.a.example");
        assert!(files.cert.ends_with("_.a.example/fullchain.pem"), "{files:?}");
        for (chain, key) in [("one", "1"), ("two", "2")] {
            folder.put("*.a.example", &issued(chain, key), |_| Ok(())).expect("it is written");
            assert_eq!(fs::read_to_string(&files.cert).expect("it is there"), chain);
            assert_eq!(fs::read_to_string(&files.key).expect("it is there"), key);
        }
        assert_eq!((mode(&files.cert), mode(&files.key)), (0o600, 0o600));
        assert_eq!(mode(files.cert.parent().expect("a folder")), 0o700);
        assert_eq!(folder.origin("*.a.example").expect("it is known").directory, "https://ca.example/dir");
        let names: Vec<_> = fs::read_dir(&folder.0)
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
            .collect();
        assert_eq!(names, ["_.a.example"], "nothing else is left");
    }

    #[test]
    fn an_unusable_pair_replaces_nothing() {
        let place = tempfile::tempdir().expect("a temporary folder");
        let folder = CertificateFolder::new(place.path());
        folder.put("a.example", &issued("good", "1"), |_| Ok(())).expect("it is written");
        let refused = folder.put("a.example", &issued("bad", "2"), |files| {
            assert_eq!(fs::read_to_string(&files.cert).expect("it is there"), "bad");
            Err("no".to_owned())
        });
        assert_eq!(refused, Err("no".to_owned()));
        assert_eq!(fs::read_to_string(folder.files("a.example").cert).expect("it is there"), "good");
    }

    #[test]
    fn a_lock_is_held_by_one() {
        let place = tempfile::tempdir().expect("a temporary folder");
        let (folder, same) = (CertificateFolder::new(place.path()), CertificateFolder::new(place.path()));
        let held = folder.lock("a.example").expect("it can be locked").expect("nobody has it");
        assert!(same.lock("a.example").expect("it can be looked at").is_none());
        assert!(same.lock("b.example").expect("it can be locked").is_some());
        drop(held);
        assert!(same.lock("a.example").expect("it can be locked").is_some());
    }

    #[test]
    fn accounts_are_kept_by_directory() {
        let place = tempfile::tempdir().expect("a temporary folder");
        let folder = CertificateFolder::new(place.path());
        let url = |text: &str| config::directory(text).expect("it is a URL");
        let (one, other) = (url("https://ca.example/dir"), url("https://ca.example:14000/dir?a=../b"));
        assert_eq!(folder.account(&one).expect("it can be looked for"), None);
        folder.put_account(&one, b"1").expect("it is written");
        folder.put_account(&one, b"2").expect("it is written");
        folder.put_account(&other, b"3").expect("it is written");
        assert_eq!(folder.account(&one).expect("it is there").as_deref(), Some(&b"2"[..]));
        assert_eq!(folder.account(&other).expect("it is there").as_deref(), Some(&b"3"[..]));
        assert_eq!(mode(&folder.account_file(&one)), 0o600);
        folder.remove_account(&one).expect("it is there");
        assert_eq!(folder.account(&one).expect("it can be looked for"), None);
    }
}
