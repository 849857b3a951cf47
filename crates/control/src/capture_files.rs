//! Captures that routes write to files.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use capture::{Capture, CapturedRequest, Mask};
use config::{Config, RouteCapture};
use proxy::context::plan::secret;
use proxy::shared::captures::{BegunCapture, CaptureId, CapturedRoutes, Captures};
use telemetry::message;
use tokio::sync::mpsc::Receiver;
use tokio::sync::mpsc::error::TryRecvError;

use crate::StartError;

/// Captures have addresses of clients.
const OWNER_ONLY: u32 = 0o600;
/// How long the end of the process waits for a slow disk.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// The captures in files, by what routes ask for.
#[derive(Default)]
pub(crate) struct CaptureFiles {
    open: Mutex<Vec<(WantedCapture, OpenCapture)>>,
}

/// A capture that routes ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct WantedCapture {
    settings: RouteCapture,
    /// Labels of the routes.
    routes: Vec<String>,
}

struct OpenCapture {
    id: CaptureId,
    /// Disconnects when the file is complete.
    written: std::sync::mpsc::Receiver<()>,
}

/// New files of a configuration that is not in force yet.
pub(crate) struct OpenedFiles(Vec<(WantedCapture, File)>);

impl CaptureFiles {
    /// Opens the files that a configuration adds.
    pub(crate) fn open(&self, config: &Config) -> Result<OpenedFiles, StartError> {
        let open = self.lock();
        let is_new = |wanted: &WantedCapture| open.iter().all(|(known, _)| known != wanted);
        let wanted = wanted(config).into_iter().filter(is_new);
        let opened = wanted.map(|wanted| {
            let path = &wanted.settings.file;
            let failed = |error| StartError::Capture { file: path.clone(), error };
            Ok((wanted.clone(), created(path).map_err(failed)?))
        });
        opened.collect::<Result<_, _>>().map(OpenedFiles)
    }

    /// Ends the captures that a configuration does not have, and begins the new ones.
    pub(crate) fn follow(&self, config: &Config, captures: &Captures, opened: OpenedFiles) -> io::Result<()> {
        let wanted = wanted(config);
        let mut open = self.lock();
        open.retain(|(known, capture)| {
            let stays = wanted.contains(known);
            if !stays {
                captures.end(capture.id);
            }
            stays
        });
        for (wanted, file) in opened.0 {
            let routes = CapturedRoutes::Labelled(wanted.routes.clone());
            let RouteCapture { requests_max, has_bodies, .. } = wanted.settings;
            let BegunCapture { id, requests, lost } = captures.begin(routes, requests_max, has_bodies);
            let (alive, written) = sync_channel(0);
            let writer = CaptureWriter::new(&wanted.settings, file, lost, alive);
            std::thread::Builder::new()
                .name("capture".to_owned())
                .spawn(move || writer.run(requests))
                .inspect_err(|_| captures.end(id))?;
            open.push((wanted, OpenCapture { id, written }));
        }
        Ok(())
    }

    /// Ends all captures, and waits until their files are complete.
    pub(crate) fn close(&self, captures: &Captures) {
        for (_, OpenCapture { id, written }) in std::mem::take(&mut *self.lock()) {
            captures.end(id);
            if written.recv_timeout(END_PATIENCE) == Err(RecvTimeoutError::Timeout) {
                message::error("a capture is incomplete: its file accepts nothing");
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(WantedCapture, OpenCapture)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wanted(config: &Config) -> Vec<WantedCapture> {
    let mut by_file = BTreeMap::<&Path, WantedCapture>::new();
    for route in &config.routes {
        if let Some(settings) = &route.policies.capture {
            let none = || WantedCapture { settings: (**settings).clone(), routes: Vec::new() };
            by_file.entry(&settings.file).or_insert_with(none).routes.push(route.name.clone());
        }
    }
    by_file.into_values().collect()
}

/// Creates a file. One of this name gets `.1` at its end.
fn created(path: &Path) -> io::Result<File> {
    if std::fs::metadata(path).is_ok_and(|known| known.len() > 0) {
        let mut older = path.as_os_str().to_owned();
        older.push(".1");
        std::fs::rename(path, PathBuf::from(older))?;
    }
    OpenOptions::new().write(true).create(true).truncate(true).mode(OWNER_ONLY).open(path)
}

/// Writes a capture to its file.
struct CaptureWriter {
    path: PathBuf,
    file: BufWriter<File>,
    mask: Mask,
    has_bodies: bool,
    lost: Arc<AtomicU64>,
    written: u64,
    _alive: SyncSender<()>,
}

impl CaptureWriter {
    fn new(settings: &RouteCapture, file: File, lost: Arc<AtomicU64>, alive: SyncSender<()>) -> Self {
        Self {
            path: settings.file.clone(),
            file: BufWriter::new(file),
            mask: Mask::new(secret()).keeping(&settings.keep).keeping_bodies(settings.has_bodies),
            has_bodies: settings.has_bodies,
            lost,
            written: 0,
            _alive: alive,
        }
    }

    fn run(mut self, requests: Receiver<CapturedRequest>) {
        let file = self.path.display().to_string();
        match self.write(requests) {
            Ok(()) => message::info(&format!("capture {file} is complete, with {} requests", self.written)),
            Err(error) => message::error(&format!("capture {file} has ended: {error}")),
        }
    }

    fn write(&mut self, mut requests: Receiver<CapturedRequest>) -> io::Result<()> {
        let empty = Capture::of_running_proxy(Some(&self.mask), self.has_bodies);
        self.file.write_all(capture::head_line(&empty, None).as_bytes())?;
        loop {
            let next = match requests.try_recv() {
                Err(TryRecvError::Empty) => {
                    // Readers see all lines while there is nothing to write.
                    self.file.flush()?;
                    requests.blocking_recv()
                }
                next => next.ok(),
            };
            let Some(mut request) = next else { break };
            self.mask.request(&mut request);
            self.file.write_all(capture::request_line(&request).as_bytes())?;
            self.written += 1;
        }
        let lost = self.lost.load(Ordering::Relaxed);
        if lost > 0 {
            self.file.write_all(capture::lost_line(lost).as_bytes())?;
        }
        self.file.flush()
    }
}
