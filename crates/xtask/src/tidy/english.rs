//! Rules for sentences in comments and pages: how doc comments begin, what they add to the name, words that readers
//! stumble over, and the length of sentences. What stands in backticks or quotes is not judged.

use std::fmt;

use super::Finding;
use super::words::contains;
use crate::workspace::TextFile;

const SENTENCE_WORDS_MAX: usize = 30;

/// Beginnings without a noun to search for.
const OPENINGS: &[&str] =
    &["What", "Who", "Whom", "Whose", "Of", "That of", "Those", "It", "They", "One", "The same", "How"];

/// Words after `How` that ask for a quantity.
const QUANTITIES: &[&str] = &[
    "long", "many", "often", "much", "far", "large", "fast", "late", "early", "old", "deep", "soon",
    "strongly",
];

/// Words that hide who acts, or that have a plainer synonym.
const DIALECT: &[&str] = &[
    "told",
    "tells of",
    "that is there",
    "that are there",
    "whom",
    "whoever",
    "nobody",
    "of its own accord",
    "of their own accord",
    "by itself",
    "by themselves",
    "as it comes",
    "as they come",
    "is said",
    "anew",
    "thereby",
    "wherefrom",
    "how manyth",
];

/// Words that say nothing in a comment that otherwise repeats a name.
const FILLERS: &[&str] =
    &["a", "an", "the", "of", "its", "this", "for", "to", "in", "is", "are", "with", "and"];

/// The number of findings by rule.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    openings: usize,
    repetitions: usize,
    dialect: usize,
    long: usize,
}

impl fmt::Display for Counts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { openings, repetitions, dialect, long } = self;
        write!(
            formatter,
            "{openings} openings without a noun, {repetitions} comments that repeat a name, \
             {dialect} words of the dialect, {long} sentences above {SENTENCE_WORDS_MAX} words"
        )
    }
}

pub(super) fn check(file: &TextFile, counts: &mut Counts, findings: &mut Vec<Finding>) {
    let mut checked = Checked { path: &file.path, counts, findings };
    if file.path.ends_with(".rs") {
        checked.rust(&file.text);
    } else if file.path.ends_with(".md") && !file.path.starts_with("docs/results/") {
        checked.page(&file.text);
    }
}

struct Checked<'c> {
    path: &'c str,
    counts: &'c mut Counts,
    findings: &'c mut Vec<Finding>,
}

impl Checked<'_> {
    fn find(&mut self, line: usize, what: String, remedy: &'static str) {
        self.findings.push(Finding { path: self.path.to_owned(), line, what, remedy });
    }

    fn rust(&mut self, text: &str) {
        let lines: Vec<&str> = text.lines().collect();
        let mut at = 0;
        while at < lines.len() {
            let Some((marker, _)) = comment(lines[at]) else {
                at += 1;
                continue;
            };
            let block = lines[at..].iter().map_while(|line| comment(line).filter(|found| found.0 == marker));
            let block: Vec<&str> = block.map(|(_, text)| text).collect();
            if marker != "//" {
                self.opening(at + 1, block[0]);
                if block.len() == 1 {
                    let item = lines[at + 1..].iter().find(|line| !line.trim_start().starts_with("#["));
                    self.repetition(at + 1, block[0], item.copied().unwrap_or_default());
                }
            }
            self.prose(at + 1, &block);
            at += block.len();
        }
    }

    fn page(&mut self, text: &str) {
        self.prose(1, &text.lines().collect::<Vec<_>>());
    }

    fn opening(&mut self, line: usize, first: &str) {
        let begins = |opening: &str| {
            first.strip_prefix(opening).filter(|rest| rest.starts_with(|next: char| !next.is_alphanumeric()))
        };
        let found = OPENINGS.iter().find(|opening| match begins(opening) {
            Some(rest) if **opening == "How" => {
                let next = rest.split_whitespace().next().unwrap_or_default();
                !QUANTITIES.contains(&next)
            }
            found => found.is_some(),
        });
        if let Some(opening) = found {
            self.counts.openings += 1;
            let remedy = "begin with a noun of the field, or a verb in the third person";
            self.find(line, format!("the comment begins with `{opening}`"), remedy);
        }
    }

    /// Finds a comment whose words are all in the name below it.
    fn repetition(&mut self, line: usize, text: &str, item: &str) {
        let item = item.trim_start();
        if item.starts_with("mod ") || item.starts_with("pub mod ") || item.starts_with("pub(crate) mod ") {
            // Lists of modules are tables of contents.
            return;
        }
        let item = match item.strip_prefix("pub(") {
            Some(rest) => rest.split_once(") ").map_or(rest, |(_, item)| item),
            None => item.strip_prefix("pub ").unwrap_or(item),
        };
        let head = item.split(['(', '{', '=', ';', ',']).next().unwrap_or_default();
        let known: Vec<String> = words(head).iter().map(|word| stem(word)).collect();
        let said: Vec<String> =
            words(text).into_iter().filter(|word| !FILLERS.contains(&word.as_str())).collect();
        if !said.is_empty() && said.iter().all(|word| known.contains(&stem(word))) {
            self.counts.repetitions += 1;
            self.find(line, format!("`{text}` says no more than the name"), "delete the comment");
        }
    }

    fn prose(&mut self, first: usize, lines: &[&str]) {
        let mut in_code = false;
        let mut paragraph = String::new();
        let mut start = first;
        for (number, line) in lines.iter().enumerate() {
            let line = line.trim();
            let is_fence = line.starts_with("```");
            in_code ^= is_fence;
            let is_apart = is_fence || in_code || line.is_empty() || line.starts_with(['|', '#', '<']);
            let is_item = line.starts_with("- ") || line.starts_with("* ") || is_numbered(line);
            if is_apart || is_item {
                self.paragraph(start, &std::mem::take(&mut paragraph));
            }
            if !is_apart {
                if paragraph.is_empty() {
                    start = first + number;
                }
                paragraph.push_str(line);
                paragraph.push(' ');
            }
        }
        self.paragraph(start, &paragraph);
    }

    fn paragraph(&mut self, line: usize, text: &str) {
        let text = plain(text);
        let lower = text.to_ascii_lowercase();
        for phrase in DIALECT.iter().filter(|phrase| contains(&lower, phrase, true)) {
            self.counts.dialect += 1;
            self.find(line, format!("`{phrase}` is hard to read"), "say who does what, in ordinary words");
        }
        for sentence in sentences(&text) {
            let count = sentence.split_whitespace().count();
            if count > SENTENCE_WORDS_MAX {
                self.counts.long += 1;
                let begin: String = sentence.chars().take(40).collect();
                let what = format!("a sentence of {count} words: `{begin}…`");
                self.find(line, what, "split it: one idea in a sentence");
            }
        }
    }
}

/// The marker and the text of a line that is a comment.
fn comment(line: &str) -> Option<(&'static str, &str)> {
    let line = line.trim_start();
    let marker = ["///", "//!", "//"].into_iter().find(|marker| line.starts_with(marker))?;
    Some((marker, line[marker.len()..].trim_start()))
}

fn is_numbered(line: &str) -> bool {
    line.split_once(". ").is_some_and(|(number, _)| number.len() < 4 && number.parse::<u32>().is_ok())
}

/// The text with a word in place of code and quotes, and links by their names.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['`', '"', ']']) {
        let (before, after) = rest.split_at(at);
        plain.push_str(before);
        let mark = after.as_bytes()[0] as char;
        let inner = &after[1..];
        rest = match mark {
            ']' if inner.starts_with('(') => inner.find(')').map_or(inner, |end| &inner[end + 1..]),
            ']' => inner,
            mark => {
                plain.push('x');
                inner.find(mark).map_or("", |end| &inner[end + 1..])
            }
        };
    }
    plain.push_str(rest);
    plain
}

/// Sentences end with `.`, `!`, `?`, `:` or `;` where a capital, a digit or code follows.
fn sentences(text: &str) -> impl Iterator<Item = &str> {
    let begins = |next: &str| {
        let next = next.trim_start();
        next.starts_with(|first: char| {
            first.is_uppercase() || first.is_ascii_digit() || "*(x".contains(first)
        })
    };
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = rest.match_indices(['.', '!', '?', ':', ';']).find_map(|(at, _)| {
            let next = &rest[at + 1..];
            (next.starts_with(' ') && begins(next)).then_some(at + 1)
        });
        let (sentence, after) = rest.split_at(end.unwrap_or(rest.len()));
        rest = after;
        Some(sentence)
    })
}

/// Words in lower case, with names in snake and camel case taken apart.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut is_joined = false;
    for character in text.chars() {
        if !character.is_alphanumeric() {
            is_joined = false;
            continue;
        }
        match words.last_mut() {
            Some(word) if is_joined && !character.is_uppercase() => word.push(character),
            _ => words.push(character.to_ascii_lowercase().to_string()),
        }
        is_joined = true;
    }
    words
}

/// The word without the ending of its plural.
fn stem(word: &str) -> String {
    word.strip_suffix("es").or_else(|| word.strip_suffix('s')).unwrap_or(word).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> (Counts, Vec<String>) {
        let (mut counts, mut findings) = (Counts::default(), Vec::new());
        check(&TextFile { path: path.to_owned(), text: text.to_owned() }, &mut counts, &mut findings);
        (counts, findings.into_iter().map(|finding| format!("{}: {}", finding.line, finding.what)).collect())
    }

    fn of_comment(text: &str) -> Vec<String> {
        found("crates/proxy/src/x.rs", text).1
    }

    #[test]
    fn doc_comments_begin_with_a_noun_or_a_verb() {
        for (text, opening) in [
            ("/// What is sent.\n", Some("What")),
            ("//! How a body ends.\n", Some("How")),
            ("/// The same for bytes.\n", Some("The same")),
            ("/// It waits.\n", Some("It")),
            ("/// How long a client waits.\n", None),
            ("/// Items of a list.\n", None),
            ("/// Whether it is full.\n", None),
            ("// What comes next is ready.\n", None),
        ] {
            let expected: Vec<String> =
                opening.iter().map(|opening| format!("1: the comment begins with `{opening}`")).collect();
            assert_eq!(of_comment(text), expected, "{text}");
        }
    }

    #[test]
    fn comments_say_more_than_the_name() {
        for (text, is_found) in [
            ("/// The name.\nname: String,\n", true),
            ("/// Body bytes.\n#[serde(default)]\npub(crate) body_bytes: u64,\n", true),
            ("/// Idle connections.\nstruct IdleConnections {\n", true),
            ("/// Idle connections to one server.\nstruct IdleConnections {\n", false),
            ("/// The name, without its port.\nname: String,\n", false),
            ("/// Parses.\nmod parse;\n", false),
        ] {
            assert_eq!(of_comment(text).len(), usize::from(is_found), "{text}");
        }
    }

    #[test]
    fn dialect_and_long_sentences_are_found_in_comments_and_pages() {
        let long = "word ".repeat(31);
        for (path, text, expected) in [
            ("docs/x.md", "# A page\n\nNobody is told.\n".to_owned(), 2),
            ("docs/x.md", "`nobody` and \"anew\" are quoted.\n".to_owned(), 0),
            ("docs/x.md", "```\nnobody\n```\n".to_owned(), 0),
            ("docs/x.md", format!("{long}\n"), 1),
            ("docs/x.md", format!("| {long} |\n"), 0),
            ("docs/x.md", "Word word. ".repeat(31), 0),
            ("crates/a/src/x.rs", format!("// {long}\n"), 1),
            ("crates/a/src/x.rs", "let whom = nobody;\n".to_owned(), 0),
            ("docs/results/x.md", "nobody\n".to_owned(), 0),
        ] {
            assert_eq!(found(path, &text).1.len(), expected, "{path}: {text}");
        }
    }
}
