//! A connection to Redis over TCP, TLS or a Unix socket, authenticated by user and password.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use config::{Redis, Scheme, ServerHost, Upstream, UpstreamTls};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, RedisConnectionInfo};
use tls::ClientSide;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;

/// Maximum time for an answer or a connection. A slower Redis counts as unreachable.
pub(super) const ANSWER_MAX: Duration = Duration::from_millis(500);

/// A connection. Dropping it closes it.
pub(super) struct RedisLink {
    connection: MultiplexedConnection,
    task: AbortHandle,
}

impl Drop for RedisLink {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl RedisLink {
    pub(super) async fn open(settings: &Redis) -> Result<Self, String> {
        Self::open_for(settings, ANSWER_MAX).await
    }

    /// Connects for commands with this maximum time for answers.
    pub(super) async fn open_for(settings: &Redis, answer_max: Duration) -> Result<Self, String> {
        let late = |_| "no connection in time".to_owned();
        tokio::time::timeout(ANSWER_MAX * 2, connect(settings, answer_max)).await.map_err(late)?
    }

    /// Sends a command. An unexpected answer is an error.
    pub(super) async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, String> {
        command.query_async(&mut self.connection.clone()).await.map_err(words)
    }

    /// Loads a script. Returns its hash.
    pub(super) async fn script(&self, text: &str) -> Result<String, String> {
        self.ask(redis::cmd("SCRIPT").arg("LOAD").arg(text)).await
    }
}

async fn connect(settings: &Redis, answer_max: Duration) -> Result<RedisLink, String> {
    let server = &settings.url.server;
    let tcp = async |host: &str| {
        let stream = TcpStream::connect((host, server.port)).await.map_err(words)?;
        stream.set_nodelay(true).map_err(words)?;
        Ok::<_, String>(stream)
    };
    let stream = match &server.host {
        ServerHost::Unix(path) => {
            return begin((settings, answer_max), UnixStream::connect(path).await.map_err(words)?).await;
        }
        ServerHost::Address(address) => tcp(&address.to_string()).await?,
        host => tcp(&host.to_string()).await?,
    };
    if server.scheme != Scheme::Https {
        return begin((settings, answer_max), stream).await;
    }
    // The CA file is loaded each time, because it may have changed.
    let tls = UpstreamTls { ca: settings.ca.clone(), ..UpstreamTls::default() };
    let upstream = Upstream { tls, ..Upstream::from_name("redis", vec![server.clone()]) };
    let loaded = ClientSide::load(&upstream)
        .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
    let side = loaded.as_ref().and_then(|side| Some((side.config(), side.name(0)?.clone())));
    let (config, name) = side.ok_or("it has no TLS")?;
    // No ALPN: Redis is none of the protocols of upstreams.
    let mut config = (*config).clone();
    config.alpn_protocols.clear();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.map_err(words)?;
    begin((settings, answer_max), stream).await
}

async fn begin(
    (settings, answer_max): (&Redis, Duration),
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<RedisLink, String> {
    let mut who = RedisConnectionInfo::default().set_db(settings.url.database.into());
    if let Some(user) = &settings.user {
        who = who.set_username(user);
    }
    if let Some(file) = &settings.password_file {
        who = who.set_password(password(file)?);
    }
    let times = AsyncConnectionConfig::new().set_response_timeout(Some(answer_max));
    let (connection, driver) =
        MultiplexedConnection::new_with_config(&who, stream, times).await.map_err(words)?;
    let task = tokio::task::spawn_local(driver).abort_handle();
    Ok(RedisLink { connection, task })
}

fn password(file: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

fn words(error: impl Display) -> String {
    error.to_string()
}
