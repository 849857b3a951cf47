//! Starts an agent on another machine. The system's ssh copies the program, verifies the digest of the copy and runs
//! it, over a single connection. Keys, names and jumps are configured in ssh.
//!
//! The copy is in a temporary folder, which is removed when the agent ends.

use std::fs;
use std::process::Command;

use aws_lc_rs::digest::{SHA256, digest};

use super::{Host, InputPiece, SILENCE_MOST, SiteLine};
use crate::error::Error;
use crate::plan::OwnProgram;

/// Line that the script prints when the copy is complete.
const COPIED: &[u8] = b"copied\n";

/// Copies the program to another machine and starts it as an agent.
pub(super) async fn open(to: &str, host: &Host, own: &OwnProgram) -> Result<SiteLine, Error> {
    let path = host.program.as_ref().unwrap_or(&own.program);
    let program = fs::read(path).map_err(|source| Error::Read { path: path.clone(), source })?;
    let mut command = Command::new("ssh");
    command
        .args(["-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"])
        .args(["-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"])
        .args(&host.options)
        .args(["--", to])
        .arg(format!("exec sh -c {}", quoted(&script(&program))));
    let mut line = SiteLine::to(command, Some(to.to_owned()))?;
    line.send(InputPiece::Program(program));
    if line.line().await? != COPIED {
        return Err(line.unusable(
            "its login prints text even without a terminal, which breaks the protocol; remove \
             that output from the start-up files of its shell",
        ));
    }
    Ok(line)
}

/// Script for any POSIX shell. `head` reads exactly the program, because the orders follow on the same input.
fn script(program: &[u8]) -> String {
    let hexadecimal: String =
        digest(&SHA256, program).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let (size, silence) = (program.len(), SILENCE_MOST.as_secs());
    format!(
        r#"umask 077
folder=$(mktemp -d "${{TMPDIR:-/tmp}}/vanward-agent-XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
head -c {size} > "$folder/vanward" || exit 1
told=$(sha256sum < "$folder/vanward") || exit 1
if [ "${{told%% *}}" != {hexadecimal} ]; then
    echo "the copy of vanward is incomplete: check the free space in ${{TMPDIR:-/tmp}}" >&2
    exit 1
fi
chmod 700 "$folder/vanward"
echo copied
TMPDIR="$folder" "$folder/vanward" lab agent --silence {silence}s
"#
    )
}

/// Quotes text as one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, input: &[u8], folder: &std::path::Path) -> std::process::Output {
        use std::io::Write as _;
        use std::process::Stdio;
        let mut shell = Command::new("sh")
            .args(["-c", &format!("exec sh -c {}", quoted(script))])
            .env("TMPDIR", folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a shell");
        shell.stdin.take().expect("it is piped").write_all(input).expect("it reads");
        shell.wait_with_output().expect("it ends")
    }

    #[test]
    fn a_whole_copy_is_run_and_nothing_stays_of_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = b"#!/bin/sh\necho ran \"$@\"; head -n 1\n";
        let ended = run(&script(program), &[program, b"and more\n".as_slice()].concat(), folder.path());
        let said = String::from_utf8_lossy(&ended.stdout).into_owned();
        assert_eq!(said, "copied\nran lab agent --silence 20s\nand more\n", "{ended:?}");
        assert_eq!(fs::read_dir(folder.path()).expect("it is there").count(), 0);
    }

    #[test]
    fn a_copy_that_is_not_whole_is_not_run() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = b"#!/bin/sh\necho ran\n";
        for broken in [&program[..program.len() - 1], b"#!/bin/sh\necho bad\n"] {
            let ended = run(&script(program), broken, folder.path());
            assert!(!ended.status.success() && ended.stdout.is_empty(), "{ended:?}");
            assert!(String::from_utf8_lossy(&ended.stderr).contains("is incomplete"), "{ended:?}");
            assert_eq!(fs::read_dir(folder.path()).expect("it is there").count(), 0);
        }
    }
}
