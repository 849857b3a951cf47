//! The option `fastcgi` of an upstream: which scripts its applications run.
//!
//! It belongs to the upstream, because the directory is a property of the application: every request to it needs one,
//! also those of health checks, mirrors and authentication.

use fastcgi::{ScriptRules, ScriptRulesError, is_valid_name};

use crate::document::reader::{Reader, refuse};
use crate::document::value_error::{ValueError, ValueFault};
use crate::option::kind::{At, Located, Maybe, Switch, Text, located};
use crate::option::pairs::{Pair, Pairs};
use crate::option::table::{Element, Inline, Table, key, required};

/// The scripts of an application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fastcgi {
    /// The directory of the scripts: an absolute path, the same for the application and for the proxy.
    pub root: String,
    /// The script of a directory.
    pub index: String,
    /// The extension of scripts, with its dot.
    pub split: String,
    /// Whether the index of the root gets requests whose path names no script.
    pub front_controller: bool,
    /// Whether only files that exist are scripts.
    pub check_files: bool,
    /// Further parameters. They replace those of the same name.
    pub params: Vec<(String, String)>,
}

impl Fastcgi {
    /// The scripts beneath this directory, with every default.
    pub fn from_root(root: &str) -> Self {
        Self {
            root: root.to_owned(),
            index: "index.php".to_owned(),
            split: ".php".to_owned(),
            front_controller: true,
            check_files: true,
            params: Vec::new(),
        }
    }

    /// The rules that map paths to scripts. They were checked when the file was read.
    #[inline]
    pub fn rules(&self) -> ScriptRules<'_> {
        ScriptRules::of_valid(&self.split, Some(&self.index), self.front_controller)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct FastcgiWritten {
    root: Option<Located<String>>,
    index: Located<String>,
    split: Located<String>,
    front_controller: bool,
    check_files: bool,
    params: Vec<Pair<String, String>>,
}

impl Default for FastcgiWritten {
    fn default() -> Self {
        let Fastcgi { index, split, front_controller, check_files, .. } = Fastcgi::from_root("");
        let (index, split) = (located(index), located(split));
        Self { root: None, index, split, front_controller, check_files, params: Vec::new() }
    }
}

const ROOT_EXPECTED: &str = "the absolute path of a directory such as /srv/app/public";

const ROOT: Text<String> = Text {
    expected: ROOT_EXPECTED,
    read: |text| {
        let fault = match text {
            "" => ValueFault::Empty,
            // SCRIPT_FILENAME is the root with a script behind it, and C ends a string at NUL.
            path if path.starts_with('/') && !path.contains('\0') => return Ok(path.to_owned()),
            other => ValueFault::Unknown {
                written: other.to_owned(),
                why: "is not an absolute path",
                nearest: None,
            },
        };
        Err(ValueError { fault, expected: ROOT_EXPECTED })
    },
    print: String::clone,
};

const SPLIT_EXPECTED: &str = "a dot and the extension of scripts such as .php";
const INDEX_EXPECTED: &str = "the name of a script with the extension of split, such as index.php";
const PARAM_EXPECTED: &str = "a name of letters, digits and underscores, such as APP_ENV";
const VALUE_EXPECTED: &str = "a text such as \"production\"";

/// `check` judges both together.
const SPLIT: Text<String> =
    Text { expected: SPLIT_EXPECTED, read: |text| Ok(text.to_owned()), print: String::clone };
const INDEX: Text<String> = Text { expected: INDEX_EXPECTED, ..SPLIT };

fn param_name(name: &str) -> Result<String, ValueError> {
    if is_valid_name(name) {
        return Ok(name.to_owned());
    }
    let fault = ValueFault::Unknown {
        written: name.to_owned(),
        why: "cannot be the name of a parameter",
        nearest: None,
    };
    Err(ValueError { fault, expected: PARAM_EXPECTED })
}

const VALUE: Text<String> = Text {
    expected: VALUE_EXPECTED,
    read: |text| match text.contains('\0') {
        true => Err(ValueError {
            fault: ValueFault::Unknown { written: text.to_owned(), why: "has a zero byte", nearest: None },
            expected: VALUE_EXPECTED,
        }),
        false => Ok(text.to_owned()),
    },
    print: String::clone,
};

pub(crate) const FASTCGI: Inline<FastcgiWritten> = Inline {
    title: "fastcgi",
    example: "{ root = \"/srv/app/public\" }",
    table: &Table {
        options: &[
            required!(
                "root",
                Maybe(At(ROOT)),
                FastcgiWritten.root,
                "The directory of the scripts: DOCUMENT_ROOT. No file outside of it is a script. Symbolic links may \
                 lead to files below it.",
            ),
            key!(
                "index",
                At(INDEX),
                FastcgiWritten.index,
                "The script of a directory, and with `front_controller` of the whole application.",
            ),
            key!(
                "split",
                At(SPLIT),
                FastcgiWritten.split,
                "The extension of scripts. A path is split behind a segment with it: the rest is PATH_INFO.",
            ),
            key!(
                "front_controller",
                Switch,
                FastcgiWritten.front_controller,
                "Sends requests whose path names no script to `index` of the root. With `false` they get 404.",
            ),
            key!(
                "check_files",
                Switch,
                FastcgiWritten.check_files,
                "Only files that exist are scripts, so an upload `/x.jpg/a.php` never runs `x.jpg`. `false` is for an \
                 application on another machine, whose files the proxy cannot see: it needs `cgi.fix_pathinfo = 0`.",
            ),
            key!(
                "params",
                Pairs {
                    expected: "a table such as { APP_ENV = \"production\" }",
                    name: param_name,
                    print_name: String::clone,
                    kind: VALUE,
                },
                FastcgiWritten.params,
                "Further parameters. They replace those that the proxy sends under the same name.",
            ),
        ],
    },
};

/// Adds mistakes in the options.
pub(crate) fn check(Element { value: written, .. }: &Element<FastcgiWritten>, reader: &mut Reader<'_>) {
    let FastcgiWritten { root, index, split, check_files, .. } = written;
    match ScriptRules::new(&split.value, Some(&index.value), true) {
        Ok(_) => {}
        Err(ScriptRulesError::Split) => {
            let message = format!("split: {:?} is not an extension of scripts", split.value);
            refuse(&split.at, &message, SPLIT_EXPECTED, reader);
        }
        Err(ScriptRulesError::Index) => {
            let message = format!("index: {:?} is not the name of a script", index.value);
            let expected = format!("the name of a script that ends in {}", split.value);
            refuse(&index.at, &message, &expected, reader);
        }
    }
    if let Some(root) =
        root.as_ref().filter(|root| *check_files && !std::path::Path::new(&root.value).is_dir())
    {
        let message = format!("root: {:?} is not a directory now; until it is, requests get 404", root.value);
        let warning = reader.mistake(&root.at, message);
        reader.warn(warning.expecting("check_files = false if the application is on another machine"));
    }
}

/// Converts options without mistakes; `None` if the root is missing.
pub(crate) fn settings(written: FastcgiWritten) -> Option<Fastcgi> {
    Some(Fastcgi {
        root: written.root?.value,
        index: written.index.value,
        split: written.split.value,
        front_controller: written.front_controller,
        check_files: written.check_files,
        params: written.params.into_iter().map(|pair| (pair.name, pair.value)).collect(),
    })
}
