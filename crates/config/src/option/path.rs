//! Paths of files that a configuration names.

use std::path::PathBuf;

use crate::document::reader::Reader;
use crate::document::value_error::{ValueError, ValueFault};
use crate::option::form::Form;
use crate::option::kind::{At, Described, Kind, Located, Maybe, Text};
use crate::option::table::Written;

/// An optional path of a file, with its position.
pub(crate) type Path = Option<Located<PathBuf>>;

pub(crate) const PATH_KIND: Maybe<At<PathKind>> = Maybe(At(PathKind));

/// The kind of value for the path of a file, relative to the folder in which vanward was started.
pub(crate) struct PathKind;

impl Described for PathKind {
    fn form(&self) -> Form {
        Form::brief(PATH.expected, "path")
    }
}

impl Kind<PathBuf> for PathKind {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<PathBuf> {
        PATH.read(written, reader)
    }

    fn print(&self, path: &PathBuf) -> Option<String> {
        PATH.print(path)
    }
}

const PATH: Text<PathBuf> = Text {
    expected: "the path of a file such as /etc/vanward/site.pem",
    read: path,
    print: |path| path.display().to_string(),
};

fn path(text: &str) -> Result<PathBuf, ValueError> {
    let fault = match text {
        "" => ValueFault::Empty,
        text if text.contains('\0') => ValueFault::NotAPath { written: text.to_owned(), nearest: None },
        path => return Ok(PathBuf::from(path)),
    };
    Err(ValueError { fault, expected: PATH.expected })
}
