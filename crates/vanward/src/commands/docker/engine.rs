//! The API of Docker and Podman over its Unix socket: containers, and events that say when to look again. HTTP/1.0, in which a
//! response ends with its connection.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use discover::Container;
use serde_json::Value;

/// How long the engine may take for each piece of an answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Answers are smaller.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// Without an event, containers are looked at again after this.
const LOOK: Duration = Duration::from_secs(60);
/// Events come in groups: what follows so soon belongs to it.
const GROUP: Duration = Duration::from_millis(200);
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Events after which containers are looked at.
const EVENTS: &str = "/events?filters=%7B%22type%22%3A%5B%22container%22%5D%7D";

/// Where the engine is.
pub(super) struct Engine(PathBuf);

/// Its events.
pub(super) struct Events {
    stream: UnixStream,
    place: PathBuf,
}

impl Engine {
    pub(super) fn new(socket: &Path) -> Self {
        Self(socket.to_owned())
    }

    /// All containers that run.
    ///
    /// # Errors
    /// Why they are not known, and what to do.
    pub(super) fn containers(&self) -> Result<Vec<Container>, String> {
        let list = self
            .get("/containers/json")?
            .ok_or_else(|| format!("{} knows no containers", self.0.display()))?;
        let ids = list.as_array().into_iter().flatten().filter_map(|one| one["Id"].as_str());
        let mut containers = Vec::new();
        for id in ids.filter(|id| id.bytes().all(|byte| byte.is_ascii_alphanumeric())) {
            // It may be gone by now.
            let Some(told) = self.get(&format!("/containers/{id}/json"))? else { continue };
            containers.extend(Container::read(&told));
        }
        Ok(containers)
    }

    /// Begins to listen to events.
    ///
    /// # Errors
    /// As [`containers`](Self::containers).
    pub(super) fn events(&self) -> Result<Events, String> {
        let mut stream = self.begin(EVENTS)?;
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            if head.len() == HEAD_BYTES_MAX
                || stream.read(&mut byte).map_err(|error| self.failed(&error))? == 0
            {
                return Err(format!("{} sends no events", self.0.display()));
            }
            head.push(byte[0]);
        }
        match status(&head) {
            Some(200) => Ok(Events { stream, place: self.0.clone() }),
            _ => Err(self.refused(&head)),
        }
    }

    /// The JSON at a path; `None` if there is none (any more).
    fn get(&self, path: &str) -> Result<Option<Value>, String> {
        let mut answer = Vec::new();
        let stream = self.begin(path)?;
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).map_err(|error| self.failed(&error))?;
        let end = answer.windows(4).position(|part| part == b"\r\n\r\n");
        match (status(&answer), end) {
            (Some(404), _) => Ok(None),
            (Some(200), Some(end)) => serde_json::from_slice(&answer[end + 4..])
                .map(Some)
                .map_err(|error| format!("{}: {path} is no JSON: {error}", self.0.display())),
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
                "; does Docker or Podman run, and is this its socket (--engine)?"
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

impl Events {
    /// Waits until something may have happened: for an event, and a little for those that belong to it, or for a minute.
    ///
    /// # Errors
    /// There are no more.
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
