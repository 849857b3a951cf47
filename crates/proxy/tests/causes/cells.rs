//! Cells of the matrix: a failure, a side, a version, and a case that shows the failure there, or the reason why it
//! cannot happen.

use std::panic::{AssertUnwindSafe, catch_unwind};

use proxy::failure::Failure;
use testkit::http3::H3TestServer;

use super::asked::Asked;
use super::caller::{Caller, Seen};
use super::scene::{ALL, Scene, Setting, Spoken};

pub(crate) const ONE: &[Spoken] = &[Spoken::Http1];
pub(crate) const TWO: &[Spoken] = &[Spoken::Http2];
pub(crate) const THREE: &[Spoken] = &[Spoken::Http3];
pub(crate) const STREAMS: &[Spoken] = &[Spoken::Http2, Spoken::Http3];
pub(crate) const OVER_TCP: &[Spoken] = &[Spoken::Http1, Spoken::Http2];
pub(crate) const EACH: &[Spoken] = &ALL;

/// A row of the matrix: a failure in each version on each side.
pub(crate) struct Row {
    pub(crate) failure: Failure,
    cases: Vec<Case>,
    impossible: Vec<Impossible>,
}

/// Cells in which a failure cannot happen, or that another test covers.
struct Impossible {
    side: Side,
    versions: &'static [Spoken],
    why: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The client uses the version, its server HTTP/1.1.
    Client,
    /// The server uses the version, its client HTTP/1.1.
    Server,
}

/// A case that causes the failure, in some versions on some sides.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    what: &'static str,
    setting: Setting,
    clients: &'static [Spoken],
    servers: &'static [Spoken],
    plays: fn(&Play<'_>) -> Seen,
    /// The status in the log, if it differs from the table.
    status: Option<u16>,
    /// The status and body that the client gets, if they differ from the table.
    seen: Option<(u16, &'static str)>,
    has_version: bool,
    /// The target whose line is looked for; empty for the first failure, `*` for any line with the cause.
    target: &'static str,
    details: [&'static str; 3],
}

/// A case while it runs.
pub(crate) struct Play<'a> {
    pub(crate) scene: &'a Scene,
    pub(crate) client: Spoken,
    pub(crate) server: Spoken,
}

impl Play<'_> {
    pub(crate) fn caller(&self) -> Caller {
        Caller::new(self.scene, self.client)
    }

    pub(crate) fn asked(&self) -> Asked {
        Asked::by(self.scene, self.server)
    }

    /// Sends a request without a body, and receives the response.
    pub(crate) fn asks(&self, method: &str, path: &str, lines: &str) -> Seen {
        let mut caller = self.caller();
        caller.asks(method, path, lines);
        caller.gets()
    }

    /// Sends such a request to a server that acts once it has received it, and receives the response.
    pub(crate) fn asks_of(&self, serves: impl FnOnce(&mut Asked)) -> Seen {
        let mut caller = self.caller();
        caller.asks("GET", "/", "");
        let mut server = self.asked();
        serves(&mut server);
        caller.gets()
    }
}

impl Case {
    pub(crate) fn new(what: &'static str, plays: fn(&Play<'_>) -> Seen) -> Self {
        Self {
            what,
            setting: Setting::PLAIN,
            clients: &[],
            servers: &[],
            plays,
            status: None,
            seen: None,
            has_version: true,
            target: "",
            details: [""; 3],
        }
    }

    pub(crate) fn front(mut self, text: &'static str) -> Self {
        self.setting.front = text;
        self
    }

    pub(crate) fn route(mut self, text: &'static str) -> Self {
        self.setting.route = text;
        self
    }

    pub(crate) fn upstream(mut self, text: &'static str) -> Self {
        self.setting.upstream = text;
        self
    }

    pub(crate) fn listener(mut self, text: &'static str) -> Self {
        self.setting.listener = text;
        self
    }

    pub(crate) fn tables(mut self, text: &'static str) -> Self {
        self.setting.tables = text;
        self
    }

    pub(crate) fn files(mut self, files: &'static [(&'static str, &'static str)]) -> Self {
        self.setting.files = files;
        self
    }

    pub(crate) fn quic(mut self, make: fn() -> H3TestServer) -> Self {
        self.setting.quic = make;
        self
    }

    /// The versions of clients, with an HTTP/1.1 server.
    pub(crate) fn clients(mut self, versions: &'static [Spoken]) -> Self {
        self.clients = versions;
        self
    }

    /// The versions of servers, with an HTTP/1.1 client.
    pub(crate) fn servers(mut self, versions: &'static [Spoken]) -> Self {
        self.servers = versions;
        self
    }

    /// Beginning of the log's detail; empty if the word suffices.
    pub(crate) fn detail(self, detail: &'static str) -> Self {
        self.details([detail; 3])
    }

    /// Beginning of the log's detail in each version.
    pub(crate) fn details(mut self, details: [&'static str; 3]) -> Self {
        self.details = details;
        self
    }

    /// The client gets a response with this status that breaks off, and the log has the status.
    pub(crate) fn cut(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }

    /// The client gets this response, and the log this status, such as for gRPC.
    pub(crate) fn seen(mut self, logged: u16, status: u16, body: &'static str) -> Self {
        (self.status, self.seen) = (Some(logged), Some((status, body)));
        self
    }

    /// Selects the log line with this target.
    pub(crate) fn target(mut self, target: &'static str) -> Self {
        self.target = target;
        self
    }

    /// The log line comes after those of other failures.
    pub(crate) fn behind_others(self) -> Self {
        self.target("*")
    }

    /// The connection failed before it had a version.
    pub(crate) fn without_version(mut self) -> Self {
        self.has_version = false;
        self
    }
}

impl Row {
    pub(crate) fn of(failure: Failure) -> Self {
        Self { failure, cases: Vec::new(), impossible: Vec::new() }
    }

    pub(crate) fn case(mut self, case: Case) -> Self {
        self.cases.push(case);
        self
    }

    /// The reason why clients of these versions cannot have the failure.
    pub(crate) fn no_clients(mut self, versions: &'static [Spoken], why: &'static str) -> Self {
        self.impossible.push(Impossible { side: Side::Client, versions, why });
        self
    }

    /// The reason why servers of these versions cannot cause the failure.
    pub(crate) fn no_servers(mut self, versions: &'static [Spoken], why: &'static str) -> Self {
        self.impossible.push(Impossible { side: Side::Server, versions, why });
        self
    }

    pub(crate) fn word(&self) -> &'static str {
        Failure::WORDS[self.failure as usize]
    }

    /// Runs each case in each of its cells. Returns the errors.
    pub(crate) fn play(&self) -> Vec<String> {
        let mut wrong = self.gaps();
        for case in &self.cases {
            let of_clients = case.clients.iter().map(|&version| (Side::Client, version));
            let of_servers = case.servers.iter().map(|&version| (Side::Server, version));
            for (side, version) in of_clients.chain(of_servers) {
                let played = catch_unwind(AssertUnwindSafe(|| case.play(self.failure, side, version)));
                let why = played.err().map(|panic| {
                    let text = panic.downcast_ref::<String>().cloned();
                    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
                });
                let name = format!("{:?}, {}, {side:?} {version:?}", self.failure, case.what);
                wrong.extend(why.map(|why| format!("{name}: {}", why.unwrap_or_default())));
            }
        }
        wrong
    }

    /// Returns cells without a case or a reason, and cells with both.
    fn gaps(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (side, version) in
            [Side::Client, Side::Server].into_iter().flat_map(|side| ALL.map(|version| (side, version)))
        {
            let of_side = |case: &&Case| match side {
                Side::Client => case.clients.contains(&version),
                Side::Server => case.servers.contains(&version),
            };
            let cases = self.cases.iter().filter(of_side).count();
            let is_here =
                |impossible: &&Impossible| impossible.side == side && impossible.versions.contains(&version);
            let reasons = self
                .impossible
                .iter()
                .filter(is_here)
                .filter(|impossible| !impossible.why.is_empty())
                .count();
            if (cases > 0) == (reasons > 0) {
                wrong.push(format!(
                    "{:?}, {side:?} {version:?}: {cases} cases and {reasons} reasons",
                    self.failure
                ));
            }
        }
        wrong
    }
}

impl Case {
    fn play(&self, failure: Failure, side: Side, version: Spoken) {
        let (client, server) = match side {
            Side::Client => (version, Spoken::Http1),
            Side::Server => (Spoken::Http1, version),
        };
        let scene = Scene::set(&self.setting, server);
        let Facts { word, status, text } = Facts::of(failure);
        let seen = (self.plays)(&Play { scene: &scene, client, server });
        let in_log = self.status.unwrap_or(status);
        match self.seen {
            Some((status, body)) => assert_eq!((seen.status, seen.body.as_str()), (status, body), "{seen:?}"),
            None if in_log != status || status == 0 => {
                assert_eq!((seen.status, seen.is_whole), (in_log, false), "{seen:?}");
            }
            None => {
                let got = (seen.status, seen.body.as_str(), seen.is_whole);
                assert_eq!(got, (status, format!("{text}\n").as_str(), true), "{seen:?}");
            }
        }
        let line = scene.line(self.target, word);
        let told = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        let logged = (told("cause"), line["status"].as_u64().unwrap_or(0) as u16, told("version"));
        let of_client = if self.has_version { client.version() } else { "" };
        let expected = (word.to_owned(), in_log, of_client.to_owned());
        assert_eq!(logged, expected, "{line}");
        let detail = self.details[ALL.iter().position(|known| *known == version).expect("is a version")];
        let is_told =
            if detail.is_empty() { line.get("detail").is_none() } else { told("detail").starts_with(detail) };
        assert!(is_told, "{line}\nexpected: {detail:?}");
    }
}

/// A row of the table of causes in docs/logging.md.
struct Facts {
    word: &'static str,
    status: u16,
    text: String,
}

impl Facts {
    fn of(failure: Failure) -> Self {
        let word = Failure::WORDS[failure as usize];
        let page = include_str!("../../../../docs/logging.md");
        let causes = page.split("| `bad-request` ").nth(1).expect("the page has a table of causes");
        let start = format!("| `{word}` | ");
        let row = format!("| `bad-request` {causes}");
        let row =
            row.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or_else(|| panic!("no {word}"));
        let mut columns = row.split(" | ");
        let status = columns.next().and_then(|status| status.parse().ok()).unwrap_or(0);
        let text = columns.nth(1).unwrap_or_default().trim_end_matches(" |").to_owned();
        Self { word, status, text }
    }
}
