//! The option `accel` of a route: folders whose files its servers may name (X-Accel-Redirect, X-Sendfile).

use std::path::PathBuf;
use std::sync::Arc;

use crate::document::reader::{Reader, refuse};
use crate::document::value_error::{ValueError, ValueFault};
use crate::option::kind::{At, Located, Text};
use crate::option::pairs::{Pair, Pairs};
use crate::tables::files::{Files, ROOT_EXPECTED};

/// A folder whose files servers may name (X-Accel-Redirect, X-Sendfile).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccelFolder {
    /// The beginning of paths in X-Accel-Redirect, with a slash at its end.
    pub path: String,
    pub files: Arc<Files>,
}

const PREFIX: &str = "the beginning of paths, such as /protected/";

pub(crate) const ACCEL: Pairs<String, At<Text<PathBuf>>> = Pairs {
    expected: "folders by path such as { \"/protected/\" = \"/srv/files\" }",
    name: |text| {
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'%' | b'?' | b'#' | b'\\');
        let has_names = text.split('/').all(|name| !name.starts_with('.'));
        if text.starts_with('/') && text.bytes().all(is_plain) && has_names && !text.contains("//") {
            return Ok(format!("{}/", text.trim_end_matches('/')));
        }
        let written = text.to_owned();
        let fault = ValueFault::Unknown { written, why: "is no beginning of a path", nearest: None };
        Err(ValueError { fault, expected: PREFIX })
    },
    print_name: String::clone,
    kind: At(FOLDER),
};

const FOLDER: Text<PathBuf> = Text {
    expected: ROOT_EXPECTED,
    read: |text| match text {
        "" => Err(ValueError { fault: ValueFault::Empty, expected: ROOT_EXPECTED }),
        path => Ok(PathBuf::from(path)),
    },
    print: |path| path.display().to_string(),
};

/// The option as written.
pub(crate) type AccelWritten = Located<Vec<Pair<String, Located<PathBuf>>>>;

/// Converts the option, the longest path first.
pub(crate) fn folders(written: Option<&AccelWritten>, reader: &mut Reader<'_>) -> Box<[AccelFolder]> {
    let mut folders = Vec::new();
    for Pair { name, value: Located { value: root, at }, .. } in written.iter().flat_map(|it| &it.value) {
        if !root.is_absolute() {
            let message = format!("accel: {root:?} is not an absolute path, as servers name files");
            refuse(at, &message, ROOT_EXPECTED, reader);
            continue;
        }
        if !root.is_dir() {
            let message = format!("accel: {root:?} is not a directory now; until it is, its files get 404");
            let warning = reader.mistake(at, message);
            reader.warn(warning);
        }
        let files = Files { index: Vec::new(), ..Files::from_root(root.clone()) };
        folders.push(AccelFolder { path: name.clone(), files: Arc::new(files) });
    }
    folders.sort_by_key(|folder: &AccelFolder| std::cmp::Reverse(folder.path.len()));
    folders.into()
}
