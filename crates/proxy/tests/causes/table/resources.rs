//! Files, the cache, and limits of the proxy.

use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt;

use proxy::failure::Failure;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use testkit::http3::H3TestClient;

use crate::causes::caller::Seen;
use crate::causes::cells::{Case, EACH, OVER_TCP, Play, Row, THREE};

const FILES: &str = "files = { root = \"{dir}/root\" }";
const PAGE: (&str, &str) = ("root/page", "text");
const NO_SERVER: &str = "files need no server";
const CACHED: &str = "upstream = \"app\"\ncache = {}";
const STORE: &str = "[cache]\nmemory = \"16MiB\"\n";

pub(crate) fn rows() -> Vec<Row> {
    let of_files = |failure: Failure, case: Case| {
        Row::of(failure).case(case.files(&[PAGE]).clients(EACH)).no_servers(EACH, NO_SERVER)
    };
    vec![
        of_files(Failure::NoFile, Case::new("another path", |play| play.asks("GET", "/none", "")).route(FILES)),
        of_files(
            Failure::FileHidden,
            Case::new("a symbolic link", |play| {
                let root = play.scene.folder().join("root");
                std::os::unix::fs::symlink("/etc/passwd", root.join("link")).expect("it can be made");
                play.asks("GET", "/link", "")
            })
            .route(FILES),
        ),
        of_files(
            Failure::FileMethod,
            Case::new("POST", |play| play.asks("POST", "/page", "content-length: 0\n")).route(FILES),
        ),
        of_files(
            Failure::PreconditionFailed,
            Case::new("another tag", |play| play.asks("GET", "/page", "if-match: \"other\"\n")).route(FILES),
        ),
        of_files(
            Failure::FileForbidden,
            Case::new("a file without permissions", |play| {
                let page = play.scene.folder().join("root/page");
                std::fs::set_permissions(page, Permissions::from_mode(0o000)).expect("it is this user's");
                play.asks("GET", "/page", "")
            })
            .route(FILES),
        ),
        of_files(
            Failure::FileUnreadable,
            Case::new("a file that the kernel does not read", |play| play.asks("GET", "/speed", ""))
                .route("files = { root = \"/sys/devices/virtual/net/lo\" }"),
        ),
        of_files(
            Failure::FileTruncated,
            Case::new("a file that becomes shorter", |play| {
                let path = play.scene.folder().join("root/page");
                let file = OpenOptions::new().write(true).open(path).expect("it is there");
                file.set_len(64 << 20).expect("it can grow");
                let mut caller = play.caller();
                caller.asks("GET", "/page", "");
                caller.gets_head();
                file.set_len(0).expect("it can shrink");
                caller.gets()
            })
            .route(FILES)
            .cut(200),
        ),
        Row::of(Failure::Shed).case(
            Case::new("a server that does not answer", |play| {
                let mut server = None;
                loop {
                    let mut first = play.scene.client1();
                    first.sends("GET /crowd HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
                    server.get_or_insert_with(|| play.asked());
                    let seen = play.asks("GET", "/mine", "");
                    if seen.status == 503 {
                        return seen;
                    }
                }
            })
            .front("timeouts = { upstream_first_byte = \"500ms\" }")
            .tables(
                "[shed.concurrency]\nlatency_floor = \"1ms\"\nmin = 1\ncrowd = 0\nwindow = \"10ms\"\nsamples_min = 1\n",
            )
            .target("/mine")
            .clients(EACH)
            .servers(EACH),
        ),
        Row::of(Failure::ShortOfMemory)
            .case(
                Case::new("more than the process may use", |play| {
                    // As many requests as are always admitted, and a memory check of the control thread.
                    let mut under_way = Vec::new();
                    loop {
                        let mut client = play.scene.client1();
                        client.sends("GET /crowd HTTP/1.1\r\nHost: test\r\n\r\n");
                        let count = under_way.len() as u64 + 1;
                        play.scene.waits("a request is taken", |counters| counters.requests >= count);
                        let is_refused = play.scene.running.counters().requests_active < count;
                        under_way.push(client);
                        if is_refused {
                            return play.asks("GET", "/mine", "");
                        }
                    }
                })
                .tables("[shed]\nmemory = \"16MiB\"\n")
                .target("/mine")
                .clients(EACH),
            )
            .no_servers(EACH, "the request is refused before a server is asked"),
        Row::of(Failure::QueueTimeout).case(
            Case::new("a server at its limit", beside_another)
                .upstream(
                    "servers = [{ url = \"{server}\", max_requests = 1 }]\n\
                     queue = { length = 1, timeout = \"500ms\" }\n{options}",
                )
                .clients(EACH)
                .servers(EACH)
                .detail("no server had room within queue.timeout of 'app', 500ms"),
        ),
        Row::of(Failure::UpstreamFull).case(
            Case::new("a full queue", beside_another)
                .upstream(
                    "servers = [{ url = \"{server}\", max_requests = 1 }]\nqueue = { length = 0 }\n{options}",
                )
                .clients(EACH)
                .servers(EACH)
                .detail("no server has room, and the queue of 'app' is full: queue.length, 0"),
        ),
        Row::of(Failure::PurgesFull)
            .case(
                Case::new("more patterns than are kept while a response is fetched", |play| {
                    let mut first = play.scene.client1();
                    first.sends("GET /first HTTP/1.1\r\nHost: test\r\n\r\n");
                    let _server = play.scene.accept1();
                    let purged = (0..).map(|number| play.asks("PURGE", &format!("/*{number}*x"), ""));
                    purged.take(1_000).find(|seen| seen.status != 200).expect("there is a bound")
                })
                .route(CACHED)
                .tables("[cache]\nmemory = \"16MiB\"\npurge_from = [\"127.0.0.1\"]\n")
                .clients(EACH),
            )
            .no_servers(EACH, "a purge is not for a server"),
        Row::of(Failure::TooManyConnections)
            .case(
                Case::new("a second connection", |play| {
                    let mut first = play.scene.client1();
                    first.sends("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
                    let _server = play.scene.accept1();
                    let mut client = play.scene.client1();
                    client.sends("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
                    Seen::of(client)
                })
                .front("limits = { connections = 1 }")
                .clients(OVER_TCP)
                .without_version()
                .detail("more connections than limits.connections, 1"),
            )
            .case(
                Case::new("a second connection", |play| {
                    let mut first = play.scene.client1();
                    first.sends("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
                    let _server = play.scene.accept1();
                    let address = play.scene.address(1);
                    let refused = H3TestClient::try_connect(address, &[b"h3"], quinn::TransportConfig::default());
                    assert!(refused.is_err());
                    Seen::nothing()
                })
                .front("limits = { connections = 1 }")
                .clients(THREE)
                .seen(0, 0, "")
                .without_version()
                .detail("more connections than limits.connections, 1"),
            )
            .no_servers(EACH, "the limit is one of clients"),
        Row::of(Failure::OutOfDescriptors)
            .no_clients(EACH, "descriptors::accepting_pauses_until_there_are_descriptors_again has it, alone in its process")
            .no_servers(EACH, "descriptors::accepting_pauses_until_there_are_descriptors_again has it, alone in its process"),
        Row::of(Failure::OutOfPorts)
            .no_clients(EACH, "it takes all ports of the machine; transport::dial tells it from other errors")
            .no_servers(EACH, "it takes all ports of the machine; transport::dial tells it from other errors"),
        Row::of(Failure::FetchFailed).case(
            Case::new("a request beside one that fails", |play| {
                let mut first = play.caller();
                first.asks("GET", "/shared", "");
                let mut server = play.asked();
                let mut second = play.caller();
                second.asks("GET", "/shared", "");
                play.scene.waits("the second client waits for the first", |counters| counters.cache_waits > 0);
                server.leaves();
                second.gets()
            })
            .route(CACHED)
            .tables(STORE)
            .target("/shared")
            .clients(EACH)
            .servers(EACH),
        ),
        Row::of(Failure::NotStored)
            .case(
                Case::new("only-if-cached", |play| play.asks("GET", "/", "cache-control: only-if-cached\n"))
                    .route(CACHED)
                    .tables(STORE)
                    .clients(EACH),
            )
            .no_servers(EACH, "no server is asked"),
    ]
}

/// Drops root's right to read every file, for this thread and those that it starts.
pub(crate) fn obey_permissions() {
    let Ok(mut all) = capabilities(None) else { return };
    all.effective &= !(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
    set_capabilities(None, all).expect("a right can always be given up");
}

/// Sends a request while another one is at the server.
fn beside_another(play: &Play<'_>) -> Seen {
    let mut first = play.scene.client1();
    first.sends("GET /first HTTP/1.1\r\nHost: test\r\n\r\n");
    let _server = play.asked();
    play.asks("GET", "/", "")
}
