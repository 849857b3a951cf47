//! Streams of `vanward load` with servers of the Go stack, over HTTP/1.1, HTTPS and HTTP/2: server-sent events
//! (net/http), WebSockets (gorilla) and gRPC (grpc-go). A client of that stack counts the same streams.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::process::{Process, free_address};
use super::programs;
use super::subject::PairFiles;
use crate::say;
use crate::scratch::Scratch;
use crate::step;
use crate::workspace::Workspace;

const PROGRAM: &str = "vanward/strangers/streams";
const LIMIT: Duration = Duration::from_secs(60);

/// Service of gRPC's interoperability tests.
const SERVICE: &str = "/grpc.testing.TestService/";
/// `StreamingOutputCallRequest` for one response of 100 bytes, and for three at intervals of a millisecond.
const ONE_RESPONSE: &str = "hex:12020864";
const THREE_RESPONSES: &str = "hex:1205086410e807 1205086410e807 1205086410e807";

struct Doors {
    http: SocketAddr,
    https: SocketAddr,
    grpc: SocketAddr,
    grpcs: SocketAddr,
}

pub(super) fn check(workspace: &Workspace, scratch: &Scratch) -> Result<(), String> {
    let [program] = programs::build(workspace, [PROGRAM])?;
    let vanward = programs::build_vanward(workspace)?;
    let folder = scratch.path();
    let pair = PairFiles::make(folder)?;
    let doors = Doors {
        http: free_address()?,
        https: free_address()?,
        grpc: free_address()?,
        grpcs: free_address()?,
    };
    let mut server = Command::new(&program);
    for (flag, address) in
        [("-http", doors.http), ("-https", doors.https), ("-grpc", doors.grpc), ("-grpcs", doors.grpcs)]
    {
        server.arg(flag).arg(address.to_string());
    }
    server.arg("-cert").arg(&pair.cert).arg("-key").arg(&pair.key);
    let server = Process::start("server", &mut server, folder)?.listening_on(doors.grpcs)?;
    let server = server.listening_on(doors.http)?.listening_on(doors.https)?.listening_on(doors.grpc)?;
    let ca = pair.cert.display().to_string();
    let cases = [web_cases(&doors, &ca), call_cases(&doors, &ca)].concat();
    let mut failed = Vec::new();
    for (number, (name, arguments)) in cases.iter().enumerate() {
        if let Err(problem) = run(&vanward, number, arguments, folder) {
            say(format_args!("{name}: {problem}"));
            failed.push(*name);
        }
    }
    say(format_args!("{} of {} workloads were counted correctly", cases.len() - failed.len(), cases.len()));
    compare(&program, &vanward, &doors, folder)?;
    drop(server);
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}

/// A workload: its name, and the arguments of `vanward load`.
type Case = (&'static str, Vec<String>);

/// Expectations of each workload; the last only for those whose messages have a time.
const GOOD: [&str; 6] =
    ["errors = 0", "lost = 0", "duplicates = 0", "out-of-order = 0", "closed-early = 0", "p99 < 30s"];
const GOOD_UNTIMED: &[&str] = GOOD.split_at(5).0;

fn case(name: &'static str, flags: &str, expected: &[&str], url: String) -> Case {
    let flags = flags.split(' ').map(str::to_owned);
    let expected = expected.iter().flat_map(|expected| ["--expect".to_owned(), (*expected).to_owned()]);
    (name, flags.chain(expected).chain([url]).collect())
}

fn web_cases(doors: &Doors, ca: &str) -> Vec<Case> {
    let (http, https) = (format!("http://{}", doors.http), format!("https://{}", doors.https));
    let good = |name, flags: &str, url: String| case(name, flags, &GOOD, url);
    let events = "/events?rate=500&count=100000";
    vec![
        good("events over HTTP/1.1", "events -c 10 -n 1000", format!("{http}{events}")),
        good("events over HTTPS", &format!("events -c 10 -n 1000 --ca {ca}"), format!("{https}{events}")),
        good(
            "events over HTTP/2",
            &format!("events --h2 -c 2 -m 5 -n 1000 --ca {ca}"),
            format!("{https}{events}"),
        ),
        good("WebSocket echo", "websocket -c 10 -n 2000 --in-flight 4", format!("{http}/echo")),
        good(
            "WebSocket echo at a rate, over HTTPS",
            &format!("websocket -c 10 -n 500 -R 1000 --size 70000 --ca {ca}"),
            format!("{https}/echo"),
        ),
        good("WebSocket fan-out", "websocket --fan-out -c 20 -n 100 -R 500 -t 2", format!("{http}/room")),
    ]
}

/// gRPC calls of each kind. Messages of the interoperability service have no time.
fn call_cases(doors: &Doors, ca: &str) -> Vec<Case> {
    let (grpc, grpcs) = (format!("http://{}", doors.grpc), format!("https://{}", doors.grpcs));
    let call = |name, flags: &str, expected: &[&str], url: &str, method: &str, message: &str| {
        let flags = format!("grpc {flags} --method {SERVICE}{method} --message");
        let (name, mut arguments) = case(name, &flags, expected, url.to_owned());
        let at = arguments.iter().position(|argument| argument == "--message").map_or(0, |at| at + 1);
        arguments.insert(at, message.to_owned());
        (name, arguments)
    };
    let secured = |flags: &str| format!("{flags} --ca {ca}");
    let empty = |name, flags: &str, url: &str| call(name, flags, &GOOD, url, "EmptyCall", "hex:");
    let duplex = |name, flags: &str, url: &str| call(name, flags, &GOOD, url, "FullDuplexCall", ONE_RESPONSE);
    vec![
        empty("unary gRPC", "-c 2 -m 10 -n 1000", &grpc),
        empty("unary gRPC at a rate, over TLS", &secured("-c 2 -m 10 -n 500 -R 1000"), &grpcs),
        call(
            "server-streaming gRPC",
            "-m 5 -n 300 --server-stream",
            GOOD_UNTIMED,
            &grpc,
            "StreamingOutputCall",
            THREE_RESPONSES,
        ),
        call(
            "client-streaming gRPC",
            "-m 5 -n 1000 --client-stream --messages 20",
            &GOOD,
            &grpc,
            "StreamingInputCall",
            "hex:0a04 12026162",
        ),
        duplex("bidirectional gRPC over TLS", &secured("-m 5 -n 1000 --bidi -R 2000 --messages 50"), &grpcs),
        duplex("endless bidirectional gRPC", "-m 5 -n 1000 --bidi", &grpc),
        call(
            "calls that are refused",
            "-n 50",
            &["errors = 50", "messages/s = 0"],
            &grpc,
            "UnimplementedCall",
            "hex:",
        ),
    ]
}

fn run(vanward: &Path, number: usize, arguments: &[String], folder: &Path) -> Result<String, String> {
    let mut command = Command::new(vanward);
    command.arg("load").args(arguments).arg("--quiet");
    let (status, said) = Process::start(&format!("load-{number}"), &mut command, folder)?.finish(LIMIT)?;
    // Rejected calls never succeed, as expected.
    let is_refusal =
        status.code() == Some(1) && said.contains("UNIMPLEMENTED 50") && !said.contains("MISSED");
    if status.success() || status.code() == Some(step::INVALID_RUN) || is_refusal {
        return Ok(said);
    }
    Err(format!("{status}; it said:\n{}", said.trim_end()))
}

/// Compares the counts of the same streams by a client of the Go stack and by `vanward load`.
fn compare(program: &Path, vanward: &Path, doors: &Doors, folder: &Path) -> Result<(), String> {
    let http = format!("http://{}", doors.http);
    // `vanward load` does not count messages before its measured window.
    let events =
        [format!("{http}/events?rate=500&count=200"), format!("{http}/events?rate=500&count=100000")];
    let echo = [format!("{http}/echo"), format!("{http}/echo")];
    for (number, (kind, [url, own_url], flags)) in [
        ("events", events, ["events", "-c", "10", "-n", "2000"].as_slice()),
        ("echo", echo, &["websocket", "-c", "10", "-n", "2000"]),
    ]
    .into_iter()
    .enumerate()
    {
        let mut client = Command::new(program);
        client.args(["-client", kind, "-streams", "10", "-count", "200"]).arg(&url);
        let (status, said) = Process::start(&format!("client-{kind}"), &mut client, folder)?.finish(LIMIT)?;
        let arguments: Vec<String> =
            flags.iter().copied().chain([own_url.as_str()]).map(str::to_owned).collect();
        let ours = run(vanward, 100 + number, &arguments, folder)?;
        if !status.success() || !said.contains("messages=2000 ") || !ours.contains("Received   2000 messages")
        {
            return Err(format!("{kind}: the clients count differently; {status}:\n{said}\nand\n{ours}"));
        }
        say(format_args!(
            "{kind}: a client of the Go stack counts the same 2,000 messages: {}",
            said.trim_end()
        ));
    }
    Ok(())
}
