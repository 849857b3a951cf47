//! Files of entries: keys with values, keys alone, CSV.

use std::str;

use mistake::nearest;

use crate::fault::{EntryFault, FileFault};
use crate::shape::{MapKind, MapShape};
use crate::table::TableBuilder;

const LINE_BYTES_MAX: usize = 64 * 1024;

/// The form of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileFormat {
    /// `key value` on each line: the key ends at the first space. `#` begins a comment line.
    Pairs,
    /// A key on each line. `#` begins a comment line; behind a network, `#` and `;` begin a comment, too.
    Keys,
    /// CSV (RFC 4180).
    Csv(Columns),
}

/// The columns of a CSV file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns {
    pub key: Column,
    /// The column of the values; `None` for a set of keys.
    pub value: Option<Column>,
}

/// A column of a CSV file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Column {
    /// By its number, from 1: the file has no header.
    Number(usize),
    /// By its name in the first line.
    Named(String),
}

impl FileFormat {
    /// Adds the entries of a file.
    ///
    /// # Errors
    /// The first mistake, with its line.
    pub fn read(&self, text: &[u8], builder: &mut TableBuilder) -> Result<(), FileFault> {
        match self {
            Self::Csv(columns) => columns.read(text, builder),
            Self::Pairs | Self::Keys => {
                let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
                for (line, written) in (1..).zip(text.split(|byte| *byte == b'\n')) {
                    if written.len() > LINE_BYTES_MAX {
                        return Err(FileFault::LongLine(line));
                    }
                    let written = str::from_utf8(written).map_err(|_| FileFault::NotText(line))?;
                    if let Some((key, value)) = entry_of_line(builder.shape(), written) {
                        let added = match builder.shape().values {
                            Some(_) if value.is_empty() => Err(EntryFault::NoValue { key: key.to_owned() }),
                            _ => builder.add(key, value),
                        };
                        added.map_err(|fault| FileFault::Entry { line, fault })?;
                    }
                }
                Ok(())
            }
        }
    }
}

/// The key and the value on a line: the value is empty in a set. `None` for an empty line and a comment.
pub fn entry_of_line(shape: MapShape, line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let (first, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    Some(match (shape.values, shape.kind) {
        (Some(_), _) => (first, rest.trim()),
        (None, MapKind::Network) => {
            line.split_once(['#', ';']).map_or((first, rest.trim()), |(key, _)| (key.trim(), ""))
        }
        (None, _) => (line, ""),
    })
}

impl Columns {
    fn read(&self, text: &[u8], builder: &mut TableBuilder) -> Result<(), FileFault> {
        let mut reader = csv::ReaderBuilder::new();
        let mut reader = reader.has_headers(false).flexible(true).trim(csv::Trim::All).from_reader(text);
        let mut record = csv::ByteRecord::new();
        let mut places = None;
        let mut line = 1;
        // Reading from memory does not fail, and any number of columns is accepted.
        while reader.read_byte_record(&mut record).unwrap_or(false) {
            line = record.position().map_or(line, |position| position.line() as usize);
            let column = |place: usize| match record.get(place) {
                Some(bytes) => str::from_utf8(bytes).map_err(|_| FileFault::NotText(line)),
                None => Err(FileFault::NoColumn { line, count: record.len(), wanted: place + 1 }),
            };
            let (key, value) = match places {
                Some(places) => places,
                None => {
                    let first = self.places(&record)?;
                    places = Some(first);
                    if self.has_names() {
                        continue;
                    }
                    first
                }
            };
            let value = value.map_or(Ok(""), column)?;
            builder.add(column(key)?, value).map_err(|fault| FileFault::Entry { line, fault })?;
        }
        Ok(())
    }

    fn has_names(&self) -> bool {
        matches!(self.key, Column::Named(_)) || matches!(self.value, Some(Column::Named(_)))
    }

    /// The places of key and value in each record. `first` is the first record.
    fn places(&self, first: &csv::ByteRecord) -> Result<(usize, Option<usize>), FileFault> {
        let place = |column: &Column| match column {
            Column::Number(number) => Ok(number.saturating_sub(1)),
            Column::Named(name) => {
                let place = first.iter().position(|known| known == name.as_bytes());
                place.ok_or_else(|| {
                    let known: Vec<String> =
                        first.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
                    let near = nearest(name, known.iter().map(String::as_str));
                    let known = near.map_or_else(|| known.join(", "), |near| format!("{near:?}"));
                    FileFault::UnknownColumn(name.clone(), known)
                })
            }
        };
        Ok((place(&self.key)?, self.value.as_ref().map(place).transpose()?))
    }
}
