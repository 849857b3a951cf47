//! Step of a longer run: a named and timed command, with an explanation if it fails.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::say;

/// Exit code of `vanward load` and `lab` for invalid figures: no failure of a step that checks more than figures.
pub(crate) const INVALID_RUN: i32 = 98;

#[derive(Default)]
pub(crate) struct Steps {
    done: Vec<(String, Took)>,
}

#[derive(Clone, Copy, Default)]
struct Took {
    time: Duration,
    /// Processor time of its commands, without that of commands that continue in the background.
    processor: Duration,
}

impl Steps {
    /// Runs a step under a heading. A failure names the step and the command that repeats it.
    pub(crate) fn run(
        &mut self,
        name: &str,
        heading: &str,
        step: impl FnOnce() -> Result<(), String>,
    ) -> Result<(), String> {
        say(format_args!("\n=== {name}: {heading}"));
        let (start, before) = (Instant::now(), processor_time());
        let outcome = step();
        let took = Took { time: start.elapsed(), processor: processor_time().saturating_sub(before) };
        match outcome {
            Ok(()) => {
                say(format_args!("=== {name}: done in {}", seconds(took.time)));
                self.done.push((name.to_owned(), took));
                Ok(())
            }
            Err(problem) => Err(format!("{name} failed after {}: {problem}", seconds(took.time))),
        }
    }

    /// Formats a line for each step with its time and processor time, and the totals.
    pub(crate) fn summary(&self) -> String {
        let mut summary = format!("  {:<16} {:>10} {:>12}\n", "step", "time", "processor");
        let total = self.done.iter().fold(Took::default(), |total, (_, took)| Took {
            time: total.time + took.time,
            processor: total.processor + took.processor,
        });
        let done = self.done.iter().map(|(name, took)| (name.as_str(), *took));
        for (name, took) in done.chain([("total", total)]) {
            summary += &format!("  {name:<16} {:>10} {:>12}\n", seconds(took.time), seconds(took.processor));
        }
        summary
    }
}

/// Runs a command to its end, with its output on the terminal.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    run_allowing(command, &[])
}

/// Runs a command to its end; these exit codes and 0 are no failure.
pub(crate) fn run_allowing(command: &mut Command, codes: &[i32]) -> Result<(), String> {
    let shown = shown(command);
    let status = command.status().map_err(|error| format!("`{shown}` cannot be run: {error}"))?;
    if status.success() || status.code().is_some_and(|code| codes.contains(&code)) {
        Ok(())
    } else {
        Err(format!("`{shown}` ended with {status}; see its output above"))
    }
}

/// Formats the command for a shell.
pub(crate) fn shown(command: &Command) -> String {
    let mut shown = String::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            shown += &format!("{}='{}' ", name.to_string_lossy(), value.to_string_lossy());
        }
    }
    shown += &command.get_program().to_string_lossy();
    for word in command.get_args() {
        shown += " ";
        shown += &word.to_string_lossy();
    }
    shown
}

/// Processor time of all finished commands and their children; 0 if the kernel does not report it.
fn processor_time() -> Duration {
    fs::read_to_string("/proc/self/stat").ok().and_then(|stat| of_children(&stat)).unwrap_or_default()
}

/// `cutime` and `cstime` of proc_pid_stat(5), in hundredths of a second.
fn of_children(stat: &str) -> Option<Duration> {
    // The name before the parenthesis may have spaces; the state is field 3.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let hundredths = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Duration::from_millis(10 * (hundredths(16)? + hundredths(17)?)))
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_that_of_commands_that_have_ended() {
        let stat = "7 (a ) b) R 1 7 7 0 -1 4194304 95 400 0 0 1 2 250 50 20 0 1 0 9 1 2";
        assert_eq!(of_children(stat), Some(Duration::from_secs(3)));
        assert_eq!(of_children("7 (a) R 1"), None);
    }
}
