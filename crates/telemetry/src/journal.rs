//! Sends lines to the journal of systemd, by its native protocol: a datagram of fields for each line.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::SystemTime;

use crate::log::count_lines;
use crate::syslog::{BLOCKED_MAX, Outage, is_too_long};
use crate::writer::{LogSink, Lost};

const SOCKET: &str = "/run/systemd/journal/socket";
/// Severity 6 of syslog: informational.
const FIELDS: &[u8] =
    b"PRIORITY=6\nSYSLOG_FACILITY=3\nSYSLOG_IDENTIFIER=vanward\nVANWARD_LOG=access\nMESSAGE=";

pub(crate) struct Journal {
    path: PathBuf,
    socket: Option<UnixDatagram>,
    outage: Outage,
    datagram: Vec<u8>,
}

impl Journal {
    /// The journal at its usual socket, or at another one.
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        let path = path.unwrap_or_else(|| SOCKET.into());
        Self { path, socket: None, outage: Outage::default(), datagram: Vec::new() }
    }

    fn send(&mut self, line: &[u8]) -> io::Result<()> {
        // A line contains no line feed, so the short form of a field suffices.
        self.datagram.clear();
        self.datagram.extend_from_slice(FIELDS);
        self.datagram.extend_from_slice(line);
        self.datagram.push(b'\n');
        let socket = match &self.socket {
            Some(socket) => socket,
            None => {
                let socket = UnixDatagram::unbound()?;
                socket.set_write_timeout(Some(BLOCKED_MAX))?;
                socket.connect(&self.path)?;
                self.socket.insert(socket)
            }
        };
        let sent = socket.send(&self.datagram);
        if sent.is_err() {
            // The journal may have restarted, with another socket.
            self.socket = None;
        }
        sent.map(drop)
    }
}

impl LogSink for Journal {
    fn name(&self) -> &str {
        "journald"
    }

    fn write(&mut self, lines: &[u8], _now: SystemTime) -> Result<(), Lost> {
        let (mut rest, mut lost) = (lines, None::<Lost>);
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            let line = &rest[..end];
            let mut outage = std::mem::take(&mut self.outage);
            let sent = outage.bridge(|| self.send(line));
            self.outage = outage;
            if let Err(error) = sent {
                let before = lost.as_ref().map_or(0, |lost| lost.lines);
                if !is_too_long(&error) {
                    return Err(Lost { lines: before + count_lines(rest), error });
                }
                // Only the line that is too long for the journal is lost.
                lost = Some(Lost { lines: before + 1, error });
            }
            rest = &rest[end + 1..];
        }
        lost.map_or(Ok(()), Err)
    }
}
