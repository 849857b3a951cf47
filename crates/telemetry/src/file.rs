//! Writes lines to files and streams: whole lines, a head for formats that have one, and rotation.
//!
//! A file is renamed while it is open, so no line is lost or cut. Rotated files are not compressed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use logline::{LineWriter, Timestamp};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::log::count_lines;
use crate::writer::{LogSink, Lost};

/// When a log file is replaced by a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotation {
    /// Before it would exceed this size.
    pub bytes: Option<u64>,
    /// With the first line of each period, counted from 1970 in UTC. A period of a day begins at midnight.
    pub every: Option<Duration>,
    /// How many former files are kept.
    pub keep: u32,
}

/// A file or stream that lines are written to.
pub(crate) struct Output {
    name: String,
    file: Option<LogFile>,
    sink: Box<dyn Write + Send>,
    lines: Arc<LineWriter>,
    /// Whether the head of the format is written.
    is_headed: bool,
    /// Whether a failure cut a line short. The next one then starts on a new line.
    torn: bool,
}

/// The state of a file, besides its content.
struct LogFile {
    path: PathBuf,
    /// Device and inode, to distinguish it from another file with the same name.
    identity: (u64, u64),
    bytes: u64,
    /// The number of the period of its last line.
    period: u64,
    rotation: Option<Rotation>,
}

impl Output {
    pub(crate) fn file(
        path: PathBuf,
        rotation: Option<Rotation>,
        lines: &Arc<LineWriter>,
    ) -> io::Result<Self> {
        let (sink, file) = opened(path, rotation)?;
        let name = file.path.display().to_string();
        Ok(Self { file: Some(file), ..Self::stream(&name, sink, lines) })
    }

    pub(crate) fn stream(name: &str, sink: impl Write + Send + 'static, lines: &Arc<LineWriter>) -> Self {
        let (name, lines) = (name.to_owned(), Arc::clone(lines));
        Self { name, file: None, sink: Box::new(sink), lines, is_headed: false, torn: false }
    }

    /// Starts a new file if it is due. If that fails, the current one stays in use.
    fn rotate(&mut self, coming: u64, now: SystemTime) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let Some(rotation) = file.rotation else { return Ok(()) };
        let period = rotation.period(now);
        let is_full = rotation.bytes.is_some_and(|most| file.bytes > 0 && file.bytes + coming > most);
        if !is_full && period == file.period {
            return Ok(());
        }
        file.period = period;
        let is_ours = fs::metadata(&file.path).is_ok_and(|found| (found.dev(), found.ino()) == file.identity);
        // If another program has moved the file, only a new one is opened.
        if is_ours && file.bytes > 0 {
            shift(&file.path, rotation.keep)?;
        }
        self.reopen()
    }

    /// Writes bytes. A failure contains how many are written.
    fn put(&mut self, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
        let mut written = 0;
        while written < bytes.len() {
            let error = match self.sink.write(&bytes[written..]) {
                Ok(0) => ErrorKind::WriteZero.into(),
                Ok(count) => {
                    written += count;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => error,
            };
            self.count(written);
            return Err((written, error));
        }
        self.count(written);
        Ok(())
    }

    fn count(&mut self, bytes: usize) {
        if let Some(file) = &mut self.file {
            file.bytes += bytes as u64;
        }
    }

    fn begin(&mut self, now: SystemTime) -> io::Result<()> {
        if self.torn {
            self.put(b"\n").map_err(|(_, error)| error)?;
            self.torn = false;
        }
        if !self.is_headed {
            let mut timestamp = Timestamp::new();
            timestamp.set(now);
            let head = self.lines.head(&timestamp);
            if let Err((written, error)) = self.put(&head) {
                self.torn = written > 0;
                return Err(error);
            }
            self.is_headed = true;
        }
        Ok(())
    }
}

impl LogSink for Output {
    fn name(&self) -> &str {
        &self.name
    }

    fn reopen(&mut self) -> io::Result<()> {
        if let Some(LogFile { path, rotation, .. }) = &self.file {
            let (sink, file) = opened(path.clone(), *rotation)?;
            (self.sink, self.file) = (Box::new(sink), Some(file));
            (self.torn, self.is_headed) = (false, false);
        }
        Ok(())
    }

    fn write(&mut self, lines: &[u8], now: SystemTime) -> Result<(), Lost> {
        let rotated = self.rotate(lines.len() as u64, now);
        let all = |error| Lost { lines: count_lines(lines), error };
        self.begin(now).map_err(all)?;
        if let Err((written, error)) = self.put(lines) {
            self.torn = written > 0 && lines[written - 1] != b'\n';
            return Err(Lost { lines: count_lines(&lines[written..]), error });
        }
        let told = |error| io::Error::other(format!("cannot be rotated, the old file stays in use: {error}"));
        rotated.map_err(|error| Lost { lines: 0, error: told(error) })
    }
}

impl Rotation {
    fn period(&self, time: SystemTime) -> u64 {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.every.map_or(0, |every| since / every.as_secs().max(1))
    }
}

/// Renames the file to `.1`, the previous `.1` to `.2`, and so on. The last one is replaced. Each step is one rename,
/// so that after a crash every file still exists under one name.
fn shift(path: &Path, keep: u32) -> io::Result<()> {
    let name = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    if keep == 0 {
        return fs::remove_file(path);
    }
    // Files above a gap need not move.
    let free = (1..keep).find(|number| !name(*number).exists()).unwrap_or(keep);
    for number in (1..free).rev() {
        fs::rename(name(number), name(number + 1))?;
    }
    fs::rename(path, name(1))
}

fn opened(path: PathBuf, rotation: Option<Rotation>) -> io::Result<(File, LogFile)> {
    let file = open(&path)?;
    let found = file.metadata()?;
    let last = if found.len() == 0 { SystemTime::now() } else { found.modified().unwrap_or(UNIX_EPOCH) };
    let period = rotation.map_or(0, |rotation| rotation.period(last));
    let known = LogFile { path, identity: (found.dev(), found.ino()), bytes: found.len(), period, rotation };
    Ok((file, known))
}

/// Without a reader, opening a FIFO is an error rather than an endless wait. Once there is a reader, writes wait for
/// it.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().append(true).create(true).mode(0o640).custom_flags(flags).open(path)?;
    fcntl_setfl(&file, fcntl_getfl(&file)?.difference(OFlags::NONBLOCK))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use logline::{LineFormat, Masks};

    use super::*;

    /// A target that accepts as many bytes as the script says, or fails if it says 0. After the script it accepts all.
    struct Scripted {
        script: VecDeque<usize>,
        taken: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Scripted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = match self.script.pop_front() {
                Some(0) => return Err(ErrorKind::StorageFull.into()),
                Some(count) => count.min(bytes.len()),
                None => bytes.len(),
            };
            self.taken.lock().expect("no test panics with it").extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_cut_by_a_failure_does_not_spoil_the_next() {
        for (script, lost, expected) in [
            (&[4, 4][..], 0, "first\nsecond\nthird\n"),
            (&[0], 2, "third\n"),
            (&[3, 0], 2, "fir\nthird\n"),
            (&[6, 0], 1, "first\nthird\n"),
            (&[8, 0], 1, "first\nse\nthird\n"),
        ] {
            let taken = Arc::new(Mutex::new(Vec::new()));
            let sink = Scripted { script: script.iter().copied().collect(), taken: Arc::clone(&taken) };
            let mut output = Output::stream("test", sink, &Arc::default());
            let counted = output.write(b"first\nsecond\n", UNIX_EPOCH).err().map_or(0, |lost| lost.lines);
            output.write(b"third\n", UNIX_EPOCH).map_err(|lost| lost.error).expect("the script is over");
            let taken = String::from_utf8(taken.lock().expect("written").clone()).expect("text");
            assert_eq!((counted, taken.as_str()), (lost, expected), "script {script:?}");
        }
    }

    #[test]
    fn a_fifo_is_waited_for_only_once_somebody_reads_it() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600))
            .expect("the folder takes it");
        let error = open(&path).expect_err("nobody reads it");
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::NXIO.raw_os_error()));
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let _reader = OpenOptions::new().read(true).custom_flags(flags).open(&path).expect("it is there");
        let file = open(&path).expect("somebody reads it");
        assert!(!fcntl_getfl(&file).expect("it is open").contains(OFlags::NONBLOCK));
    }

    fn written(output: &mut Output, lines: &str, seconds: u64) {
        let time = UNIX_EPOCH + Duration::from_secs(seconds);
        output.write(lines.as_bytes(), time).map_err(|lost| lost.error).expect("written");
    }

    fn texts(folder: &Path) -> Vec<(String, String)> {
        let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
        let text = |path: &PathBuf| fs::read_to_string(path).expect("text");
        let name = |path: &PathBuf| path.file_name().expect("a name").to_string_lossy().into_owned();
        let mut texts: Vec<_> = entries.map(|path| (name(&path), text(&path))).collect();
        texts.sort_unstable();
        texts
    }

    fn expected(files: &[(&str, &str)]) -> Vec<(String, String)> {
        files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn a_file_that_is_full_is_followed_by_a_new_one_and_the_oldest_goes() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("log");
        let rotation = Rotation { bytes: Some(6), every: None, keep: 2 };
        let mut output = Output::file(path, Some(rotation), &Arc::default()).expect("opens");
        for line in ["a1\n", "a2\n", "b1\n", "long line\n", "d1\n", "d2\n"] {
            written(&mut output, line, 0);
        }
        let files = [("log", "d1\nd2\n"), ("log.1", "long line\n"), ("log.2", "b1\n")];
        assert_eq!(texts(folder.path()), expected(&files));
        // An existing file counts.
        drop(output);
        let mut output =
            Output::file(folder.path().join("log"), Some(rotation), &Arc::default()).expect("opens");
        written(&mut output, "e1\n", 0);
        let files = [("log", "e1\n"), ("log.1", "d1\nd2\n"), ("log.2", "long line\n")];
        assert_eq!(texts(folder.path()), expected(&files));
    }

    #[test]
    fn each_period_has_its_file_and_each_file_its_head() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("log");
        let lines = LineWriter::new(
            LineFormat::new("w3c", &["status".to_owned()]).expect("a format"),
            Masks::default(),
        );
        let day = 86_400;
        let rotation = Rotation { bytes: None, every: Some(Duration::from_secs(day)), keep: 10 };
        let mut output = Output::file(path, Some(rotation), &Arc::new(lines)).expect("opens");
        let today = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() / day * day;
        for (seconds, line) in
            [(today, "200\n"), (today + day - 1, "201\n"), (today + day, "202\n"), (today + 3 * day, "203\n")]
        {
            written(&mut output, line, seconds);
        }
        let files = texts(folder.path());
        let names: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["log", "log.1", "log.2"]);
        for ((_, text), end) in files.iter().zip(["203\n", "202\n", "200\n201\n"]) {
            assert!(text.starts_with("#Version: 1.0\n"), "{text}");
            assert!(text.ends_with(&format!("#Fields: sc-status\n{end}")), "{text}");
        }
    }

    #[test]
    fn a_file_that_somebody_else_put_away_is_only_opened_again() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("log");
        let rotation = Rotation { bytes: Some(3), every: None, keep: 2 };
        let mut output = Output::file(path.clone(), Some(rotation), &Arc::default()).expect("opens");
        written(&mut output, "a1\n", 0);
        fs::rename(&path, folder.path().join("away")).expect("renamed");
        fs::write(&path, "b0\n").expect("written");
        written(&mut output, "b1\n", 0);
        assert_eq!(texts(folder.path()), expected(&[("away", "a1\n"), ("log", "b0\nb1\n")]));
    }
}
