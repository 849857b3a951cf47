//! Structured fields (RFC 9651): dictionaries of items and inner lists, as owned values, and their canonical form.
//!
//! Stricter than the RFC in two ways: duplicate keys are refused, and so are decimals, dates and display strings, which
//! no part of a signature has.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use structured::Parser;

/// The maximum number of members of a dictionary or an inner list, and of parameters of an item.
const MEMBERS_MAX: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Bare {
    Integer(i64),
    Text(String),
    Token(String),
    Bytes(Vec<u8>),
    Switch(bool),
}

/// In their order.
pub(crate) type Parameters = Vec<(String, Bare)>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) bare: Bare,
    pub(crate) parameters: Parameters,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SignatureMember {
    Item(Item),
    List(Vec<Item>, Parameters),
}

/// `None` if the text is invalid.
pub(crate) fn dictionary(text: &str) -> Option<Vec<(String, SignatureMember)>> {
    let mut members: Vec<(String, SignatureMember)> = Vec::new();
    structured::dictionary(text.as_bytes(), |key, parser| {
        let mut items = Vec::new();
        let value = parser.value(|parser| {
            (items.len() < MEMBERS_MAX).then_some(())?;
            items.push(parse_item(parser)?);
            Some(())
        })?;
        let member = match value {
            Some(bare) => SignatureMember::Item(Item {
                bare: Bare::parse(bare)?,
                parameters: parse_parameters(parser)?,
            }),
            None => SignatureMember::List(items, parse_parameters(parser)?),
        };
        add(&mut members, key, member)
    })?;
    Some(members)
}

/// `None` if the text is invalid.
pub(crate) fn item(text: &str) -> Option<Item> {
    let mut parser = Parser::new(text.as_bytes());
    let item = parse_item(&mut parser)?;
    parser.is_done().then_some(item)
}

fn parse_item(parser: &mut Parser<'_>) -> Option<Item> {
    Some(Item { bare: Bare::parse(parser.bare()?)?, parameters: parse_parameters(parser)? })
}

fn parse_parameters(parser: &mut Parser<'_>) -> Option<Parameters> {
    let mut parameters = Parameters::new();
    parser.parameters(|key, bare| add(&mut parameters, key, Bare::parse(bare)?))?;
    Some(parameters)
}

/// Adds a member or a parameter; `None` if there are too many, or the key is a duplicate.
fn add<T>(all: &mut Vec<(String, T)>, key: &str, value: T) -> Option<()> {
    if all.len() == MEMBERS_MAX || all.iter().any(|(known, _)| known == key) {
        return None;
    }
    all.push((key.to_owned(), value));
    Some(())
}

impl Bare {
    fn parse(bare: structured::Bare<'_>) -> Option<Self> {
        Some(match bare {
            structured::Bare::Integer(number) => Self::Integer(number),
            structured::Bare::String(text) => {
                let mut is_escaped = false;
                let mut is_text = |letter: &char| {
                    is_escaped = *letter == '\\' && !is_escaped;
                    !is_escaped
                };
                Self::Text(text.chars().filter(|letter| is_text(letter)).collect())
            }
            structured::Bare::Token(token) => Self::Token(token.to_owned()),
            // Base64 with padding; any other encoding of the same bytes is refused.
            structured::Bare::Bytes(text) => Self::Bytes(STANDARD.decode(text).ok()?),
            structured::Bare::Boolean(is_on) => Self::Switch(is_on),
            structured::Bare::Other => return None,
        })
    }
}

/// RFC 9651 §4.1.
pub(crate) fn write_item(Item { bare, parameters }: &Item, out: &mut String) {
    write_bare(bare, out);
    write_parameters(parameters, out);
}

/// RFC 9651 §4.1.1.1.
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

    fn canonical(text: &str) -> Option<String> {
        let mut out = String::new();
        for (place, (key, member)) in dictionary(text)?.iter().enumerate() {
            out.push_str(if place > 0 { ", " } else { "" });
            out.push_str(key);
            match member {
                SignatureMember::Item(Item { bare: Bare::Switch(true), parameters }) => {
                    write_parameters(parameters, &mut out);
                }
                SignatureMember::Item(item) => {
                    out.push('=');
                    write_item(item, &mut out);
                }
                SignatureMember::List(items, parameters) => {
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
