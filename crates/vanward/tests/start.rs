//! Executes the steps in the documentation for newcomers: commands of blocks marked `console`, with their output,
//! and the configurations and plans between them. The kernel selects ports in place of those on the page.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::process::Patience;

const PAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
const PORTS: [&str; 6] = ["8080", "8443", "8474", "9000", "9001", "9100"];
/// Stands for any text in a line, or as a whole line for any lines.
const ANY: &str = "…";
/// Written by the shell after each command.
const END: &str = "-- end of the command";

#[test]
fn the_first_ten_minutes_go_as_the_page_says() {
    walk("start.md", 15);
}

#[test]
fn chaos_in_ci_goes_as_the_page_says() {
    walk("chaos-in-ci.md", 8);
}

#[test]
fn proxies_are_compared_as_the_page_says() {
    walk("compare.md", 3);
}

/// Executes the commands of a page, at least `steps_min`.
fn walk(page: &str, steps_min: usize) {
    if !has_curl() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder can be made");
    let mut page = std::fs::read_to_string(Path::new(PAGES).join(page)).expect("the page is there");
    page = page.replace("/tmp/vanward-start.sock", folder.path().join("sock").to_str().expect("it is text"));
    let ports: Vec<TcpListener> =
        PORTS.iter().map(|_| TcpListener::bind("127.0.0.1:0").expect("a port is free")).collect();
    for (written, free) in PORTS.iter().zip(&ports) {
        let port = free.local_addr().expect("it listens").port();
        page = page.replace(&format!(":{written}"), &format!(":{port}"));
    }
    drop(ports);

    let mut shell = Shell::new(folder.path());
    let mut steps = 0;
    let parts: Vec<&str> = page.split("\n```").collect();
    for pair in parts.chunks_exact(2) {
        let (kind, text) = pair[1].split_once('\n').expect("a block has lines");
        match kind {
            "toml" => {
                std::fs::write(folder.path().join(file_named(pair[0])), text).expect("it can be written");
            }
            "console" => steps += shell.walks(text),
            // Only shown.
            "" => {}
            other => panic!("a block of another kind: {other}"),
        }
    }
    assert!(steps >= steps_min, "only {steps} commands were found");
}

/// Returns the file that a text names for the following block.
fn file_named(text: &str) -> &str {
    let last = text.trim_end().lines().next_back().unwrap_or_default();
    let named = last.rsplit_once("Write this to `").and_then(|(_, rest)| rest.split('`').next());
    named.unwrap_or("vanward.toml")
}

/// Whether curl is installed. In CI it must be.
#[allow(clippy::print_stderr, reason = "whoever runs the test is told why it tests nothing")]
fn has_curl() -> bool {
    let has = Command::new("curl").arg("--version").output().is_ok();
    assert!(has || std::env::var_os("CI").is_none(), "curl is not installed");
    if !has {
        eprintln!("skipped: curl is not installed");
    }
    has
}

/// A shell that keeps its jobs from step to step, and ends them when dropped.
struct Shell {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    configuration: std::path::PathBuf,
}

impl Shell {
    fn new(folder: &Path) -> Self {
        let program = Path::new(env!("CARGO_BIN_EXE_vanward"));
        let own = program.parent().expect("it is in a folder").display();
        let path = std::env::var("PATH").expect("there is one");
        // A separate process group, which is killed as a whole. Both outputs are compared.
        let mut child = Command::new("setsid")
            .args([
                "bash",
                "-c",
                "exec 2>&1; trap 'kill $(jobs -p)' EXIT; while read -r line; do eval \"$line\"; done",
            ])
            .env("PATH", format!("{own}:{path}"))
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("bash is there");
        let input = child.stdin.take().expect("it is piped");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, input, output, configuration: folder.join("vanward.toml") }
    }

    fn walks(&mut self, block: &str) -> usize {
        let commands: Vec<&str> = block.split("$ ").filter(|text| !text.is_empty()).collect();
        for text in &commands {
            let (command, expected) = text.split_once('\n').unwrap_or((text, ""));
            let said = self.types(command);
            let (said, expected): (Vec<_>, Vec<_>) = (said.lines().collect(), expected.lines().collect());
            assert!(
                is_like(&said, &expected),
                "`{command}` says\n{}\nand not\n{}",
                said.join("\n"),
                expected.join("\n")
            );
        }
        commands.len()
    }

    fn types(&mut self, command: &str) -> String {
        writeln!(self.input, "{command}\necho \"{END}\"").expect("the shell reads");
        let mut said = String::new();
        while !said.ends_with(&format!("{END}\n")) {
            let count = self.output.read_line(&mut said).expect("it is text");
            assert!(count > 0, "`{command}` ends the shell: {said}");
        }
        if command.ends_with('&') {
            self.until_it_listens(command);
        }
        said.trim_end_matches(&format!("{END}\n")).to_owned()
    }

    /// Waits until a started program listens, which is a delay that a person would not notice.
    fn until_it_listens(&self, command: &str) {
        let configured = std::fs::read_to_string(&self.configuration).unwrap_or_default();
        let of_flag = ["--listen ", "--from "].iter().find_map(|flag| command.split_once(flag));
        let (_, behind) =
            of_flag.or_else(|| configured.split_once("address = \"")).expect("it listens somewhere");
        let address = behind.split([' ', '"']).next().expect("there is a first word");
        let patience = Patience::new();
        while TcpStream::connect(address).is_err() {
            patience.wait_a_little(&format!("nothing listens on {address} after `{command}`"));
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.child.wait();
    }
}

fn is_like(said: &[&str], expected: &[&str]) -> bool {
    match (said, expected) {
        (_, [ANY]) => true,
        (_, [ANY, rest @ ..]) => (0..=said.len()).any(|skipped| is_like(&said[skipped..], rest)),
        ([line, said @ ..], [shown, expected @ ..]) => {
            is_line_like(line.trim_end(), shown) && is_like(said, expected)
        }
        _ => said.is_empty() && expected.is_empty(),
    }
}

fn is_line_like(line: &str, shown: &str) -> bool {
    match shown.split_once(ANY) {
        None => line == shown,
        Some((begin, rest)) => line.strip_prefix(begin).is_some_and(|line| {
            line.char_indices()
                .map(|(at, _)| at)
                .chain([line.len()])
                .any(|at| is_line_like(&line[at..], rest))
        }),
    }
}

#[test]
fn a_page_shows_any_text_by_dots() {
    for (said, expected, alike) in [
        (&["a"][..], &["a"][..], true),
        (&["a", "b"], &["a"], false),
        (&["a"], &["a", "b"], false),
        (&["a", "b", "c"], &["a", ANY, "c"], true),
        (&["a", "c"], &["a", ANY, "c"], true),
        (&["a", "b"], &[ANY], true),
        (&["ttl=59 s"], &["ttl=… s"], true),
        (&["ttl=59 m"], &["ttl=… s"], false),
    ] {
        assert_eq!(is_like(said, expected), alike, "{said:?} {expected:?}");
    }
}
