//! The statements of the other configuration: their places and texts.

/// Maximum characters of a statement in messages and comments.
const SHOWN_MAX: usize = 100;

/// A directive with its words, and its block if it has one.
#[derive(Debug)]
pub(crate) struct Directive {
    /// Counts in the order of reading.
    pub(crate) number: usize,
    pub(crate) name: String,
    pub(crate) words: Vec<String>,
    pub(crate) block: Option<Vec<Directive>>,
}

impl Directive {
    pub(crate) fn word(&self, index: usize) -> &str {
        self.words.get(index).map_or("", String::as_str)
    }

    pub(crate) fn inner(&self) -> &[Directive] {
        self.block.as_deref().unwrap_or_default()
    }
}

#[derive(Debug)]
pub(crate) struct StatementPlace {
    pub(crate) file: usize,
    pub(crate) line: usize,
    pub(crate) name: String,
    pub(crate) text: String,
    /// The number of statements in its block, including those of inner blocks. They are the next ones.
    pub(crate) inner: usize,
}

/// All files, and each statement by its number.
#[derive(Debug, Default)]
pub(crate) struct SourceFiles {
    pub(crate) files: Vec<String>,
    pub(crate) places: Vec<StatementPlace>,
    pub(crate) unread: Vec<(usize, String)>,
}

impl SourceFiles {
    pub(crate) fn from_file(file: &str) -> Self {
        Self { files: vec![file.to_owned()], ..Self::default() }
    }

    /// Adds a statement, and returns its number.
    pub(crate) fn add(&mut self, file: usize, line: usize, name: &str, text: &str) -> usize {
        self.places.push(StatementPlace { file, line, name: plain(name), text: shortened(text), inner: 0 });
        self.places.len() - 1
    }

    /// Ends the block of a statement: all statements behind it so far are in the block.
    pub(crate) fn end_block(&mut self, number: usize) {
        let inner = self.places.len().saturating_sub(number + 1);
        if let Some(place) = self.places.get_mut(number) {
            place.inner = inner;
        }
    }

    /// The file of a statement.
    pub(crate) fn file_of(&self, number: usize) -> &str {
        self.places.get(number).and_then(|place| self.files.get(place.file)).map_or("", String::as_str)
    }
}

/// Replaces control characters by spaces.
fn plain(text: &str) -> String {
    text.chars()
        .map(|character| if character.is_control() { ' ' } else { character })
        .take(SHOWN_MAX)
        .collect()
}

fn shortened(text: &str) -> String {
    let mut shown = plain(text);
    if text.chars().nth(SHOWN_MAX).is_some() {
        shown.push('…');
    }
    shown
}

/// Joins name and words for messages, and stops early in long lists.
pub(crate) fn joined(name: &str, words: &[String]) -> String {
    const ENOUGH: usize = 400;
    let mut all = name.to_owned();
    for word in words {
        all.push(' ');
        all.extend(word.chars().take(ENOUGH));
        if all.len() > ENOUGH {
            break;
        }
    }
    shortened(&all)
}
