//! Writes texts as strings of `vanward.toml`, and finds the places in them that are replaced when the file is read.

use std::fmt::Write;
use std::ops::Range;

/// Writes a basic string of TOML. A `${…}` in it is replaced when the file is read.
#[must_use]
pub fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            control if control.is_control() => {
                // Writing into a String does not fail.
                let _ = write!(quoted, "\\u{:04X}", u32::from(control));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

/// Writes a basic string of TOML in which nothing is replaced: `${NAME}` stays as it is.
#[must_use]
pub fn literal(text: &str) -> String {
    quoted(&unexpanded(text))
}

/// Doubles the dollar signs of places that would be replaced from the environment or from files.
#[must_use]
pub fn unexpanded(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(InsertionPoint { dollars, end }) = next_place(rest) {
        out += &rest[..dollars.end];
        out.extend(std::iter::repeat_n('$', dollars.len()));
        out += &rest[dollars.end..end];
        rest = &rest[end..];
    }
    out + rest
}

/// A place in a text that is replaced from the environment or a file when it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InsertionPoint {
    /// The dollar signs before the brace. Two of them stand for one.
    pub dollars: Range<usize>,
    /// The end: after the first closing brace, or the end of the text if there is none. Places do not nest.
    pub end: usize,
}

/// Finds the first place. Braces around the name of a request's variable, or the number of a group, are not replaced
/// here.
#[must_use]
pub fn next_place(text: &str) -> Option<InsertionPoint> {
    let mut from = 0;
    loop {
        let open = from + text[from..].find("${")? + 1;
        let inside = &text[open + 1..];
        from = open + 1;
        let is_variable = inside.starts_with(|first: char| first.is_ascii_uppercase() || first == '_');
        if is_variable || inside.starts_with("env:") || inside.starts_with("file:") {
            let dollars = text[..open].bytes().rev().take_while(|&byte| byte == b'$').count();
            let end = inside.find('}').map_or(text.len(), |len| open + 1 + len + 1);
            return Some(InsertionPoint { dollars: open - dollars..open, end });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_have_their_escapes() {
        for (text, expected) in [
            ("a b", r#""a b""#),
            ("\"\\", r#""\"\\""#),
            ("1\n2\t3\r", r#""1\n2\t3\r""#),
            ("\0\x7f\u{85}é", r#""\u0000\u007F\u0085é""#),
        ] {
            assert_eq!(quoted(text), expected);
        }
    }

    #[test]
    fn nothing_is_put_into_a_literal() {
        for (text, expected) in [
            ("${HOME}", r#""$${HOME}""#),
            ("a$${file:/x}b", r#""a$$$${file:/x}b""#),
            ("${env:a} ${_B}", r#""$${env:a} $${_B}""#),
            ("$1 ${host} $", r#""$1 ${host} $""#),
            // Places do not nest.
            ("${A:-${B}} ${C", r#""$${A:-${B}} $${C""#),
        ] {
            assert_eq!(literal(text), expected);
        }
    }
}
