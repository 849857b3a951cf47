//! Kinds of values with a range: counts, sizes, rates and durations.

use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::time::Duration;

use toml::de::{DeInteger, DeValue};

use crate::document::reader::Reader;
use crate::option::form::Form;
use crate::option::kind::{Described, Kind, quoted, refuse_type};
use crate::option::quantity::{
    EXPECTED_DURATION, EXPECTED_PERCENT, EXPECTED_RATE, EXPECTED_SIZE, duration, percent, rate, size,
    written_duration, written_rate, written_size,
};
use crate::option::table::Written;

/// Number types that a quantity may be stored in.
pub(crate) trait Number: Copy + TryFrom<u64> + TryInto<u64> {}
impl<N: Copy + TryFrom<u64> + TryInto<u64>> Number for N {}

/// A whole number within a range: plain, or with a unit.
pub(crate) struct Count {
    pub(crate) range: RangeInclusive<u64>,
    pub(crate) unit: Unit,
}

/// The unit of a number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// No unit: an integer.
    Things,
    /// Bytes: a size such as `64KiB`, or an integer.
    Bytes,
    /// Bytes per second: a rate such as `1MB/s`, or an integer.
    BytesPerSecond,
    /// Percent: text such as `20%`.
    Percent,
}

impl Unit {
    fn expected(self) -> &'static str {
        match self {
            Unit::Things => "a whole number",
            Unit::Bytes => EXPECTED_SIZE,
            Unit::BytesPerSecond => EXPECTED_RATE,
            Unit::Percent => EXPECTED_PERCENT,
        }
    }

    fn brief(self) -> &'static str {
        match self {
            Unit::Things => "number",
            Unit::Bytes => "size",
            Unit::BytesPerSecond => "rate",
            Unit::Percent => "percentage",
        }
    }

    /// As in a range, without quotes.
    fn write(self, number: u64) -> String {
        match self {
            Unit::Things => number.to_string(),
            Unit::Bytes => written_size(number),
            Unit::BytesPerSecond => written_rate(number),
            Unit::Percent => format!("{number}%"),
        }
    }
}

impl Count {
    /// `noun` with the range.
    fn describe(&self, noun: &str) -> String {
        let (least, most) = (*self.range.start(), *self.range.end());
        match (least, most) {
            (0, u64::MAX) => noun.to_owned(),
            (_, u64::MAX) => format!("{noun}, at least {}", self.unit.write(least)),
            _ => format!("{noun}, {} to {}", self.unit.write(least), self.unit.write(most)),
        }
    }

    fn number(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<u64> {
        let text = match written.value.get_ref() {
            DeValue::Integer(number) if self.unit == Unit::Percent => {
                let message = format!("{}: {number} has no %", written.name);
                let mistake = reader.mistake(&written.value.span(), message);
                reader.add(mistake.expecting(self.expected()).meaning(Some(format!("{number}%"))));
                return None;
            }
            DeValue::Integer(integer) => return self.integer(integer, written, reader),
            DeValue::String(text) if self.unit != Unit::Things => text,
            // `"${PORT}"`: in the file it is a string, whatever it stands for.
            DeValue::String(text) if reader.is_completed(&written.value.span()) => {
                return text.parse().map_err(|_| refuse_type(written, self.expected(), reader)).ok();
            }
            _ => {
                refuse_type(written, self.expected(), reader);
                return None;
            }
        };
        let number = match self.unit {
            Unit::Bytes => size(text),
            Unit::Percent => percent(text),
            Unit::BytesPerSecond | Unit::Things => rate(text),
        };
        number.map_err(|error| reader.refuse(&written.value.span(), written.name, &error)).ok()
    }

    fn integer(
        &self,
        integer: &DeInteger<'_>,
        written: &Written<'_>,
        reader: &mut Reader<'_>,
    ) -> Option<u64> {
        let number = u64::from_str_radix(integer.as_str(), integer.radix()).ok();
        if number.is_none() {
            let is_negative = integer.as_str().starts_with('-');
            refuse_range(written, integer.as_str(), is_negative, self.expected(), reader);
        }
        number
    }
}

impl Described for Count {
    fn form(&self) -> Form {
        Form::brief(self.describe(self.unit.expected()), self.describe(self.unit.brief()))
    }
}

impl<N: Number> Kind<N> for Count {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<N> {
        let number = self.number(written, reader)?;
        match N::try_from(number) {
            Ok(value) if self.range.contains(&number) => Some(value),
            _ => {
                let is_small = number < *self.range.start();
                refuse_range(written, &self.unit.write(number), is_small, self.expected(), reader);
                None
            }
        }
    }

    fn print(&self, value: &N) -> Option<String> {
        let number = (*value).try_into().ok()?;
        let text = self.unit.write(number);
        Some(if text.bytes().all(|byte| byte.is_ascii_digit()) { text } else { quoted(&text) })
    }
}

/// A `Count` without 0, which its range must exclude as well.
pub(crate) struct NonZero(pub(crate) Count);

impl Described for NonZero {
    fn form(&self) -> Form {
        self.0.form()
    }
}

impl Kind<NonZeroU32> for NonZero {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<NonZeroU32> {
        self.0.read(written, reader).and_then(NonZeroU32::new)
    }

    fn print(&self, value: &NonZeroU32) -> Option<String> {
        self.0.print(&value.get())
    }
}

/// A duration within a range.
pub(crate) struct Wait {
    pub(crate) range: RangeInclusive<Duration>,
}

impl Wait {
    /// `noun` with the range.
    fn describe(&self, noun: &str) -> String {
        let (least, most) = (written_duration(*self.range.start()), written_duration(*self.range.end()));
        format!("{noun}, {least} to {most}")
    }
}

impl Described for Wait {
    fn form(&self) -> Form {
        Form::brief(self.describe(EXPECTED_DURATION), self.describe("duration"))
    }
}

impl Kind<Duration> for Wait {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<Duration> {
        let text = match written.value.get_ref() {
            DeValue::String(text) => text,
            DeValue::Integer(seconds) => {
                let mistake =
                    reader.mistake(&written.value.span(), format!("{}: {seconds} has no unit", written.name));
                reader.add(mistake.expecting(self.expected()).meaning(Some(format!("{seconds}s"))));
                return None;
            }
            _ => {
                refuse_type(written, self.expected(), reader);
                return None;
            }
        };
        match duration(text) {
            Ok(value) if self.range.contains(&value) => Some(value),
            Ok(value) => {
                refuse_range(written, text, value < *self.range.start(), self.expected(), reader);
                None
            }
            Err(error) => {
                reader.refuse(&written.value.span(), written.name, &error);
                None
            }
        }
    }

    fn print(&self, value: &Duration) -> Option<String> {
        Some(quoted(&written_duration(*value)))
    }
}

/// Adds a value outside of its range.
fn refuse_range(
    written: &Written<'_>,
    value: &str,
    is_small: bool,
    expected: String,
    reader: &mut Reader<'_>,
) {
    let direction = if is_small { "small" } else { "large" };
    let mistake =
        reader.mistake(&written.value.span(), format!("{}: {value} is too {direction}", written.name));
    reader.add(mistake.expecting(expected));
}

pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);

pub(crate) const UP_TO_A_DAY: Wait = Wait { range: Duration::from_millis(1)..=DAY };

pub(crate) const UP_TO_A_YEAR: Wait =
    Wait { range: Duration::from_millis(1)..=Duration::from_secs(365 * 24 * 3600) };
