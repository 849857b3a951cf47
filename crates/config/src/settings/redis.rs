//! Settings of Redis, which keeps what instances share.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::{Scheme, Server, ServerHost};

/// The Redis or Valkey that instances share state through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redis {
    /// The server.
    pub url: RedisUrl,
    /// The user; `None` means the default user.
    pub user: Option<String>,
    /// A file with the password.
    pub password_file: Option<PathBuf>,
    /// The CAs that sign the server's certificate; `None` means those of the system.
    pub ca: Option<PathBuf>,
    /// What the names of all keys begin with: instances with the same name share.
    pub name: String,
    /// The name of this instance; `None` means that of `--instance`, or of the machine.
    pub instance: Option<String>,
    /// How many instances there are, until Redis has told.
    pub instances: u32,
    /// What keys of limits are hashed with.
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
    /// The port of Redis.
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
