//! The table `[redis]`: the store through which instances share state.

use std::fmt;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use crate::document::value_error::{ValueError, ValueFault};
use crate::option::host::host_and_port;
use crate::option::kind::{Maybe, Text};
use crate::option::named_file::FileKind;
use crate::option::path::{PATH_KIND, Path};
use crate::option::range::{Count, Unit};
use crate::option::server::{Scheme, Server, ServerHost, socket_path};
use crate::option::table::{Table, key, required};

/// The Redis or Valkey that instances share state through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redis {
    pub url: RedisUrl,
    /// The user; `None` means the default user.
    pub user: Option<String>,
    pub password_file: Option<PathBuf>,
    /// The CAs that sign the server's certificate; `None` means those of the system.
    pub ca: Option<PathBuf>,
    /// The prefix of all keys: instances with the same name share.
    pub name: String,
    /// The name of this instance; `None` means that of `--instance`, or of the machine.
    pub instance: Option<String>,
    /// The number of instances until Redis reports it.
    pub instances: u32,
    /// The secret that keys of limits are hashed with.
    pub secret: Option<SharedSecret>,
}

/// `redis://HOST[:PORT][/DATABASE]`, `rediss://…` or `redis+unix:/PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisUrl {
    /// The server; its scheme is `https` for TLS.
    pub server: Server,
    /// The number of the database.
    pub database: u16,
}

/// A secret that all instances know. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedSecret {
    /// The file that it was read from.
    pub file: PathBuf,
    /// 32 bytes or more.
    pub bytes: Arc<[u8]>,
}

impl fmt::Debug for SharedSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SharedSecret({:?})", self.file)
    }
}

impl RedisUrl {
    pub const PORT: u16 = 6379;
    /// The schemes without TLS, with TLS, and of Unix sockets.
    pub const SCHEMES: [&str; 3] = ["redis://", "rediss://", "redis+unix:"];
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [plain, secure, unix] = Self::SCHEMES;
        let Server { scheme, host, port, .. } = &self.server;
        match host {
            ServerHost::Unix(path) => write!(formatter, "{unix}{}", path.display())?,
            host => {
                let scheme = if *scheme == Scheme::Https { secure } else { plain };
                write!(formatter, "{scheme}{host}:{port}")?;
            }
        }
        match self.database {
            0 => Ok(()),
            database => write!(formatter, "/{database}"),
        }
    }
}

pub(crate) const SECRET_BYTES_MIN: usize = 32;

#[derive(Debug, Clone)]
pub(crate) struct RedisWritten {
    pub(crate) url: Option<RedisUrl>,
    pub(crate) user: Option<String>,
    pub(crate) password_file: Path,
    pub(crate) ca: Path,
    pub(crate) name: String,
    pub(crate) instance: Option<String>,
    pub(crate) instances: usize,
    pub(crate) secret_file: Option<SharedSecret>,
}

impl Default for RedisWritten {
    fn default() -> Self {
        Self {
            url: None,
            user: None,
            password_file: None,
            ca: None,
            name: "vanward".to_owned(),
            instance: None,
            instances: 1,
            secret_file: None,
        }
    }
}

pub(crate) static REDIS: Table<RedisWritten> = Table {
    options: &[
        required!(
            "url",
            Maybe(URL),
            RedisWritten.url,
            "Its URL: `redis://HOST:PORT/DATABASE`, `rediss://` for TLS, or `redis+unix:/PATH`. The port is \
             6379 and the database 0 unless they are given.",
        ),
        key!("user", Maybe(WORD), RedisWritten.user, "User of Redis (ACL). Default: the default user.",),
        key!(
            "password_file",
            PATH_KIND,
            RedisWritten.password_file,
            "File with the password, in its first line. It is read for each connection.",
        ),
        key!(
            "ca",
            PATH_KIND,
            RedisWritten.ca,
            "The CA certificates that sign the server's certificate, in PEM. Default: those of the system.",
        ),
        key!(
            "name",
            WORD,
            RedisWritten.name,
            "Prefix of all key names in Redis. Instances with the same name share.",
        ),
        key!(
            "instance",
            Maybe(WORD),
            RedisWritten.instance,
            "Name of this instance among those that share. Default: `--instance`, or the name of the machine.",
        ),
        key!(
            "instances",
            Count { range: 1..=10_000, unit: Unit::Things },
            RedisWritten.instances,
            "Number of instances, for shares of limits until Redis reports how many run.",
        ),
        key!(
            "secret_file",
            Maybe(SECRET),
            RedisWritten.secret_file,
            "File with a secret of 32 bytes or more, the same for all instances. With it, readers of Redis \
             cannot identify counted clients, and clients cannot choose keys that share a count. It also \
             seals shared certificates, decisions and sessions, which need it.",
        ),
    ],
};

pub(crate) const URL: Text<RedisUrl> =
    Text { expected: "a URL such as redis://127.0.0.1:6379", read: url, print: ToString::to_string };

pub(crate) fn url(text: &str) -> Result<RedisUrl, ValueError> {
    parsed(text).map_err(|fault| ValueError { fault, expected: URL.expected })
}

pub(crate) fn parsed(text: &str) -> Result<RedisUrl, ValueFault> {
    let [plain, secure, unix] = RedisUrl::SCHEMES;
    let at = |scheme, host, port, database| {
        let server = Server {
            name: None,
            scheme,
            host,
            port,
            weight: 1,
            down: false,
            priority: 0,
            max_requests: None,
        };
        Ok(RedisUrl { server, database })
    };
    if let Some(path) = text.strip_prefix(unix) {
        return at(Scheme::Http, ServerHost::Unix(socket_path(path)?), 0, 0);
    }
    let (scheme, rest) = match (text.strip_prefix(plain), text.strip_prefix(secure)) {
        (Some(rest), _) => (Scheme::Http, rest),
        (_, Some(rest)) => (Scheme::Https, rest),
        (None, None) if text.is_empty() => return Err(ValueFault::Empty),
        (None, None) => match text.split_once("://") {
            Some((scheme, _)) => return Err(ValueFault::UnknownScheme(scheme.to_owned())),
            None => {
                let (written, nearest) = (text.to_owned(), Some(format!("{plain}{text}")));
                return Err(ValueFault::Unknown { written, why: "has no scheme", nearest });
            }
        },
    };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    if authority.contains('@') {
        return Err(ValueFault::Unknown {
            written: "a user in the URL".to_owned(),
            why: "belongs in user, and the password in password_file",
            nearest: None,
        });
    }
    let (host, port) = host_and_port(authority)?;
    let database = match path {
        "" => 0,
        path => path.parse().map_err(|_| ValueFault::Unknown {
            written: path.to_owned(),
            why: "is not the number of a database",
            nearest: None,
        })?,
    };
    at(scheme, host, port.unwrap_or(RedisUrl::PORT), database)
}

/// Parts of names of keys: braces and colons have a meaning there.
pub(crate) const WORD: Text<String> = Text {
    expected: "letters, digits and -_.@, at most 100",
    read: |text| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
        let fault = match text {
            "" => ValueFault::Empty,
            text if text.len() <= 100 && text.bytes().all(is_part) => return Ok(text.to_owned()),
            text => ValueFault::Unknown { written: text.to_owned(), why: "is no such name", nearest: None },
        };
        Err(ValueError { fault, expected: "letters, digits and -_.@, at most 100" })
    },
    print: Clone::clone,
};

pub(crate) const SECRET: FileKind<SharedSecret> = FileKind {
    expected: "the path of a file with a secret of 32 bytes or more, as openssl rand -hex 32 makes one",
    make: |path: &FilePath, bytes: Vec<u8>| match bytes.trim_ascii() {
        short if short.len() < SECRET_BYTES_MIN => {
            Err(format!("it has {} bytes, fewer than {SECRET_BYTES_MIN}", short.len()))
        }
        bytes => Ok(SharedSecret { file: PathBuf::from(path), bytes: bytes.into() }),
    },
    path: |secret| &secret.file,
};

impl RedisWritten {
    /// The secret that all instances know.
    pub(crate) fn secret(&self) -> Option<&SharedSecret> {
        self.secret_file.as_ref()
    }

    /// The settings that the options describe; `None` without a URL, which is reported elsewhere.
    pub(crate) fn meaning(self) -> Option<Redis> {
        let Self { url, user, password_file, ca, name, instance, instances, secret_file: secret } = self;
        let [password_file, ca] = [password_file, ca].map(|path| path.map(|path| path.value));
        let instances = u32::try_from(instances).unwrap_or(u32::MAX);
        Some(Redis { url: url?, user, password_file, ca, name, instance, instances, secret })
    }
}
