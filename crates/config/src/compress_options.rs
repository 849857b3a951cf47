//! The option `compress` of a route.

use std::sync::Arc;

use coding::{Coding, Levels, MediaRange};
use serde_json::{Value, json};
use toml::de::DeValue;

use crate::kind::{Kind, List, Text, refuse_type};
use crate::pairs::{Pair, Pairs, pair};
use crate::range::{Count, Unit};
use crate::reader::Reader;
use crate::table::{Inline, Page, Table, Written, element, key};
use crate::value_error::{ValueError, ValueFault};

/// How a route codes bodies for clients that accept that.
#[derive(Debug, Clone, PartialEq)]
pub struct Compress {
    /// The codings, the preferred one first.
    pub codings: Vec<Coding>,
    /// The level of each coding.
    pub levels: Levels,
    /// The media types whose bodies are coded.
    pub types: Vec<MediaRange>,
    /// A body that is known to be shorter stays as it is, in bytes.
    pub min_size: u64,
    /// Patterns of the paths whose responses are dictionaries for later ones.
    pub dictionaries: Vec<String>,
}

/// The types that compress well: text in all its forms, and the formats of programs and fonts that bring no coding of
/// their own.
const TYPES: &[&str] = &[
    "text/*",
    "application/json",
    "application/javascript",
    "application/ecmascript",
    "application/xml",
    "application/manifest+json",
    "application/x-ndjson",
    "application/wasm",
    "application/vnd.ms-fontobject",
    "font/ttf",
    "font/otf",
    "image/bmp",
    "image/x-icon",
    "image/vnd.microsoft.icon",
    "*+json",
    "*+xml",
    "*+text",
];

impl Default for Compress {
    fn default() -> Self {
        Self {
            codings: vec![Coding::Zstd, Coding::Brotli, Coding::Gzip],
            levels: Levels::default(),
            types: TYPES.iter().filter_map(|text| text.parse().ok()).collect(),
            min_size: 1000,
            dictionaries: Vec::new(),
        }
    }
}

/// `true`, `false`, or a table.
pub(crate) struct CompressKind;

impl Kind<Option<Arc<Compress>>> for CompressKind {
    fn expected(&self) -> String {
        format!("true, false or {}", COMPRESS.expected())
    }

    fn brief(&self) -> String {
        "true, false or table".to_owned()
    }

    fn document(&self, page: &mut Page) {
        COMPRESS.document(page);
    }

    fn schema(&self) -> Value {
        json!({ "anyOf": [{ "type": "boolean" }, COMPRESS.schema()] })
    }

    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<Option<Arc<Compress>>> {
        match written.value.get_ref() {
            DeValue::Boolean(is_on) => Some(is_on.then(|| Arc::new(Compress::default()))),
            DeValue::Table(_) => COMPRESS.read(written, reader).map(|element| Some(Arc::new(element.value))),
            _ => {
                refuse_type(written, self.expected(), reader);
                None
            }
        }
    }

    fn print(&self, compress: &Option<Arc<Compress>>) -> Option<String> {
        let compress = compress.as_ref()?;
        if **compress == Compress::default() {
            return Some("true".to_owned());
        }
        COMPRESS.print(&element(Compress::clone(compress)))
    }
}

const COMPRESS: Inline<Compress> = Inline {
    title: "compress",
    example: "{ codings = [\"br\", \"gzip\"], min_size = 500 }",
    table: &Table {
        options: &[
            &key(
                "codings",
                List { kind: CODING, may_be_empty: false },
                |compress: &mut Compress| &mut compress.codings,
                "Codings to offer; of those that a client likes equally the first is chosen.",
            ),
            &key(
                "level",
                LevelsKind,
                |compress: &mut Compress| &mut compress.levels,
                "Level of each coding: a higher one makes bodies smaller and takes more time. gzip has 1 to 9, \
                 br 0 to 11, zstd 1 to 19.",
            ),
            &key(
                "types",
                List { kind: TYPE, may_be_empty: false },
                |compress: &mut Compress| &mut compress.types,
                "Media types to compress.",
            ),
            &key(
                "min_size",
                Count { range: 0..=u64::MAX, unit: Unit::Bytes },
                |compress: &mut Compress| &mut compress.min_size,
                "Bodies that are known to be shorter are not compressed.",
            ),
            &key(
                "dictionaries",
                List { kind: DICTIONARY, may_be_empty: true },
                |compress: &mut Compress| &mut compress.dictionaries,
                "Patterns of paths, such as `/app/*/main.js`. A stored response whose path matches one is offered \
                 to clients as the dictionary for later responses of the same pattern (RFC 9842: `dcb`, `dcz`). \
                 The route needs `cache`. Use-As-Dictionary of servers counts as well.",
            ),
        ],
    },
};

fn unknown(written: &str, why: &'static str, expected: &'static str) -> ValueError {
    ValueError { fault: ValueFault::Unknown { written: written.to_owned(), why, nearest: None }, expected }
}

const CODING: Text<Coding> =
    Text { expected: "gzip, br or zstd", read: coding, print: |coding| coding.name().to_owned() };

fn coding(text: &str) -> Result<Coding, ValueError> {
    let plain = Coding::named(text.as_bytes()).filter(|coding| Coding::PLAIN.contains(coding));
    plain.ok_or_else(|| unknown(text, "is no coding that is offered", CODING.expected))
}

const TYPE: Text<MediaRange> = Text {
    expected: "a media type such as \"application/json\", \"text/*\" or \"*+xml\"",
    read: |text| text.parse().map_err(|_| unknown(text, "is no media type", TYPE.expected)),
    print: ToString::to_string,
};

const DICTIONARY: Text<String> = Text {
    expected: "a path that begins with / and may contain *, such as \"/app/*/main.js\"",
    read: |text| {
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"\"\\(){}?#:".contains(&byte);
        if text.starts_with('/') && text.bytes().all(is_plain) {
            Ok(text.to_owned())
        } else {
            Err(unknown(text, "is no pattern of paths", DICTIONARY.expected))
        }
    },
    print: String::clone,
};

/// Levels by coding, each within the range of its coding.
struct LevelsKind;

const LEVELS: Pairs<Coding, Count> = Pairs {
    expected: "levels such as { gzip = 6, br = 5, zstd = 3 }",
    name: coding,
    print_name: |coding| coding.name().to_owned(),
    kind: Count { range: 0..=19, unit: Unit::Things },
};

impl Kind<Levels> for LevelsKind {
    fn expected(&self) -> String {
        Kind::<Vec<Pair<Coding, u8>>>::expected(&LEVELS)
    }

    fn brief(&self) -> String {
        Kind::<Vec<Pair<Coding, u8>>>::brief(&LEVELS)
    }

    fn schema(&self) -> Value {
        Kind::<Vec<Pair<Coding, u8>>>::schema(&LEVELS)
    }

    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<Levels> {
        let mut levels = Levels::default();
        for Pair { at, name, value } in LEVELS.read(written, reader)? {
            let range = Levels::range(name);
            if range.contains(&value) {
                *levels.of_mut(name) = value;
            } else {
                let mistake = reader.mistake(&at, format!("level: {} has no level {value}", name.name()));
                reader.add(mistake.expecting(format!("{} to {}", range.start(), range.end())));
            }
        }
        Some(levels)
    }

    fn print(&self, levels: &Levels) -> Option<String> {
        let changed = |coding: &Coding| levels.of(*coding) != Levels::default().of(*coding);
        let pairs = Coding::PLAIN.into_iter().filter(changed);
        LEVELS.print(&pairs.map(|coding| pair(coding, levels.of(coding))).collect())
    }
}
