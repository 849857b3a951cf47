//! Parses Squid's files: words, comments, continued lines, includes.

use mistake::{LineMap, Mistake};

use crate::Include;
use crate::source::SourceFiles;
use crate::values::measure;

const LINES_MAX: usize = 100_000;
const INCLUDES_DEEP_MAX: usize = 16;

#[derive(Debug)]
pub(crate) struct SquidLine {
    pub(crate) number: usize,
    pub(crate) words: Vec<String>,
}

impl SquidLine {
    pub(crate) fn word(&self, index: usize) -> &str {
        self.words.get(index).map_or("", String::as_str)
    }

    pub(crate) fn option(&self, name: &str) -> Option<&str> {
        self.words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.words.iter().any(|word| word == name)
    }

    /// Parses a number and its unit: `30 seconds`, `2 minutes`.
    pub(crate) fn milliseconds(&self, index: usize) -> Option<u64> {
        let units = [("", 1000), ("second", 1000), ("millisecond", 1), ("msec", 1), ("minute", 60_000)];
        let more = [("hour", 3_600_000), ("day", 86_400_000)];
        self.measure(index, self.word(index + 1).trim_end_matches('s'), &[&units[..], &more].concat())
    }

    /// Parses a size and its unit: `256 MB`.
    pub(crate) fn bytes(&self, index: usize) -> Option<u64> {
        let units = [("", 1), ("bytes", 1), ("kb", 1 << 10), ("mb", 1 << 20), ("gb", 1 << 30)];
        self.measure(index, &self.word(index + 1).to_ascii_lowercase(), &units)
    }

    fn measure(&self, index: usize, unit: &str, units: &[(&str, u64)]) -> Option<u64> {
        measure(&format!("{}{unit}", self.word(index).parse::<u64>().ok()?), units)
    }
}

pub(crate) fn read(
    text: &str,
    file: &str,
    include: Include<'_>,
) -> Result<(Vec<SquidLine>, SourceFiles), Box<Mistake>> {
    let mut source = SourceFiles::default();
    let mut lines = Vec::new();
    read_file(text, file, 0, &mut lines, &mut source, include)?;
    Ok((lines, source))
}

fn read_file(
    text: &str,
    file: &str,
    depth: usize,
    lines: &mut Vec<SquidLine>,
    source: &mut SourceFiles,
    include: Include<'_>,
) -> Result<(), Box<Mistake>> {
    source.files.push(file.to_owned());
    let place = source.files.len() - 1;
    let places = LineMap::new(text, file);
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
        lines.push(SquidLine { number, words });
        if !is_include {
            continue;
        }
        if depth >= INCLUDES_DEEP_MAX {
            return Err(wrong("files include each other more than 16 deep", "no cycle"));
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

/// Splits a line into words, without comment and quotes.
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
