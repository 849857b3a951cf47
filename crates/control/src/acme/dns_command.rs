//! DNS records by a command of the operator.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::process::Command;

use super::proof::{RecordChange, TxtRecord};

const COMMAND_MAX: Duration = Duration::from_secs(120);
/// Limit for the part of standard error in messages.
const SAID_BYTES_MAX: u64 = 4096;

/// Runs the command to its end. Its output to standard error is the reason of a failure.
pub(crate) async fn run(words: &[String], record: &TxtRecord, change: RecordChange) -> Result<(), String> {
    let Some((program, arguments)) = words.split_first() else { return Err("dns has no command".to_owned()) };
    let word = match change {
        RecordChange::Present => "present",
        RecordChange::Cleanup => "cleanup",
    };
    let mut command = Command::new(program);
    command.args(arguments).arg(word).arg(&record.name);
    command.env("ACME_VALUE", &record.value).env("ACME_NAME", &record.certificate);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| format!("{program} cannot be run: {error}"))?;
    let errors = child.stderr.take();
    let ended = async {
        let mut said = Vec::new();
        if let Some(mut errors) = errors {
            let _ = (&mut errors).take(SAID_BYTES_MAX).read_to_end(&mut said).await;
            // The command could block on a full pipe.
            let _ = tokio::io::copy(&mut errors, &mut tokio::io::sink()).await;
        }
        (child.wait().await, said)
    };
    let Ok((status, said)) = tokio::time::timeout(COMMAND_MAX, ended).await else {
        return Err(format!("{program} {word} has not ended within {} s", COMMAND_MAX.as_secs()));
    };
    let status = status.map_err(|error| format!("{program}: {error}"))?;
    if status.success() {
        return Ok(());
    }
    let said: String =
        String::from_utf8_lossy(&said).chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    Err(format!("{program} {word}: {status}: {}", said.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> TxtRecord {
        TxtRecord {
            certificate: "*.a.example".to_owned(),
            name: "_acme-challenge.a.example".to_owned(),
            value: "digest; $(touch x)".to_owned(),
        }
    }

    fn run_to_end(words: &[&str], change: RecordChange) -> Result<(), String> {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(run(&words, &record(), change))
    }

    #[test]
    fn a_command_gets_what_it_needs() {
        let place = tempfile::tempdir().expect("a temporary folder");
        let file = place.path().join("said").display().to_string();
        let script = format!("echo \"$0|$1|$2|$ACME_VALUE|$ACME_NAME\" > {file}");
        for (change, word) in [(RecordChange::Present, "present"), (RecordChange::Cleanup, "cleanup")] {
            run_to_end(&["sh", "-c", &script, "hook"], change).expect("it ends well");
            let said = std::fs::read_to_string(&file).expect("it has run");
            assert_eq!(
                said,
                format!("hook|{word}|_acme-challenge.a.example|digest; $(touch x)|*.a.example\n")
            );
        }
    }

    #[test]
    fn a_command_that_fails_says_why() {
        for (words, expected) in [
            (&["sh", "-c", "echo 'no zone' >&2; exit 3"][..], "sh present: exit status: 3: no zone"),
            (&["/nowhere/hook"], "/nowhere/hook cannot be run: No such file or directory (os error 2)"),
            (&[], "dns has no command"),
        ] {
            assert_eq!(run_to_end(words, RecordChange::Present), Err(expected.to_owned()));
        }
    }
}
