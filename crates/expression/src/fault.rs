//! Errors in expressions, with their place in the text.

use std::fmt;
use std::ops::Range;

use mistake::{LineMap, Mistake};

use crate::Expression;
use crate::facts::ExchangeStage;

/// A mistake in the text of an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpressionFault {
    /// The range of the text that the mistake is about, in bytes.
    pub at: Range<usize>,
    /// Sentence for the user, without the place.
    pub message: String,
    /// For a misspelt name, the nearest valid one.
    pub nearest: Option<String>,
    /// Correction to suggest to the user.
    pub hint: Option<String>,
    /// For a name that is not known yet where the expression is evaluated: the stage from which it is.
    pub known_from: Option<ExchangeStage>,
}

impl ExpressionFault {
    pub(crate) fn new(at: Span, message: impl Into<String>) -> Self {
        Self { at: at.range(), message: message.into(), nearest: None, hint: None, known_from: None }
    }

    #[must_use]
    pub(crate) fn hinting(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    #[must_use]
    pub(crate) fn meaning(self, nearest: Option<&str>) -> Self {
        Self { nearest: nearest.map(str::to_owned), ..self }
    }

    #[must_use]
    pub(crate) fn known_from(self, stage: ExchangeStage) -> Self {
        Self { known_from: Some(stage), ..self }
    }

    /// Adds why a named expression is known so late: the name that it asks for.
    #[must_use]
    pub(crate) fn caused_by(self, expression: &Expression) -> Self {
        let because = expression.latest_name().map(|name| format!(", because it asks for {name}"));
        Self { message: self.message + &because.unwrap_or_default(), ..self }
    }

    /// The mistake with line, column and excerpt, for an expression in a separate text. `file` is used only for messages.
    pub fn in_text(&self, text: &str, file: &str) -> Mistake {
        let mistake = LineMap::new(text, file).mistake(&self.at, self.message.clone());
        mistake.meaning(self.nearest.clone()).hinting(self.hint.clone())
    }
}

/// The mistake in one line, without its position.
impl fmt::Display for ExpressionFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)?;
        if let Some(hint) = &self.hint {
            write!(formatter, "; {hint}")?;
        }
        if let Some(nearest) = &self.nearest {
            write!(formatter, "; did you mean {nearest:?}?")?;
        }
        Ok(())
    }
}

impl std::error::Error for ExpressionFault {}

/// A range of the text of an expression, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Span {
    /// Texts are far shorter than 4 GiB ([`Limits::text_bytes`](crate::Limits::text_bytes)).
    pub(crate) fn new(start: usize, end: usize) -> Self {
        Self { start: start as u32, end: end as u32 }
    }

    pub(crate) fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// From the start of one to the end of the other.
    pub(crate) fn to(self, end: Self) -> Self {
        Self { start: self.start, end: end.end }
    }
}
