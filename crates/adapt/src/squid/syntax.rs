//! The text of Squid's files: words, comments, lines that go on, included files.

use mistake::{Mistake, Places};

use crate::Include;
use crate::source::Source;

const LINES_MAX: usize = 100_000;
const INCLUDES_DEEP_MAX: usize = 16;

/// A line with its words.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) number: usize,
    pub(crate) words: Vec<String>,
}

impl Line {
    pub(crate) fn word(&self, index: usize) -> &str {
        self.words.get(index).map_or("", String::as_str)
    }

    /// The value of `name=value`.
    pub(crate) fn option(&self, name: &str) -> Option<&str> {
        self.words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.words.iter().any(|word| word == name)
    }

    /// A number with a unit behind it: `30 seconds`, `2 minutes`.
    pub(crate) fn milliseconds(&self, index: usize) -> Option<u64> {
        let number = self.word(index).parse::<u64>().ok()?;
        let unit = match self.word(index + 1).trim_end_matches('s') {
            "" | "second" => 1000,
            "millisecond" | "msec" => 1,
            "minute" => 60_000,
            "hour" => 3_600_000,
            "day" => 86_400_000,
            _ => return None,
        };
        number.checked_mul(unit)
    }

    /// A size with a unit behind it: `256 MB`.
    pub(crate) fn bytes(&self, index: usize) -> Option<u64> {
        let number = self.word(index).parse::<u64>().ok()?;
        let unit = match self.word(index + 1).to_ascii_uppercase().as_str() {
            "" | "BYTES" => 1,
            "KB" => 1 << 10,
            "MB" => 1 << 20,
            "GB" => 1 << 30,
            _ => return None,
        };
        number.checked_mul(unit)
    }
}

pub(crate) fn read(
    text: &str,
    file: &str,
    include: Include<'_>,
) -> Result<(Vec<Line>, Source), Box<Mistake>> {
    let mut source = Source::default();
    let mut lines = Vec::new();
    read_file(text, file, 0, &mut lines, &mut source, include)?;
    Ok((lines, source))
}

fn read_file(
    text: &str,
    file: &str,
    depth: usize,
    lines: &mut Vec<Line>,
    source: &mut Source,
    include: Include<'_>,
) -> Result<(), Box<Mistake>> {
    source.files.push(file.to_owned());
    let place = source.files.len() - 1;
    let places = Places::new(text, file);
    let (mut at, mut number) = (0, 0);
    let mut begun: Option<(usize, usize, String)> = None;
    for raw in text.split_inclusive('\n') {
        number += 1;
        let start = at;
        at += raw.len();
        let line = raw.trim_end_matches(['\n', '\r']);
        let (part, goes_on) = line.strip_suffix('\\').map_or((line, false), |part| (part, true));
        let (line_number, start, whole) = match begun.take() {
            Some((line, start, before)) => (line, start, before + part),
            None => (number, start, part.to_owned()),
        };
        if goes_on && at < text.len() {
            begun = Some((line_number, start, whole));
            continue;
        }
        let words = words(&whole);
        let Some(first) = words.first() else { continue };
        let wrong =
            |what: &str, expected: &str| Box::new(places.mistake(&(start..start), what).expecting(expected));
        if source.places.len() >= LINES_MAX {
            return Err(wrong("there are more than 100000 lines", "a smaller file"));
        }
        let number = source.add(place, line_number, first, whole.trim());
        let is_include = first == "include";
        let pattern = words.get(1).cloned().unwrap_or_default();
        lines.push(Line { number, words });
        if !is_include {
            continue;
        }
        if depth >= INCLUDES_DEEP_MAX {
            return Err(wrong("files include each other more than 16 deep", "no circle"));
        }
        match include(&pattern) {
            Ok(files) => {
                for (name, text) in files {
                    read_file(&text, &name, depth + 1, lines, source, include)?;
                }
            }
            Err(why) => source.unread.push((number, why)),
        }
    }
    Ok(())
}

/// The words of a line, without its comment; quotes go.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for word in line.split_whitespace() {
        if word.starts_with('#') {
            break;
        }
        words.push(word.trim_matches('"').to_owned());
    }
    words
}
