//! Waits for the end of a run, and shows its progress: a live line on a terminal, otherwise a line every ten seconds.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use load::{LoadPlan, MeasuredSecond, RunControl, RunOutcome, RunningLoad, Seconds};
use report::figure;
use tokio::signal::unix::{SignalKind, signal};

use super::remote_write::RemoteWrite;
use crate::commands;

/// Seconds between two lines if standard error is no terminal.
const LINE_SECONDS: usize = 10;
const SPARKS: usize = 20;
/// Interval of updates of the live line; seconds end at their own times.
const TICK: Duration = Duration::from_millis(250);

/// Shows the progress of a run, and collects its seconds.
pub(super) struct RunWatch {
    display: Display,
    /// Duration of the run, if it has one.
    whole_seconds: Option<f64>,
    /// Whether it counts messages instead of requests.
    of_streams: bool,
    kept: Vec<MeasuredSecond>,
    /// File with a line of JSON for each second.
    file: Option<(PathBuf, File)>,
    failure: Option<String>,
    remote: Option<RemoteWrite>,
    /// End of the last second, in milliseconds since 1970.
    last_unix_ms: Option<f64>,
}

enum Display {
    Quiet,
    Lines,
    Terminal,
}

impl RunWatch {
    /// `file` gets a line of JSON for each second.
    pub(super) fn new(
        is_quiet: bool,
        plan: &LoadPlan,
        file: Option<PathBuf>,
        remote: Option<RemoteWrite>,
    ) -> Result<Self, String> {
        let (whole_seconds, of_streams) = (plan.window_seconds(), plan.stream.is_some());
        Ok(Self { remote, of_streams, ..Self::begin(is_quiet, whole_seconds, file)? })
    }

    /// Creates a watch for requests, with this duration.
    pub(super) fn begin(
        is_quiet: bool,
        whole_seconds: Option<f64>,
        file: Option<PathBuf>,
    ) -> Result<Self, String> {
        let display = match (is_quiet, std::io::stderr().is_terminal()) {
            (true, _) => Display::Quiet,
            (false, true) => Display::Terminal,
            (false, false) => Display::Lines,
        };
        let opened = file.map(|path| match File::create(&path) {
            Ok(file) => Ok((path, file)),
            Err(error) => Err(unwritten(&path, &error)),
        });
        let file = opened.transpose()?;
        let (kept, of_streams) = (Vec::new(), false);
        let (failure, remote, last_unix_ms) = (None, None, None);
        Ok(Self { display, whole_seconds, of_streams, kept, file, failure, remote, last_unix_ms })
    }

    /// Waits for the end of the run; Ctrl-C ends it early.
    pub(super) fn wait(&mut self, mut running: RunningLoad) -> Result<RunOutcome, load::Error> {
        let (control, mut seconds) = (running.control(), running.seconds());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime =
            runtime.map_err(|source| load::Error::System { action: "start an event loop", source })?;
        let outcome = runtime.block_on(async {
            // One listener for the whole run: a signal without one is lost.
            let mut interrupts = signal(SignalKind::interrupt())
                .map_err(|source| load::Error::System { action: "listen for Ctrl-C", source })?;
            let mut waiting = tokio::task::spawn_blocking(move || running.wait());
            let mut tick = tokio::time::interval(TICK);
            loop {
                tokio::select! {
                    outcome = &mut waiting => break outcome.unwrap_or(Err(load::Error::ThreadEnded)),
                    Some(()) = interrupts.recv() => control.stop(),
                    _ = tick.tick() => self.look(&control, seconds.as_mut()),
                }
            }
        });
        for second in seconds.map(Seconds::finish).unwrap_or_default() {
            self.add(second);
        }
        let seconds = self.ended();
        // The measurement counts all the same.
        if let Some(Err(message)) = self.remote.take().map(RemoteWrite::finish) {
            commands::say(message);
        }
        outcome.map(|outcome| RunOutcome { seconds, ..outcome })
    }

    pub(super) fn ended(&mut self) -> Vec<MeasuredSecond> {
        if let Display::Terminal = self.display {
            self.show("");
        }
        std::mem::take(&mut self.kept)
    }

    pub(super) fn failure(self) -> Result<(), String> {
        self.failure.map_or(Ok(()), Err)
    }

    fn look(&mut self, control: &RunControl, seconds: Option<&mut Seconds>) {
        for second in seconds.map(Seconds::take).unwrap_or_default() {
            self.add(second);
        }
        self.draw(control.progress().measured_seconds);
    }

    pub(super) fn draw(&self, measured_seconds: Option<f64>) {
        if let Display::Terminal = self.display {
            let line = match (measured_seconds, self.kept.last()) {
                (None, _) => "connecting and warming up".to_owned(),
                (Some(_), None) => "the first second …".to_owned(),
                (Some(seconds), Some(last)) => {
                    let whole = self.whole_seconds.map(|whole| format!(" of {whole:.0}")).unwrap_or_default();
                    let shown = &self.kept[self.kept.len().saturating_sub(SPARKS)..];
                    format!("{seconds:.0}{whole} s  {}  {}", told(last, self.of_streams), sparkline(shown))
                }
            };
            self.show(&line);
        }
    }

    pub(super) fn draw_kept(&self) {
        self.draw(Some(self.kept.len() as f64));
    }

    fn show(&self, line: &str) {
        // A closed terminal is no reason to stop measuring.
        let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
    }

    pub(super) fn add(&mut self, second: MeasuredSecond) {
        self.write(&second);
        self.push(&second);
        self.kept.push(second);
        let count = self.kept.len();
        if let Some(old) = count.checked_sub(LINE_SECONDS + 1) {
            self.kept[old].forget_times();
        }
        if let Display::Lines = self.display
            && count.is_multiple_of(LINE_SECONDS)
        {
            let lately = MeasuredSecond::merged(&self.kept[count - LINE_SECONDS..]);
            commands::say(format_args!("{count} s: {}", told(&lately, self.of_streams)));
        }
    }

    /// Pushes a second, with its end on the clock of this machine.
    fn push(&mut self, second: &MeasuredSecond) {
        let Some(remote) = &self.remote else { return };
        let duration_ms = second.seconds * 1e3;
        let now =
            || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64() * 1e3);
        // Counted from the first one, because several may be processed together, and their times must differ.
        let end = self.last_unix_ms.map_or_else(now, |last| last + duration_ms);
        self.last_unix_ms = Some(end);
        remote.push(end as u64, second);
    }

    fn write(&mut self, second: &MeasuredSecond) {
        let Some((path, file)) = &mut self.file else { return };
        let line = serde_json::to_string(second).map_err(std::io::Error::other);
        if let Err(error) = line.and_then(|line| writeln!(file, "{line}")) {
            self.failure = Some(unwritten(path, &error));
            self.file = None;
        }
    }
}

pub(super) fn unwritten(path: &Path, error: &std::io::Error) -> String {
    format!("cannot write {}: {error}; does the directory exist, and is it writable?", path.display())
}

/// Formats rate, percentiles and errors of a second, for messages or requests.
fn told(second: &MeasuredSecond, of_streams: bool) -> String {
    let what = if of_streams { "messages" } else { "requests" };
    let rate = figure::rate(second.requests_per_second());
    let errors = match second.failed {
        1 => "1 error".to_owned(),
        failed => format!("{} errors", figure::count(failed as f64)),
    };
    // A message without a time has no delay.
    if second.requests == 0 || (of_streams && second.max_us == 0) {
        return format!("{rate} {what}/s, {errors}");
    }
    let [p50, p99, max] =
        [second.p50_us, second.p99_us, second.max_us].map(|time_us| figure::duration_us(time_us as f64));
    format!("{rate} {what}/s, p50 {p50}, p99 {p99}, max {max}, {errors}")
}

/// Draws the rates of seconds as bars, relative to the highest.
fn sparkline(seconds: &[MeasuredSecond]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let rates = || seconds.iter().map(MeasuredSecond::requests_per_second);
    let most = rates().fold(0.0, f64::max);
    let bar = |rate: f64| {
        let share = if most > 0.0 { rate / most } else { 0.0 };
        BARS[((share * BARS.len() as f64) as usize).min(BARS.len() - 1)]
    };
    rates().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(requests: u64, failed: u64) -> MeasuredSecond {
        let mut second = MeasuredSecond::default();
        (second.seconds, second.requests, second.failed) = (1.0, requests, failed);
        (second.p50_us, second.p99_us, second.max_us) = (120, 3_400, 9_000);
        second
    }

    #[test]
    fn a_second_shows_its_rate_times_and_errors() {
        assert_eq!(
            told(&second(12_345, 1), false),
            "12,345 requests/s, p50 120 µs, p99 3.40 ms, max 9.00 ms, 1 error"
        );
        assert_eq!(told(&second(0, 2_000), false), "0 requests/s, 2,000 errors");
        let mut untimed = second(12_345, 0);
        untimed.max_us = 0;
        assert_eq!(told(&untimed, true), "12,345 messages/s, 0 errors");
    }

    #[test]
    fn a_sparkline_has_a_bar_for_each_second() {
        let seconds = [0, 50, 100, 99].map(|requests| second(requests, 0));
        assert_eq!(sparkline(&seconds), "▁▅██");
        assert_eq!(sparkline(&[second(0, 1)]), "▁");
    }
}
