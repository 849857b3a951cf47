//! `vanward lab` with services that are not Vanward's own: other origins, services that run already, other versions.

/// The program as a process.
mod process;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;

use report::Results;
use report::results::{Outcome, Role};

use process::Process;

/// A mistake in a plan, and figures that are invalid: on a busy machine some are.
const MISTAKE: i32 = 78;
const INVALID_RUN: i32 = 98;

/// What is measured, once, in front of the rest of a plan.
const PLAN: &str = "title = \"Service\"\nrepeats = 1\nduration = \"200ms\"\n";
/// A case that only the service below answers.
const ORDERS: &str = "[[case]]\nname = \"orders\"\npayload = \"/orders\"\nconnections = 1\nrequests = 20\n\
                      request = { method = \"PUT\", headers = { X-Tenant = \"acme\" }, body = '{\"a\":1}' }\n";

/// A service that answers a PUT with this body and field with 200, and anything else but its health with 405.
fn service() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback is free");
    let address = listener.local_addr().expect("it listens");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || answer(stream.expect("a connection")));
        }
    });
    address
}

fn answer(mut stream: TcpStream) {
    let (mut received, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") else {
            match stream.read(&mut piece) {
                Ok(count) if count > 0 => received.extend_from_slice(&piece[..count]),
                _ => return,
            }
            continue;
        };
        let head = String::from_utf8_lossy(&received[..end]).to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1).map_or(0, |rest| {
            rest.lines().next().and_then(|length| length.parse().ok()).expect("it is a number")
        });
        while received.len() < end + 4 + length {
            let count = stream.read(&mut piece).expect("the rest of the body");
            received.extend_from_slice(&piece[..count]);
        }
        let body = &received[end + 4..end + 4 + length];
        let is_order =
            head.starts_with("put /orders ") && head.contains("x-tenant: acme") && body == b"{\"a\":1}";
        let status = if is_order || head.starts_with("get /health ") { "200 OK" } else { "405 No" };
        if write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok").is_err() {
            return;
        }
        received.drain(..end + 4 + length);
    }
}

fn results(folder: &Path, plan: &str, arguments: &[&str]) -> Results {
    std::fs::write(folder.join("plan.toml"), plan).expect("a plan");
    let run = [&["lab", "run", "plan.toml", "--out", "out"], arguments].concat();
    let ended = Process::start_in(folder, &run).ended();
    assert!(matches!(ended.status.code(), Some(0 | INVALID_RUN)), "{ended:?}");
    let text = std::fs::read_to_string(folder.join("out/results.json")).expect("results");
    Results::from_json(&text).expect("it reads what it wrote")
}

/// The number of good and of failed responses of each proxy.
fn counts(results: &Results) -> Vec<(String, u64, u64)> {
    let counted = |run: &report::results::Run| {
        let (Outcome::Measured(measured) | Outcome::Invalid { measured, .. }) = &run.outcome else {
            panic!("it was measured: {:?}", run.outcome)
        };
        (run.proxy.clone(), measured.requests, measured.error_count())
    };
    let mut counts: Vec<_> = results.runs.iter().map(counted).collect();
    counts.sort();
    counts
}

#[test]
fn a_service_that_runs_is_measured_behind_proxies_and_alone() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let address = service();
    let plan = format!(
        "{PLAN}proxies = [\"direct\", \"vanward\"]\n[origin]\nurl = [\"http://{address}\"]\nready = \"/health\"\n{ORDERS}"
    );
    let found = results(folder.path(), &plan, &[]);
    assert_eq!(counts(&found), [("direct".to_owned(), 20, 0), ("vanward".to_owned(), 20, 0)]);
    assert!(found.origins.is_empty(), "the lab has started none: {:?}", found.origins);
    let said = format!("origins that run already: {address}");
    assert!(found.conditions.alike.contains(&said), "{:?}", found.conditions.alike);

    let url = format!("http://{address}");
    let found = results(folder.path(), &plan, &["--target", &url]);
    assert_eq!(counts(&found), [("target".to_owned(), 20, 0)]);
    assert_eq!(found.conditions.alike, ["services that run already"]);
    assert!(found.command.contains(&format!("--target {url}")), "{}", found.command);

    // Beside a proxy, and with an expectation that is about it.
    let staged = format!(
        "expect = [\"errors = 0\"]\n{PLAN}proxies = [\"staging\"]\n[target]\nstaging = \"http://{address}\"\n{ORDERS}"
    );
    let found = results(folder.path(), &staged, &[]);
    assert_eq!(counts(&found), [("staging".to_owned(), 20, 0)]);
    assert_eq!(found.expectations.len(), 1, "{:?}", found.expectations);
}

#[test]
fn a_program_is_started_as_the_origin_and_two_versions_of_a_proxy_are_compared() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = env!("CARGO_BIN_EXE_vanward");
    let plan = format!(
        "{PLAN}proxies = [\"vanward\", \"vanward@old\"]\norigins = 2\n\
         [origin]\ncommand = [{program:?}, \"origin\", \"--listen\", \"{{listen}}\"]\n\
         [program]\n\"vanward@old\" = {program:?}\n\
         [[case]]\nname = \"small\"\npayload = \"/blank/77\"\nconnections = 1\nrequests = 20\n"
    );
    let found = results(folder.path(), &plan, &[]);
    assert_eq!(counts(&found), [("vanward".to_owned(), 20, 0), ("vanward@old".to_owned(), 20, 0)]);
    let roles: Vec<Role> = found.proxies.iter().map(|proxy| proxy.role).collect();
    assert_eq!(roles, [Role::Subject, Role::Peer]);
    assert_eq!(found.proxies[0].version, found.proxies[1].version);
    assert_eq!(found.origins.len(), 2);
    assert!(found.origins.iter().all(|origin| origin.command.contains(" origin --listen 127.0.0.1:")));
}

/// A program that the lab knows nothing of but its files: here Vanward itself, over HTTP and HTTPS.
#[test]
fn a_program_with_files_of_its_own_is_measured() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = env!("CARGO_BIN_EXE_vanward");
    let file = "workers = {workers}\nlisten = [{ address = '{listen}', tls = { cert = '{cert}', key = '{key}' } }]\n\
                route = [{ upstream = 'o' }]\nupstream.o.servers = ['http://{origin}']\n";
    let plain = file.replace(", tls = { cert = '{cert}', key = '{key}' }", "");
    let plan = format!(
        "{PLAN}proxies = [\"plain\", \"secure\"]\n\
         [command.plain]\nrun = [{program:?}, \"run\", \"--config\", \"{{folder}}/a.toml\"]\n\
         version = [{program:?}, \"--version\"]\nfiles = {{ \"a.toml\" = \"\"\"{plain}\"\"\" }}\n\
         [command.secure]\nrun = [{program:?}, \"run\", \"--config\", \"{{folder}}/b.toml\"]\n\
         files = {{ \"b.toml\" = \"\"\"{file}\"\"\" }}\n\
         [[case]]\nname = \"{{scheme}}\"\npayload = \"tiny\"\nconnections = 1\nrequests = 20\n\
         scheme = [\"http\", \"https\"]\n"
    );
    let found = results(folder.path(), &plan, &["--proxies", "plain"]);
    assert_eq!(counts(&found), [("plain".to_owned(), 20, 0)], "it takes no certificate");
    assert!(found.proxies[0].version.starts_with("vanward "), "{}", found.proxies[0].version);
    assert_eq!(found.lacking.len(), 1, "{:?}", found.lacking);
    assert!(found.proxies[0].started[0].process.files[0].text.contains("workers = 1\n"));
    let found = results(folder.path(), &plan, &["--proxies", "secure", "--cases", "https"]);
    assert_eq!(counts(&found), [("secure".to_owned(), 20, 0)]);
}

#[test]
fn what_cannot_be_is_told_before_anything_is_started() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (rest, said) in [
        ("proxies = [\"nginx@1\"]\n", "2:12: \"nginx@1\" has no program; expected one in [program]"),
        (
            "proxies = [\"vanward\"]\n[program]\ncaddy = \"/y\"\n",
            "[program] has \"caddy\"; expected a known proxy and a word of yours",
        ),
        (
            "proxies = [\"a\"]\n[target]\na = \"http://b/c\"\n",
            "\"http://b/c\" is no service; expected http:// or",
        ),
        ("proxies = [\"a\"]\n[target]\na = \"ftp://b\"\n", "\"ftp://b\" is no service"),
        ("proxies = [\"vanward\"]\n[target]\nnginx = \"http://b\"\n", "which the lab knows by itself"),
        ("proxies = [\"vanward\"]\n[target]\nb = \"http://b\"\n", "which is none of the plan's proxies"),
        (
            "proxies = [\"vanward\"]\n[origin]\n",
            "[origin] has either url, for servers that run already, or command",
        ),
        ("proxies = [\"a\"]\n[command]\na = []\n", "[command.a]: the command line has no program"),
        (
            "proxies = [\"a\"]\n[command.a]\nrun = [\"x\"]\nfiles = { \"../b\" = \"\" }\n",
            "the file \"../b\" is not in the folder of the proxy",
        ),
        ("proxies = [\"a\"]\n[command]\na = 1\n", "expected a command line such as"),
        ("proxies = [\"vanward\"]\n[origin]\ncommand = [\"x\"]\n", "does not say where to listen"),
        ("proxies = [\"vanward\"]\n[origin]\nurl = [\"https://a\"]\n", "over http:// alone"),
        (
            "proxies = [\"vanward\"]\norigins = 2\n[origin]\nurl = [\"http://a\"]\n",
            "origins counts servers that",
        ),
        (
            "proxies = [\"vanward\"]\n[origin]\nurl = [\"http://a\"]\nready = \"x\"\n",
            "ready = \"x\" is no path",
        ),
    ] {
        // The duration belongs in front of tables.
        let plan = format!("title = \"t\"\n{}", rest.replacen("]\n", "]\nduration = \"1s\"\n", 1) + ORDERS);
        std::fs::write(folder.path().join("plan.toml"), plan).expect("a plan");
        let refused =
            Process::start_in(folder.path(), &["lab", "run", "plan.toml"]).ended().with_code(MISTAKE);
        assert!(refused.errors.contains(said), "{rest}: {}", refused.errors);
    }
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let plan = format!("{PLAN}proxies = [\"direct\"]\n[origin]\nurl = [\"http://{closed}\"]\n{ORDERS}");
    std::fs::write(folder.path().join("plan.toml"), plan).expect("a plan");
    let refused = Process::start_in(folder.path(), &["lab", "run", "plan.toml"]).ended().with_code(1);
    let said = format!("http://{closed} does not answer");
    assert!(
        refused.errors.contains(&said) && refused.errors.contains("start it, or have"),
        "{}",
        refused.errors
    );
}
