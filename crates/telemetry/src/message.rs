//! Messages to the operator: one line each on standard error, with time and level, as text or JSON. Lines to the
//! journal of systemd begin with their priority, and texts leave the time to it.
//!
//! The process has one format and one level. Requests are in the access log instead.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use logline::{Timestamp, escape};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Level {
    /// A required action failed.
    Error,
    /// Something is wrong, but the proxy continues.
    Warn,
    /// Something has changed.
    #[default]
    Info,
}

impl Level {
    pub const NAMED: [(&'static str, Self); 3] =
        [("error", Self::Error), ("warn", Self::Warn), ("info", Self::Info)];

    /// The severity in syslog, which journals read from the start of a line (sd-daemon(3)).
    const fn priority(self) -> u8 {
        match self {
            Self::Error => 3,
            Self::Warn => 4,
            Self::Info => 6,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MessageForm {
    /// `2026-01-31T23:59:59.000Z [info] listening on 127.0.0.1:8080`.
    #[default]
    Text,
    /// `{"time":"2026-01-31T23:59:59.000Z","level":"info","message":"listening on 127.0.0.1:8080"}`.
    Json,
}

/// A repeated text is written only once in this time.
const REPEAT: Duration = Duration::from_secs(1);
/// Texts in that time. Further ones are only counted.
const TEXTS_MAX: usize = 200;
/// Texts in that time that differ only in numbers and addresses. Further ones are only counted.
const KIND_MAX: usize = 20;

/// The form in the lowest bit, the level above it.
static SETTINGS: AtomicU8 = AtomicU8::new((Level::Info as u8) << 1 | MessageForm::Text as u8);
static SAID: Mutex<Said> = Mutex::new(Said { kinds: Vec::new(), left_out: 0 });

/// Sets the format of messages, and the least serious level that is written.
pub fn set(form: MessageForm, level: Level) {
    SETTINGS.store((level as u8) << 1 | form as u8, Ordering::Relaxed);
}

/// Writes an error: a required action failed.
pub fn error(text: &str) {
    say(Level::Error, text);
}

/// Writes a warning: something is wrong, but the proxy continues.
pub fn warn(text: &str) {
    say(Level::Warn, text);
}

/// Writes an info message: something has changed.
pub fn info(text: &str) {
    say(Level::Info, text);
}

/// Writes a message; the same text at most once a second.
pub fn say(level: Level, text: &str) {
    let settings = SETTINGS.load(Ordering::Relaxed);
    if level as u8 > settings >> 1 {
        return;
    }
    let form = if settings & 1 == MessageForm::Json as u8 { MessageForm::Json } else { MessageForm::Text };
    let lines = SAID.lock().unwrap_or_else(PoisonError::into_inner).lines(
        (form, reader()),
        level,
        text,
        Instant::now(),
        SystemTime::now(),
    );
    // In one piece, so that other output does not split the line. If standard error is closed, nothing can be done.
    let _ = io::stderr().lock().write_all(&lines);
}

/// The text with its level before each line, if standard error leads to the journal. For texts that are no messages,
/// such as the reason why the program does not start.
#[must_use]
pub fn marked(level: Level, text: &str) -> Vec<u8> {
    let mut marked = Vec::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        mark(reader(), level, &mut marked);
        marked.extend_from_slice(line.as_bytes());
    }
    marked
}

/// The reader of standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MessageReader {
    Anybody,
    /// The journal of systemd, which adds the time.
    Journal,
}

/// systemd names the device and the inode of its stream, because a program may get another one (systemd.exec(5)).
fn reader() -> MessageReader {
    static READER: OnceLock<MessageReader> = OnceLock::new();
    *READER.get_or_init(|| {
        let of_journal = std::env::var("JOURNAL_STREAM").ok();
        let stream = rustix::fs::fstat(rustix::stdio::stderr()).ok();
        let stream = stream.map(|stream| format!("{}:{}", stream.st_dev, stream.st_ino));
        if of_journal.is_some() && of_journal == stream {
            MessageReader::Journal
        } else {
            MessageReader::Anybody
        }
    })
}

fn mark(reader: MessageReader, level: Level, out: &mut Vec<u8>) {
    if reader == MessageReader::Journal {
        out.extend_from_slice(format!("<{}>", level.priority()).as_bytes());
    }
}

/// A writer that turns each write into a message of this level.
pub(crate) struct MessageSink(pub(crate) Level);

impl Write for MessageSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        say(self.0, String::from_utf8_lossy(bytes).trim_end());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The recently written messages.
struct Said {
    kinds: Vec<MessageKind>,
    /// How many texts of other kinds were omitted.
    left_out: u64,
}

struct MessageKind {
    /// The common part of the texts.
    pattern: String,
    level: Level,
    /// When the first text was written.
    since: Instant,
    /// The written texts, each once.
    texts: Vec<String>,
    /// How many texts were omitted.
    left_out: u64,
}

impl Said {
    /// The lines to write for a text: how many were omitted before it, and its line, unless it is omitted.
    fn lines(
        &mut self,
        form: (MessageForm, MessageReader),
        level: Level,
        text: &str,
        now: Instant,
        time: SystemTime,
    ) -> Vec<u8> {
        let mut lines = Vec::new();
        self.kinds.retain(|kind| {
            let is_over = now.duration_since(kind.since) >= REPEAT;
            if is_over && kind.left_out > 0 {
                let last = kind.texts.last().map_or("", String::as_str);
                let more = format!("and {} more like this: {last}", kind.left_out);
                line(form, kind.level, &more, time, &mut lines);
            }
            !is_over
        });
        let pattern = pattern(text);
        let said: usize = self.kinds.iter().map(|kind| kind.texts.len()).sum();
        match self.kinds.iter_mut().find(|kind| kind.level == level && kind.pattern == pattern) {
            Some(kind) if kind.texts.len() >= KIND_MAX || kind.texts.iter().any(|said| said == text) => {
                kind.left_out += 1;
                return lines;
            }
            _ if said >= TEXTS_MAX => {
                self.left_out += 1;
                return lines;
            }
            Some(kind) => kind.texts.push(text.to_owned()),
            None => {
                let texts = vec![text.to_owned()];
                self.kinds.push(MessageKind { pattern, level, since: now, texts, left_out: 0 });
            }
        }
        if self.left_out > 0 {
            let left_out =
                format!("{} messages were left out: more than {TEXTS_MAX} a second", self.left_out);
            self.left_out = 0;
            line(form, Level::Warn, &left_out, time, &mut lines);
        }
        line(form, level, text, time, &mut lines);
        lines
    }
}

/// The common part of texts that differ only in numbers: each word with a digit becomes `#`.
fn pattern(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for (at, word) in text.split(' ').enumerate() {
        if at > 0 {
            pattern.push(' ');
        }
        let has_digit = word.bytes().any(|byte| byte.is_ascii_digit());
        pattern.push_str(if has_digit { "#" } else { word });
    }
    pattern
}

/// Appends a message. Foreign text in it, such as a host name, cannot start another line, or control a terminal.
fn line(
    (form, reader): (MessageForm, MessageReader),
    level: Level,
    text: &str,
    time: SystemTime,
    out: &mut Vec<u8>,
) {
    let mut timestamp = Timestamp::new();
    timestamp.set(time);
    let stamp = |out: &mut Vec<u8>| {
        out.extend_from_slice(timestamp.rfc3339());
        out.extend_from_slice(format!(".{:03}Z", timestamp.millisecond()).as_bytes());
    };
    mark(reader, level, out);
    match form {
        MessageForm::Text => {
            if reader == MessageReader::Anybody {
                stamp(out);
                out.push(b' ');
            }
            out.extend_from_slice(format!("[{}] ", level.name()).as_bytes());
            escape::control(text, out);
        }
        MessageForm::Json => {
            out.extend_from_slice(b"{\"time\":\"");
            stamp(out);
            out.extend_from_slice(format!("\",\"level\":\"{}\",\"message\":\"", level.name()).as_bytes());
            escape::json(text.as_bytes(), out);
            out.extend_from_slice(b"\"}");
        }
    }
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn shown(form: MessageForm, reader: MessageReader, level: Level, text: &str) -> String {
        let mut out = Vec::new();
        line((form, reader), level, text, UNIX_EPOCH + Duration::from_millis(971_186_136_007), &mut out);
        String::from_utf8(out).expect("it is text")
    }

    #[test]
    fn a_message_is_a_line_with_time_and_level() {
        for (form, level, text, expected) in [
            (
                MessageForm::Text,
                Level::Info,
                "listening on [::]:80",
                "2000-10-10T13:55:36.007Z [info] listening on [::]:80\n",
            ),
            (
                MessageForm::Text,
                Level::Warn,
                "a\n\x1b[2J \"é\" \u{2028}\\",
                "2000-10-10T13:55:36.007Z [warn] a\\n\\u001b[2J \"é\" \\u2028\\\n",
            ),
            (
                MessageForm::Json,
                Level::Error,
                "a\n\"é\"",
                "{\"time\":\"2000-10-10T13:55:36.007Z\",\"level\":\"error\",\"message\":\"a\\n\\\"é\\\"\"}\n",
            ),
        ] {
            assert_eq!(shown(form, MessageReader::Anybody, level, text), expected);
        }
        let json: serde_json::Value = serde_json::from_str(&shown(
            MessageForm::Json,
            MessageReader::Anybody,
            Level::Info,
            "\0\u{7f}\u{85}",
        ))
        .expect("it is JSON");
        assert_eq!(json["message"], "\0\u{7f}\u{85}");
    }

    #[test]
    fn a_line_of_the_journal_has_a_priority_and_one_time() {
        for (level, text, json) in [
            (
                Level::Error,
                "<3>[error] x\n",
                "<3>{\"time\":\"2000-10-10T13:55:36.007Z\",\"level\":\"error\",",
            ),
            (Level::Warn, "<4>[warn] x\n", "<4>{\"time\""),
            (Level::Info, "<6>[info] x\n", "<6>{\"time\""),
        ] {
            assert_eq!(shown(MessageForm::Text, MessageReader::Journal, level, "x"), text);
            assert!(shown(MessageForm::Json, MessageReader::Journal, level, "x").starts_with(json));
        }
    }

    /// The lines that are written for a text at this time.
    fn said(said: &mut Said, start: Instant, milliseconds: u64, text: &str) -> Vec<String> {
        let now = start + Duration::from_millis(milliseconds);
        let lines =
            said.lines((MessageForm::Text, MessageReader::Anybody), Level::Info, text, now, UNIX_EPOCH);
        let lines = String::from_utf8(lines).expect("it is text");
        lines.lines().map(|line| line[25..].to_owned()).collect()
    }

    #[test]
    fn repeated_messages_are_written_once_and_counted() {
        let mut lately = Said { kinds: Vec::new(), left_out: 0 };
        let start = Instant::now();
        let mut at = |milliseconds, text: &str| said(&mut lately, start, milliseconds, text);
        assert_eq!(at(0, "a"), ["[info] a"]);
        assert_eq!(at(500, "a"), [""; 0]);
        assert_eq!(at(999, "a"), [""; 0]);
        assert_eq!(at(1000, "a"), ["[info] and 2 more like this: a", "[info] a"]);
        assert_eq!(at(2000, "b"), ["[info] b"]);
        // There may be as many clients with one kind of trouble as there are addresses.
        for client in 0..61 {
            let text = format!("192.0.2.{client} was disconnected");
            let expected = if client < 20 { vec![format!("[info] {text}")] } else { Vec::new() };
            assert_eq!(at(2000, &text), expected);
        }
        assert_eq!(at(3000, "b"), ["[info] and 41 more like this: 192.0.2.19 was disconnected", "[info] b"]);
    }

    #[test]
    fn a_flood_of_many_kinds_is_counted() {
        let mut lately = Said { kinds: Vec::new(), left_out: 0 };
        let start = Instant::now();
        let mut at = |milliseconds, text: &str| said(&mut lately, start, milliseconds, text);
        for kind in 0..TEXTS_MAX + 51 {
            let name: String =
                kind.to_string().bytes().map(|digit| char::from(digit - b'0' + b'a')).collect();
            assert_eq!(at(0, &name).len(), usize::from(kind < TEXTS_MAX));
        }
        assert_eq!(at(1100, "z"), ["[warn] 51 messages were left out: more than 200 a second", "[info] z"]);
    }
}
