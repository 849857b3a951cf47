//! The statements of the other configuration: where each was, and how it was written.

/// The most characters of a statement that messages and comments show.
const SHOWN_MAX: usize = 100;

/// A directive with its words, and its block if it has one.
#[derive(Debug)]
pub(crate) struct Directive {
    /// Its number in the order of reading.
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

/// Where a statement was, and how it was written.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) file: usize,
    pub(crate) line: usize,
    /// Its name.
    pub(crate) name: String,
    /// Name and words, shortened.
    pub(crate) text: String,
}

/// All files, and each statement by its number.
#[derive(Debug, Default)]
pub(crate) struct Source {
    pub(crate) files: Vec<String>,
    pub(crate) places: Vec<Place>,
    /// Includes that could not be read, and why.
    pub(crate) unread: Vec<(usize, String)>,
}

impl Source {
    /// A source with one file.
    pub(crate) fn of(file: &str) -> Self {
        Self { files: vec![file.to_owned()], ..Self::default() }
    }

    /// Adds a statement, and returns its number.
    pub(crate) fn add(&mut self, file: usize, line: usize, name: &str, text: &str) -> usize {
        self.places.push(Place { file, line, name: plain(name), text: shortened(text) });
        self.places.len() - 1
    }
}

/// One line without control characters.
fn plain(text: &str) -> String {
    text.chars()
        .map(|character| if character.is_control() { ' ' } else { character })
        .take(SHOWN_MAX)
        .collect()
}

/// A statement as messages show it.
fn shortened(text: &str) -> String {
    let mut shown = plain(text);
    if text.chars().nth(SHOWN_MAX).is_some() {
        shown.push('…');
    }
    shown
}

/// Name and words as messages show them; of a long list the beginning.
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
