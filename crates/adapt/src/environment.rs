//! Environment variables in texts of other proxies.
//!
//! Their values are unknown here. Each becomes one run of private-use characters, which no parser of addresses,
//! templates or expressions takes for syntax. The result has `${NAME}` in place of the run.

use std::fmt::Write as _;

/// Begins a variable.
const BEGIN: char = '\u{F0100}';
/// The characters for bytes of its name and default begin here.
const BYTES: u32 = 0xF_0000;

/// Returns the run for a variable. Without a default, an unset variable is an error when the result is read.
pub(crate) fn variable(name: &str, default: Option<&str>) -> String {
    let is_capital = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    let mut reference = String::new();
    if !name.bytes().all(is_capital) {
        reference += "env:";
    }
    reference += name;
    if let Some(default) = default {
        reference += ":-";
        reference += default;
    }
    let letters = reference.bytes().filter_map(|byte| char::from_u32(BYTES + u32::from(byte)));
    std::iter::once(BEGIN).chain(letters).collect()
}

/// Whether a text has a variable, so that its value is unknown.
pub(crate) fn is_in(text: &str) -> bool {
    text.contains(BEGIN)
}

/// The text with the defaults of its variables; `None` if one has no default.
pub(crate) fn assumed(text: &str) -> Option<String> {
    let mut parts = text.split(BEGIN);
    let mut made = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let bytes: Vec<u8> = part.chars().map_while(byte).collect();
        let reference = String::from_utf8(bytes.clone()).ok()?;
        made += reference.split_once(":-")?.1;
        made.extend(part.chars().skip(bytes.len()));
    }
    Some(made)
}

/// Writes variables as the configuration of Vanward has them.
pub(crate) fn written(text: &str) -> String {
    let mut parts = text.split(BEGIN);
    let mut made = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let bytes: Vec<u8> = part.chars().map_while(byte).collect();
        let rest: String = part.chars().skip(bytes.len()).collect();
        let _ = write!(made, "${{{}}}{rest}", String::from_utf8_lossy(&bytes));
    }
    made
}

fn byte(letter: char) -> Option<u8> {
    u8::try_from(u32::from(letter).checked_sub(BYTES)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_written_as_references() {
        let cases = [
            (variable("DOMAIN", None), "${DOMAIN}"),
            (variable("PORT", Some("80:ä")) + "/x", "${PORT:-80:ä}/x"),
            (variable("A", Some("")) + &variable("app_b", None), "${A:-}${env:app_b}"),
            ("$host".to_owned(), "$host"),
        ];
        for (text, reference) in cases {
            assert_eq!(written(&text), reference);
            assert_eq!(is_in(&text), text != reference);
        }
        assert_eq!(assumed(&(variable("A", Some("/x")) + "/y")).as_deref(), Some("/x/y"));
        assert_eq!(assumed(&variable("A", None)), None);
    }
}
