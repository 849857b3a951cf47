//! External commands that do not end.

use std::path::Path;
use std::time::Duration;

use config::{Check, Probe};

use super::scene::{Scene, check, waits_until};

#[test]
fn at_its_time_out_a_command_is_killed_with_all_that_it_started() {
    let folder = tempfile::tempdir().expect("there is a place for it");
    let script = "test $VANWARD_ADDRESS = 127.0.0.1 && exit 0; sleep 1000 & echo $! >> \"$0/started\"; wait";
    let path = folder.path().display().to_string();
    let command = ["/bin/sh", "-c", script, &path].map(str::to_owned).to_vec();
    let timeout = Duration::from_millis(200);
    let scene = Scene::checked(Check { timeout, ..check(Probe::Command { command }) });
    scene.waits_for(&["1"]);
    drop(scene);
    let started = std::fs::read_to_string(folder.path().join("started")).expect("it was started");
    for pid in started.lines() {
        waits_until("it still runs", || has_ended(pid));
    }
    assert!(started.lines().count() >= 1);
}

#[test]
fn a_command_that_cannot_be_run_is_a_failure() {
    let command = vec!["/nowhere/at-all".to_owned()];
    let scene = Scene::checked(check(Probe::Command { command }));
    // When all servers are down, all are used.
    scene.waits_for(&["1", "2"]);
}

/// The process may be a zombie, because no parent has waited for it.
fn has_ended(pid: &str) -> bool {
    let Ok(status) = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat")) else { return true };
    status.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
}
