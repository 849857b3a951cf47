//! The options of `[messages]`, declared once.

use crate::kind::Word;
use crate::meaning::{MessageFormat, MessageLevel, Messages};
use crate::table::{Table, key};

pub(crate) static MESSAGES: Table<Messages> = Table {
    options: &[
        &key(
            "format",
            Word { words: &MessageFormat::NAMED },
            |messages: &mut Messages| &mut messages.format,
            "`\"text\"` is `2026-01-31T23:59:59.000Z [info] …`; `\"json\"` is one object a line with `time`, `level` and \
             `message`.",
        ),
        &key(
            "level",
            Word { words: &MessageLevel::NAMED },
            |messages: &mut Messages| &mut messages.level,
            "The least serious that is written: `\"error\"` is what is not done that should be, `\"warn\"` what is not as it \
             should be, `\"info\"` what has changed.",
        ),
    ],
};
