//! gRPC end to end: the Go stack's interoperability client and server with the proxy between them, with or without
//! TLS to the client, without TLS to the server. Also gRPC-Web, with clients of two projects.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::process::{Process, free_address};
use super::programs::{self, MODULE, NODE};
use super::subject::{Against, PairFiles, RunningProxy};
use crate::say;
use crate::scratch::Scratch;
use crate::workspace::Workspace;

/// The program between client and server.
#[derive(clap::Args)]
pub(crate) struct GrpcStrangerArgs {
    /// The proxy between client and server.
    #[arg(long, value_enum, value_name = "PROXY", default_value = "vanward")]
    against: Against,
    /// No proxy: shows that client and server agree.
    #[arg(long, conflicts_with = "against")]
    direct: bool,
}

impl GrpcStrangerArgs {
    pub(super) fn through(&self) -> Through {
        if self.direct { Through::Nothing } else { Through::Proxy(self.against) }
    }
}

#[derive(Clone, Copy)]
pub(super) enum Through {
    Proxy(Against),
    Nothing,
}

impl fmt::Display for Through {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Proxy(against) => write!(formatter, "through {against}"),
            Self::Nothing => formatter.write_str("with nothing between client and server"),
        }
    }
}

const CLIENT: &str = "google.golang.org/grpc/interop/client";
const SERVER: &str = "google.golang.org/grpc/interop/server";
/// A gRPC-Web client with the library of Connect for Go. It supports the binary form.
const GO_WEB_CLIENT: &str = "vanward/strangers/grpcweb";
/// The gRPC-Web client for browsers, and a browser environment for Node.js. It supports both forms.
const NODE_WEB_CLIENT: &str = "grpc-web@2.1.1";
const BROWSER: &str = "xhr2@0.2.1";

/// Test cases without cloud credentials, by the client's names: all kinds of calls, their ends, metadata.
const CASES: &[&str] = &[
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "timeout_on_sleeping_server",
    "cancel_after_begin",
    "cancel_after_first_response",
    "status_code_and_message",
    "special_status_message",
    "custom_metadata",
    "unimplemented_method",
    "unimplemented_service",
    // Many calls on one connection, and each on a new one.
    "rpc_soak",
    "channel_soak",
];
/// Number of calls without a pause: enough to reach a peer's limits per second.
const SOAK: [&str; 2] = ["-soak_iterations=400", "-soak_overall_timeout_seconds=50"];
/// Timeout of a case: some have none, and a busy machine is slow.
const CASE_LIMIT: Duration = Duration::from_secs(60);

pub(super) fn check(workspace: &Workspace, scratch: &Scratch, through: Through) -> Result<(), String> {
    let [client, server] = programs::build(workspace, [CLIENT, SERVER])?;
    let folder = scratch.path();
    let pair = PairFiles::make(folder)?;
    let (_servers, doors) = match through {
        Through::Proxy(against) => {
            let vanward = programs::build_vanward(workspace)?;
            let (process, address) = start_server(&server, "server", &[], folder)?;
            let subject = RunningProxy::before_http2(against, &vanward, address, &pair, folder)?;
            let doors = Doors { tls: subject.tls, plain: subject.plain };
            (GrpcProcesses { _servers: vec![process], _subject: Some(subject) }, doors)
        }
        Through::Nothing => {
            let files = [("-tls_cert_file", &pair.cert), ("-tls_key_file", &pair.key)];
            let files = files.map(|(flag, file)| format!("{flag}={}", file.display()));
            let flags = ["-use_tls", &files[0], &files[1]];
            let (secured, tls) = start_server(&server, "server-tls", &flags, folder)?;
            let (process, plain) = start_server(&server, "server", &[], folder)?;
            (GrpcProcesses { _servers: vec![secured, process], _subject: None }, Doors { tls, plain })
        }
    };
    let ca = format!("-ca_file={}", pair.cert.display());
    let secured = ["-use_tls", "-use_test_ca", &ca, "-server_host_override=localhost"];
    let failed: Vec<String> = [("TLS", doors.tls, &secured[..]), ("in the clear", doors.plain, &[])]
        .iter()
        .flat_map(|&(way, address, flags)| CASES.iter().map(move |case| (*case, way, address, flags)))
        .filter_map(|(case, way, address, flags)| run(&client, case, way, address, flags, folder).err())
        .collect();
    let count = 2 * CASES.len();
    say(format_args!("{} of {count} cases passed, {} over TLS", count - failed.len(), CASES.len()));
    if !failed.is_empty() {
        return Err(failed.join("\n"));
    }
    match through {
        Through::Proxy(Against::Vanward) => check_web(workspace, &doors, &pair, folder),
        // These do not translate it.
        Through::Proxy(Against::Nginx) | Through::Nothing => Ok(()),
    }
}

/// gRPC-Web over HTTP/1.1 without TLS, and over HTTP/2 with TLS.
fn check_web(workspace: &Workspace, doors: &Doors, pair: &PairFiles, folder: &Path) -> Result<(), String> {
    let [go_client] = programs::build(workspace, [GO_WEB_CLIENT])?;
    let node_client = programs::from_npm(workspace, &[NODE_WEB_CLIENT, BROWSER], folder)?;
    let (plain, secured) = (format!("http://{}", doors.plain), format!("https://{}", doors.tls));
    let script = workspace.root.join(MODULE).join("grpcweb/client.mjs");
    let mut over_http1 = Command::new(&go_client);
    over_http1.arg(&plain);
    let mut over_http2 = Command::new(&go_client);
    over_http2.arg(&secured).arg(&pair.cert);
    let mut node = Command::new(NODE.find()?);
    node.arg(script).arg(node_client).arg(&plain);
    for (name, client, what) in [
        ("connect-http1", &mut over_http1, "Connect for Go, over HTTP/1.1"),
        ("connect-http2", &mut over_http2, "Connect for Go, over HTTP/2 with TLS"),
        ("grpc-web", &mut node, "the client for browsers, over HTTP/1.1, in text and binary"),
    ] {
        programs::run(name, client, folder, CASE_LIMIT)?;
        say(format_args!("gRPC-Web by {what}"));
    }
    Ok(())
}

struct GrpcProcesses {
    _subject: Option<RunningProxy>,
    _servers: Vec<Process>,
}

struct Doors {
    tls: SocketAddr,
    plain: SocketAddr,
}

fn start_server(
    program: &Path,
    name: &str,
    flags: &[&str],
    folder: &Path,
) -> Result<(Process, SocketAddr), String> {
    let address = free_address()?;
    let mut command = Command::new(program);
    command.arg(format!("-port={}", address.port())).args(flags);
    let process = Process::start(name, &mut command, folder)?.listening_on(address)?;
    Ok((process, address))
}

fn run(
    client: &Path,
    case: &str,
    way: &str,
    address: SocketAddr,
    flags: &[&str],
    folder: &Path,
) -> Result<(), String> {
    let mut command = Command::new(client);
    command.arg(format!("-server_host={}", address.ip())).arg(format!("-server_port={}", address.port()));
    command.arg(format!("-test_case={case}")).args(flags).args(SOAK);
    let name = format!("{case}, {way}");
    let (status, said) = Process::start(&name, &mut command, folder)?.finish(CASE_LIMIT)?;
    if status.success() {
        return Ok(());
    }
    let problem = format!("{name}: {status}; the client said:\n{}", said.trim_end());
    say(&problem);
    Err(format!("{name} failed"))
}
