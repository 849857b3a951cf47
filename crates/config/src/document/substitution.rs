//! Puts environment variables and the content of files into the texts of a configuration.
//!
//! `${NAME}`, `${NAME:-default}`, `${env:name}` and `${file:PATH}`; what is in `${…}` otherwise is a variable of a
//! request, which is left as it is. Dollar signs in front count in pairs, as in texts with variables of requests.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml_text::{InsertionPoint, next_place};

use crate::document::surroundings::{Surroundings, shown_path};

/// A text in which something was put.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Expanded {
    pub(crate) text: String,
    /// Substituted and literal parts: dollar signs there name no variables of requests.
    pub(crate) literal: Vec<Range<usize>>,
    /// Whether a file was read that all users may read, and its path.
    pub(crate) is_public: Option<PathBuf>,
}

/// Why a text cannot be completed, and where in it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Incomplete {
    pub(crate) offset: usize,
    pub(crate) message: String,
    pub(crate) expected: String,
    /// Whether what is missing may exist on the machines that use the configuration.
    pub(crate) is_elsewhere: bool,
}

/// A secret that a configuration refers to.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret {
    pub(crate) value: String,
    /// The text that stands for it: `${file:/run/secrets/token}`.
    pub(crate) reference: String,
}

/// Without the value.
impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.reference)
    }
}

/// The content of a file with a secret, and whether all users may read it.
type SecretFile = Result<(String, bool), String>;

/// State of the substitutions.
pub(crate) struct Substitution<'s> {
    surroundings: &'s dyn Surroundings,
    files: HashMap<PathBuf, SecretFile>,
    pub(crate) secrets: Vec<Secret>,
}

const FORMS: &str = "${NAME}, ${NAME:-default}, ${env:name} or ${file:PATH}, or $${ for the text ${";

impl<'s> Substitution<'s> {
    pub(crate) fn new(surroundings: &'s dyn Surroundings) -> Self {
        Self { surroundings, files: HashMap::new(), secrets: Vec::new() }
    }

    /// Completes a text; `None` if there is nothing to put in. Files are relative to `folder`.
    pub(crate) fn expand(&mut self, text: &str, folder: &Path) -> Result<Option<Expanded>, Incomplete> {
        if !text.contains("${") {
            return Ok(None);
        }
        let mut expanded = Expanded { text: String::new(), literal: Vec::new(), is_public: None };
        let mut rest = 0;
        while let Some(InsertionPoint { dollars, end }) = next_place(&text[rest..]) {
            let (dollars, end) = (rest + dollars.start..rest + dollars.end, rest + end);
            expanded.text += &text[rest..dollars.start];
            let start = expanded.text.len();
            expanded.text.extend(std::iter::repeat_n('$', dollars.len() / 2));
            if dollars.len() % 2 == 0 {
                // It stands for itself.
                expanded.text += &text[dollars.end..end];
            } else {
                let at = dollars.end - 1;
                let inside = text[dollars.end + 1..end].strip_suffix('}');
                let name = inside.and_then(name).ok_or_else(|| Incomplete {
                    offset: at,
                    message: format!("{} can't be read", &text[at..end]),
                    expected: FORMS.to_owned(),
                    is_elsewhere: false,
                })?;
                let value = self.value(&text[at..end], &name, folder, &mut expanded.is_public);
                expanded.text += &value.map_err(|missing| Incomplete { offset: at, ..missing })?;
            }
            expanded.literal.push(start..expanded.text.len());
            rest = end;
        }
        expanded.text += &text[rest..];
        Ok((rest > 0).then_some(expanded))
    }

    fn value(
        &mut self,
        reference: &str,
        name: &Name<'_>,
        folder: &Path,
        public: &mut Option<PathBuf>,
    ) -> Result<String, Incomplete> {
        let surroundings = self.surroundings;
        let missing =
            |message, expected, is_elsewhere| Incomplete { offset: 0, message, expected, is_elsewhere };
        match *name {
            Name::Variable { name, default } => {
                let found = match surroundings.variable(name).map(String::from_utf8) {
                    Some(Ok(value)) => Some(value),
                    Some(Err(_)) => {
                        let message = format!("{name} of the environment is not UTF-8");
                        return Err(missing(message, "text".to_owned(), false));
                    }
                    None => None,
                };
                // As in a shell: an empty variable has the default too.
                let value = match (found, default) {
                    (Some(value), None) => value,
                    (Some(value), Some(_)) if !value.is_empty() => value,
                    (_, Some(default)) => return Ok(default.to_owned()),
                    (None, None) => {
                        let expected =
                            format!("this environment variable, or a default: ${{{name}:-default}}");
                        let is_elsewhere = surroundings.may_be_elsewhere(None);
                        return Err(missing(format!("{name} is not set"), expected, is_elsewhere));
                    }
                };
                if is_named_like_a_secret(name) {
                    self.keep(&value, reference.to_owned());
                }
                Ok(value)
            }
            Name::File(path) => {
                let path = folder.join(path);
                let read = self.files.entry(path.clone()).or_insert_with(|| secret(&path, surroundings));
                let (value, is_public) = read.clone().map_err(|why| {
                    let expected = "a file with the text that belongs here".to_owned();
                    let is_elsewhere = surroundings.may_be_elsewhere(Some(&path));
                    missing(format!("{}: {why}", shown_path(&path)), expected, is_elsewhere)
                })?;
                if is_public {
                    *public = Some(path.clone());
                }
                let path = std::path::absolute(&path).unwrap_or(path);
                self.keep(&value, format!("${{file:{}}}", path.display()));
                Ok(value)
            }
        }
    }

    fn keep(&mut self, value: &str, reference: String) {
        let secret = Secret { value: value.to_owned(), reference };
        if !value.is_empty() && !self.secrets.contains(&secret) {
            self.secrets.push(secret);
        }
    }
}

/// Reads a secret. Editors end files with a newline, which does not belong to it.
fn secret(path: &Path, surroundings: &dyn Surroundings) -> SecretFile {
    let (bytes, is_public) = surroundings.secret(path)?;
    let mut text = String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())?;
    if text.ends_with('\n') {
        text.truncate(text.len() - if text.ends_with("\r\n") { 2 } else { 1 });
    }
    Ok((text, is_public))
}

/// Whether a name of a variable or a field says that its value is secret.
pub(crate) fn is_named_like_a_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["secret", "passw", "passphrase", "token", "key", "credential"].iter().any(|word| name.contains(word))
}

enum Name<'t> {
    Variable { name: &'t str, default: Option<&'t str> },
    File(&'t str),
}

/// The reference between the braces of a place; `None` if it cannot be parsed.
fn name(inside: &str) -> Option<Name<'_>> {
    if let Some(path) = inside.strip_prefix("file:") {
        return (!path.is_empty()).then_some(Name::File(path));
    }
    let (any_case, inside) = match inside.strip_prefix("env:") {
        Some(inside) => (true, inside),
        None => (false, inside),
    };
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let is_part = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    let is_name = !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.bytes().all(|byte| is_part(byte) || (any_case && byte.is_ascii_lowercase()));
    is_name.then_some(Name::Variable { name, default })
}
