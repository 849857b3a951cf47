//! From the text of a file to a `Config`, or to every mistake in it.

use std::path::Path;

use crate::meaning::Config;
use crate::mistake::Mistake;

/// Reads the file at `path`. A file that can't be read is a mistake too.
pub fn load(path: &Path) -> Result<Config, Vec<Mistake>> {
    let file_name = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => parse(&text, &file_name),
        Err(error) => Err(vec![whole_file(&file_name, format!("the file can't be read: {error}"))]),
    }
}

/// Reads the text of a file; `file_name` is only named in mistakes.
pub fn parse(text: &str, file_name: &str) -> Result<Config, Vec<Mistake>> {
    let _ = text;
    Err(vec![whole_file(file_name, "configuration files are not built yet".to_owned())])
}

fn whole_file(file_name: &str, message: String) -> Mistake {
    Mistake { file: file_name.to_owned(), line: 1, column: 1, message, expected: None, nearest: None }
}
