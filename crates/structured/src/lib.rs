//! Parses dictionaries and items of Structured Fields (RFC 9651), strictly and without copying.
//!
//! The caller limits the number of members, treats duplicate keys, decodes Base64 and removes escapes.

#![forbid(unsafe_code)]

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bare<'a> {
    Integer(i64),
    /// The text between the quotes, with its escapes.
    String(&'a str),
    Token(&'a str),
    /// Base64 that was not decoded or checked.
    Bytes(&'a str),
    Boolean(bool),
    /// A Decimal, a Date or a Display String.
    Other,
}

/// Parses a line of a dictionary. Passes each key to `member`, which parses the value with [`Parser::value`]. Returns
/// `None` if the line is invalid, or `member` returns it.
pub fn dictionary<'a>(
    line: &'a [u8],
    mut member: impl FnMut(&'a str, &mut Parser<'a>) -> Option<()>,
) -> Option<()> {
    let mut parser = Parser::new(line);
    while !parser.0.is_empty() {
        let key = parser.key()?;
        member(key, &mut parser)?;
        parser.take_while(is_white_space);
        if parser.0.is_empty() {
            break;
        }
        parser.eats(b",").then_some(())?;
        parser.take_while(is_white_space);
        // RFC 9651 §4.2.2: a trailing comma is invalid.
        parser.0.first()?;
    }
    Some(())
}

fn is_white_space(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// The rest of a text.
#[derive(Debug)]
pub struct Parser<'a>(&'a [u8]);

impl<'a> Parser<'a> {
    /// Spaces around the value are ignored.
    pub fn new(line: &'a [u8]) -> Self {
        let mut parser = Self(line);
        parser.take_while(|byte| byte == b' ');
        while let Some(rest) = parser.0.strip_suffix(b" ") {
            parser.0 = rest;
        }
        parser
    }

    pub fn is_done(&self) -> bool {
        self.0.is_empty()
    }

    /// Parses the value of a dictionary's member, without its parameters: a bare item, or a list whose items `item`
    /// parses. Returns `Some(None)` for a list.
    pub fn value(&mut self, item: impl FnMut(&mut Self) -> Option<()>) -> Option<Option<Bare<'a>>> {
        if !self.eats(b"=") {
            // RFC 9651 §4.2.2: a key without a value is true.
            return Some(Some(Bare::Boolean(true)));
        }
        if self.eats(b"(") {
            return self.list(item).map(|()| None);
        }
        self.bare().map(Some)
    }

    /// RFC 9651 §4.2.1.2.
    fn list(&mut self, mut item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        loop {
            self.take_while(|byte| byte == b' ');
            if self.eats(b")") {
                return Some(());
            }
            item(self)?;
            if !matches!(self.0.first(), Some(b' ' | b')')) {
                return None;
            }
        }
    }

    /// Passes each key and value to `parameter` (RFC 9651 §4.2.3.2).
    pub fn parameters(&mut self, mut parameter: impl FnMut(&'a str, Bare<'a>) -> Option<()>) -> Option<()> {
        while self.eats(b";") {
            self.take_while(|byte| byte == b' ');
            let key = self.key()?;
            let value = if self.eats(b"=") { self.bare()? } else { Bare::Boolean(true) };
            parameter(key, value)?;
        }
        Some(())
    }

    /// RFC 9651 §4.2.3.1.
    pub fn bare(&mut self) -> Option<Bare<'a>> {
        match self.0.first()? {
            b'-' | b'0'..=b'9' => self.number(),
            b'"' => self.string(),
            b'?' => {
                self.eats(b"?");
                let is_on = self.eats(b"1");
                (is_on || self.eats(b"0")).then_some(Bare::Boolean(is_on))
            }
            b':' => {
                self.eats(b":");
                let text = self.take_while(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
                self.eats(b":").then_some(Bare::Bytes(text))
            }
            b'@' => {
                self.eats(b"@");
                matches!(self.number()?, Bare::Integer(_)).then_some(Bare::Other)
            }
            b'%' => self.display_string(),
            byte if byte.is_ascii_alphabetic() || *byte == b'*' => {
                let belongs = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte);
                Some(Bare::Token(self.take_while(belongs)))
            }
            _ => None,
        }
    }

    fn eats(&mut self, text: &[u8]) -> bool {
        let rest = self.0.strip_prefix(text);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    /// Takes the leading bytes that fit. Only ASCII bytes may fit.
    fn take_while(&mut self, fits: impl Fn(u8) -> bool) -> &'a str {
        let len = self.0.iter().position(|&byte| !fits(byte)).unwrap_or(self.0.len());
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        str::from_utf8(taken).unwrap_or_default()
    }

    /// RFC 9651 §4.2.3.3.
    fn key(&mut self) -> Option<&'a str> {
        self.0.first().filter(|byte| byte.is_ascii_lowercase() || **byte == b'*')?;
        let belongs =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.*".contains(&byte);
        Some(self.take_while(belongs))
    }

    /// RFC 9651 §4.2.4: up to 15 digits, or up to 12 and 3 after the point.
    fn number(&mut self) -> Option<Bare<'a>> {
        let sign = if self.eats(b"-") { -1 } else { 1 };
        let digits = self.take_while(|byte| byte.is_ascii_digit());
        if !self.eats(b".") {
            let value: i64 = digits.parse().ok()?;
            return (digits.len() <= 15).then_some(Bare::Integer(sign * value));
        }
        let fraction = self.take_while(|byte| byte.is_ascii_digit());
        ((1..=12).contains(&digits.len()) && (1..=3).contains(&fraction.len())).then_some(Bare::Other)
    }

    /// RFC 9651 §4.2.5.
    fn string(&mut self) -> Option<Bare<'a>> {
        let inside = &self.0[1..];
        let mut at = 0;
        loop {
            match inside.get(at..)? {
                [b'\\', b'"' | b'\\', ..] => at += 2,
                [b'"', rest @ ..] => {
                    self.0 = rest;
                    return str::from_utf8(&inside[..at]).ok().map(Bare::String);
                }
                [b' '..=b'[' | b']'..=b'~', ..] => at += 1,
                _ => return None,
            }
        }
    }

    /// RFC 9651 §4.2.10, without checking that the escaped bytes are UTF-8.
    fn display_string(&mut self) -> Option<Bare<'a>> {
        self.eats(b"%\"").then_some(())?;
        loop {
            self.0 = match self.0 {
                [b'"', rest @ ..] => {
                    self.0 = rest;
                    return Some(Bare::Other);
                }
                [b'%', b'0'..=b'9' | b'a'..=b'f', b'0'..=b'9' | b'a'..=b'f', rest @ ..] => rest,
                [b' '..=b'$' | b'&'..=b'~', rest @ ..] => rest,
                _ => return None,
            }
        }
    }
}
