//! Parses HAProxy's files: words with quotes and escapes, sections.

use mistake::{LineMap, Mistake};

use crate::environment;
use crate::source::SourceFiles;

const STATEMENTS_MAX: usize = 100_000;

const SECTIONS: [&str; 18] = [
    "global",
    "defaults",
    "frontend",
    "backend",
    "listen",
    "userlist",
    "peers",
    "resolvers",
    "mailers",
    "cache",
    "program",
    "http-errors",
    "ring",
    "log-forward",
    "fcgi-app",
    "crt-store",
    "traces",
    "acme",
];

#[derive(Debug)]
pub(crate) struct HaproxyLine {
    pub(crate) number: usize,
    pub(crate) words: Vec<String>,
}

impl HaproxyLine {
    pub(crate) fn word(&self, index: usize) -> &str {
        self.words.get(index).map_or("", String::as_str)
    }

    pub(crate) fn is(&self, words: &[&str]) -> bool {
        words.iter().enumerate().all(|(index, word)| self.word(index) == *word)
    }

    pub(crate) fn behind(&self, name: &str) -> Option<&str> {
        let place = self.words.iter().position(|word| word == name)?;
        self.words.get(place + 1).map(String::as_str)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.words.iter().any(|word| word == name)
    }
}

/// A section: its first line and its inner lines.
#[derive(Debug)]
pub(crate) struct HaproxySection {
    pub(crate) head: HaproxyLine,
    pub(crate) lines: Vec<HaproxyLine>,
}

impl HaproxySection {
    pub(crate) fn kind(&self) -> &str {
        self.head.word(0)
    }

    pub(crate) fn name(&self) -> &str {
        match self.head.word(1) {
            "from" if self.kind() == "defaults" => "",
            name => name,
        }
    }
}

pub(crate) fn read(text: &str, file: &str) -> Result<(Vec<HaproxySection>, SourceFiles), Box<Mistake>> {
    let places = LineMap::new(text, file);
    let mut source = SourceFiles::from_file(file);
    let mut sections: Vec<HaproxySection> = Vec::new();
    let mut start = 0;
    let mut line_number = 0;
    for raw in text.split_inclusive('\n') {
        line_number += 1;
        let line = raw.trim_end_matches(['\n', '\r']);
        let at = start;
        start += raw.len();
        let words = words(line).map_err(|(column, what, expected)| {
            let end = (at + column + 1).min(text.len());
            let end = (end..=text.len()).find(|end| text.is_char_boundary(*end)).unwrap_or(text.len());
            Box::new(places.mistake(&(at + column..end), what).expecting(expected))
        })?;
        let Some(first) = words.first() else { continue };
        let begins = SECTIONS.contains(&first.as_str());
        let indent = line.len() - line.trim_start().len();
        let place = at + indent..at + line.trim_end().len();
        if !begins && sections.is_empty() {
            let what = format!("{first:?} is outside of all sections");
            let expected = "a line such as `frontend NAME` before it";
            return Err(Box::new(places.mistake(&place, what).expecting(expected)));
        }
        if source.places.len() >= STATEMENTS_MAX {
            let what = "there are more than 100000 lines";
            return Err(Box::new(places.mistake(&place, what).expecting("a smaller file")));
        }
        let name = match first.as_str() {
            "option" | "timeout" | "http-request" | "http-response" | "http-check" | "stats" => {
                words.iter().take(2).cloned().collect::<Vec<_>>().join(" ")
            }
            first => first.to_owned(),
        };
        if begins && let Some(section) = sections.last() {
            source.end_block(section.head.number);
        }
        let number = source.add(0, line_number, &name, line.trim());
        let made = HaproxyLine { number, words };
        if begins {
            sections.push(HaproxySection { head: made, lines: Vec::new() });
        } else if let Some(section) = sections.last_mut() {
            section.lines.push(made);
        }
    }
    if let Some(section) = sections.last() {
        source.end_block(section.head.number);
    }
    Ok((sections, source))
}

type Wrong = (usize, &'static str, &'static str);

/// Splits a line into words, without its comment.
fn words(line: &str) -> Result<Vec<String>, Wrong> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = line.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '#' if word.is_none() => break,
            ' ' | '\t' => words.extend(word.take()),
            '\\' => {
                let next = letters.next().map_or('\\', |(_, next)| next);
                // A backslash makes spaces, quotes and the like literal. `\n` and `\.` stay for expressions.
                let word = word.get_or_insert_default();
                if !matches!(next, ' ' | '#' | '"' | '\'' | '\\' | '\t') {
                    word.push('\\');
                }
                word.push(next);
            }
            '"' | '\'' => quoted(letter, at, &mut letters, word.get_or_insert_default())?,
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Ok(words)
}

fn quoted(
    quote: char,
    at: usize,
    letters: &mut std::iter::Peekable<std::str::CharIndices<'_>>,
    word: &mut String,
) -> Result<(), Wrong> {
    while let Some((_, letter)) = letters.next() {
        match letter {
            _ if letter == quote => return Ok(()),
            '$' if quote == '"' => word.push_str(&variable(letters)),
            '\\' if quote == '"' => {
                let next = letters.next().map_or('\\', |(_, next)| next);
                if !matches!(next, ' ' | '#' | '"' | '\'' | '\\' | '$') {
                    word.push('\\');
                }
                word.push(next);
            }
            other => word.push(other),
        }
    }
    Err((at, "this text has no closing quote", "a quote at its end"))
}

/// Reads the name of an environment variable behind a `$`: `NAME`, `{NAME}` or `{NAME-default}`.
fn variable(letters: &mut std::iter::Peekable<std::str::CharIndices<'_>>) -> String {
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let has_brace = letters.next_if(|(_, letter)| *letter == '{').is_some();
    let mut name = String::new();
    while let Some((_, letter)) = letters.next_if(|(_, letter)| is_of_name(*letter)) {
        name.push(letter);
    }
    if !has_brace {
        return if name.is_empty() { "$".to_owned() } else { environment::variable(&name, None) };
    }
    let mut behind = String::new();
    while let Some((_, letter)) = letters.next_if(|(_, letter)| !matches!(letter, '}' | '"')) {
        behind.push(letter);
    }
    let is_closed = letters.next_if(|(_, letter)| *letter == '}').is_some();
    let default = behind.strip_prefix('-');
    if is_closed && !name.is_empty() && (behind.is_empty() || default.is_some()) {
        return environment::variable(&name, default);
    }
    format!("${{{name}{behind}{}", if is_closed { "}" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_words() {
        let cases: [(&str, &[&str]); 9] = [
            ("  bind *:80 # all", &["bind", "*:80"]),
            (r#"string "a \"b\" c""#, &["string", "a \"b\" c"]),
            (r"acl a path_reg \.php$", &["acl", "a", "path_reg", r"\.php$"]),
            (r"replace-path (.*) /a\ b\1", &["replace-path", "(.*)", r"/a b\1"]),
            ("lf-string 'a\\n'x", &["lf-string", "a\\nx"]),
            (r#"bind "$IP:${PORT-80}" '$X'"#, &["bind", "${IP}:${PORT:-80}", "$X"]),
            (r#"string "${a_b}\$c $ ${X""#, &["string", "${env:a_b}$c $ ${X"]),
            (r#"string "${A[*]}""#, &["string", "${A[*]}"]),
            ("   # nothing", &[]),
        ];
        for (line, expected) in cases {
            let words = words(line)
                .map(|words| words.iter().map(|word| environment::written(word)).collect::<Vec<_>>());
            assert_eq!(
                words.as_deref(),
                Ok(&expected.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()[..]),
                "{line}"
            );
        }
    }

    #[test]
    fn wrong_lines_have_their_place() {
        let said = |text: &str| read(text, "h.cfg").expect_err(text).to_string();
        assert!(
            said("bind *:80")
                .starts_with("h.cfg:1:1: \"bind\" is outside of all sections; expected a line such as")
        );
        assert!(said("global\n log \"a").starts_with("h.cfg:2:6: this text has no closing quote"));
    }
}
