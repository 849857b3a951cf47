//! Options of `[redis]`, declared once, and their relations.

use std::path::{Path as FilePath, PathBuf};

use crate::host::host_and_port;
use crate::kind::{Maybe, Text, located};
use crate::named_file::FileKind;
use crate::options::File;
use crate::range::{Count, Unit};
use crate::reader::Reader;
use crate::server::socket_path;
use crate::settings::{Redis, RedisUrl, Scheme, Server, ServerHost, SharedSecret};
use crate::table::{Table, key, required};
use crate::tls_options::{PATH_KIND, Path};
use crate::value_error::{ValueError, ValueFault};

/// The shortest secret.
const SECRET_BYTES_MIN: usize = 32;

/// The parsed table `[redis]`.
#[derive(Debug, Clone)]
pub(crate) struct RedisWritten {
    url: Option<RedisUrl>,
    user: Option<String>,
    password_file: Path,
    ca: Path,
    name: String,
    instance: Option<String>,
    instances: usize,
    secret_file: Option<SharedSecret>,
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
        &required(
            "url",
            Maybe(URL),
            |redis: &mut RedisWritten| &mut redis.url,
            "Where it is: `redis://HOST:PORT/DATABASE`, `rediss://` for TLS, or `redis+unix:/PATH`. The port is 6379 and \
             the database 0 unless they are given.",
        ),
        &key(
            "user",
            Maybe(WORD),
            |redis: &mut RedisWritten| &mut redis.user,
            "User of Redis (ACL). Default: the default user.",
        ),
        &key(
            "password_file",
            PATH_KIND,
            |redis: &mut RedisWritten| &mut redis.password_file,
            "File with the password, in its first line. It is read for each connection.",
        ),
        &key(
            "ca",
            PATH_KIND,
            |redis: &mut RedisWritten| &mut redis.ca,
            "The CA certificates that sign the server's certificate, in PEM. Default: those of the system.",
        ),
        &key(
            "name",
            WORD,
            |redis: &mut RedisWritten| &mut redis.name,
            "What the names of all keys in Redis begin with. Instances with the same name share.",
        ),
        &key(
            "instance",
            Maybe(WORD),
            |redis: &mut RedisWritten| &mut redis.instance,
            "Name of this instance among those that share. Default: `--instance`, or the name of the machine.",
        ),
        &key(
            "instances",
            Count { range: 1..=10_000, unit: Unit::Things },
            |redis: &mut RedisWritten| &mut redis.instances,
            "How many instances there are, for shares of limits until Redis has told the number of those that run.",
        ),
        &key(
            "secret_file",
            Maybe(SECRET),
            |redis: &mut RedisWritten| &mut redis.secret_file,
            "File with a secret of 32 bytes or more, the same for all instances. With it nobody who reads Redis can tell \
             which clients were counted, nor can clients choose keys that share a count; and automatic certificates, \
             decisions and sessions are shared, sealed with it.",
        ),
    ],
};

const URL: Text<RedisUrl> =
    Text { expected: "a URL such as redis://127.0.0.1:6379", read: url, print: ToString::to_string };

fn url(text: &str) -> Result<RedisUrl, ValueError> {
    parsed(text).map_err(|fault| ValueError { fault, expected: URL.expected })
}

fn parsed(text: &str) -> Result<RedisUrl, ValueFault> {
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
            why: "belongs into user, and the password into password_file",
            nearest: None,
        });
    }
    let (host, port) = host_and_port(authority)?;
    let database = match path {
        "" => 0,
        path => path.parse().map_err(|_| ValueFault::Unknown {
            written: path.to_owned(),
            why: "is no number of a database",
            nearest: None,
        })?,
    };
    at(scheme, host, port.unwrap_or(RedisUrl::PORT), database)
}

/// Parts of names of keys: braces and colons have a meaning there.
const WORD: Text<String> = Text {
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

const SECRET: FileKind<SharedSecret> = FileKind {
    expected: "the path of a file with a secret of 32 bytes or more, as openssl rand -hex 32 makes one",
    make: |path: &FilePath, bytes: Vec<u8>| match bytes.trim_ascii() {
        short if short.len() < SECRET_BYTES_MIN => {
            Err(format!("it has {} bytes, fewer than {SECRET_BYTES_MIN}", short.len()))
        }
        bytes => Ok(SharedSecret { file: PathBuf::from(path), bytes: bytes.into() }),
    },
    path: |secret| &secret.file,
};

/// Adds mistakes about options that have no effect, and about limits that are shared through nothing.
pub(crate) fn check(file: &File, reader: &mut Reader<'_>) {
    check_sealed(file, reader);
    let Some(redis) = &file.redis else {
        let limits = file.routes.iter().flat_map(|route| &route.value.rate_limit);
        for shared in limits.filter_map(|limit| limit.value.shared.as_ref()) {
            if reader.is_whole() {
                let what = "shared: there is no [redis], which instances share through";
                let mistake = reader.mistake(&shared.at, what);
                reader.add(mistake.expecting("[redis] with its url as well, or no shared".to_owned()));
            }
        }
        return;
    };
    let RedisWritten { url, user, password_file, ca, .. } = &redis.value;
    let is_plain = url.as_ref().is_some_and(|url| url.server.scheme != Scheme::Https);
    if let Some(ca) = ca.as_ref().filter(|_| is_plain) {
        let mistake = reader.mistake(&ca.at, "ca: Redis is reached without TLS");
        reader.add(mistake.expecting("a url with rediss://, or no ca"));
    }
    if user.is_some() && password_file.is_none() && redis.is_intact {
        let mistake = reader.mistake(&redis.at, "user: a user of Redis has a password");
        reader.add(mistake.expecting("password_file as well, or no user"));
    }
}

/// Decisions of authentication servers, and sessions, are shared through Redis, sealed with the secret.
fn check_sealed(file: &File, reader: &mut Reader<'_>) {
    let is_sealed = match &file.redis {
        Some(redis) if redis.value.secret_file.is_none() && !redis.is_intact => return,
        Some(redis) => redis.value.secret_file.is_some(),
        None => false,
    };
    if is_sealed || !reader.is_whole() {
        return;
    }
    let decisions = file.routes.iter().filter_map(|route| route.value.forward_auth.as_ref()?.value.shared());
    let sessions =
        file.upstreams.iter().filter_map(|(_, _, upstream)| upstream.sticky.as_ref()?.value.shared());
    for (at, what) in decisions.map(|at| (at, "decisions")).chain(sessions.map(|at| (at, "sessions"))) {
        let what = match &file.redis {
            None => "shared: there is no [redis], which instances share through".to_owned(),
            Some(_) => format!("shared: [redis] has no secret_file, which {what} are sealed with"),
        };
        let mistake = reader.mistake(at, what);
        reader.add(mistake.expecting("[redis] with its url and secret_file as well, or no shared"));
    }
}

impl RedisWritten {
    /// The secret that all instances know.
    pub(crate) fn secret(&self) -> Option<&SharedSecret> {
        self.secret_file.as_ref()
    }

    /// The settings that the options describe; `None` without a URL, which is a mistake of its own.
    pub(crate) fn meaning(self) -> Option<Redis> {
        let Self { url, user, password_file, ca, name, instance, instances, secret_file: secret } = self;
        let [password_file, ca] = [password_file, ca].map(|path| path.map(|path| path.value));
        let instances = u32::try_from(instances).unwrap_or(u32::MAX);
        Some(Redis { url: url?, user, password_file, ca, name, instance, instances, secret })
    }
}

impl From<&Redis> for RedisWritten {
    fn from(redis: &Redis) -> Self {
        let Redis { url, user, password_file, ca, name, instance, instances, secret } = redis.clone();
        let [password_file, ca] = [password_file, ca].map(|path| path.map(located));
        let instances = usize::try_from(instances).unwrap_or(usize::MAX);
        Self { url: Some(url), user, password_file, ca, name, instance, instances, secret_file: secret }
    }
}
