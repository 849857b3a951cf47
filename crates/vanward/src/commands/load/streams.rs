//! `vanward load events`, `websocket` and `grpc`: streams in place of requests.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ArgGroup;
use load::{Arrival, Call, LoadPlan, RunOutcome, StampFields, StreamMessage, StreamsPlan, Workload};
use report::condition::FigureCondition;

use super::connecting::Connecting;
use super::limits::FailureLimits;
use super::planned::{self, whole};
use super::values::{self, MaxErrors, Stages, max_errors, rate, seconds, whole_number};
use super::watch::RunWatch;
use super::{expect, out};
use crate::commands::{self, FAILED, USAGE};

/// Messages of a client-streaming call without --messages.
const MESSAGES_DEFAULT: u64 = 100;

/// Measures server-sent events: messages, their delays, gaps between them
///
/// Each connection (with --h2 each stream) reads one event stream. A stream that ends is opened again, with
/// Last-Event-ID, after the server's `retry`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  vanward load events -c 100 -d 30s http://127.0.0.1:8080/events
  vanward load events -c 10 --h2 -m 100 https://127.0.0.1:8443/events            1,000 streams on 10 connections
  vanward load events --time-field ts --number-field n http://127.0.0.1:8080/    events of {\"n\": 17, \"ts\": 1700000000123}
  vanward load events -c 1k --expect 'p99 < 50ms' --expect 'gap-max < 2s' --expect 'lost = 0' http://127.0.0.1:8080/events

The delay of a message is from the time in it to its arrival: sent_ns=NANOSECONDS since 1970, or the same in JSON; --time-field
is another name, and milliseconds, microseconds and seconds are understood. Without it only gaps are known. Events with
numbers, in seq=NUMBER or as their ID, show which are lost, repeated or out of order. `vanward origin` has such a stream at
/events?rate=10.")]
pub(super) struct EventsArgs {
    #[command(flatten)]
    common: StreamFlags,
    #[command(flatten)]
    http2: Http2,
    /// Method [default: GET, or POST with --body]
    #[arg(short = 'X', long, value_name = "METHOD")]
    method: Option<String>,
    /// Request body: text, or @FILE
    #[arg(long, value_name = "TEXT")]
    body: Option<String>,
}

/// Measures WebSockets: echo, or fan-out from some to all others
///
/// With --echo, the default, the server returns each message, and the delay is the round trip; with -R it counts
/// from the time when the message was due. With --fan-out some send, and all others receive; the delay is the
/// time from when a message was due to its arrival at each receiver.
#[derive(clap::Args)]
#[command(group(ArgGroup::new("paced").args(["rate", "stages"])))]
#[command(group(ArgGroup::new("kind").args(["echo", "fan_out"])))]
#[command(after_help = "\
Examples:
  vanward load websocket -c 100 http://127.0.0.1:8080/ws                         each sends when its message is back
  vanward load websocket -c 100 -R 5000 --size 200 wss://127.0.0.1:8443/ws       5,000 messages of 200 bytes a second
  vanward load websocket --fan-out -c 1000 -R 50 http://127.0.0.1:8080/room      one sends 50/s, 999 receive
  vanward load websocket --h2 -c 4 -m 25 https://127.0.0.1:8443/ws               over HTTP/2 (RFC 8441)

A message is text: from=STREAM seq=NUMBER sent_ns=NANOSECONDS, filled up to --size. --message sets another text, in which
{{stream}}, {{counter}}, {{timestamp_ns}}, {{random 1 100}} and {{uuid}} differ each time. If it lacks from=, seq= and
sent_ns=, answers are assumed to arrive in order, and fan-out has no delays. `vanward origin` has an echo at /websocket
and rooms at /websocket/fan-out?room=NAME.")]
pub(super) struct WebSocketArgs {
    #[command(flatten)]
    common: StreamFlags,
    #[command(flatten)]
    http2: Http2,
    #[command(flatten)]
    sending: Sending,
    /// The server returns each message (the default)
    #[arg(long)]
    echo: bool,
    /// Some connections send, and the server forwards their messages to all others
    #[arg(long)]
    fan_out: bool,
    /// Number of streams that send with --fan-out
    #[arg(long, value_name = "N", value_parser = whole_number, requires = "fan_out", default_value = "1")]
    senders: u64,
}

/// Measures gRPC calls: unary, or with streams
///
/// Over HTTP/2, with http by prior knowledge and with https by ALPN. Messages are bytes: no schema is needed. The
/// delay of a unary call is its duration; with -R it counts from when the call was due. With --bidi it is the time from
/// each message to its response. With --server-stream it counts from the time in the message, if there is one.
#[derive(clap::Args)]
#[command(group(ArgGroup::new("paced").args(["rate", "stages"])))]
#[command(group(ArgGroup::new("kind").args(["unary", "server_stream", "client_stream", "bidi"])))]
#[command(after_help = "\
Examples:
  vanward load grpc --method /grpc.health.v1.Health/Check http://127.0.0.1:8080
  vanward load grpc -c 4 -m 25 -R 2000 --method /pkg.Orders/Get --message hex:0a057375736869 https://127.0.0.1:8443
  vanward load grpc --bidi -m 100 -R 5000 --method /pkg.Chat/Talk --message @message.bin http://127.0.0.1:8080
  vanward load grpc --server-stream -m 100 --method /grpc.health.v1.Health/Watch http://127.0.0.1:8080
  vanward load grpc --client-stream --messages 1000 --method /pkg.Log/Write --message 'hex:0a07{{counter 7}}' http://127.0.0.1:8080

A message is text, @FILE, hex:DIGITS or base64:TEXT; protoc --encode makes one from text. {{counter 7}} has seven digits, so that
the lengths within a message stay right, and {{timestamp_ns}} has 19. A call that ends with another status than OK is an error.")]
pub(super) struct GrpcArgs {
    #[command(flatten)]
    common: StreamFlags,
    #[command(flatten)]
    sending: Sending,
    /// Concurrent calls or streams on each connection
    #[arg(short = 'm', long, value_name = "N", value_parser = whole_number, default_value = "1")]
    streams: u64,
    /// The method, /package.Service/Method [default: the path of the URL]
    #[arg(long, value_name = "PATH")]
    method: Option<String>,
    /// A single message, a single response (the default)
    #[arg(long)]
    unary: bool,
    /// A single message, many responses
    #[arg(long)]
    server_stream: bool,
    /// Many messages, a single response
    #[arg(long)]
    client_stream: bool,
    /// Many messages, each with a response
    #[arg(long)]
    bidi: bool,
    /// Messages of a call [default: 100 with --client-stream; with --bidi the call lasts as long as the run]
    #[arg(long, value_name = "N", value_parser = whole_number)]
    messages: Option<u64>,
}

/// Flags of all streams.
#[derive(clap::Args)]
pub(super) struct StreamFlags {
    /// `http://HOST[:PORT]/PATH`, or https
    url: String,
    /// Number of connections, over all threads
    #[arg(short = 'c', long, value_name = "N", value_parser = whole_number, default_value = "10")]
    connections: u64,
    /// Number of threads, which share the connections
    #[arg(short = 't', long, value_name = "N", value_parser = whole_number, default_value = "1")]
    threads: u64,
    /// Duration: 30s, 2m, 500ms [default: 10s, without -n]
    #[arg(short = 'd', long, value_name = "DURATION", value_parser = seconds)]
    duration: Option<f64>,
    /// Number of messages: sent ones, or for event streams and --server-stream received ones
    #[arg(short = 'n', long = "number", value_name = "N", value_parser = whole_number)]
    number: Option<u64>,
    /// Add a header field, 'Name: value'. Can be repeated
    #[arg(short = 'H', long = "header", value_name = "FIELD")]
    headers: Vec<String>,
    /// Credentials for HTTP Basic authentication: NAME:PASSWORD, or @FILE with that. They appear in no output
    #[arg(short = 'u', long, value_name = "USER")]
    user: Option<String>,
    #[command(flatten)]
    connecting: Connecting,
    /// Name of the field with the number of a message
    #[arg(long, value_name = "NAME", default_value = "seq")]
    number_field: String,
    /// Name of the field with the time when a message was sent
    #[arg(long, value_name = "NAME", default_value = "sent_ns")]
    time_field: String,
    /// Name of the field with the number of the sender
    #[arg(long, value_name = "NAME", default_value = "from")]
    sender_field: String,
    /// Timeout for opening a stream, for a call and for an answer
    #[arg(long, value_name = "DURATION", value_parser = seconds, default_value = "10s")]
    timeout: f64,
    /// Exit with 1 if more streams or calls fail than this number or percentage [default: 0, or no limit if --expect is about
    /// errors]
    #[arg(long, value_name = "N", value_parser = max_errors)]
    max_errors: Option<MaxErrors>,
    /// Exit with 99 unless this holds: 'p99 < 50ms', 'messages/s > 1000', 'lost = 0', 'gap-p99 < 1s'. Can be repeated
    #[arg(long = "expect", value_name = "CONDITION", value_parser = expect::condition)]
    expectations: Vec<FigureCondition>,
    /// Warm-up: run for this time without counting it
    #[arg(long, value_name = "DURATION", value_parser = seconds, default_value = "0s")]
    warm_up: f64,
    /// Also measure the server: CPU time per message and memory of this process and its children, on this machine
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Print the result as JSON, with complete histograms
    #[arg(long)]
    json: bool,
    /// Write the result to this directory: a page, JSON, CSV, percentiles (.hgrm), and a line of JSON for each second
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Do not show progress
    #[arg(short = 'q', long)]
    quiet: bool,
    /// Write the percentiles of the delay to this file, for HdrHistogram's plotters
    #[arg(long, value_name = "FILE")]
    hgrm: Option<PathBuf>,
}

/// Flags of streams over either version of HTTP.
#[derive(clap::Args)]
struct Http2 {
    /// Use HTTP/2: with https by ALPN, with http by prior knowledge
    #[arg(long)]
    h2: bool,
    /// Streams on each HTTP/2 connection
    #[arg(short = 'm', long, value_name = "N", value_parser = whole_number, requires = "h2", default_value = "1")]
    streams: u64,
}

/// Flags of streams that send.
#[derive(clap::Args)]
struct Sending {
    /// Messages (or unary calls) per second over all threads: 500, 20k, 0.5
    #[arg(short = 'R', long, value_name = "N", value_parser = rate)]
    rate: Option<f64>,
    /// Rates that change: 10s:1000 holds a rate, 30s:..5000 ramps to one, 30s:1000..5000 between two
    #[arg(long, value_name = "STAGES", value_parser = values::stages, conflicts_with_all = ["rate", "duration"])]
    stages: Option<Stages>,
    /// Random times (a Poisson process) at the rate of -R or --stages, instead of equal intervals
    #[arg(long, requires = "paced")]
    poisson: bool,
    /// Seed of --poisson and of random values in messages
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// The message: text, @FILE, hex:DIGITS or base64:TEXT, with values such as {{counter}}
    #[arg(long, value_name = "MESSAGE")]
    message: Option<String>,
    /// Fill messages up to this number of bytes
    #[arg(long, value_name = "BYTES", value_parser = whole_number, default_value = "0")]
    size: u64,
    /// Without a rate: messages that a stream sends before the first is answered
    #[arg(long, value_name = "N", value_parser = whole_number, conflicts_with = "paced", default_value = "1")]
    in_flight: u64,
}

impl EventsArgs {
    pub(super) fn common(&self) -> &StreamFlags {
        &self.common
    }

    pub(super) fn plan(&self) -> Result<LoadPlan, String> {
        let body = match self.body.as_deref().map(|text| (text, text.strip_prefix('@'))) {
            None => Vec::new(),
            Some((_, Some(file))) => planned::read(Path::new(file), "--body")?,
            Some((text, None)) => text.as_bytes().to_vec(),
        };
        let method = if self.body.is_some() { "POST" } else { "GET" };
        let plan =
            self.common.plan(StreamsPlan { workload: Workload::Events, ..StreamsPlan::default() }, None)?;
        Ok(LoadPlan {
            http2: self.http2.h2,
            streams: whole(self.http2.streams),
            method: self.method.clone().unwrap_or_else(|| method.to_owned()),
            body,
            ..plan
        })
    }
}

impl WebSocketArgs {
    pub(super) fn common(&self) -> &StreamFlags {
        &self.common
    }

    pub(super) fn plan(&self) -> Result<LoadPlan, String> {
        let senders = whole(self.senders);
        let workload = if self.fan_out { Workload::FanOut { senders } } else { Workload::Echo };
        let streams = self.sending.streams(workload, StreamMessage::stamped)?;
        let plan = self.common.plan(streams, Some(&self.sending))?;
        Ok(LoadPlan { http2: self.http2.h2, streams: whole(self.http2.streams), ..plan })
    }
}

impl GrpcArgs {
    pub(super) fn common(&self) -> &StreamFlags {
        &self.common
    }

    pub(super) fn plan(&self) -> Result<LoadPlan, String> {
        let call = match self {
            Self { server_stream: true, .. } => Call::ServerStream,
            Self { client_stream: true, .. } => Call::ClientStream,
            Self { bidi: true, .. } => Call::Bidi,
            _ => Call::Unary,
        };
        let messages = match (call, self.messages) {
            (Call::Unary | Call::ServerStream, Some(_)) => {
                return Err(
                    "--messages is for --client-stream and --bidi: other calls send one message".to_owned()
                );
            }
            (Call::ClientStream, None) => Some(MESSAGES_DEFAULT),
            (_, messages) => messages,
        };
        let empty = |size_bytes| StreamMessage { size_bytes, ..StreamMessage::default() };
        let streams = self.sending.streams(Workload::Grpc { call, messages }, empty)?;
        let plan = self.common.plan(streams, Some(&self.sending))?;
        let url = match &self.method {
            None => self.common.url(),
            Some(method) => {
                format!("{}/{}", planned::authority(&self.common.url()), method.trim_start_matches('/'))
            }
        };
        let method = "POST".to_owned();
        Ok(LoadPlan { urls: vec![url], method, http2: true, streams: whole(self.streams), ..plan })
    }
}

impl Sending {
    fn streams(
        &self,
        workload: Workload,
        default: impl Fn(usize) -> StreamMessage,
    ) -> Result<StreamsPlan, String> {
        let size_bytes = whole(self.size);
        let message = match &self.message {
            None => default(size_bytes),
            Some(text) => StreamMessage { size_bytes, ..message(text)? },
        };
        Ok(StreamsPlan { workload, message, in_flight: whole(self.in_flight), ..StreamsPlan::default() })
    }
}

fn message(text: &str) -> Result<StreamMessage, String> {
    match text.strip_prefix('@') {
        Some(file) => {
            let content = planned::read(Path::new(file), "--message")?;
            Ok(StreamMessage { content, ..StreamMessage::default() })
        }
        None => StreamMessage::parse(text)
            .map_err(|expected| format!("the message (--message) must be {expected}")),
    }
}

impl StreamFlags {
    /// Returns the URL, with the schemes of WebSockets replaced.
    fn url(&self) -> String {
        match (self.url.strip_prefix("ws://"), self.url.strip_prefix("wss://")) {
            (Some(rest), _) => format!("http://{rest}"),
            (_, Some(rest)) => format!("https://{rest}"),
            (None, None) => self.url.clone(),
        }
    }

    fn plan(&self, streams: StreamsPlan, sending: Option<&Sending>) -> Result<LoadPlan, String> {
        expect::check(&self.expectations, self.pid.is_some(), true)?;
        let fields = StampFields {
            sender: self.sender_field.clone(),
            number: self.number_field.clone(),
            time: self.time_field.clone(),
        };
        let has_stages = sending.is_some_and(|sending| sending.stages.is_some());
        let needs_duration = self.number.is_none() && !has_stages;
        let arrival = sending.map(|sending| {
            planned::arrival(sending.rate, sending.stages.as_ref(), sending.poisson.then_some(sending.seed))
        });
        Ok(LoadPlan {
            urls: vec![self.url()],
            stream: Some(Box::new(StreamsPlan { fields, ..streams })),
            values_seed: sending.map_or(1, |sending| sending.seed),
            headers: self.headers.clone(),
            user: self.user.as_deref().map(planned::credentials).transpose()?,
            directions: self.connecting.directions(),
            tls: self.connecting.tls(),
            connections: whole(self.connections),
            threads: whole(self.threads),
            arrival: arrival.unwrap_or(Arrival::Closed),
            server_process: self.pid,
            seconds: !self.quiet || self.out.is_some(),
            duration_seconds: self.duration.or(needs_duration.then_some(planned::DURATION_DEFAULT_SECONDS)),
            requests: self.number,
            warm_up_seconds: self.warm_up,
            timeout_seconds: self.timeout,
            ..LoadPlan::default()
        })
    }

    fn limits(&self) -> FailureLimits<'_> {
        FailureLimits { max_errors: self.max_errors, expectations: &self.expectations }
    }
}

pub(super) fn run(plan: Result<LoadPlan, String>, common: &StreamFlags) -> ExitCode {
    let plan = match plan {
        Ok(plan) => plan,
        Err(message) => return commands::fail(USAGE, message),
    };
    let outcome = match measured(&plan, common) {
        Ok(outcome) => outcome,
        Err(code) => return code,
    };
    let printed = super::present(common.hgrm.as_deref(), common.json, &outcome);
    super::settled(common.out.as_deref(), &outcome, printed, &common.limits().judge(&outcome))
}

fn measured(plan: &LoadPlan, common: &StreamFlags) -> Result<RunOutcome, ExitCode> {
    let failed = |message| commands::fail(FAILED, message);
    load::check(plan).map_err(super::refused)?;
    let folder = common.out.as_deref().map(out::OutFolder::create).transpose().map_err(failed)?;
    let seconds = folder.as_ref().map(out::OutFolder::seconds);
    let mut watch = RunWatch::new(common.quiet, plan, seconds, None).map_err(failed)?;
    let outcome = load::start(plan).and_then(|running| watch.wait(running)).map_err(super::refused)?;
    let outcome = RunOutcome { expectations: expect::judge(&common.expectations, &outcome), ..outcome };
    watch.failure().map_err(failed)?;
    folder.map_or(Ok(()), |folder| folder.write(&outcome)).map_err(failed)?;
    Ok(outcome)
}
