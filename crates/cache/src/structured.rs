//! Parses Dictionaries of Structured Fields (RFC 9651 §4.2.2), as far as CDN-Cache-Control needs them: everything is
//! checked, but only numbers, booleans and strings are returned.

/// Iterates over the members of one Dictionary line, in order; ends at the first error.
pub(crate) struct Dictionary<'a> {
    rest: &'a [u8],
    is_first: bool,
}

/// The value of a Dictionary member, without parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Integer(i64),
    Boolean(bool),
    /// The text between the quotes, with its escapes.
    String(&'a [u8]),
    /// A Decimal, Token, Byte Sequence, Date, Display String or Inner List.
    Other,
}

/// The text is not a Dictionary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotStructured;

impl<'a> Dictionary<'a> {
    pub(crate) fn new(line: &'a [u8]) -> Self {
        Self { rest: line.trim_ascii(), is_first: true }
    }

    fn member(&mut self) -> Result<(&'a [u8], Value<'a>), NotStructured> {
        if !std::mem::take(&mut self.is_first) {
            // A comma with white space around it, and something behind it.
            self.rest =
                self.rest.trim_ascii_start().strip_prefix(b",").ok_or(NotStructured)?.trim_ascii_start();
        }
        let key = self.key()?;
        let value = match self.rest.strip_prefix(b"=") {
            Some(rest) => {
                self.rest = rest;
                if rest.first() == Some(&b'(') { self.inner_list()? } else { self.bare_item()? }
            }
            None => Value::Boolean(true),
        };
        self.parameters()?;
        Ok((key, value))
    }

    /// RFC 9651 §4.2.3.3.
    fn key(&mut self) -> Result<&'a [u8], NotStructured> {
        if !self.rest.first().is_some_and(|byte| byte.is_ascii_lowercase() || *byte == b'*') {
            return Err(NotStructured);
        }
        Ok(self
            .take_while(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.*".contains(&byte)))
    }

    fn take_while(&mut self, fits: impl Fn(u8) -> bool) -> &'a [u8] {
        let len = self.rest.iter().position(|&byte| !fits(byte)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(len);
        self.rest = rest;
        taken
    }

    /// RFC 9651 §4.2.3.2.
    fn parameters(&mut self) -> Result<(), NotStructured> {
        while let Some(rest) = self.rest.strip_prefix(b";") {
            self.rest = rest;
            self.take_while(|byte| byte == b' ');
            self.key()?;
            if let Some(rest) = self.rest.strip_prefix(b"=") {
                self.rest = rest;
                self.bare_item()?;
            }
        }
        Ok(())
    }

    /// RFC 9651 §4.2.1.2.
    fn inner_list(&mut self) -> Result<Value<'a>, NotStructured> {
        self.rest = &self.rest[1..];
        loop {
            self.take_while(|byte| byte == b' ');
            if let Some(rest) = self.rest.strip_prefix(b")") {
                self.rest = rest;
                return Ok(Value::Other);
            }
            self.bare_item()?;
            self.parameters()?;
            if !matches!(self.rest.first(), Some(b' ' | b')')) {
                return Err(NotStructured);
            }
        }
    }

    /// RFC 9651 §4.2.3.1.
    fn bare_item(&mut self) -> Result<Value<'a>, NotStructured> {
        match self.rest.first() {
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b'"') => self.string(),
            Some(b'?') => {
                let (value, rest) = match self.rest {
                    [_, b'0', rest @ ..] => (false, rest),
                    [_, b'1', rest @ ..] => (true, rest),
                    _ => return Err(NotStructured),
                };
                self.rest = rest;
                Ok(Value::Boolean(value))
            }
            Some(b':') => self.byte_sequence(),
            Some(b'@') => {
                self.rest = &self.rest[1..];
                match self.number()? {
                    Value::Integer(_) => Ok(Value::Other),
                    _ => Err(NotStructured),
                }
            }
            Some(b'%') => self.display_string(),
            Some(byte) if byte.is_ascii_alphabetic() || *byte == b'*' => {
                self.take_while(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte));
                Ok(Value::Other)
            }
            _ => Err(NotStructured),
        }
    }

    /// RFC 9651 §4.2.4: 15 digits at most, or 12 and 3 behind the point.
    fn number(&mut self) -> Result<Value<'a>, NotStructured> {
        let is_negative = self.rest.first() == Some(&b'-');
        self.rest = &self.rest[usize::from(is_negative)..];
        let digits = self.take_while(|byte| byte.is_ascii_digit());
        let Some(rest) = self.rest.strip_prefix(b".") else {
            if !(1..=15).contains(&digits.len()) {
                return Err(NotStructured);
            }
            let number = digits.iter().fold(0i64, |sum, byte| sum * 10 + i64::from(byte - b'0'));
            return Ok(Value::Integer(if is_negative { -number } else { number }));
        };
        self.rest = rest;
        let fraction = self.take_while(|byte| byte.is_ascii_digit());
        let is_valid = (1..=12).contains(&digits.len()) && (1..=3).contains(&fraction.len());
        if is_valid { Ok(Value::Other) } else { Err(NotStructured) }
    }

    /// RFC 9651 §4.2.5.
    fn string(&mut self) -> Result<Value<'a>, NotStructured> {
        let inside = &self.rest[1..];
        let mut at = 0;
        loop {
            match inside.get(at..).unwrap_or_default() {
                [b'\\', b'"' | b'\\', ..] => at += 2,
                [b'"', rest @ ..] => {
                    self.rest = rest;
                    return Ok(Value::String(&inside[..at]));
                }
                [0x20..=0x5b | 0x5d..=0x7e, ..] => at += 1,
                _ => return Err(NotStructured),
            }
        }
    }

    /// RFC 9651 §4.2.7.
    fn byte_sequence(&mut self) -> Result<Value<'a>, NotStructured> {
        self.rest = &self.rest[1..];
        self.take_while(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
        self.rest = self.rest.strip_prefix(b":").ok_or(NotStructured)?;
        Ok(Value::Other)
    }

    /// RFC 9651 §4.2.10, but for what the escapes say.
    fn display_string(&mut self) -> Result<Value<'a>, NotStructured> {
        self.rest = self.rest.strip_prefix(b"%\"").ok_or(NotStructured)?;
        loop {
            match self.rest {
                [b'"', rest @ ..] => {
                    self.rest = rest;
                    return Ok(Value::Other);
                }
                [b'%', b'0'..=b'9' | b'a'..=b'f', b'0'..=b'9' | b'a'..=b'f', rest @ ..] => self.rest = rest,
                [byte, rest @ ..] if matches!(byte, 0x20..=0x7e) && *byte != b'%' => self.rest = rest,
                _ => return Err(NotStructured),
            }
        }
    }
}

impl<'a> Iterator for Dictionary<'a> {
    type Item = Result<(&'a [u8], Value<'a>), NotStructured>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let member = self.member();
        if member.is_err() {
            self.rest = b"";
        }
        Some(member)
    }
}
