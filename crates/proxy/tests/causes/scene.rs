//! A proxy with a log, clients of each HTTP version, and one server that the test plays.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};

use control::Running;
use serde_json::Value;
use tempfile::TempDir;
use testkit::http1::Http1Peer;
use testkit::http2::H2End;
use testkit::http3::{H3TestClient, H3TestServer};
use testkit::ports;
use testkit::scene::read;
use testkit::wait::assert_soon;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spoken {
    Http1,
    Http2,
    Http3,
}

pub(crate) const ALL: [Spoken; 3] = [Spoken::Http1, Spoken::Http2, Spoken::Http3];

impl Spoken {
    /// The version in the log.
    pub(crate) fn version(self) -> &'static str {
        match self {
            Self::Http1 => "1.1",
            Self::Http2 => "2.0",
            Self::Http3 => "3.0",
        }
    }
}

/// Parts of the configuration. `{dir}` is a temporary folder.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    /// Options and inline tables before all others.
    pub(crate) front: &'static str,
    pub(crate) route: &'static str,
    pub(crate) upstream: &'static str,
    /// More options of the listener without TLS.
    pub(crate) listener: &'static str,
    /// Tables after all others.
    pub(crate) tables: &'static str,
    /// Name and content of files in the folder.
    pub(crate) files: &'static [(&'static str, &'static str)],
    pub(crate) quic: fn() -> H3TestServer,
}

impl Setting {
    /// A route to the server.
    pub(crate) const PLAIN: Self = Self {
        front: "",
        route: "upstream = \"app\"\ncompress = true",
        upstream: "",
        listener: "",
        tables: "",
        files: &[],
        quic: H3TestServer::new,
    };
}

pub(crate) struct Scene {
    pub(crate) running: Running,
    pub(crate) tcp: TcpListener,
    pub(crate) quic: H3TestServer,
    directory: TempDir,
}

impl Scene {
    /// A scene with a server of this version, without TLS unless that is HTTP/3.
    pub(crate) fn to(spoken: Spoken, tables: &str) -> Self {
        let (tcp, quic) = (ports::listen(), H3TestServer::new());
        let upstream = filled("servers = [\"{server}\"]\n{options}", spoken, &tcp, &quic);
        Self::at(&upstream, tables, tcp, quic)
    }

    /// With these options of the upstream, and no retries.
    pub(crate) fn at(upstream: &str, tables: &str, tcp: TcpListener, quic: H3TestServer) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        Self::of(&Setting::PLAIN, (tables, upstream), (tcp, quic), directory)
    }

    /// With these settings, and a server of this version.
    pub(crate) fn set(setting: &Setting, spoken: Spoken) -> Self {
        let (tcp, quic) = (ports::listen(), (setting.quic)());
        let directory = tempfile::tempdir().expect("a temporary directory");
        for (name, text) in setting.files {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().expect("is in a folder")).expect("it can be made");
            std::fs::write(path, text).expect("it can be written");
        }
        let upstream = match setting.upstream.contains("servers") {
            true => setting.upstream.to_owned(),
            false => format!("servers = [\"{{server}}\"]\n{{options}}\n{}", setting.upstream),
        };
        let upstream = filled(&upstream, spoken, &tcp, &quic);
        Self::of(setting, (setting.front, &upstream), (tcp, quic), directory)
    }

    fn of(
        setting: &Setting,
        (front, upstream): (&str, &str),
        (tcp, quic): (TcpListener, H3TestServer),
        directory: TempDir,
    ) -> Self {
        let Setting { route, listener, tables, .. } = setting;
        let text = format!(
            "workers = 1\n{front}\n[log]\ntarget = \"{{dir}}/access.log\"\nformat = \"json\"\n\
             [[route]]\n{route}\n[upstream.app]\n{upstream}\nretry = {{ attempts = 1 }}\n\
             [[listen]]\naddress = \"127.0.0.1:0\"\n{listener}\n\
             [[listen]]\naddress = \"127.0.0.1:0\"\ntls = {{ self_signed = true }}\nhttp3 = true\n{tables}"
        );
        let text = text.replace("{dir}", &directory.path().display().to_string());
        let running = control::start(read(&text)).unwrap_or_else(|error| panic!("{error}"));
        Self { running, tcp, quic, directory }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn address(&self, listener: usize) -> SocketAddr {
        self.running.addresses()[listener]
    }

    pub(crate) fn connect(&self, listener: usize) -> TcpStream {
        TcpStream::connect(self.address(listener)).expect("the proxy listens")
    }

    pub(crate) fn client1(&self) -> Http1Peer {
        Http1Peer::new("client", self.connect(0))
    }

    pub(crate) fn client2(&self) -> H2End {
        H2End::client(self.connect(0), &[])
    }

    pub(crate) fn client3(&self) -> H3TestClient {
        H3TestClient::connect(self.address(1))
    }

    pub(crate) fn accept1(&self) -> Http1Peer {
        Http1Peer::new("server", ports::accept(&self.tcp))
    }

    pub(crate) fn accept2(&self) -> H2End {
        H2End::server(ports::accept(&self.tcp), &[])
    }

    pub(crate) fn waits(&self, what: &str, holds: impl Fn(&telemetry::Snapshot) -> bool) {
        assert_soon(what, || holds(&self.running.counters()));
    }

    /// Waits for the first log line of a failure; with a target or `*`, the first one with that and the cause.
    pub(crate) fn line(&self, target: &str, cause: &str) -> Value {
        let mut found = None;
        assert_soon("no failure is logged", || {
            let text = std::fs::read_to_string(log(&self.directory)).unwrap_or_default();
            let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
            let mut lines = whole.lines().map(|line| serde_json::from_str(line).expect("is JSON"));
            found = lines.find(|line: &Value| match target {
                "" => line.get("cause").is_some(),
                "*" => line["cause"] == cause,
                _ => line["target"] == target && line["cause"] == cause,
            });
            found.is_some()
        });
        found.expect("the wait is over")
    }

    /// Asserts version, status, word and beginning of the detail of the first failure.
    #[track_caller]
    pub(crate) fn tells(&self, what: &str, version: &str, status: u16, cause: &str, detail: &str) {
        let line = self.line("", "");
        let told = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        let found = (told("version"), line["status"].as_u64().unwrap_or(0), told("cause"));
        assert_eq!(found, (version.to_owned(), status.into(), cause.to_owned()), "{what}: {line}");
        assert!(told("detail").starts_with(detail), "{what}: {line}\nexpected: {detail}");
        assert!(!detail.is_empty(), "{what}: each failure has a detail");
    }
}

/// Replaces `{server}` and `{secured}` by the URL of the server of this version, the latter over TLS. The third
/// placeholder becomes a URL where no program listens; `{protocol}` and `{options}` become what the version needs.
fn filled(text: &str, spoken: Spoken, tcp: &TcpListener, quic: &H3TestServer) -> String {
    let (address, scheme, protocol, unverified) = match spoken {
        Spoken::Http1 => (ports::address_of(tcp), "http", "", ""),
        Spoken::Http2 => (ports::address_of(tcp), "http", "protocol = \"h2\"\n", ""),
        Spoken::Http3 => (quic.address(), "https", "protocol = \"h3\"\n", "tls = { verify = false }"),
    };
    text.replace("{server}", &format!("{scheme}://{address}"))
        .replace("{secured}", &format!("https://{address}"))
        .replace("{nobody}", &format!("{scheme}://{}", ports::nobody()))
        .replace("{scheme}", scheme)
        .replace("{options}", &format!("{protocol}{unverified}"))
        .replace("{protocol}", protocol)
}

fn log(directory: &TempDir) -> PathBuf {
    directory.path().join("access.log")
}
