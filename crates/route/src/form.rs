//! Decodes names and values of a query as form data: percent escapes once, and `+` as a space.
//!
//! For comparison only: a query is forwarded unchanged.

use crate::path::decoded;

/// The decoded bytes of a parameter's name or value (URL standard, application/x-www-form-urlencoded).
#[derive(Debug, Clone)]
pub(crate) struct FormReading<'a>(&'a [u8]);

impl<'a> FormReading<'a> {
    pub(crate) fn from_written(written: &'a [u8]) -> Self {
        Self(written)
    }

    pub(crate) fn is_as_it_stands(written: &[u8]) -> bool {
        !written.iter().any(|&byte| byte == b'%' || byte == b'+')
    }
}

impl Iterator for FormReading<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        if let [b'+', rest @ ..] = self.0 {
            self.0 = rest;
            return Some(b' ');
        }
        let (byte, rest) = decoded(self.0)?;
        self.0 = rest;
        Some(byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded_once() {
        for (written, read) in [
            ("", ""),
            ("a+b", "a b"),
            ("a%2Bb", "a+b"),
            ("%25%32%35", "%25"),
            ("%", "%"),
            ("%4", "%4"),
            ("%c3%a9", "\u{e9}"),
        ] {
            let bytes: Vec<u8> = FormReading::from_written(written.as_bytes()).collect();
            assert_eq!(bytes, read.as_bytes(), "{written}");
            assert_eq!(
                FormReading::is_as_it_stands(written.as_bytes()),
                !written.contains(['%', '+']),
                "{written}"
            );
        }
    }
}
