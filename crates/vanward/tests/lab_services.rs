//! `vanward lab` with other services: other origins, services that run already, other versions.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;

use report::Results;
use report::results::{MeasurementOutcome, ProxyRole};

use crate::process::Process;

/// Exit codes: a mistake in a plan, and invalid figures, which a busy machine causes.
const MISTAKE: i32 = 78;
const INVALID_RUN: i32 = 98;

/// The head of a plan with one short measurement.
const PLAN: &str = "title = \"Service\"\nrepeats = 1\nduration = \"200ms\"\n";
/// A case that only the service below supports.
const ORDERS: &str = "[[case]]\nname = \"orders\"\npayload = \"/orders\"\nconnections = 1\nrequests = 20\n\
                      request = { method = \"PUT\", headers = { X-Tenant = \"acme\" }, body = '{\"a\":1}' }\n";

/// A service that answers 200 to a PUT with this body and field, and 405 to anything else except its health check.
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

fn counts(results: &Results) -> Vec<(String, u64, u64)> {
    let counted = |run: &report::results::Run| {
        let (MeasurementOutcome::Measured(measured) | MeasurementOutcome::Invalid { measured, .. }) =
            &run.outcome
        else {
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
    let said = format!("origins that were already running: {address}");
    assert!(found.conditions.alike.contains(&said), "{:?}", found.conditions.alike);

    let url = format!("http://{address}");
    let found = results(folder.path(), &plan, &["--target", &url]);
    assert_eq!(counts(&found), [("target".to_owned(), 20, 0)]);
    assert_eq!(found.conditions.alike, ["services that were already running"]);
    assert!(found.command.contains(&format!("--target {url}")), "{}", found.command);

    // Beside a proxy, and with an expectation about the service.
    let staged = format!(
        "expect = [\"errors = 0\"]\n{PLAN}proxies = [\"staging\"]\n[target]\nstaging = \"http://{address}\"\n{ORDERS}"
    );
    let found = results(folder.path(), &staged, &[]);
    assert_eq!(counts(&found), [("staging".to_owned(), 20, 0)]);
    assert_eq!(found.expectations.len(), 1, "{:?}", found.expectations);
}

#[test]
fn a_list_of_requests_is_sent_to_a_service_behind_proxies_and_alone() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let address = service();
    let inside = "requests_from = [\n{ path = \"/health\", weight = 3 },\n{ path = \"/orders\", method = \"PUT\", \
                  headers = { X-Tenant = \"acme\" }, body_file = \"order.json\", check = { contains = \"ok\" } }]\n";
    let case = |name: &str, list: &str| {
        format!("[[case]]\nname = \"{name}\"\npayload = \"/health\"\nconnections = 1\nrequests = 20\n{list}")
    };
    std::fs::write(folder.path().join("order.json"), "{\"a\":1}").expect("a body");
    // The file's host is not the service's.
    let http = "### order\n# @weight 3\nPUT http://shop.test/orders\nX-Tenant: acme\n\n< ./order.json\n\n\
                ### health\n# @check contains nothing\nGET /health\n";
    std::fs::write(folder.path().join("shop.http"), http).expect("a list");
    let recording = "{\"log\": {\"entries\": [{\"request\": {\"method\": \"GET\", \"url\": \
                     \"https://shop.test/health\", \"headers\": []}}]}}";
    std::fs::write(folder.path().join("visit.har"), recording).expect("a recording");
    let plan = format!(
        "{PLAN}proxies = [\"direct\", \"vanward\"]\n[origin]\nurl = [\"http://{address}\"]\nready = \"/health\"\n\
         {}{}{}",
        case("inside", inside),
        case("http", "requests_from = \"shop.http\"\n"),
        case("har", "requests_from = \"visit.har\"\n"),
    );
    let all = |name: &str, good, failed| {
        ["direct", "vanward"].map(|proxy| (proxy.to_owned(), good, failed, name.to_owned()))
    };
    let found = results(folder.path(), &plan, &[]);
    let named = |found: &Results| -> Vec<_> {
        let mut named: Vec<_> = found
            .runs
            .iter()
            .map(|run| {
                let (MeasurementOutcome::Measured(measured) | MeasurementOutcome::Invalid { measured, .. }) =
                    &run.outcome
                else {
                    panic!("it was measured: {:?}", run.outcome)
                };
                (run.proxy.clone(), measured.requests, measured.error_count(), run.case.clone())
            })
            .collect();
        named.sort_by(|one, other| (&other.3, &one.0).cmp(&(&one.3, &other.0)));
        named
    };
    assert_eq!(named(&found), [all("inside", 20, 0), all("http", 15, 5), all("har", 20, 0)].concat());
    let missed = found.runs.iter().find(|run| run.case == "http").expect("it was measured");
    let MeasurementOutcome::Invalid { reason, measured, .. } = &missed.outcome else {
        panic!("a quarter failed")
    };
    assert!(
        reason.contains("5 of 20 requests failed: health: the body")
            && measured.errors["check: contains"] == 5,
        "{reason}"
    );
    let lists: Vec<_> = found.cases.iter().map(|case| case.features[0].as_str()).collect();
    assert_eq!(lists, ["2 requests of the plan", "2 requests of shop.http", "1 request of visit.har"]);
    let page = std::fs::read_to_string(folder.path().join("out/report.html")).expect("a page");
    assert!(
        page.contains("2 requests of shop.http") && page.contains("5 of 20 requests failed: health"),
        "{page}"
    );

    let found =
        results(folder.path(), &plan, &["--target", &format!("http://{address}"), "--cases", "inside"]);
    assert_eq!(counts(&found), [("target".to_owned(), 20, 0)]);
}

/// Starts an origin with TLS in this folder. Its certificate for `orders.test` and its address is signed by `ca.pem`.
fn tls_origin(folder: &Path) -> (Process, SocketAddr) {
    let key = || rcgen::KeyPair::generate().expect("a key");
    let (ca_key, server_key) = (key(), key());
    let mut ca = rcgen::CertificateParams::new(Vec::new()).expect("no name");
    // With the same name as the certificate, the latter would seem self-signed.
    ca.distinguished_name.push(rcgen::DnType::CommonName, "Authority of a test");
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca_certificate = ca.self_signed(&ca_key).expect("a certificate");
    let names = ["orders.test", "127.0.0.1"].map(str::to_owned);
    let server = rcgen::CertificateParams::new(names).expect("names");
    let server = server.signed_by(&server_key, &rcgen::Issuer::new(ca, &ca_key)).expect("a certificate");
    for (name, text) in [
        ("ca.pem", ca_certificate.pem()),
        ("cert.pem", server.pem()),
        ("key.pem", server_key.serialize_pem()),
    ] {
        std::fs::write(folder.join(name), text).expect("a file");
    }
    let flags = ["origin", "--listen", "127.0.0.1:0", "--cert", "cert.pem", "--key", "key.pem"];
    let mut origin = Process::start_in(folder, &flags);
    let address = origin.address();
    (origin, address)
}

#[test]
fn origins_over_tls_are_verified_by_the_proxies() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_origin, address) = tls_origin(folder.path());
    let plan = |ca: &str, name: &str| {
        format!(
            "{PLAN}proxies = [\"vanward\", \"nginx\", \"haproxy\"]\n[origin]\nurl = [\"https://{address}\"]\n\
             ca = \"{ca}\"\nname = \"{name}\"\n\
             [[case]]\nname = \"tls\"\npayload = \"/tiny\"\nupstream = \"https\"\nconnections = 1\nrequests = 20\n"
        )
    };
    let found = results(folder.path(), &plan("ca.pem", "orders.test"), &[]);
    let expected: Vec<_> = ["haproxy", "nginx", "vanward"]
        .into_iter()
        .filter(|name| found.proxies.iter().any(|proxy| proxy.name == *name))
        .map(|name| (name.to_owned(), 20, 0))
        .collect();
    assert_eq!(counts(&found), expected);
    assert!(
        std::env::var_os("CI").is_none() || expected.len() == 3,
        "nginx and HAProxy have to be there in CI"
    );
    let said = format!("origins that were already running over TLS: {address}");
    assert!(found.conditions.alike.contains(&said), "{:?}", found.conditions.alike);

    // Another name or another CA is reported before the measurement.
    let other = rcgen::generate_simple_self_signed(["other.test".to_owned()]).expect("a certificate");
    std::fs::write(folder.path().join("other.pem"), other.cert.pem()).expect("a file");
    for (ca, name) in [("ca.pem", "other.test"), ("other.pem", "orders.test")] {
        std::fs::write(folder.path().join("plan.toml"), plan(ca, name)).expect("a plan");
        let refused = Process::start_in(folder.path(), &["lab", "run", "plan.toml"]).ended().with_code(1);
        let said = format!("https://{address} does not answer: ");
        assert!(
            refused.errors.contains(&said) && refused.errors.contains("certificate"),
            "{}",
            refused.errors
        );
    }
}

#[test]
fn a_service_over_https_is_verified_by_an_authority_of_its_own() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_origin, address) = tls_origin(folder.path());
    let case = "[[case]]\nname = \"https\"\nscheme = \"https\"\npayload = \"/tiny\"\nconnections = 1\nrequests = 20\n";
    let staged = |table: &str| format!("{PLAN}proxies = [\"staging\"]\n[target]\nstaging = {table}\n{case}");
    let with_ca = staged(&format!("{{ url = \"https://{address}\", ca = \"ca.pem\" }}"));
    let found = results(folder.path(), &with_ca, &[]);
    assert_eq!(counts(&found), [("staging".to_owned(), 20, 0)]);
    let url = format!("https://{address}");
    let found = results(folder.path(), &with_ca, &["--target", &url, "--ca", "ca.pem"]);
    assert_eq!(counts(&found), [("target".to_owned(), 20, 0)]);
    assert!(found.command.contains(" --ca ca.pem "), "{}", found.command);
    // The system does not know the CA.
    std::fs::write(folder.path().join("plan.toml"), staged(&format!("\"{url}\""))).expect("a plan");
    let run = ["lab", "run", "plan.toml", "--out", "out"];
    let refused = Process::start_in(folder.path(), &run).ended().with_code(INVALID_RUN);
    assert!(refused.errors.contains("certificate") || refused.output.contains("certificate"), "{refused:?}");
    for (flags, said) in [
        (&["--target", "http://127.0.0.1:1", "--ca", "ca.pem"][..], "--ca needs a target with TLS"),
        (&["--target", &url, "--ca", "none.pem"], "--ca: cannot read none.pem"),
        (&["--target", &url, "--ca", "key.pem"], "--ca: key.pem has no certificate"),
    ] {
        let refused = Process::start_in(folder.path(), &[&run[..], flags].concat()).ended().with_code(2);
        assert!(refused.errors.contains(said), "{}", refused.errors);
    }
}

#[test]
fn mistakes_in_lists_have_a_place_and_prevent_the_start() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let put = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("a file");
    put("a.toml", "[[request]]\npath = \"/\"\nmethdo = \"PUT\"\n");
    put("a.http", "GET /x\n\n###\n# @check status many\nGET /y\n");
    put("b.http", "GET http://a.test/\n\n###\nGET http://b.test/\n");
    let entry = |host: &str| {
        format!("{{\"request\": {{\"method\": \"GET\", \"url\": \"http://{host}/\", \"headers\": []}}}}")
    };
    put("a.har", &format!("{{\"log\": {{\"entries\": [{}, {}]}}}}", entry("a.test"), entry("b.test")));
    let good = "requests_from = [{ path = \"/\" }]\n";
    for (list, said) in [
        (
            "requests_from = \"a.toml\"\n",
            "a.toml:3:1: unknown key \"methdo\" in [[request]]; did you mean \"method\"?",
        ),
        ("requests_from = \"a.http\"\n", "a.http:4:"),
        (
            "requests_from = \"a.har\"\n",
            "a.har:1:1: the recording has requests to several hosts: a.test (1), b.test (1); name the hosts that may receive load with hosts = [\"HOST\"] in the case",
        ),
        (
            "requests_from = \"b.http\"\n",
            "plan.toml:9:17: the requests in b.http go to several hosts, http://a.test, http://b.test",
        ),
        ("requests_from = \"none.toml\"\n", "plan.toml:9:17: cannot read \"none.toml\": "),
        ("requests_from = \"a.txt\"\n", "plan.toml:9:17: \"a.txt\" is not a list of requests; expected"),
        ("requests_from = 5\n", "plan.toml:9:17: expected the name of a file"),
        ("requests_from = []\n", "the file has no request"),
        (
            "requests_from = [\n{ path = \"/\", wieght = 2 }]\n",
            "plan.toml:10:15: unknown key \"wieght\" in [[request]]; did you mean \"weight\"?",
        ),
        (
            "requests_from = [\n{ path = \"/\", check = { size = \"x\" } }]\n",
            "plan.toml:10:32: size is not understood",
        ),
        (&format!("{good}request = {{ method = \"PUT\" }}\n"), "leave out request and urls"),
        (&format!("{good}generator = \"wrk\"\n"), "only the generator \"vanward\" supports"),
    ] {
        let case = "[[case]]\nname = \"a\"\npayload = \"tiny\"\nconnections = 1\n";
        put("plan.toml", &format!("{PLAN}proxies = [\"direct\"]\n{case}{list}"));
        let refused =
            Process::start_in(folder.path(), &["lab", "run", "plan.toml"]).ended().with_code(MISTAKE);
        assert!(refused.errors.contains(said), "{list}: {}", refused.errors);
    }
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
    let roles: Vec<ProxyRole> = found.proxies.iter().map(|proxy| proxy.role).collect();
    assert_eq!(roles, [ProxyRole::Subject, ProxyRole::Peer]);
    assert_eq!(found.proxies[0].version, found.proxies[1].version);
    assert_eq!(found.origins.len(), 2);
    assert!(found.origins.iter().all(|origin| origin.command.contains(" origin --listen 127.0.0.1:")));
}

/// A program that the lab only knows by its files: here Vanward itself, over HTTP and HTTPS.
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
            "[program] has \"caddy\"; expected a known proxy, @ and a label of your choice",
        ),
        (
            "proxies = [\"a\"]\n[target]\na = \"http://b/c\"\n",
            "\"http://b/c\" is not the URL of a service; expected http://HOST[:PORT] or",
        ),
        ("proxies = [\"a\"]\n[target]\na = \"ftp://b\"\n", "\"ftp://b\" is not the URL of a service"),
        ("proxies = [\"vanward\"]\n[target]\nnginx = \"http://b\"\n", "a name that the lab already uses"),
        ("proxies = [\"vanward\"]\n[target]\nb = \"http://b\"\n", "which is none of the plan's proxies"),
        ("proxies = [\"vanward\"]\n[origin]\n", "[origin] has either url, for running servers, or command"),
        ("proxies = [\"a\"]\n[command]\na = []\n", "[command.a]: the command line has no program"),
        (
            "proxies = [\"a\"]\n[command.a]\nrun = [\"x\"]\nfiles = { \"../b\" = \"\" }\n",
            "the file \"../b\" is not in the folder of the proxy",
        ),
        ("proxies = [\"a\"]\n[command]\na = 1\n", "expected a command line such as"),
        ("proxies = [\"vanward\"]\n[origin]\ncommand = [\"x\"]\n", "does not say where to listen"),
        (
            "proxies = [\"vanward\"]\n[origin]\nurl = [\"https://a\"]\n",
            "expected ca = \"FILE\", the authority",
        ),
        (
            "proxies = [\"vanward\"]\n[origin]\nurl = [\"https://a\", \"http://b\"]\n",
            "other origins use TLS and this one does not",
        ),
        (
            "proxies = [\"vanward\"]\n[origin]\nurl = [\"https://a\"]\nca = \"none.pem\"\n",
            "6:6: cannot read none.pem",
        ),
        (
            "proxies = [\"vanward\"]\n[origin]\nurl = [\"http://a\"]\nname = \"b\"\n",
            "name applies to certificates, so it needs https:// URLs",
        ),
        (
            "proxies = [\"a\"]\n[target]\na = { url = \"https://b\", ca = \"none.pem\" }\n",
            "cannot read none.pem",
        ),
        (
            "proxies = [\"vanward\"]\norigins = 2\n[origin]\nurl = [\"http://a\"]\n",
            "origins is the number of servers that",
        ),
        (
            "proxies = [\"vanward\"]\n[origin]\nurl = [\"http://a\"]\nready = \"x\"\n",
            "ready = \"x\" is not a path",
        ),
    ] {
        // The duration must come before tables.
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
        refused.errors.contains(&said) && refused.errors.contains("start it, or let"),
        "{}",
        refused.errors
    );
}
