//! The statements of the other configuration: where each was, and how it was written.

/// The most characters of a statement that messages and comments show.
const SHOWN_MAX: usize = 100;

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
pub(crate) fn shortened(text: &str) -> String {
    let mut shown = plain(text);
    if text.chars().nth(SHOWN_MAX).is_some() {
        shown.push('…');
    }
    shown
}
