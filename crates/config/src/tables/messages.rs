//! The table `[messages]`.

use crate::option::kind::Word;
use crate::option::table::{Table, key};

pub(crate) static MESSAGES: Table<Messages> = Table {
    options: &[
        key!(
            "format",
            Word { words: &MessageFormat::NAMED },
            Messages.format,
            "`\"text\"`: `2026-01-31T23:59:59.000Z [info] …`. `\"json\"`: one object per line with `time`, \
             `level` and `message`.",
        ),
        key!(
            "level",
            Word { words: &MessageLevel::NAMED },
            Messages.level,
            "The least severe level that is written. `\"error\"`: something failed. `\"warn\"`: something \
             is wrong. `\"info\"`: something changed.",
        ),
    ],
};

/// Format and level of the messages to the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Messages {
    /// The format; one line per message.
    pub format: MessageFormat,
    /// The lowest level that is written.
    pub level: MessageLevel,
}

/// Format of the messages to the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MessageFormat {
    /// Text: time, level in brackets, message.
    #[default]
    Text,
    Json,
}

impl MessageFormat {
    pub const NAMED: [(&'static str, Self); 2] = [("text", Self::Text), ("json", Self::Json)];
}

/// Severity, from the highest to the lowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MessageLevel {
    /// Something that should happen does not.
    Error,
    /// Something is wrong, but the proxy continues.
    Warn,
    /// Something has changed.
    #[default]
    Info,
}

impl MessageLevel {
    pub const NAMED: [(&'static str, Self); 3] =
        [("error", Self::Error), ("warn", Self::Warn), ("info", Self::Info)];
}
