//! Parses files of Pound and zproxy: one statement a line, blocks up to `End`, includes.

use mistake::{LineMap, Mistake};

use crate::Include;
use crate::source::{Directive, SourceFiles, joined};

const STATEMENTS_MAX: usize = 100_000;
const INCLUDES_DEEP_MAX: usize = 16;
/// Statements that begin a block up to `End`.
const BLOCKS: [&str; 9] = [
    "listenhttp",
    "listenhttps",
    "service",
    "backend",
    "emergency",
    "session",
    "match",
    "rewrite",
    "combineheaders",
];
/// Statements that begin a block if they have no argument.
const BLOCKS_ALONE: [&str; 3] = ["control", "trustedip", "resolver"];

/// An unclosed block with its content so far.
struct OpenBlock {
    /// `None` for the top of the file.
    begin: Option<Directive>,
    inner: Vec<Directive>,
}

struct PoundReader<'i> {
    source: SourceFiles,
    include: Include<'i>,
    /// Outermost first.
    open: Vec<OpenBlock>,
}

pub(super) fn read(
    text: &str,
    file: &str,
    include: Include<'_>,
) -> Result<(Vec<Directive>, SourceFiles), Box<Mistake>> {
    let mut reader = PoundReader {
        source: SourceFiles::default(),
        include,
        open: vec![OpenBlock { begin: None, inner: Vec::new() }],
    };
    reader.file(text, file, 0)?;
    Ok((reader.open.remove(0).inner, reader.source))
}

impl PoundReader<'_> {
    fn file(&mut self, text: &str, file: &str, depth: usize) -> Result<(), Box<Mistake>> {
        self.source.files.push(file.to_owned());
        let place = self.source.files.len() - 1;
        let places = LineMap::new(text, file);
        let depth_before = self.open.len();
        let (mut at, mut line) = (0, 0);
        for raw in text.split_inclusive('\n') {
            line += 1;
            let start = at;
            at += raw.len();
            let wrong = |what: &str, expected: &str| {
                Box::new(places.mistake(&(start..start), what).expecting(expected))
            };
            let mut words =
                words(raw).ok_or_else(|| wrong("a quote does not end", "a \" in the same line"))?;
            if words.is_empty() {
                continue;
            }
            let name = words.remove(0);
            let lower = name.to_ascii_lowercase();
            if lower == "end" {
                let closed = if self.open.len() > depth_before { self.open.pop() } else { None };
                let closed = closed.ok_or_else(|| wrong("End without a block", "as many ends as blocks"))?;
                if let (Some(mut begin), Some(outer)) = (closed.begin, self.open.last_mut()) {
                    self.source.end_block(begin.number);
                    begin.block = Some(closed.inner);
                    outer.inner.push(begin);
                }
                continue;
            }
            if self.source.places.len() >= STATEMENTS_MAX {
                return Err(wrong("there are more than 100000 statements", "a smaller file"));
            }
            let number = self.source.add(place, line, &name, &joined(&name, &words));
            let opens = BLOCKS.contains(&lower.as_str())
                || is_acl(&lower, &words, self.open.len())
                || words.is_empty() && BLOCKS_ALONE.contains(&lower.as_str());
            let included =
                matches!(lower.as_str(), "include").then(|| words.first().cloned().unwrap_or_default());
            let directive = Directive { number, name: lower, words, block: None };
            match self.open.last_mut() {
                _ if opens => self.open.push(OpenBlock { begin: Some(directive), inner: Vec::new() }),
                Some(open) => open.inner.push(directive),
                None => {}
            }
            let Some(included) = included else { continue };
            if depth >= INCLUDES_DEEP_MAX {
                return Err(wrong("files include each other more than 16 deep", "no cycle"));
            }
            match (self.include)(&included) {
                Ok(files) => {
                    for (name, text) in files {
                        self.file(&text, &name, depth + 1)?;
                    }
                }
                Err(why) => self.source.unread.push((number, why)),
            }
        }
        if self.open.len() > depth_before {
            let end = text.len()..text.len();
            return Err(Box::new(
                places.mistake(&end, "a block has no end").expecting("`End` on a line of its own"),
            ));
        }
        Ok(())
    }
}

/// Whether this begins a list of addresses: named at the top, unnamed in a service. A named one there is a condition.
fn is_acl(name: &str, words: &[String], depth: usize) -> bool {
    name == "acl" && (depth == 1 || words.is_empty())
}

/// Splits a line into words, without its comment; `None` if a quote is unclosed. A backslash escapes a quote.
fn words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '#' => break,
            letter if letter.is_whitespace() => {}
            '"' => {
                let mut word = String::new();
                loop {
                    match letters.next()? {
                        '"' => break,
                        '\\' if letters.peek() == Some(&'"') => word.extend(letters.next()),
                        '\n' => return None,
                        other => word.push(other),
                    }
                }
                words.push(word);
            }
            first => {
                let mut word = String::from(first);
                while let Some(next) = letters.next_if(|next| !next.is_whitespace()) {
                    word.push(next);
                }
                words.push(word);
            }
        }
    }
    Some(words)
}
