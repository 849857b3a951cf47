//! `vanward capture live`: asks the running proxy for its next requests, and masks them.

use std::io::{BufRead as _, ErrorKind, Write};
use std::process::ExitCode;
use std::time::Duration;

use ::capture::{Capture, CapturedRequest, Mask};
use api::capture::{CaptureEnd, CaptureOrder};

use super::demo::ProgressLine;
use super::reach::ProxySelection;

/// The time without a line after which the proxy counts as stuck. It sends one each second.
const PATIENCE: Duration = Duration::from_secs(30);
const REQUESTS_USUAL: u64 = 1000;

/// Flags of `vanward capture live`.
#[derive(clap::Args)]
pub(crate) struct LiveFlags {
    /// live: only requests of this route, by its name in the file. Can be repeated
    #[arg(long = "route", value_name = "NAME")]
    routes: Vec<String>,

    /// live: end after this many requests [default: 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=::capture::REQUESTS_MAX as u64))]
    requests: Option<u64>,

    /// live: end after this time: 30s, 5m
    #[arg(long = "for", value_name = "DURATION", value_parser = config::duration)]
    time: Option<Duration>,

    #[command(flatten)]
    reach: ProxySelection,
}

impl LiveFlags {
    /// A flag that is given, which other sources refuse.
    pub(super) fn given(&self) -> Option<&'static str> {
        let flags = [
            ("--route", !self.routes.is_empty()),
            ("--requests", self.requests.is_some()),
            ("--for", self.time.is_some()),
            ("--socket and --config", self.reach.is_given()),
        ];
        flags.into_iter().find_map(|(flag, is_given)| is_given.then_some(flag))
    }
}

/// Summary of a capture.
#[derive(Debug, Default)]
pub(super) struct Captured {
    pub(super) requests: u64,
    pub(super) lost: u64,
    /// Facts that a faithful replay needs and the capture does not have.
    pub(super) lacks: Vec<String>,
}

/// Writes the next requests of the running proxy to the output that `open` returns, once the proxy captures. Each line is
/// complete, so the file is a capture at any time. It has buffered bodies if `has_bodies`.
///
/// # Errors
/// The exit code after a message.
pub(super) fn run<W: Write>(
    flags: &LiveFlags,
    mask: Option<&Mask>,
    has_bodies: bool,
    open: impl FnOnce() -> Result<W, ExitCode>,
) -> Result<Captured, ExitCode> {
    let requests = flags.requests.unwrap_or(REQUESTS_USUAL);
    let seconds = flags.time.map(|time| time.as_secs_f64().ceil() as u64);
    let order = CaptureOrder { routes: flags.routes.clone(), requests, seconds, bodies: has_bodies };
    let failed = |why: String| super::fail(super::FAILED, why);
    let mut lines = flags.reach.line()?.lines("/capture", &order).map_err(failed)?;
    lines.get_ref().set_read_timeout(Some(PATIENCE)).map_err(|error| failed(error.to_string()))?;

    let mut out = open()?;
    let empty = Capture::of_running_proxy(mask, has_bodies);
    let unwritten = |error: std::io::Error| failed(format!("the capture cannot be written: {error}"));
    out.write_all(::capture::head_line(&empty, None).as_bytes()).map_err(unwritten)?;
    let mut captured = Captured { lacks: empty.lacks, ..Captured::default() };
    let progress = ProgressLine::new();
    let mut line = String::new();
    loop {
        progress.show(&format!("{} of {requests} requests", captured.requests));
        line.clear();
        let read = lines.read_line(&mut line).map_err(|error| {
            progress.clear();
            failed(match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => "the proxy does not respond".to_owned(),
                _ => format!("the capture is incomplete: {error}"),
            })
        })?;
        if read == 0 {
            progress.clear();
            return Err(failed("the capture is incomplete: the proxy has ended".to_owned()));
        }
        if line.trim().is_empty() {
            continue;
        }
        if let Ok(CaptureEnd { lost }) = serde_json::from_str(&line) {
            progress.clear();
            captured.lost = lost;
            break;
        }
        let mut request: CapturedRequest = serde_json::from_str(&line)
            .map_err(|error| failed(format!("the proxy sends another form of captures: {error}")))?;
        if let Some(mask) = mask {
            mask.request(&mut request);
        }
        out.write_all(::capture::request_line(&request).as_bytes()).map_err(unwritten)?;
        captured.requests += 1;
    }
    if captured.lost > 0 {
        captured.lacks.push(::capture::lost_requests(captured.lost));
        out.write_all(::capture::lost_line(captured.lost).as_bytes()).map_err(unwritten)?;
    }
    out.flush().map_err(unwritten)?;
    Ok(captured)
}
