//! Splits the text of an expression into tokens.

use crate::fault::{ExpressionFault, Span};

/// Smallest unit of an expression, borrowed from its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token<'t> {
    /// A name or a word such as `true` or `in`.
    Name(&'t str),
    /// The digits of an integer; its sign is an operator.
    Integer(u64),
    /// A text, without its quotes and escapes.
    Text(String),
    /// An operator, a bracket, a comma or a dot.
    Sign(&'static str),
    /// The end of the text.
    End,
}

/// Longer signs precede those that they start with.
const SIGNS: [&str; 25] = [
    "&&", "||", "??", "==", "!=", "<=", ">=", "<", ">", "!", "?", ":", "(", ")", "[", "]", ",", ".", "+",
    "-", "*", "/", "%", "{", "}",
];

/// Splits a text; the last token is [`Token::End`].
pub(crate) fn tokens(text: &str) -> Result<Vec<(Token<'_>, Span)>, ExpressionFault> {
    let mut list = Vec::new();
    let mut at = 0;
    loop {
        at = skip_space(text, at);
        let rest = &text[at..];
        let Some(first) = rest.chars().next() else {
            list.push((Token::End, Span::new(text.len(), text.len())));
            return Ok(list);
        };
        let (token, length) = match first {
            '"' | '\'' => text_literal(text, at, false)?,
            'r' | 'R' if rest[1..].starts_with(['"', '\'']) => text_literal(text, at, true)?,
            'b' | 'B' if rest[1..].starts_with(['"', '\'']) => {
                let fault = ExpressionFault::new(Span::new(at, at + 1), "byte literals are not supported");
                return Err(fault.hinting("every text consists of bytes: omit the b"));
            }
            '0'..='9' => number(text, at)?,
            _ if is_of_name(first) => {
                let length = rest.find(|character| !is_of_name(character)).unwrap_or(rest.len());
                (Token::Name(&rest[..length]), length)
            }
            _ => match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
                Some(sign) => (Token::Sign(sign), sign.len()),
                None => return Err(unknown(first, at)),
            },
        };
        list.push((token, Span::new(at, at + length)));
        at += length;
    }
}

fn is_of_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

/// Skips white space and comments, which start with `//`.
fn skip_space(text: &str, mut at: usize) -> usize {
    loop {
        let rest = &text[at..];
        at += rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
        if !text[at..].starts_with("//") {
            return at;
        }
        at = text[at..].find('\n').map_or(text.len(), |newline| at + newline);
    }
}

fn unknown(character: char, at: usize) -> ExpressionFault {
    let span = Span::new(at, at + character.len_utf8());
    let fault = ExpressionFault::new(span, format!("{character:?} is not part of the language"));
    match character {
        '=' => fault.hinting("to compare, write =="),
        '&' => fault.hinting("for \"and\", write &&"),
        '|' => fault.hinting("for \"or\", write ||"),
        '~' => fault.hinting("for a regular expression, write TEXT.matches(\"…\")"),
        '$' => fault.hinting("write names without $, such as request.path"),
        '\u{201c}' | '\u{201d}' | '\u{2018}' | '\u{2019}' | '`' => fault.hinting("put texts in \"…\" or '…'"),
        ';' => fault.hinting("an expression is one condition or value; join conditions with &&"),
        '#' => fault.hinting("a comment starts with //"),
        '\u{a0}' => fault.hinting("this is a no-break space: write a plain one"),
        _ => fault,
    }
}

/// A number in decimal or hexadecimal digits.
fn number(text: &str, at: usize) -> Result<(Token<'_>, usize), ExpressionFault> {
    let rest = &text[at..];
    let length = rest.find(|character| !is_of_name(character)).unwrap_or(rest.len());
    let written = &rest[..length];
    let span = Span::new(at, at + length);
    let behind = &rest[length..];
    let behind =
        &behind[..behind.find(|next: char| !matches!(next, '0'..='9' | '.' | '/')).unwrap_or(behind.len())];
    if rest[length..].starts_with('.') && rest[length + 1..].starts_with(|next: char| next.is_ascii_digit()) {
        if behind.matches('.').count() > 1 {
            let span = Span::new(at, at + length + behind.len());
            return Err(ExpressionFault::new(span, "addresses and networks need quotes")
                .hinting(format!("write \"{written}{behind}\"")));
        }
        let fault = ExpressionFault::new(span, "numbers with a fraction are not supported");
        return Err(fault.hinting("write an integer, or a duration such as duration(\"1.5s\")"));
    }
    let digits = written.strip_prefix("0x").or_else(|| written.strip_prefix("0X"));
    let (digits, radix) = digits.map_or((written, 10), |digits| (digits, 16));
    if let Some(other) = digits.find(|character: char| !character.is_digit(radix)) {
        let fault = ExpressionFault::new(span, format!("{written:?} is not an integer"));
        return Err(if digits[other..].eq_ignore_ascii_case("u") {
            fault.hinting("integers have a sign: omit the u")
        } else if crate::duration::parse(written).is_some() {
            fault.hinting(format!("for a duration, write duration(\"{written}\")"))
        } else if matches!(
            &digits[other..],
            "k" | "K" | "KiB" | "M" | "MiB" | "G" | "GiB" | "kB" | "MB" | "GB"
        ) {
            fault.hinting("sizes are in bytes: write the number in full, such as 10 * 1024 * 1024")
        } else if digits.len() == 3 && digits[other..].eq_ignore_ascii_case("xx") {
            fault.hinting(format!(
                "for a class of statuses, write response.status / 100 == {}",
                &digits[..other]
            ))
        } else if radix == 10 && digits[other..].starts_with(['e', 'E']) {
            fault.hinting("write the number in full")
        } else {
            fault.hinting("a name cannot start with a digit, and a text needs quotes")
        });
    }
    let value = u64::from_str_radix(digits, radix).ok().filter(|value| *value <= 1 << 63);
    match value {
        Some(value) => Ok((Token::Integer(value), length)),
        None if digits.is_empty() => Err(ExpressionFault::new(span, format!("{written:?} has no digits"))),
        None => Err(ExpressionFault::new(span, format!("{written} is too large"))
            .hinting("the largest integer is 9223372036854775807")),
    }
}

/// A text in quotes. In a raw text (`r"…"`), a backslash stands for itself.
fn text_literal(text: &str, at: usize, is_raw: bool) -> Result<(Token<'_>, usize), ExpressionFault> {
    let open = at + usize::from(is_raw);
    let quote = text[open..].chars().next().unwrap_or('"');
    let triple: String = [quote; 3].iter().collect();
    if text[open..].starts_with(&triple) {
        let fault = ExpressionFault::new(Span::new(at, open + 3), "texts in three quotes are not supported");
        return Err(fault.hinting("write \"…\", with \\n for a line end"));
    }
    let mut value = String::new();
    let mut characters = text[open + 1..].char_indices();
    while let Some((offset, character)) = characters.next() {
        let place = open + 1 + offset;
        match character {
            _ if character == quote => return Ok((Token::Text(value), place + 1 - at)),
            '\n' | '\r' => break,
            '\\' if !is_raw => {
                let (escaped, length) = escape(text, place)?;
                value.push(escaped);
                for _ in 1..length {
                    characters.next();
                }
            }
            _ => value.push(character),
        }
    }
    let line_end = text[at..].find('\n').map_or(text.len(), |newline| at + newline);
    let fault = ExpressionFault::new(Span::new(at, line_end), "this text has no closing quote");
    Err(fault.hinting(format!("end it with {quote}")))
}

/// The character of an escape, and the number of characters that it is written with.
fn escape(text: &str, at: usize) -> Result<(char, usize), ExpressionFault> {
    let simple = |value| Ok((value, 2));
    let digits = |from: usize, count: usize, radix| {
        let digits = text.get(at + from..at + from + count);
        let code = digits.filter(|digits| digits.bytes().all(|digit| char::from(digit).is_digit(radix)));
        let code = code.and_then(|digits| u32::from_str_radix(digits, radix).ok());
        code.and_then(char::from_u32).map(|value| (value, from + count)).ok_or_else(|| {
            let end =
                text[at..].char_indices().nth(from + count).map_or(text.len(), |(offset, _)| at + offset);
            let name = &text[at..at + from];
            let kind = if radix == 8 { "octal" } else { "hexadecimal" };
            ExpressionFault::new(Span::new(at, end), "this is not an escaped character")
                .hinting(format!("{count} {kind} digits of a character follow {name}"))
        })
    };
    match text[at + 1..].chars().next() {
        Some(same @ ('\\' | '"' | '\'' | '`' | '?')) => simple(same),
        Some('n') => simple('\n'),
        Some('r') => simple('\r'),
        Some('t') => simple('\t'),
        Some('a') => simple('\x07'),
        Some('b') => simple('\x08'),
        Some('f') => simple('\x0c'),
        Some('v') => simple('\x0b'),
        Some('x' | 'X') => digits(2, 2, 16),
        Some('u') => digits(2, 4, 16),
        Some('U') => digits(2, 8, 16),
        Some('0'..='3') => digits(1, 3, 8),
        other => {
            let length = other.map_or(1, |other| 1 + other.len_utf8());
            let fault = ExpressionFault::new(Span::new(at, at + length), "this escape does not exist");
            Err(fault.hinting("write \\\\ for a backslash, or r\"…\" for a text without escapes"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<Token<'_>> {
        tokens(text).unwrap().into_iter().map(|(token, _)| token).collect()
    }

    #[test]
    fn tokens_of_texts() {
        let text = |text: &str| vec![Token::Text(text.to_owned()), Token::End];
        for (written, value) in [
            (r#""a""#, "a"),
            (r#"'"'"#, "\""),
            (r#""\"\\\n\t\x41\u00e9\U0001F600\101""#, "\"\\\n\tA\u{e9}\u{1f600}A"),
            (r#"r"\d+""#, r"\d+"),
            ("\"\u{e9}\"", "\u{e9}"),
            ("''", ""),
        ] {
            assert_eq!(texts(written), text(value), "{written}");
        }
    }

    #[test]
    fn tokens_and_their_places() {
        use Token::{End, Integer, Name, Sign};
        assert_eq!(
            texts("a.b_1<=0x1F // comment\n&& !c"),
            [
                Name("a"),
                Sign("."),
                Name("b_1"),
                Sign("<="),
                Integer(31),
                Sign("&&"),
                Sign("!"),
                Name("c"),
                End
            ]
        );
        let places: Vec<_> =
            tokens(" a  ?? \"\u{e9}\"").unwrap().into_iter().map(|(_, at)| at.range()).collect();
        assert_eq!(places, [1..2, 4..6, 7..11, 11..11]);
        assert_eq!(texts("9223372036854775808"), [Integer(1 << 63), End]);
    }
}
