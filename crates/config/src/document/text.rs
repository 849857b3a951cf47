//! The text of a configuration as it was written, for printing: its files, and the secrets that they refer to.

use std::fmt;
use std::path::{Path, PathBuf};

use toml_text::{InsertionPoint, next_place};

use crate::document::joined::joined;
use crate::document::masks::{self, replaced_strings};
use crate::document::sources::{Source, Sources};
use crate::document::substitution::Secret;

/// The text that was read. It is kept once, without a tree of values.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Document {
    files: Box<[Written]>,
    secrets: Box<[Secret]>,
}

/// A file of a configuration.
#[derive(PartialEq)]
struct Written {
    name: String,
    /// The directory that its secrets are relative to.
    folder: PathBuf,
    text: Box<str>,
}

/// Without the text, which may have secrets.
impl fmt::Debug for Written {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)
    }
}

impl Document {
    pub(crate) fn new(sources: Sources<'_>, secrets: Vec<Secret>) -> Self {
        let written = |Source { name, folder, text, .. }: Source<'_>| Written {
            name,
            folder,
            text: text.into_owned().into_boxed_str(),
        };
        Self { files: sources.files.into_iter().map(written).collect(), secrets: secrets.into() }
    }

    /// All files as one, with comments, in their order. Empty if the configuration has no text.
    pub(crate) fn text(&self) -> String {
        let files = self.files.iter().map(|file| (file.name.as_str(), file.localized()));
        joined(files.collect())
    }

    /// A text of this configuration without its secrets.
    pub(crate) fn masked(&self, text: &str) -> String {
        masks::masked(text, &self.secrets)
    }

    /// Whether a secret is written in the files themselves, rather than referred to.
    pub(crate) fn has_written_secret(&self) -> bool {
        self.files.iter().any(|file| masks::is_secret_written(&file.text, &self.secrets))
    }
}

impl Written {
    /// The text with references to files that mean the same in another directory.
    fn localized(&self) -> String {
        let text = self.text.strip_prefix('\u{feff}').unwrap_or(&self.text);
        if !text.contains("${file:") {
            return text.to_owned();
        }
        replaced_strings(text, &mut |_, value| {
            let absolute = absolute(value, &self.folder);
            (absolute != value).then_some(absolute)
        })
    }
}

/// Makes the paths in `${file:PATH}` absolute.
fn absolute(text: &str, folder: &Path) -> String {
    let (mut all, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(InsertionPoint { dollars, end }) = next_place(rest) {
        let (place, odd) = (&rest[dollars.end..end], dollars.len() % 2 == 1);
        all += &rest[..dollars.end];
        match place.strip_prefix("{file:").and_then(|path| path.strip_suffix('}')) {
            Some(path) if odd => {
                let path = folder.join(path);
                let path = std::path::absolute(&path).unwrap_or(path);
                all += &format!("{{file:{}}}", path.display());
            }
            _ => all += place,
        }
        rest = &rest[end..];
    }
    all + rest
}
