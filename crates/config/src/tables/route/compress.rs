//! The option `compress` of a route.

use std::sync::Arc;

use coding::{Coding, Levels, MediaRange};
use expression::{ExchangeStage, Expression};

use crate::document::reader::Reader;
use crate::document::value_error::{ValueError, ValueFault};
use crate::option::form::Form;
use crate::option::kind::{Described, Kind, List, Made, Maybe, Switchable, Text};
use crate::option::later_condition::{LaterCondition, Unplaced};
use crate::option::pairs::{Pair, Pairs, pair};
use crate::option::range::{Count, Unit};
use crate::option::table::{Inline, Table, Written, key};

/// Compression of bodies for clients that accept it.
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
    /// The condition under which responses are coded; `None` means all.
    pub when: Option<Arc<Expression>>,
}

/// The types that compress well: all kinds of text, and formats of programs and fonts without a separate
/// coding.
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
            when: None,
        }
    }
}

/// `true`, `false`, or a table.
pub(crate) const COMPRESS: Made<Switchable<Compress>, Option<Compress>, Option<Arc<Compress>>> = Made {
    kind: Switchable(TABLE),
    make: |compress| compress.map(Arc::new),
    written: |compress| compress.as_deref().cloned(),
};

const TABLE: Inline<Compress> = Inline {
    title: "compress",
    example: "{ codings = [\"br\", \"gzip\"], min_size = 500 }",
    table: &Table {
        options: &[
            key!(
                "codings",
                List { kind: CODING, may_be_empty: false },
                Compress.codings,
                "Codings to offer; among those with equal weights, the first is chosen.",
            ),
            key!(
                "level",
                LevelsKind,
                Compress.levels,
                "Level of each coding: a higher one makes bodies smaller and takes more time. gzip has 1 to 9, \
                 br 0 to 11, zstd 1 to 19.",
            ),
            key!(
                "types",
                List { kind: TYPE, may_be_empty: false },
                Compress.types,
                "Media types to compress.",
            ),
            key!(
                "min_size",
                Count { range: 0..=u64::MAX, unit: Unit::Bytes },
                Compress.min_size,
                "Bodies that are known to be shorter are not compressed.",
            ),
            key!(
                "dictionaries",
                List { kind: DICTIONARY, may_be_empty: true },
                Compress.dictionaries,
                "Patterns of paths, such as `/app/*/main.js`. A stored response whose path matches one is offered \
                 to clients as the dictionary for later responses of the same pattern (RFC 9842: `dcb`, `dcz`). \
                 The route needs `cache`. Use-As-Dictionary of servers counts as well.",
            ),
            key!(
                "when",
                Maybe(Unplaced(LaterCondition(ExchangeStage::Response))),
                Compress.when,
                "Condition under which a response is compressed or decompressed: \
                 `'response.headers[\"x-compressed\"] != \"no\"'`. Any other response passes unchanged. Default: all. \
                 See [conditions](conditions.md).",
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
    plain.ok_or_else(|| unknown(text, "is not an available coding", CODING.expected))
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

impl Described for LevelsKind {
    fn form(&self) -> Form {
        LEVELS.form()
    }
}

impl Kind<Levels> for LevelsKind {
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
        let changed = |coding: &Coding| levels.for_coding(*coding) != Levels::default().for_coding(*coding);
        let pairs = Coding::PLAIN.into_iter().filter(changed);
        LEVELS.print(&pairs.map(|coding| pair(coding, levels.for_coding(coding))).collect())
    }
}
