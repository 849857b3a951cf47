//! The built program as a process: its output, its end, and short HTTP exchanges with it.
//!
//! Every wait has the same timeout, which only fails a test; no test depends on its length.

#![cfg_attr(not(feature = "lab"), allow(dead_code, reason = "some of it only tests of the lab use"))]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Far longer than any step on a busy machine, or with a slow kernel.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);
/// Maximum number of concurrent measurements: more would mostly measure each other.
const MEASURING_MAX: usize = 2;

static MEASURING: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

/// A running `vanward`; killed when dropped.
pub(crate) struct Process {
    child: Child,
    output: Said,
    errors: Said,
    turn: Option<Turn>,
}

#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) output: String,
    pub(crate) errors: String,
}

impl Process {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_in(Path::new(env!("CARGO_MANIFEST_DIR")), arguments)
    }

    /// Starts a command in a folder. Measurements wait for their turn.
    pub(crate) fn start_in(folder: &Path, arguments: &[&str]) -> Self {
        let measures = matches!(arguments, ["demo", ..] | ["lab", "run" | "resilience", ..]);
        let turn = measures.then(Turn::wait);
        let mut command = Command::new(env!("CARGO_BIN_EXE_vanward"));
        let mut started = Self::of(command.args(arguments).current_dir(folder));
        started.turn = turn;
        started
    }

    /// Starts a `vanward` by another command.
    pub(crate) fn of(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program was built");
        let output = Said::gather(child.stdout.take().expect("it is piped"));
        let errors = Said::gather(child.stderr.take().expect("it is piped"));
        Self { child, output, errors, turn: None }
    }

    /// Waits for the line with the listening address, and returns the address.
    pub(crate) fn address(&mut self) -> SocketAddr {
        let patience = Patience::new();
        loop {
            // The origin writes it to standard output, the proxy to standard error.
            for said in [&self.output, &self.errors] {
                if let Some(address) = said.lines().iter().find_map(|line| listened_on(line)) {
                    return address;
                }
            }
            let ended = self.child.try_wait().expect("it is a child of ours");
            assert!(ended.is_none(), "it ended: {ended:?}: {:?}", self.errors.lines());
            patience.wait_a_little("it does not say where it listens");
        }
    }

    pub(crate) fn warns(&self, text: &str) {
        self.errors.wait_for(text);
    }

    /// Returns the text after `before` in a line of standard error.
    pub(crate) fn told(&self, before: &str) -> Option<String> {
        let lines = self.errors.lines();
        lines.iter().find_map(|line| line.split_once(before)).map(|(_, told)| told.to_owned())
    }

    /// The complete lines of standard output so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.output.lines()
    }

    /// Counts the lines of standard error with this text so far.
    pub(crate) fn said(&self, text: &str) -> usize {
        self.errors.lines().iter().filter(|line| line.contains(text)).count()
    }

    /// Waits until this number of lines on standard error have this text.
    pub(crate) fn warns_again(&self, text: &str, times: usize) {
        let patience = Patience::new();
        while self.said(text) < times {
            patience
                .wait_a_little(&format!("it does not say {text:?} once more, but {:?}", self.errors.lines()));
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to a process that has a handler for it.
    ///
    /// A signal before the handler is installed would end the process, and test nothing.
    pub(crate) fn signal(&self, signal: Signal) {
        let patience = Patience::new();
        while !self.catches(signal) {
            patience.wait_a_little("it has no handler for the signal");
        }
        let id = Pid::from_raw(self.child.id() as i32).expect("a process has an id");
        kill_process(id, signal).expect("it has not been waited for");
    }

    fn catches(&self, signal: Signal) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let caught = status.ok().and_then(|status| {
            let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
            u64::from_str_radix(mask.trim(), 16).ok()
        });
        caught.is_some_and(|mask| mask & (1 << (signal.as_raw() - 1)) != 0)
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it is a child of ours").is_none()
    }

    pub(crate) fn ended(mut self) -> Ended {
        let patience = Patience::new();
        let status = loop {
            match self.child.try_wait().expect("it is a child of ours") {
                Some(status) => break status,
                None => patience.wait_a_little("it does not end"),
            }
        };
        self.turn = None;
        Ended { status, output: self.output.all(), errors: self.errors.all() }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// Checks the exit code; a wrong one shows the whole output.
    #[track_caller]
    pub(crate) fn with_code(self, code: i32) -> Self {
        assert_eq!(self.status.code(), Some(code), "{self:?}");
        self
    }
}

/// Permission to measure.
struct Turn;

impl Turn {
    fn wait() -> Self {
        let (measuring, ended) = &MEASURING;
        let is_full = |measuring: &mut usize| *measuring == MEASURING_MAX;
        let turns = measuring.lock().expect("nobody panics with it");
        *ended.wait_while(turns, is_full).expect("nobody panics with it") += 1;
        Self
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *MEASURING.0.lock().expect("nobody panics with it") -= 1;
        MEASURING.1.notify_one();
    }
}

pub(crate) fn run(arguments: &[&str]) -> Ended {
    Process::start(arguments).ended()
}

pub(crate) fn run_in(folder: &Path, arguments: &[&str]) -> Ended {
    Process::start_in(folder, arguments).ended()
}

/// An output stream of the process, read in the background.
struct Said {
    lines: Arc<(Mutex<Vec<String>>, Condvar)>,
    reader: Option<JoinHandle<()>>,
}

impl Said {
    fn gather(stream: impl Read + Send + 'static) -> Self {
        let lines = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
        let gathered = Arc::clone(&lines);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                gathered.0.lock().expect("no reader panics").push(line);
                gathered.1.notify_all();
            }
        });
        Self { lines, reader: Some(reader) }
    }

    fn lines(&self) -> Vec<String> {
        self.lines.0.lock().expect("no reader panics").clone()
    }

    fn wait_for(&self, text: &str) {
        let (lines, changed) = &*self.lines;
        let absent = |lines: &mut Vec<String>| !lines.iter().any(|line| line.contains(text));
        let lines = lines.lock().expect("no reader panics");
        let (lines, waited) = changed.wait_timeout_while(lines, PATIENCE, absent).expect("no reader panics");
        assert!(!waited.timed_out(), "it does not say {text:?}, but {lines:?}");
    }

    /// Returns everything, once the process has ended.
    fn all(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            reader.join().expect("no reader panics");
        }
        self.lines().iter().map(|line| format!("{line}\n")).collect()
    }
}

/// Parses `listening http://ADDRESS` and `vanward: listening on ADDRESS[, ADDRESS]`.
fn listened_on(line: &str) -> Option<SocketAddr> {
    let (_, said) = line.split_once("listening ")?;
    let address = said.trim_start_matches("on ").trim_start_matches("http://").trim_start_matches("https://");
    address.split(',').next()?.parse().ok()
}

pub(crate) struct Patience(Instant);

impl Patience {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }

    #[track_caller]
    pub(crate) fn wait_a_little(&self, otherwise: &str) {
        assert!(self.0.elapsed() < PATIENCE, "{otherwise}");
        std::thread::sleep(BETWEEN_LOOKS);
    }
}

/// Connects with the common timeout for reads.
pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("it is a socket");
    stream
}

/// Returns the whole response to a GET on a new connection.
pub(crate) fn get(address: SocketAddr, path: &str) -> String {
    response(address, path, "")
}

/// Returns the whole response to a GET with further fields, each with CRLF, on a new connection.
pub(crate) fn response(address: SocketAddr, path: &str, fields: &str) -> String {
    let mut stream = connect(address);
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\n{fields}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("it answers in text, and closes");
    response
}

/// Reads up to the empty line that ends a head, inclusive.
pub(crate) fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("a head arrives");
        head.push(byte[0]);
    }
    String::from_utf8(head).expect("heads here are text")
}

/// Lists the command lines of the processes in a folder. Children of the program keep its working directory.
pub(crate) fn all_in(folder: &Path) -> Vec<String> {
    let folder = folder.canonicalize().expect("it is there");
    let processes = std::fs::read_dir("/proc").expect("the kernel tells").filter_map(Result::ok);
    processes
        .filter(|process| std::fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd == folder))
        .map(|process| {
            let words = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&words).replace('\0', " ")
        })
        .collect()
}

pub(crate) fn wait_for_a_load_in(folder: &Path) {
    let patience = Patience::new();
    while !all_in(folder).iter().any(|command| command.contains("vanward load ")) {
        patience.wait_a_little("no load is run");
    }
}
