//! `vanward load`, a process for each measurement. It reports whether it was late or missed a rate.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;

use report::figure;
use report::latency::LatencyHistogram;
use report::results::{
    ClientVersion, MeasuredFigures, MeasurementOutcome, OWN_GENERATOR, StreamKind, StreamsMeasured,
};

use super::{Generator, GeneratorRequest, LoadEnd};
use crate::certificate::{CIPHER, VERSION};
use crate::pages;
use crate::plan::{RequestOptions, StreamPlan};

/// Kind of the errors of responses that miss a check of their status.
const CHECK_STATUS: &str = "check: status";

pub(super) const GENERATOR: Generator = Generator {
    name: OWN_GENERATOR,
    program: None,
    remedy: "",
    refuses: |_| None,
    script: None,
    threads_most: usize::MAX,
    command,
    read,
};

fn command(program: &Path, request: &GeneratorRequest, _folder: &Path) -> Vec<String> {
    let mut command = vec![program.to_string_lossy().into_owned(), "load".to_owned()];
    if let Some(streams) = &request.streams {
        command.extend(of_streams(streams));
    }
    command.push("--json".to_owned());
    // Progress would cost the generator a little for each request.
    command.push("--quiet".to_owned());
    command.extend(["-c".to_owned(), request.connections.to_string()]);
    command.extend(["-t".to_owned(), request.threads.to_string()]);
    match request.end {
        LoadEnd::After(duration) => command.extend(["-d".to_owned(), format!("{}ms", duration.as_millis())]),
        LoadEnd::Requests(requests) => command.extend(["-n".to_owned(), requests.to_string()]),
    }
    command.extend(["--timeout".to_owned(), format!("{}ms", request.timeout.as_millis())]);
    if request.version == ClientVersion::Http3 {
        command.push("--h3".to_owned());
    }
    // gRPC implies HTTP/2.
    if request.version == ClientVersion::Http2
        && !request.streams.as_ref().is_some_and(|one| one.kind.is_grpc())
    {
        command.push("--h2".to_owned());
    }
    if let Some(urls) = &request.urls {
        command.extend(["--urls".to_owned(), urls.to_string_lossy().into_owned()]);
    }
    if let Some(list) = &request.requests_from {
        let list = list.to_string_lossy().into_owned();
        command.extend([
            "--requests-from".to_owned(),
            list,
            "--requests-format".to_owned(),
            "handed".to_owned(),
        ]);
    }
    let RequestOptions { method, headers, body } = &request.message;
    for (flag, words) in [("-X", method.as_slice()), ("-H", headers), ("--body", body.as_slice())] {
        command.extend(words.iter().flat_map(|word| [flag.to_owned(), word.clone()]));
    }
    if let Some(rate) = request.rate_per_second {
        command.extend(["-R".to_owned(), format!("{rate}")]);
    }
    if let Some(trusted) = &request.trusted {
        let trusted = trusted.to_string_lossy().into_owned();
        command.extend(["--ca".to_owned(), trusted, "--cipher".to_owned(), CIPHER.to_owned()]);
    }
    if let Some(authority) = &request.authority {
        command.extend(["--ca".to_owned(), authority.to_string_lossy().into_owned()]);
    }
    command.extend(request.check.iter().flat_map(pages::flags));
    if request.responses == load::Responses::Any && request.streams.is_none() {
        command.extend(["--responses", "any"].map(str::to_owned));
    }
    command.extend(super::keep_alive(request).into_iter().flatten());
    command.push(request.url.clone());
    command
}

/// The command of streams, and its flags.
fn of_streams(streams: &StreamPlan) -> Vec<String> {
    let words: &[&str] = match streams.kind {
        StreamKind::Events => &["events"],
        StreamKind::Echo => &["websocket", "--echo"],
        StreamKind::FanOut => &["websocket", "--fan-out"],
        StreamKind::GrpcUnary => &["grpc", "--unary"],
        StreamKind::GrpcServerStream => &["grpc", "--server-stream"],
        StreamKind::GrpcClientStream => &["grpc", "--client-stream"],
        StreamKind::GrpcBidi => &["grpc", "--bidi"],
    };
    let mut command: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let number = |number: Option<NonZeroUsize>| number.map(|number| number.to_string());
    let several = (streams.per_connection.get() > 1).then_some(streams.per_connection);
    let usual = load::StampFields::default();
    let named = |field: &String, usual: &String| (field != usual).then(|| field.clone());
    let flags = [
        ("-m", number(several)),
        ("--senders", number(streams.senders)),
        ("--messages", number(streams.messages)),
        ("--in-flight", number(streams.in_flight)),
        ("--size", number(NonZeroUsize::new(streams.size_bytes))),
        ("--message", streams.message.clone()),
        ("--number-field", named(&streams.fields.number, &usual.number)),
        ("--time-field", named(&streams.fields.time, &usual.time)),
        ("--sender-field", named(&streams.fields.sender, &usual.sender)),
    ];
    // A message may begin with a dash.
    command.extend(flags.into_iter().filter_map(|(flag, value)| Some((flag, value?))).flat_map(
        |(flag, value)| match flag.strip_prefix("--") {
            Some(_) => vec![format!("{flag}={value}")],
            None => vec![flag.to_owned(), value],
        },
    ));
    command
}

fn read(request: &GeneratorRequest, output: &str, _folder: &Path) -> Result<MeasurementOutcome, String> {
    if output.trim().is_empty() {
        // The reason is on standard error, such as that no process listens at the target.
        return Err("it ended before it sent any load".to_owned());
    }
    let told: load::RunOutcome =
        serde_json::from_str(output).map_err(|error| format!("its figures cannot be read: {error}"))?;
    let mut outcome = outcome(&told, request.trusted.is_some());
    if let (Some(_), MeasurementOutcome::Measured(measured) | MeasurementOutcome::Invalid { measured, .. }) =
        (&request.check, &mut outcome)
        && let Some(count) = measured.errors.remove(CHECK_STATUS)
    {
        // Whether the lab's own check or the generator found the bad status makes no difference.
        *measured.errors.entry("status".to_owned()).or_default() += count;
    }
    Ok(outcome)
}

/// Converts the generator's figures for the report, with their validity. `has_lab_tls` says that TLS is the lab's.
fn outcome(told: &load::RunOutcome, has_lab_tls: bool) -> MeasurementOutcome {
    let distributions = [&told.latency, &told.first_byte, &told.connect].map(counted);
    let [latency, first_byte, connect] = match distributions {
        [Ok(latency), Ok(first_byte), Ok(connect)] => [latency, first_byte, connect],
        [Err(reason), ..] | [_, Err(reason), _] | [.., Err(reason)] => {
            return MeasurementOutcome::Failed { reason };
        }
    };
    let streams = match told.stream.as_deref().map(streams).transpose() {
        Ok(streams) => streams,
        Err(reason) => return MeasurementOutcome::Failed { reason },
    };
    let measured = MeasuredFigures {
        errors: errors_of(told),
        lateness_p99_us: told.schedule.as_ref().map(|schedule| schedule.own_lateness.p99_us),
        first_byte,
        connect,
        load_cpu_seconds: Some(told.cpu.total_seconds),
        streams,
        ..super::measured(told.measured_seconds, told.requests, told.bytes_received, latency)
    };
    let gone = || Some((format!("the server stopped answering: {}", told.server_gone.as_ref()?), false));
    match gone().or_else(|| doubt(told, has_lab_tls)) {
        // Failures do not depend on when a request was sent, so these errors are the proxy's.
        Some((reason, is_generators)) => {
            let is_generators = is_generators && !super::fails(&measured);
            MeasurementOutcome::Invalid { reason, measured, is_generators }
        }
        None => super::counted(measured, counted_word(told), &examples(told)),
    }
}

fn streams(told: &load::StreamFigures) -> Result<StreamsMeasured, String> {
    let load::StreamCounts {
        opened,
        failed,
        closed_early,
        reconnected,
        sent,
        lost,
        duplicates,
        out_of_order,
        ..
    } = told.counts;
    Ok(StreamsMeasured {
        opened,
        not_opened: failed,
        closed_early,
        reconnected,
        sent,
        lost,
        duplicates,
        out_of_order,
        gaps: counted(&told.gaps)?,
        longest_silence_us: told.longest_gap_us,
    })
}

/// The unit: requests, or messages of streams.
fn counted_word(told: &load::RunOutcome) -> &'static str {
    if told.stream.is_some() { "message" } else { "request" }
}

/// Buckets of a distribution; empty if nothing was recorded.
fn counted(distribution: &load::Distribution) -> Result<LatencyHistogram, String> {
    if distribution.count == 0 {
        return Ok(LatencyHistogram::default());
    }
    let histogram = distribution.histogram().map_err(|error| error.to_string())?;
    let steps = histogram.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value()));
    Ok(LatencyHistogram::from_counts(steps))
}

/// The reason why the figures are invalid, if they are, and whether the generator caused that.
fn doubt(told: &load::RunOutcome, has_lab_tls: bool) -> Option<(String, bool)> {
    if let Some(problem) = told.problems.first() {
        return Some(match *problem {
            load::RunProblem::AgentLost { ref command, ref why } => {
                (format!("the agent of `{command}` was lost: {why}"), true)
            }
            load::RunProblem::Hung { unfinished, oldest_us, slowest_us } => {
                (hung(told, (unfinished, oldest_us, slowest_us)), false)
            }
            load::RunProblem::GeneratorLate { own_lateness_p99_us, limit_us } => {
                let late = format!(
                    "the load generator was late by {own_lateness_p99_us} µs at the 99th percentile (limit: \
                     {limit_us} µs): it had too little CPU time"
                );
                (late, true)
            }
            load::RunProblem::RateMissed { due, unsent, slip_us, by, .. } => {
                let is_proxys = by != load::MissedBy::Generator;
                let who = match by {
                    load::MissedBy::Server => "the proxy was too slow for this rate",
                    load::MissedBy::Errors => "connections failed",
                    load::MissedBy::Generator => "the load generator had too little CPU time",
                };
                let unsent = match unsent {
                    0 => String::new(),
                    unsent => format!("{unsent} of {due} {}s were never sent and ", counted_word(told)),
                };
                (
                    format!("the rate was not kept: {unsent}the last one was {slip_us} µs late; {who}"),
                    !is_proxys,
                )
            }
        });
    }
    let tls = told.tls.as_ref().filter(|_| has_lab_tls)?;
    let is_other = tls.agreed != [format!("{VERSION} {CIPHER}")];
    is_other.then(|| (format!("it used {} instead of {VERSION} {CIPHER}", tls.agreed.join(", ")), false))
}

/// Hanging requests: without a response at the end of the load, and much older than the slowest response.
fn hung(told: &load::RunOutcome, (unfinished, oldest_us, slowest_us): (u64, u64, u64)) -> String {
    let [oldest, slowest] = [oldest_us, slowest_us].map(|us| figure::duration_us(us as f64));
    let unfinished = figure::things(unfinished as usize, counted_word(told));
    format!(
        "at the end of the load {unfinished} had no response, the oldest for {oldest}; the slowest of the others took \
         {slowest}"
    )
}

/// Errors by kind, without kinds that did not occur.
pub(crate) fn errors_by_kind(told: &load::Errors) -> BTreeMap<String, u64> {
    let load::Errors { connect, read, write, timeout, status, malformed, tls, reset, redirect, check } =
        *told;
    super::errors([
        ("connect", connect),
        ("read", read),
        ("write", write),
        ("timeout", timeout),
        ("status", status),
        ("malformed", malformed),
        ("tls", tls),
        ("reset", reset),
        ("redirect", redirect),
        ("check", check),
    ])
}

/// Errors by kind; those of checks by the kind of check.
fn errors_of(told: &load::RunOutcome) -> BTreeMap<String, u64> {
    let mut errors = errors_by_kind(&load::Errors { check: 0, ..told.errors });
    let missed = told.checks_missed.by_kind().into_iter().filter(|(_, count)| *count > 0);
    errors.extend(missed.map(|(kind, count)| (format!("check: {kind}"), count)));
    errors
}

/// The first failure, as the end of a sentence.
fn examples(told: &load::RunOutcome) -> String {
    told.error_examples.values().next().map(|example| format!(": {example}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;
    use crate::generator::tests::request;

    /// The outcome of a load with a single answered request.
    fn told() -> load::RunOutcome {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            let _ = stream.read(&mut [0; 1024]);
        });
        let plan = load::LoadPlan {
            connections: 1,
            requests: Some(1),
            duration_seconds: None,
            ..load::LoadPlan::new(format!("http://{address}/"))
        };
        load::run(&plan).expect("it is answered")
    }

    #[test]
    fn a_round_without_any_success_keeps_its_errors() {
        let mut told = told();
        (told.requests, told.errors.status) = (0, 700);
        (told.latency, told.first_byte, told.connect) = <_>::default();
        let failed = outcome(&told, true);
        assert_eq!(failed.figures().map(MeasuredFigures::error_count), Some(700));
        assert!(failed.tells_of_proxy() && failed.valid().is_none(), "{failed:?}");
        // Even if the generator was late, these are the proxy's errors.
        told.problems = vec![load::RunProblem::GeneratorLate { own_lateness_p99_us: 9_000, limit_us: 1_000 }];
        let late = outcome(&told, true);
        assert!(late.tells_of_proxy() && late.valid().is_none(), "{late:?}");
        (told.requests, told.errors.status) = (700, 0);
        assert!(!outcome(&told, true).tells_of_proxy());
    }

    #[test]
    fn a_generator_without_figures_is_told_in_words_of_its_own() {
        let said = |output| super::read(&request(), output, Path::new("/")).expect_err("no figures");
        for output in ["", "\n"] {
            assert_eq!(said(output), "it ended before it sent any load");
        }
        assert!(said("{").starts_with("its figures cannot be read: "));
    }

    #[test]
    fn what_hangs_spoils_a_measurement() {
        let mut told = told();
        assert_eq!(outcome(&told, true).refusal(), None);
        let hung = load::RunProblem::Hung { unfinished: 4, oldest_us: 1_900_000, slowest_us: 200_000 };
        told.problems.push(hung);
        let said = outcome(&told, true).refusal().map(str::to_owned).expect("it hangs");
        assert!(said.contains("4 requests had no response, the oldest for 1.90 s"), "{said}");
    }
}
