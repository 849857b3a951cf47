//! Structured fields (RFC 9651): dictionaries of items and inner lists, parsed strictly and written canonically.
//!
//! Stricter than the RFC in two ways: a key is there once, and decimals, dates and display strings are refused, since no
//! part of a signature has any.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Members of a dictionary or of an inner list, and parameters of an item; those beyond are refused.
const MEMBERS_MAX: usize = 64;

/// A bare item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Bare {
    Integer(i64),
    Text(String),
    Token(String),
    Bytes(Vec<u8>),
    Switch(bool),
}

/// Parameters, in their order.
pub(crate) type Parameters = Vec<(String, Bare)>;

/// An item with parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) bare: Bare,
    pub(crate) parameters: Parameters,
}

/// A member of a dictionary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Member {
    Item(Item),
    List(Vec<Item>, Parameters),
}

/// Parses a dictionary; `None` if it is none.
pub(crate) fn dictionary(text: &str) -> Option<Vec<(String, Member)>> {
    let mut parser = Parser(text.trim_matches(' ').as_bytes());
    let mut members: Vec<(String, Member)> = Vec::new();
    while !parser.0.is_empty() {
        let key = parser.key()?;
        let member = if parser.skips(b'=') {
            parser.member()?
        } else {
            // RFC 9651 §4.2.2: a key alone is true.
            Member::Item(Item { bare: Bare::Switch(true), parameters: parser.parameters()? })
        };
        if members.len() == MEMBERS_MAX || members.iter().any(|(known, _)| *known == key) {
            return None;
        }
        members.push((key, member));
        parser.skip_white_space();
        if parser.0.is_empty() {
            break;
        }
        if !parser.skips(b',') {
            return None;
        }
        parser.skip_white_space();
        // No comma at the end.
        parser.0.first()?;
    }
    Some(members)
}

/// Parses an item; `None` if it is none.
pub(crate) fn item(text: &str) -> Option<Item> {
    let mut parser = Parser(text.trim_matches(' ').as_bytes());
    let item = parser.item()?;
    parser.0.is_empty().then_some(item)
}

struct Parser<'t>(&'t [u8]);

impl Parser<'_> {
    fn skips(&mut self, byte: u8) -> bool {
        let rest = self.0.strip_prefix(&[byte]);
        if let Some(rest) = rest {
            self.0 = rest;
        }
        rest.is_some()
    }

    fn skip_spaces(&mut self) {
        while self.skips(b' ') {}
    }

    fn skip_white_space(&mut self) {
        while self.skips(b' ') || self.skips(b'\t') {}
    }

    /// The bytes up to the first one that does not belong.
    fn run(&mut self, belongs: impl Fn(u8) -> bool) -> String {
        let end = self.0.iter().position(|&byte| !belongs(byte)).unwrap_or(self.0.len());
        let (run, rest) = self.0.split_at(end);
        self.0 = rest;
        String::from_utf8_lossy(run).into_owned()
    }

    /// RFC 9651 §4.2.3.3.
    fn key(&mut self) -> Option<String> {
        let first = *self.0.first()?;
        if !(first.is_ascii_lowercase() || first == b'*') {
            return None;
        }
        let belongs = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-' | b'.' | b'*')
        };
        Some(self.run(belongs))
    }

    fn member(&mut self) -> Option<Member> {
        if !self.skips(b'(') {
            return self.item().map(Member::Item);
        }
        let mut items = Vec::new();
        loop {
            self.skip_spaces();
            if self.skips(b')') {
                return Some(Member::List(items, self.parameters()?));
            }
            if items.len() == MEMBERS_MAX {
                return None;
            }
            items.push(self.item()?);
            // RFC 9651 §4.2.1.2: a space between, or the end.
            if !matches!(self.0.first(), Some(b' ' | b')')) {
                return None;
            }
        }
    }

    fn item(&mut self) -> Option<Item> {
        Some(Item { bare: self.bare()?, parameters: self.parameters()? })
    }

    fn parameters(&mut self) -> Option<Parameters> {
        let mut parameters = Parameters::new();
        while self.skips(b';') {
            self.skip_spaces();
            let key = self.key()?;
            let value = if self.skips(b'=') { self.bare()? } else { Bare::Switch(true) };
            if parameters.len() == MEMBERS_MAX || parameters.iter().any(|(known, _)| *known == key) {
                return None;
            }
            parameters.push((key, value));
        }
        Some(parameters)
    }

    fn bare(&mut self) -> Option<Bare> {
        match self.0.first()? {
            b'"' => self.text().map(Bare::Text),
            b':' => {
                self.skips(b':');
                let text = self.run(|byte| byte != b':');
                // Padded, and in one way alone.
                let bytes = STANDARD.decode(text).ok()?;
                self.skips(b':').then_some(Bare::Bytes(bytes))
            }
            b'?' => {
                self.skips(b'?');
                let is_on = self.skips(b'1');
                (is_on || self.skips(b'0')).then_some(Bare::Switch(is_on))
            }
            b'-' | b'0'..=b'9' => {
                let sign = if self.skips(b'-') { "-" } else { "" };
                let digits = self.run(|byte| byte.is_ascii_digit());
                // RFC 9651 §3.3.1: fifteen digits. A decimal is none.
                let is_whole = (1..=15).contains(&digits.len()) && self.0.first() != Some(&b'.');
                let number = format!("{sign}{digits}").parse().ok()?;
                is_whole.then_some(Bare::Integer(number))
            }
            first if first.is_ascii_alphabetic() || *first == b'*' => {
                let belongs = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte);
                Some(Bare::Token(self.run(belongs)))
            }
            _ => None,
        }
    }

    fn text(&mut self) -> Option<String> {
        self.skips(b'"');
        let mut text = String::new();
        loop {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            match byte {
                b'"' => return Some(text),
                b'\\' => {
                    let (&escaped, rest) = self.0.split_first()?;
                    self.0 = rest;
                    if !matches!(escaped, b'"' | b'\\') {
                        return None;
                    }
                    text.push(char::from(escaped));
                }
                b' '..=b'~' => text.push(char::from(byte)),
                _ => return None,
            }
        }
    }
}

/// Appends an item with its parameters (RFC 9651 §4.1).
pub(crate) fn write_item(Item { bare, parameters }: &Item, out: &mut String) {
    write_bare(bare, out);
    write_parameters(parameters, out);
}

/// Appends an inner list with its parameters.
pub(crate) fn write_list(items: &[Item], parameters: &Parameters, out: &mut String) {
    out.push('(');
    for (place, item) in items.iter().enumerate() {
        out.push_str(if place > 0 { " " } else { "" });
        write_item(item, out);
    }
    out.push(')');
    write_parameters(parameters, out);
}

pub(crate) fn write_parameters(parameters: &Parameters, out: &mut String) {
    for (key, value) in parameters {
        let _ = write!(out, ";{key}");
        if *value != Bare::Switch(true) {
            out.push('=');
            write_bare(value, out);
        }
    }
}

pub(crate) fn write_bare(bare: &Bare, out: &mut String) {
    match bare {
        Bare::Integer(number) => drop(write!(out, "{number}")),
        Bare::Text(text) => {
            let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
            let _ = write!(out, "\"{escaped}\"");
        }
        Bare::Token(token) => out.push_str(token),
        Bare::Bytes(bytes) => drop(write!(out, ":{}:", STANDARD.encode(bytes))),
        Bare::Switch(is_on) => out.push_str(if *is_on { "?1" } else { "?0" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text as it is written canonically.
    fn canonical(text: &str) -> Option<String> {
        let mut out = String::new();
        for (place, (key, member)) in dictionary(text)?.iter().enumerate() {
            out.push_str(if place > 0 { ", " } else { "" });
            out.push_str(key);
            match member {
                Member::Item(Item { bare: Bare::Switch(true), parameters }) => {
                    write_parameters(parameters, &mut out);
                }
                Member::Item(item) => {
                    out.push('=');
                    write_item(item, &mut out);
                }
                Member::List(items, parameters) => {
                    out.push('=');
                    write_list(items, parameters, &mut out);
                }
            }
        }
        Some(out)
    }

    #[test]
    fn dictionaries_are_read_strictly_and_written_in_one_way() {
        for (text, expected) in [
            ("", Some("")),
            ("a=1", Some("a=1")),
            ("  a=1 ,\t b=?0  ", Some("a=1, b=?0")),
            ("a;x", Some("a;x")),
            ("a=?1", Some("a")),
            ("a=(  \"b\"   \"c\";d  );e=1;  f=\"g\"", Some("a=(\"b\" \"c\";d);e=1;f=\"g\"")),
            ("a=()", Some("a=()")),
            ("sig1=:aGVsbG8=:", Some("sig1=:aGVsbG8=:")),
            ("a=\"b\\\"c\\\\\"", Some("a=\"b\\\"c\\\\\"")),
            ("a=tok/en:x", Some("a=tok/en:x")),
            ("a=-15", Some("a=-15")),
            ("*a=1, b.c-d_e=2", Some("*a=1, b.c-d_e=2")),
            ("a=1,", None),
            (",a=1", None),
            ("a=1 b=2", None),
            ("a=1, a=2", None),
            ("a=(\"b\"\"c\")", None),
            ("a=(\"b\"", None),
            ("a=(\"b\",\"c\")", None),
            ("a=1;b;b", None),
            ("A=1", None),
            ("1a=1", None),
            ("a=", None),
            ("a=1.5", None),
            ("a=1234567890123456", None),
            ("a=@1659578233", None),
            ("a=%\"x\"", None),
            ("a=\"b", None),
            ("a=\"\\n\"", None),
            ("a=\"\u{e9}\"", None),
            ("a=\"\t\"", None),
            ("a=:aGVsbG8:", None),
            ("a=:aGVsbG9=:", None),
            ("a=:aGVs bG8=:", None),
            ("a=:aGVsbG8=", None),
            ("a=?2", None),
            ("a=(((\"b\")))", None),
        ] {
            let written = canonical(text);
            assert_eq!(written.as_deref(), expected, "{text}");
            if let Some(written) = written {
                assert_eq!(canonical(&written).as_deref(), Some(written.as_str()));
            }
        }
        let many: Vec<String> = (0..=MEMBERS_MAX).map(|number| format!("a{number}=1")).collect();
        assert!(dictionary(&many.join(",")).is_none() && dictionary(&many[1..].join(",")).is_some());
    }
}
