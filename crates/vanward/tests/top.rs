//! `vanward top` in a terminal of tmux, which sends keys and reads the screen.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::process::{Patience, Process, get, run_in};

/// A terminal in which a shell runs `vanward top`, and then shows its exit code and the terminal's settings.
struct Tmux {
    socket: PathBuf,
}

impl Tmux {
    /// Returns `None`, with a message, if tmux is not installed. In CI it must be.
    #[allow(clippy::print_stderr, reason = "whoever runs the test is told why it tests nothing")]
    fn start(folder: &Path, flags: &str) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            assert!(std::env::var_os("CI").is_none(), "tmux is missing");
            eprintln!("skipped: tmux is not installed");
            return None;
        }
        let tmux = Self { socket: folder.join("tmux") };
        let program = env!("CARGO_BIN_EXE_vanward");
        let script = format!("{program} top {flags}; echo \"ended $?\"; stty -a; exec cat");
        let folder = folder.display().to_string();
        tmux.run(&["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "-c", &folder, &script]);
        Some(tmux)
    }

    fn run(&self, arguments: &[&str]) -> String {
        let output = Command::new("tmux").arg("-S").arg(&self.socket).args(arguments).output();
        let output = output.expect("it is installed");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn types(&self, keys: &str) {
        self.run(&["send-keys", keys]);
    }

    #[track_caller]
    fn shows(&self, texts: &[&str]) -> String {
        let patience = Patience::new();
        loop {
            let screen = self.run(&["capture-pane", "-p"]);
            if texts.iter().all(|text| screen.contains(text)) {
                return screen;
            }
            patience.wait_a_little(&format!("the screen lacks one of {texts:?}:\n{screen}"));
        }
    }

    /// Waits until it has ended with 0, and the terminal is restored.
    #[track_caller]
    fn is_restored(&self) {
        let screen = self.shows(&["ended 0", "icanon"]);
        assert!(!screen.contains("-icanon") && !screen.contains("-echo "), "it is still raw:\n{screen}");
        assert!(!screen.contains("Routes"), "its screen is still there:\n{screen}");
    }

    fn process(&self) -> Pid {
        let shell = self.run(&["display-message", "-p", "#{pane_pid}"]);
        let children = format!("/proc/{0}/task/{0}/children", shell.trim());
        let children = std::fs::read_to_string(children).expect("the shell runs");
        let first = children.split_whitespace().next().and_then(|id| id.parse().ok());
        first.and_then(Pid::from_raw).expect("the shell has a child")
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = Command::new("tmux").arg("-S").arg(&self.socket).arg("kill-server").output();
    }
}

fn start_proxy(folder: &Path) -> Process {
    let text = format!(
        "admin = \"{}\"\nworkers = 1\n[[listen]]\nname = \"front\"\naddress = \"127.0.0.1:0\"\n\
         [[route]]\nupstream = \"app\"\n\
         [upstream.app]\nservers = [\"http://127.0.0.1:1\", \"http://127.0.0.1:2\"]\n\
         [[fault]]\nname = \"slow\"\ninject = \"delay 2s\"\n",
        folder.join("admin").display()
    );
    std::fs::write(folder.join("vanward.toml"), text).expect("it is writable");
    let mut proxy = Process::start_in(folder, &["run"]);
    proxy.address();
    proxy
}

fn states(folder: &Path) -> Vec<String> {
    let text = run_in(folder, &["status", "--json"]).with_code(0).output;
    let status: Value = serde_json::from_str(&text).expect("it is JSON");
    let servers = status["upstreams"][0]["servers"].as_array().expect("a list");
    servers.iter().map(|server| server["state"].as_str().expect("a word").to_owned()).collect()
}

#[test]
fn keys_change_the_proxy_after_a_question() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let _proxy = start_proxy(folder.path());
    let Some(tmux) = Tmux::start(folder.path(), "") else { return };
    tmux.shows(&["2 Servers", "ROUTE", "1 worker"]);
    tmux.types("2");
    tmux.shows(&["127.0.0.1:1 ", "127.0.0.1:2 ", "d: drain"]);
    tmux.types("d");
    tmux.shows(&["Drain 127.0.0.1:1 of upstream app?"]);
    assert_eq!(states(folder.path()), ["up", "up"], "it waits for the answer");
    tmux.types("y");
    tmux.shows(&["127.0.0.1:1 is drained", "draining"]);
    assert_eq!(states(folder.path()), ["draining", "up"]);
    tmux.types("u");
    tmux.shows(&["gets requests again"]);
    assert_eq!(states(folder.path()), ["up", "up"]);
    tmux.types("6");
    tmux.shows(&["delay 2s"]);
    tmux.types("c");
    tmux.shows(&["Remove all faults"]);
    tmux.types("y");
    tmux.shows(&["all faults are removed", "no faults are injected"]);
    tmux.types("?");
    tmux.shows(&["change the weight of a server"]);
    // Another size is drawn again.
    tmux.run(&["resize-window", "-x", "120", "-y", "30"]);
    tmux.types("1");
    tmux.types("1");
    tmux.shows(&["MAINTENANCE"]);
    tmux.types("q");
    tmux.is_restored();
}

#[test]
fn a_server_shows_the_last_request_that_it_failed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let text = format!(
        "admin = \"{}\"\nworkers = 1\n[[listen]]\naddress = \"127.0.0.1:0\"\n[[route]]\nupstream = \"app\"\n\
         [upstream.app]\nservers = [\"http://127.0.0.1:1\"]\nretry = {{ attempts = 1 }}\neject = \"off\"\n",
        folder.path().join("admin").display()
    );
    std::fs::write(folder.path().join("vanward.toml"), text).expect("it is writable");
    let mut proxy = Process::start_in(folder.path(), &["run"]);
    let address = proxy.address();
    let Some(tmux) = Tmux::start(folder.path(), "") else { return };
    tmux.run(&["resize-window", "-x", "160", "-y", "30"]);
    tmux.types("2");
    let screen = tmux.shows(&["127.0.0.1:1 ", " up "]);
    assert!(!screen.contains("last error"), "{screen}");
    let response = get(address, "/");
    assert!(response.starts_with("HTTP/1.1 502 "), "{response}");
    // No check and no ejection: it is still up.
    tmux.shows(&["127.0.0.1:1 ", " up ", "last error ", " ago: connection refused"]);
    tmux.types("q");
    tmux.is_restored();
}

#[test]
fn a_lost_proxy_is_shown_as_such_and_comes_back() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let proxy = start_proxy(folder.path());
    let Some(tmux) = Tmux::start(folder.path(), "--filter app") else { return };
    let process = format!("process {}", proxy.id());
    tmux.shows(&[&process, "only names with \"app\""]);
    proxy.signal(Signal::TERM);
    proxy.ended().with_code(0);
    tmux.shows(&["NO ANSWER", &process]);
    let proxy = start_proxy(folder.path());
    let screen = tmux.shows(&[&format!("process {}", proxy.id())]);
    assert!(!screen.contains("NO ANSWER"), "{screen}");
    // Ctrl-C.
    tmux.types("C-c");
    tmux.is_restored();
}

#[test]
fn a_signal_ends_it_and_restores_the_terminal() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let _proxy = start_proxy(folder.path());
    let Some(tmux) = Tmux::start(folder.path(), "") else { return };
    tmux.shows(&["2 Servers"]);
    kill_process(tmux.process(), Signal::TERM).expect("it runs");
    tmux.is_restored();
}

#[test]
fn without_a_terminal_it_says_what_to_use_instead() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let refused = run_in(folder.path(), &["top"]).with_code(2);
    assert!(refused.errors.contains("use `vanward status --watch`"), "{refused:?}");
}
