//! Options of `[messages]`, declared once.

use crate::kind::Word;
use crate::settings::{MessageFormat, MessageLevel, Messages};
use crate::table::{Table, key};

pub(crate) static MESSAGES: Table<Messages> = Table {
    options: &[
        &key(
            "format",
            Word { words: &MessageFormat::NAMED },
            |messages: &mut Messages| &mut messages.format,
            "`\"text\"`: `2026-01-31T23:59:59.000Z [info] …`. `\"json\"`: one object per line with `time`, \
             `level` and `message`.",
        ),
        &key(
            "level",
            Word { words: &MessageLevel::NAMED },
            |messages: &mut Messages| &mut messages.level,
            "The least severe level that is written. `\"error\"`: something failed. `\"warn\"`: something \
             is wrong. `\"info\"`: something changed.",
        ),
    ],
};
