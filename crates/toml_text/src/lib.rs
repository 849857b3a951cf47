//! Texts as strings of `vanward.toml`, for programs that write one.

use std::fmt::Write;

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
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(open) = rest.find("${") {
        let dollars = rest[..=open].len() - rest[..=open].trim_end_matches('$').len();
        let inside = &rest[open + 2..];
        let is_put_in = inside.starts_with(|first: char| first.is_ascii_uppercase() || first == '_')
            || inside.starts_with("env:")
            || inside.starts_with("file:");
        out += &rest[..=open];
        if is_put_in {
            out.extend(std::iter::repeat_n('$', dollars));
        }
        out.push('{');
        rest = inside;
    }
    out + rest
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
        ] {
            assert_eq!(literal(text), expected);
        }
    }
}
