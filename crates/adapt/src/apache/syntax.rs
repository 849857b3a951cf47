//! Parses files of Apache httpd: a directive a line, sections up to `</NAME>`, includes, `Define`.
//!
//! The content of `<IfModule>` counts as if the module were loaded, and of `<IfModule !NAME>` as if it were loaded, too.

use std::collections::BTreeMap;

use mistake::{LineMap, Mistake};

use crate::Include;
use crate::source::{Directive, SourceFiles, joined};

const STATEMENTS_MAX: usize = 100_000;
const INCLUDES_DEEP_MAX: usize = 16;

/// An unclosed section with its content so far.
struct OpenSection {
    /// `None` for the top of the file.
    begin: Option<Directive>,
    inner: Vec<Directive>,
}

struct ApacheReader<'i> {
    source: SourceFiles,
    include: Include<'i>,
    /// Outermost first.
    open: Vec<OpenSection>,
    defined: BTreeMap<String, String>,
}

pub(crate) fn read(
    text: &str,
    file: &str,
    include: Include<'_>,
) -> Result<(Vec<Directive>, SourceFiles), Box<Mistake>> {
    let mut reader = ApacheReader {
        source: SourceFiles::default(),
        include,
        open: vec![OpenSection { begin: None, inner: Vec::new() }],
        defined: BTreeMap::new(),
    };
    reader.file(text, file, 0)?;
    Ok((flattened(reader.open.remove(0).inner), reader.source))
}

/// Puts the content of `<IfModule>` in its place.
fn flattened(all: Vec<Directive>) -> Vec<Directive> {
    let mut made = Vec::new();
    for mut directive in all {
        let is_absent = directive.word(0).starts_with('!');
        match (directive.name.as_str(), directive.block.take()) {
            ("<ifmodule>", Some(inner)) if !is_absent => {
                made.push(directive);
                made.extend(flattened(inner));
            }
            // Its statements have a verdict by their section.
            ("<ifmodule>", Some(_)) => made.push(directive),
            (_, block) => {
                directive.block = block.map(flattened);
                made.push(directive);
            }
        }
    }
    made
}

impl ApacheReader<'_> {
    fn file(&mut self, text: &str, file: &str, depth: usize) -> Result<(), Box<Mistake>> {
        self.source.files.push(file.to_owned());
        let place = self.source.files.len() - 1;
        let places = LineMap::new(text, file);
        let depth_before = self.open.len();
        for LogicalLine { start, line, text } in logical_lines(text) {
            let wrong = |what: &str, expected: &str| {
                Box::new(places.mistake(&(start..start), what).expecting(expected))
            };
            let whole = self.substituted(text.trim());
            if whole.is_empty() || whole.starts_with('#') {
                continue;
            }
            if let Some(end) = whole.strip_prefix("</") {
                let name = format!("<{}>", end.trim_end_matches('>').trim().to_ascii_lowercase());
                if self.open.len() <= depth_before || !self.close(&name) {
                    return Err(wrong("this section was not begun", "the end of the section before it"));
                }
                continue;
            }
            let inside = whole.strip_prefix('<').map(|rest| rest.trim_end().trim_end_matches('>'));
            let Some(mut words) = words(inside.unwrap_or(&whole)) else {
                return Err(wrong("a quote does not end", "a quote in the same line"));
            };
            if words.is_empty() {
                return Err(wrong("the section has no name", "a name such as <Location /path>"));
            }
            if self.source.places.len() >= STATEMENTS_MAX {
                return Err(wrong("there are more than 100000 statements", "a smaller file"));
            }
            let name = words.remove(0);
            let shown = if inside.is_some() { format!("<{name}>") } else { name };
            let number = self.source.add(place, line, &shown, &joined(&shown, &words));
            let directive = Directive { number, name: shown.to_ascii_lowercase(), words, block: None };
            if inside.is_some() {
                self.open.push(OpenSection { begin: Some(directive), inner: Vec::new() });
                continue;
            }
            if depth >= INCLUDES_DEEP_MAX && directive.name.starts_with("include") {
                return Err(wrong("files include each other more than 16 deep", "no cycle"));
            }
            self.directive(directive, depth)?;
        }
        if self.open.len() > depth_before {
            let end = text.len()..text.len();
            let mistake = places.mistake(&end, "a section has no end");
            return Err(Box::new(mistake.expecting("`</NAME>` on a line of its own")));
        }
        Ok(())
    }

    /// Adds a directive to the open section. `Define` counts from here on, and included files follow.
    fn directive(&mut self, directive: Directive, depth: usize) -> Result<(), Box<Mistake>> {
        let number = directive.number;
        let included = matches!(directive.name.as_str(), "include" | "includeoptional")
            .then(|| directive.word(0).to_owned());
        if directive.name == "define" && !directive.words.is_empty() {
            self.defined.insert(directive.word(0).to_owned(), directive.word(1).to_owned());
        }
        if let Some(open) = self.open.last_mut() {
            open.inner.push(directive);
        }
        let Some(included) = included else { return Ok(()) };
        match (self.include)(&included) {
            Ok(files) => {
                for (name, text) in files {
                    self.file(&text, &name, depth + 1)?;
                }
            }
            Err(why) => self.source.unread.push((number, why)),
        }
        Ok(())
    }

    /// Ends the open section. Returns `false` if it has another name.
    fn close(&mut self, name: &str) -> bool {
        let is_it = |open: &OpenSection| open.begin.as_ref().is_some_and(|begin| begin.name == name);
        if !self.open.last().is_some_and(is_it) {
            return false;
        }
        if let Some(closed) = self.open.pop()
            && let (Some(mut begin), Some(outer)) = (closed.begin, self.open.last_mut())
        {
            self.source.end_block(begin.number);
            begin.block = Some(closed.inner);
            outer.inner.push(begin);
        }
        true
    }

    /// Replaces `${NAME}` by the text of a `Define` before.
    fn substituted(&self, line: &str) -> String {
        let mut made = String::new();
        let mut rest = line;
        while let Some((before, behind)) = rest.split_once("${") {
            let known =
                behind.split_once('}').and_then(|(name, behind)| Some((self.defined.get(name)?, behind)));
            made += before;
            rest = match known {
                Some((value, behind)) => {
                    made += value;
                    behind
                }
                None => {
                    made += "${";
                    behind
                }
            };
        }
        made + rest
    }
}

/// A line with those that continue it.
struct LogicalLine {
    start: usize,
    line: usize,
    text: String,
}

/// The lines of a file. A backslash at the end continues a line.
fn logical_lines(text: &str) -> Vec<LogicalLine> {
    let mut all: Vec<LogicalLine> = Vec::new();
    let (mut at, mut is_continued) = (0, false);
    for (index, raw) in text.split_inclusive('\n').enumerate() {
        let start = at;
        at += raw.len();
        let whole = raw.trim_end_matches(['\n', '\r']);
        let (piece, continues) = match whole.strip_suffix('\\') {
            Some(piece) => (piece, true),
            None => (whole, false),
        };
        match all.last_mut().filter(|_| is_continued) {
            Some(last) => last.text += piece,
            None => all.push(LogicalLine { start, line: index + 1, text: piece.to_owned() }),
        }
        is_continued = continues;
    }
    all
}

/// Splits a line into words; `None` if a quote is unclosed. A backslash escapes a quote within quotes.
fn words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            letter if letter.is_whitespace() => {}
            quote @ ('"' | '\'') => {
                let mut word = String::new();
                loop {
                    match letters.next()? {
                        end if end == quote => break,
                        '\\' if letters.peek().is_some_and(|next| *next == quote || *next == '\\') => {
                            word.extend(letters.next());
                        }
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
