//! Reads a file into a `Config`, or into all its mistakes.

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::checked::Config;
use crate::foreign_file;
use crate::needs::{Need, needs};
use crate::options::FILE;
use crate::reader::Reader;
use crate::resolve::resolve;
use crate::tls_resolve::named_files;
use mistake::{Mistake, Places};

/// The largest file that is read: far more than anybody writes, and an end to `/dev/zero`.
const LARGEST_FILE_BYTES: u64 = 16 << 20;

/// The result of reading a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// The configuration; `None` if there are mistakes.
    pub config: Option<Config>,
    /// All mistakes, in the order of the file.
    pub mistakes: Vec<Mistake>,
    /// Settings that are valid but probably unintended, in the order of the file.
    pub warnings: Vec<Mistake>,
    /// The TLS files that the configuration names. They have not been opened.
    pub files: Vec<NamedFile>,
    /// What else must exist on the machine. It has not been looked up.
    pub needs: Vec<Need>,
}

/// A file that the configuration names, with its position.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedFile {
    pub(crate) owner: Owner,
    /// The path; `None` stands for the owner as a whole.
    pub(crate) path: Option<PathBuf>,
    pub(crate) option: &'static str,
    pub(crate) place: Mistake,
}

/// The part of the configuration that names a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// A listener, as an index into `Settings::listeners`.
    Listener(usize),
    /// An upstream, as an index into `Settings::upstreams`.
    Upstream(usize),
}

impl Reading {
    /// Returns the configuration, or all mistakes.
    pub fn into_result(self) -> Result<Config, Vec<Mistake>> {
        self.config.ok_or(self.mistakes)
    }

    /// Makes a mistake about the content of a named file, at the position where the configuration names it.
    pub fn mistake_about(
        &self,
        owner: Owner,
        file: Option<&Path>,
        message: &str,
        expected: Option<&str>,
    ) -> Option<Mistake> {
        let of_owner = || self.files.iter().filter(|named| named.owner == owner);
        let exact = of_owner().find(|named| file.is_some() && named.path.as_deref() == file);
        let named = exact.or_else(|| of_owner().find(|named| named.path.is_none()))?;
        let file = file.map(|file| format!("{}: ", file.display())).unwrap_or_default();
        Some(Mistake {
            message: format!("{}: {file}{message}", named.option),
            expected: expected.map(str::to_owned),
            ..named.place.clone()
        })
    }

    fn failed(mistake: Mistake) -> Self {
        Self {
            config: None,
            mistakes: vec![mistake],
            warnings: Vec::new(),
            files: Vec::new(),
            needs: Vec::new(),
        }
    }
}

/// Reads the file at `path`. A file that cannot be read is a mistake too.
pub fn load(path: &Path) -> Result<Config, Vec<Mistake>> {
    examine_file(path).into_result()
}

/// Parses the text of a file. `file_name` is used only in mistakes.
pub fn parse(text: &str, file_name: &str) -> Result<Config, Vec<Mistake>> {
    examine(text, file_name).into_result()
}

/// Reads the file at `path` like `load`, and also returns warnings, files and needs.
pub fn examine_file(path: &Path) -> Reading {
    let file_name = path.display().to_string();
    let failed = |text: &str, offset, message: String| {
        Reading::failed(Places::new(text, &file_name).mistake(&(offset..offset), message))
    };
    let bytes = match read_bytes(path) {
        Ok(bytes) => bytes,
        Err(error) => return failed("", 0, format!("the file can't be read: {error}")),
    };
    if bytes.len() as u64 > LARGEST_FILE_BYTES {
        return failed("", 0, format!("the file is larger than {} MiB", LARGEST_FILE_BYTES >> 20));
    }
    match std::str::from_utf8(&bytes) {
        Ok(text) => examine(text, &file_name),
        Err(error) => {
            let valid = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
            failed(&valid, valid.len(), "this is not UTF-8 text".to_owned())
        }
    }
}

/// A byte more than the largest file tells that there is more.
fn read_bytes(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(LARGEST_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Parses the text of a file like `parse`, and also returns warnings, files and needs.
pub fn examine(text: &str, file_name: &str) -> Reading {
    let (mut reader, root) = Reader::new(text, file_name);
    let file = FILE.read(("the file", ""), root.get_ref(), &(0..0), &mut reader);
    let (files, needs) = (named_files(&file, &reader), needs(&file, &reader));
    let settings = resolve(file, &mut reader);
    let (mistakes, warnings) = reader.finish();
    if !mistakes.is_empty()
        && let Some((system, at)) = foreign_file::whose(text)
    {
        return Reading::failed(of_another(text, file_name, system, at));
    }
    // `resolve` has found no mistake, or returned nothing.
    Reading { config: settings.map(Config::checked), mistakes, warnings, files, needs }
}

/// The one mistake of a file that is for another proxy, at the line that tells it.
fn of_another(text: &str, file_name: &str, system: &str, line: usize) -> Mistake {
    let before: usize = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let written = text[before..].lines().next().unwrap_or_default();
    let indent = written.len() - written.trim_start().len();
    let at = before + indent..before + written.trim_end().len().max(indent);
    let mistake = Places::new(text, file_name).mistake(&at, format!("this is a configuration of {system}"));
    mistake.expecting(
        "one of vanward, in TOML: [[listen]] with an address, [[route]] with what it matches, and [upstream.NAME] with \
         servers; `vanward help run` shows the smallest",
    )
}
