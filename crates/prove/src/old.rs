//! Facts of the old configuration: where it listens, which servers and files it names, and its conditions.

use adapt::statements::Statement;

use crate::OldProxy;
use crate::pattern::TextPattern;

/// A statement of the old configuration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StatementPlace {
    pub file: String,
    pub line: usize,
    pub text: String,
}

impl StatementPlace {
    pub(crate) fn of(statement: &Statement) -> Self {
        Self { file: statement.file.clone(), line: statement.line, text: statement.text() }
    }
}

/// `nginx.conf:12 location /api/`
impl std::fmt::Display for StatementPlace {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}:{} {}", self.file, self.line, self.text)
    }
}

/// An address that clients connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldDoor {
    /// The IP address; `*` for all.
    pub host: String,
    pub port: u16,
    pub is_tls: bool,
    /// Whether connections begin with a PROXY header.
    pub has_proxy_header: bool,
    /// Whether clients may use HTTP/2, by ALPN.
    pub has_http2: bool,
}

impl OldDoor {
    /// HTTP/1.1 without TLS, at all addresses.
    pub(crate) fn plain(port: u16) -> Self {
        Self { host: "*".to_owned(), port, is_tls: false, has_proxy_header: false, has_http2: false }
    }

    /// Whether clients omit the port. Varnish has its own, which another listener forwards to.
    pub(crate) fn is_usual(&self) -> bool {
        self.port == if self.is_tls { 443 } else { 80 } || self.port == crate::varnish::PORT
    }

    /// The authority of a host at this address: the usual port is omitted.
    pub fn authority(&self, host: &str) -> String {
        if self.is_usual() { host.to_owned() } else { format!("{host}:{}", self.port) }
    }
}

/// A server that gets requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldServer {
    /// As the configuration names it, such as `app:3000` or `10.0.0.1`.
    pub written: String,
    /// Host and port.
    pub address: String,
    /// The group that it belongs to; a server alone is its own group.
    pub group: String,
    /// Whether it is an application behind FastCGI.
    pub is_fastcgi: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldFile {
    pub path: String,
    pub kind: OldFileKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OldFileKind {
    /// A folder whose files clients get.
    Folder,
    /// A single file that clients get.
    Page,
    /// Names with hashes of passwords.
    Users,
    Certificate,
    Key,
    /// A list of patterns, or a map.
    Patterns,
}

/// A condition of a rule.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum OldCondition {
    Host(TextPattern),
    Path(TextPattern),
    Methods(Vec<String>),
    Field(String, TextPattern),
    Cookie(String, TextPattern),
    Argument(String, TextPattern),
    /// The whole query.
    Query(TextPattern),
    /// Networks and addresses.
    Clients(Vec<String>),
    /// A name and a password, as the stand-in of the file has it.
    Credentials,
    /// A body of at most this length passes.
    Body(u64),
    /// A limit of requests: so many in a row exceed it.
    Burst(usize),
    /// A limit of concurrent requests: so many exceed it.
    AtOnce(usize),
    /// The server fails, so that the rule applies.
    ServerError,
}

/// A statement that some requests reach: the conditions that lead to it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OldRule {
    pub(crate) place: StatementPlace,
    pub(crate) conditions: Vec<OldCondition>,
}

/// Requests that one block of the old configuration serves, such as a server of nginx.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Site {
    pub(crate) doors: Vec<usize>,
    pub(crate) hosts: Vec<TextPattern>,
    pub(crate) rules: Vec<OldRule>,
}

/// Everything that a proof needs to know of the old configuration.
#[derive(Debug, Clone)]
pub struct OldConfiguration {
    pub peer: OldProxy,
    pub doors: Vec<OldDoor>,
    pub servers: Vec<OldServer>,
    pub files: Vec<OldFile>,
    /// Networks and addresses of clients.
    pub networks: Vec<String>,
    /// Statements that the generated requests cannot reach, with the reason.
    pub untested: Vec<(StatementPlace, String)>,
    pub(crate) sites: Vec<Site>,
    pub(crate) statements: Vec<Statement>,
}

impl OldConfiguration {
    pub(crate) fn new(peer: OldProxy, statements: Vec<Statement>) -> Self {
        Self {
            peer,
            doors: Vec::new(),
            servers: Vec::new(),
            files: Vec::new(),
            networks: Vec::new(),
            untested: Vec::new(),
            sites: Vec::new(),
            statements,
        }
    }

    /// Whether the old proxy stores responses.
    pub(crate) fn has_cache(&self) -> bool {
        fn is_stored(statement: &Statement) -> bool {
            ["proxy_cache", "fastcgi_cache"].contains(&statement.name.as_str()) && statement.word(0) != "off"
                || statement.name == "http-request" && statement.word(0) == "cache-use"
                || statement.inner().iter().any(is_stored)
        }
        self.peer == OldProxy::Varnish || self.statements.iter().any(is_stored)
    }

    /// Whether the numbers of logged requests are known of the old program.
    pub fn has_log(&self) -> bool {
        match self.peer {
            OldProxy::Nginx => self.any(&|statement| statement.name == "access_log"),
            // A `log` among global options is that of the process.
            OldProxy::Caddy => {
                let sites = self.statements.iter().filter(|statement| statement.name != "{");
                sites.flat_map(Statement::inner).any(|inner| inner.name == "log")
            }
            OldProxy::Haproxy => {
                let is_partial = |statement: &Statement| {
                    ["no log", "option dontlog-normal"].contains(&statement.text().as_str())
                };
                let sections = self.statements.iter().filter(|statement| statement.name == "defaults");
                sections.flat_map(Statement::inner).any(|inner| inner.name == "log") && !self.any(&is_partial)
            }
            _ => false,
        }
    }

    /// Whether some statement, at any depth, is such a one.
    pub(crate) fn any(&self, is_one: &dyn Fn(&Statement) -> bool) -> bool {
        fn within(all: &[Statement], is_one: &dyn Fn(&Statement) -> bool) -> bool {
            all.iter().any(|statement| is_one(statement) || within(statement.inner(), is_one))
        }
        within(&self.statements, is_one)
    }

    /// Returns the door's index, and adds the door if it is new.
    pub(crate) fn door(&mut self, door: OldDoor) -> usize {
        let is_same = |known: &OldDoor| known.host == door.host && known.port == door.port;
        if let Some(index) = self.doors.iter().position(is_same) {
            self.doors[index].is_tls |= door.is_tls;
            self.doors[index].has_proxy_header |= door.has_proxy_header;
            self.doors[index].has_http2 |= door.has_http2;
            return index;
        }
        self.doors.push(door);
        self.doors.len() - 1
    }

    pub(crate) fn server(&mut self, written: &str, port: u16, group: Option<&str>) {
        if self.servers.iter().any(|known| known.written == written) {
            return;
        }
        let address = address_of(written, port);
        let group = group.map_or_else(|| address.clone(), str::to_owned);
        self.servers.push(OldServer { written: written.to_owned(), address, group, is_fastcgi: false });
    }

    /// Adds an application behind FastCGI, or says that the servers of a group are applications.
    pub(crate) fn application(&mut self, written: &str, port: u16) {
        if !self.servers.iter().any(|known| known.group == written) {
            self.server(written, port, None);
        }
        for server in &mut self.servers {
            server.is_fastcgi |= server.written == written || server.group == written;
        }
    }

    pub(crate) fn file(&mut self, path: &str, kind: OldFileKind) {
        if !path.is_empty() && !self.files.iter().any(|known| known.path == path) {
            self.files.push(OldFile { path: path.to_owned(), kind });
        }
    }

    pub(crate) fn network(&mut self, network: &str) {
        if !self.networks.iter().any(|known| known == network) {
            self.networks.push(network.to_owned());
        }
    }

    /// Names what the generated requests cannot reach.
    pub(crate) fn untested(&mut self, statement: &Statement, why: &str) {
        let place = StatementPlace::of(statement);
        if !self.untested.iter().any(|(known, _)| *known == place) {
            self.untested.push((place, why.to_owned()));
        }
    }
}

/// The default of a text that is one variable of the environment, such as `${BACKEND:-127.0.0.1:80}`; else the text.
pub(crate) fn default_of(text: &str) -> &str {
    let inner = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    inner.and_then(|inner| inner.split_once(":-")).map_or(text, |(_, default)| default)
}

/// Host and port of a server, or the path of its socket. This machine has one name.
pub(crate) fn address_of(authority: &str, usual: u16) -> String {
    if let Some(path) = authority.strip_prefix("unix:") {
        return format!("unix:/{}", path.trim_start_matches('/'));
    }
    let (host, port) = split_port(authority);
    let host = if matches!(host, "" | "localhost" | "[::1]") { "127.0.0.1" } else { host };
    format!("{host}:{}", port.unwrap_or(usual))
}

/// Splits `HOST:PORT`, also with an IPv6 address in brackets.
pub(crate) fn split_port(authority: &str) -> (&str, Option<u16>) {
    if let Some((host, port)) = authority.rsplit_once(':')
        && (!host.contains(':') || host.ends_with(']'))
        && let Ok(port) = port.parse()
    {
        return (host, Some(port));
    }
    (authority, None)
}
