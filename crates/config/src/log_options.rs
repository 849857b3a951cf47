//! Options of `[log]`, declared once.

use std::path::PathBuf;

use crate::kind::{At, List, Located, Text, Unless, Word, located};
use crate::reader::Reader;
use crate::settings::{AccessLog, LogFormat, LogQuery, LogTarget};
use crate::table::{Table, key, required};
use crate::value_error::{ValueError, ValueFault};
use mistake::nearest;

/// The parsed table `[log]`.
#[derive(Debug, Clone)]
pub(crate) struct Log {
    pub(crate) target: Option<Located<LogTarget>>,
    pub(crate) format: LogFormat,
    pub(crate) query: LogQuery,
    pub(crate) mask: Located<Vec<String>>,
}

pub(crate) static LOG: Table<Log> = Table {
    options: &[
        &required(
            "target",
            Unless { word: "off", kind: At(TARGET_KIND) },
            |log: &mut Log| &mut log.target,
            "Standard output, a file to append to, or off.",
        ),
        &key(
            "format",
            Word { words: &[("combined", LogFormat::Combined), ("json", LogFormat::Json)] },
            |log: &mut Log| &mut log.format,
            "`\"combined\"`: the Combined Log Format of Apache httpd. `\"json\"`: one object per line, \
             with timings and the cause of failures.",
        ),
        &key(
            "query",
            Word {
                words: &[("full", LogQuery::Full), ("masked", LogQuery::Masked), ("off", LogQuery::Omitted)],
            },
            |log: &mut Log| &mut log.query,
            "How query strings in targets and Referer are logged. `\"masked\"` logs `***` for each value, \
             `\"off\"` drops the query.",
        ),
        &key(
            "mask",
            At(List {
                kind: Text { expected: PARAMETER, read: parameter, print: String::clone },
                may_be_empty: true,
            }),
            |log: &mut Log| &mut log.mask,
            "Query parameters whose values are logged as `***`, whatever their case: `[\"token\", \
             \"key\"]`.",
        ),
    ],
};

impl Log {
    /// Rejects names of parameters to mask where no value is logged anyway.
    pub(crate) fn check(&self, reader: &mut Reader<'_>) {
        if self.query != LogQuery::Full && !self.mask.value.is_empty() {
            let mistake = reader.mistake(&self.mask.at, "mask: with this `query` no value is logged");
            reader.add(mistake.expecting("query = \"full\", or no mask"));
        }
    }

    /// The access log that the options describe; `None` if it is off.
    pub(crate) fn meaning(self) -> Option<AccessLog> {
        let query = match self.query {
            LogQuery::Full if !self.mask.value.is_empty() => LogQuery::Without(self.mask.value),
            query => query,
        };
        Some(AccessLog { target: self.target?.value, format: self.format, query })
    }
}

/// Converts back to parsed options, for printing.
impl From<Option<&AccessLog>> for Log {
    fn from(log: Option<&AccessLog>) -> Self {
        let Some(AccessLog { target, format, query }) = log.cloned() else {
            return Self {
                target: None,
                format: LogFormat::default(),
                query: LogQuery::Full,
                mask: located(Vec::new()),
            };
        };
        let (query, mask) = match query {
            LogQuery::Without(names) => (LogQuery::Full, names),
            query => (query, Vec::new()),
        };
        Self { target: Some(located(target)), format, query, mask: located(mask) }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self::from(None)
    }
}

const PARAMETER: &str = "the name of a parameter such as token";

fn parameter(text: &str) -> Result<String, ValueError> {
    let fault = ValueFault::Empty;
    if text.is_empty() { Err(ValueError { fault, expected: PARAMETER }) } else { Ok(text.to_owned()) }
}

const TARGET: &str = "\"stdout\" or a path with a /, such as /var/log/vanward.log or ./access.log";
const TARGET_KIND: Text<LogTarget> = Text { expected: TARGET, read: log_target, print: written_target };

/// A path has a slash, so that `"stdot"` doesn't become a file.
fn log_target(text: &str) -> Result<LogTarget, ValueError> {
    match text {
        "stdout" => Ok(LogTarget::Stdout),
        path if path.contains('/') && !path.ends_with('/') && !path.contains('\0') => {
            Ok(LogTarget::File(PathBuf::from(path)))
        }
        other => {
            let nearest = nearest(other, ["stdout", "off"]);
            Err(ValueError {
                fault: ValueFault::NotAPath { written: other.to_owned(), nearest },
                expected: TARGET,
            })
        }
    }
}

fn written_target(target: &LogTarget) -> String {
    match target {
        LogTarget::Stdout => "stdout".to_owned(),
        // A flag may name a file of the working directory, which a file of options writes with a slash.
        LogTarget::File(path) if path.components().count() == 1 && path.is_relative() => {
            format!("./{}", path.display())
        }
        LogTarget::File(path) => path.display().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn what_is_written_of_a_target_is_read_as_the_same_file() {
        for name in ["log", "stdout", "./log", "logs/access", "/var/log/vanward.log"] {
            let written = written_target(&LogTarget::File(PathBuf::from(name)));
            let Ok(LogTarget::File(read)) = log_target(&written) else { panic!("{name} became {written}") };
            assert_eq!(Path::new(".").join(&read).file_name(), Path::new(name).file_name(), "{name}");
            assert!(written.contains(name) && written.contains('/'), "{name} became {written}");
        }
    }
}
