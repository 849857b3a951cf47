//! Texts as strings of `vanward.toml`, for those that write one, and what in them stands for other texts.

use std::fmt::Write;
use std::ops::Range;

/// A basic string of TOML. What a `${…}` names is put in when the file is read.
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

/// The same, so that nothing is put in: `${NAME}` means these letters.
#[must_use]
pub fn literal(text: &str) -> String {
    quoted(&unexpanded(text))
}

/// Doubles the dollar signs in front of what would be put in from the environment or from files.
#[must_use]
pub fn unexpanded(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(Place { dollars, end }) = next_place(rest) {
        out += &rest[..dollars.end];
        out.extend(std::iter::repeat_n('$', dollars.len()));
        out += &rest[dollars.end..end];
        rest = &rest[end..];
    }
    out + rest
}

/// A place in a text where the environment or a file is put in when it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The dollar signs in front of the brace. Two stand for one.
    pub dollars: Range<usize>,
    /// Where it ends: behind the first closing brace, or with the text if there is none. What is in it is not searched.
    pub end: usize,
}

/// The next place in a text. Braces with the name of a request's variable, or a group's number, are none.
#[must_use]
pub fn next_place(text: &str) -> Option<Place> {
    let mut from = 0;
    loop {
        let open = from + text[from..].find("${")? + 1;
        let inside = &text[open + 1..];
        from = open + 1;
        let is_variable = inside.starts_with(|first: char| first.is_ascii_uppercase() || first == '_');
        if is_variable || inside.starts_with("env:") || inside.starts_with("file:") {
            let dollars = text[..open].bytes().rev().take_while(|&byte| byte == b'$').count();
            let end = inside.find('}').map_or(text.len(), |len| open + 1 + len + 1);
            return Some(Place { dollars: open - dollars..open, end });
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
            // What is in braces is not searched again.
            ("${A:-${B}} ${C", r#""$${A:-${B}} $${C""#),
        ] {
            assert_eq!(literal(text), expected);
        }
    }
}
