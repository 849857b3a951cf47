//! Step of a longer run: a named and timed command, with an explanation if it fails.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::say;

/// The completed steps, with their times.
#[derive(Default)]
pub(crate) struct Steps {
    done: Vec<(String, Duration)>,
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
        let start = Instant::now();
        let outcome = step();
        let took = start.elapsed();
        match outcome {
            Ok(()) => {
                say(format_args!("=== {name}: done in {}", seconds(took)));
                self.done.push((name.to_owned(), took));
                Ok(())
            }
            Err(problem) => Err(format!("{name} failed after {}: {problem}", seconds(took))),
        }
    }

    /// Summary: a line for each step, and the total time.
    pub(crate) fn summary(&self) -> String {
        let mut summary = String::new();
        let total = self.done.iter().map(|(_, took)| *took).sum();
        let done = self.done.iter().map(|(name, took)| (name.as_str(), *took));
        for (name, took) in done.chain([("total", total)]) {
            summary += &format!("  {name:<16} {:>8}\n", seconds(took));
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

/// The command as it would be typed in a shell.
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

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
