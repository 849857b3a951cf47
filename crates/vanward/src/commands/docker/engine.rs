//! The API of Docker and Podman over its Unix socket: containers, and events that trigger another look. Uses
//! HTTP/1.0, in which a response ends with its connection.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use discover::Container;
use serde_json::Value;

/// Maximum time for each piece of a response.
const PATIENCE: Duration = Duration::from_secs(30);
/// Far above real responses.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// Without an event, containers are read again after this time.
const LOOK: Duration = Duration::from_secs(60);
/// Events come in groups: those within this time are handled together.
const GROUP: Duration = Duration::from_millis(200);
const HEAD_BYTES_MAX: usize = 16 << 10;

const EVENTS: &str = "/events?filters=%7B%22type%22%3A%5B%22container%22%5D%7D";

pub(super) struct DockerEngine(PathBuf);

pub(super) struct EngineEvents {
    stream: UnixStream,
    place: PathBuf,
}

impl DockerEngine {
    pub(super) fn new(socket: &Path) -> Self {
        Self(socket.to_owned())
    }

    /// Lists the running containers. An error says what to do.
    pub(super) fn containers(&self) -> Result<Vec<Container>, String> {
        let list = self.get("/containers/json")?.ok_or_else(|| {
            format!("{} has no list of containers: is it the socket of Docker or Podman?", self.0.display())
        })?;
        // Only a list says which containers run, even if it is empty.
        let listed = list
            .as_array()
            .ok_or_else(|| format!("{}: its answer is not a list of containers", self.0.display()))?;
        let ids = listed.iter().filter_map(|one| one["Id"].as_str());
        let mut containers = Vec::new();
        for id in ids.filter(|id| id.bytes().all(|byte| byte.is_ascii_alphanumeric())) {
            // The container may be gone by now.
            let Some(told) = self.get(&format!("/containers/{id}/json"))? else { continue };
            let container = Container::read(&told);
            let garbled =
                || format!("{}: its answer for {id} does not describe a container", self.0.display());
            containers.push(container.ok_or_else(garbled)?);
        }
        Ok(containers)
    }

    pub(super) fn events(&self) -> Result<EngineEvents, String> {
        let mut stream = self.begin(EVENTS)?;
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            if head.len() == HEAD_BYTES_MAX
                || stream.read(&mut byte).map_err(|error| self.failed(&error))? == 0
            {
                return Err(format!("{} does not send events", self.0.display()));
            }
            head.push(byte[0]);
        }
        match status(&head) {
            Some(200) => Ok(EngineEvents { stream, place: self.0.clone() }),
            _ => Err(self.refused(&head)),
        }
    }

    /// Returns the JSON at a path; `None` if it does not exist (any more).
    fn get(&self, path: &str) -> Result<Option<Value>, String> {
        let mut answer = Vec::new();
        let stream = self.begin(path)?;
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).map_err(|error| self.failed(&error))?;
        let end = answer.windows(4).position(|part| part == b"\r\n\r\n");
        match (status(&answer), end) {
            (Some(404), _) => Ok(None),
            (Some(200), Some(end)) => serde_json::from_slice(&answer[end + 4..])
                .map(Some)
                .map_err(|error| format!("{}: {path} is not JSON: {error}", self.0.display())),
            _ => Err(self.refused(&answer)),
        }
    }

    fn begin(&self, path: &str) -> Result<UnixStream, String> {
        let begin = || {
            let mut stream = UnixStream::connect(&self.0)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: docker\r\n\r\n").as_bytes())?;
            Ok(stream)
        };
        begin().map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &std::io::Error) -> String {
        let remedy = match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                "; is Docker or Podman running, and is this its socket (--engine)?"
            }
            ErrorKind::PermissionDenied => "; this user may not use it: run as one of group docker",
            _ => "",
        };
        format!("{}: {error}{remedy}", self.0.display())
    }

    fn refused(&self, answer: &[u8]) -> String {
        let line = answer.split(|byte| *byte == b'\r').next().unwrap_or_default();
        format!("{} answers {:?}", self.0.display(), String::from_utf8_lossy(line))
    }
}

impl EngineEvents {
    /// Waits for an event and others shortly after it, or for a minute. Fails once the stream of events has ended.
    pub(super) fn wait(&mut self) -> Result<(), String> {
        let failed = |error: &dyn std::fmt::Display| format!("{}: events end: {error}", self.place.display());
        self.stream.set_read_timeout(Some(LOOK)).map_err(|error| failed(&error))?;
        let mut buffer = [0; 8192];
        match self.stream.read(&mut buffer) {
            Ok(0) => return Err(failed(&"the engine has closed the connection")),
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => {
                return Ok(());
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(failed(&error)),
            Ok(_) => {}
        }
        thread::sleep(GROUP);
        self.stream.set_nonblocking(true).map_err(|error| failed(&error))?;
        while matches!(self.stream.read(&mut buffer), Ok(1..)) {}
        self.stream.set_nonblocking(false).map_err(|error| failed(&error))
    }
}

fn status(answer: &[u8]) -> Option<u16> {
    let line = answer.strip_prefix(b"HTTP/1.")?;
    std::str::from_utf8(line.get(2..5)?).ok()?.parse().ok()
}
