//! Files that a configuration names and that are read with it: pages, users, secrets.
//!
//! Certificates are read by their users instead, and again when they change.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use route::{ErrorPages, Users};
use toml::de::DeValue;

use crate::document::reader::Reader;
use crate::document::surroundings::{NAMED_FILE_BYTES, read_bytes};
use crate::document::value_error::{ValueError, ValueFault};
use crate::option::form::Form;
use crate::option::kind::{Described, Kind, quoted, refuse_type};
use crate::option::table::Written;

/// A kind of file, and how its bytes are parsed.
pub(crate) struct FileKind<V> {
    pub(crate) expected: &'static str,
    pub(crate) make: fn(&Path, Vec<u8>) -> Result<V, String>,
    pub(crate) path: fn(&V) -> &Path,
}

impl<V> Described for FileKind<V> {
    fn form(&self) -> Form {
        Form::brief(self.expected, "path")
    }
}

impl<V> Kind<V> for FileKind<V> {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<V> {
        let DeValue::String(text) = written.value.get_ref() else {
            refuse_type(written, self.expected(), reader);
            return None;
        };
        let path = Path::new(text.as_ref());
        let surroundings = reader.surroundings();
        let made = match text.as_ref() {
            "" => Err(ValueFault::Empty),
            _ if surroundings.may_be_elsewhere(Some(path)) => {
                let what = format!("{}: there is no file {} here", written.name, path.display());
                reader.leave_open(&written.value.span(), &what);
                return None;
            }
            _ => surroundings
                .named_file(path, NAMED_FILE_BYTES)
                .and_then(|bytes| (self.make)(path, bytes))
                .map_err(|problem| ValueFault::File { path: path.to_path_buf(), problem }),
        };
        match made {
            Ok(value) => Some(value),
            Err(fault) => {
                let error = ValueError { fault, expected: self.expected };
                reader.refuse(&written.value.span(), written.name, &error);
                None
            }
        }
    }

    fn print(&self, value: &V) -> Option<String> {
        Some(quoted(&(self.path)(value).display().to_string()))
    }
}

/// An error page, whose content type follows from the file name.
pub(crate) const PAGE: FileKind<Page> = FileKind {
    expected: "the path of a page such as /etc/vanward/404.html",
    make: |path, body| {
        Ok(Page { file: path.to_path_buf(), content_type: content_type(path).into(), body: body.into() })
    },
    path: |page| &page.file,
};

/// Reads a page while the proxy runs.
///
/// # Errors
/// The file cannot be read, or is no file.
pub fn page(path: &Path) -> Result<Page, String> {
    (PAGE.make)(path, read_bytes(path)?)
}

/// The content type of a page, from the extension of its file.
fn content_type(path: &Path) -> &'static str {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    match ending.to_ascii_lowercase().as_str() {
        "html" | "htm" => "text/html; charset=utf-8",
        "json" => "application/json",
        "xml" => "application/xml",
        "svg" => "image/svg+xml",
        "txt" | "" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

/// Users, and the path of their file.
pub(crate) type UsersFile = (PathBuf, Arc<Users>);

pub(crate) const USERS: FileKind<UsersFile> = FileKind {
    expected: "the path of a file of users as htpasswd -B writes it",
    make: |path, bytes| {
        let text = String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())?;
        let users = Users::parse(&text).map_err(|faults| {
            let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
            lines.join("; ")
        })?;
        if users.is_empty() {
            Err("it has no users".to_owned())
        } else {
            Ok((path.to_path_buf(), Arc::new(users)))
        }
    },
    path: |(path, _)| path,
};

/// Whether these are users with hashes of passwords, as a file of `auth` has them.
///
/// # Errors
/// What is wrong with them.
pub fn check_users(lines: &[u8]) -> Result<(), String> {
    (USERS.make)(Path::new("users"), lines.to_vec()).map(drop)
}

pub(crate) const SECRETS: FileKind<CookieSecrets> = FileKind {
    expected: "the path of a file with a secret of 32 bytes or more on each line, as openssl rand -hex 32 makes one",
    make: |path, bytes| {
        /// The strength of HMAC-SHA-256 (RFC 2104 §3).
        const SHORTEST: usize = 32;
        let lines = bytes.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
        let secrets: Arc<[Box<[u8]>]> = lines.filter(|line| !line.is_empty()).map(Box::from).collect();
        match secrets.iter().position(|secret| secret.len() < SHORTEST) {
            Some(short) => Err(format!("its secret {} has fewer than {SHORTEST} bytes", short + 1)),
            None if secrets.is_empty() => Err("it has no secret".to_owned()),
            None => Ok(CookieSecrets { file: path.to_path_buf(), secrets }),
        }
    },
    path: |secrets| &secrets.file,
};

/// The secrets that sign session cookies. `Debug` does not show them.
#[derive(Clone, PartialEq, Eq)]
pub struct CookieSecrets {
    /// The file that the secrets were read from.
    pub file: PathBuf,
    /// The first secret signs; all are accepted. At least one, each of 32 bytes or more.
    pub secrets: Arc<[Box<[u8]>]>,
}

impl fmt::Debug for CookieSecrets {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "CookieSecrets({:?}, {} of them)", self.file, self.secrets.len())
    }
}

pub type Pages = ErrorPages<Page>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The file that the page was read from; empty for a text of the configuration.
    pub file: PathBuf,
    /// The content type, which follows from the name of a file.
    pub content_type: Cow<'static, str>,
    pub body: Arc<[u8]>,
}
