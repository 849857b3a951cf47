//! Rewords messages of libraries about a text: those of the TOML parser, serde, and Rust's number parsers.

use std::ops::Range;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlainWords {
    pub message: String,
    /// The accepted values or syntax.
    pub expected: Option<String>,
}

impl PlainWords {
    fn new(message: impl Into<String>, expected: impl Into<String>) -> Self {
        Self { message: message.into(), expected: Some(expected.into()) }
    }

    pub fn sentence(self) -> String {
        match self.expected {
            Some(expected) => format!("{}; expected {expected}", self.message),
            None => self.message,
        }
    }
}

/// Starts of the TOML parser's messages about a value without quotes.
const BARE_VALUES: [&str; 17] = [
    "string values must be quoted",
    "invalid boolean",
    "invalid float",
    "invalid mantissa",
    "invalid fraction",
    "invalid exponent",
    "invalid integer",
    "invalid decimal",
    "invalid hexadecimal",
    "invalid octal",
    "invalid binary",
    "invalid date",
    "invalid time",
    "unexpected leading zero",
    "`_` may only",
    "integers with a radix",
    "radix must be",
];

/// Rewords a syntax error of the TOML parser. Returns the range of the whole value too, because the parser's position
/// is where it stopped, such as after the first number of an address.
pub fn toml_syntax(text: &str, at: &Range<usize>, message: &str) -> (Range<usize>, PlainWords) {
    if BARE_VALUES.iter().any(|start| message.starts_with(start)) {
        let at = bare_value(text, at.start);
        let words = about_bare_value(text.get(at.clone()).unwrap_or_default());
        return (at, words);
    }
    let (said, expected) = match message.split_once(", expected ") {
        Some((said, expected)) => (said, Some(expected)),
        None => (message, None),
    };
    let words = match said {
        "invalid basic string" | "invalid literal string" => {
            PlainWords::new("this text has no closing quote", expected.unwrap_or("a quote"))
        }
        "invalid multi-line basic string" | "invalid multi-line literal string" => {
            PlainWords::new("this text has no closing quotes", expected.unwrap_or("three quotes"))
        }
        "missing escaped value" => PlainWords::new(
            "a backslash stands before a character that it cannot escape",
            "\\\\ for a backslash, or a text in single quotes",
        ),
        "unexpected key or value" => {
            PlainWords::new("there is text after the value", "the end of the line, or # and a comment")
        }
        "duplicate key" => PlainWords {
            message: format!("{:?} appears twice", text.get(at.clone()).unwrap_or_default()),
            expected: None,
        },
        _ => PlainWords {
            message: said.to_owned(),
            expected: expected.filter(|expected| *expected != "nothing").map(str::to_owned),
        },
    };
    (at.clone(), words)
}

/// The range of the unquoted value at a position.
fn bare_value(text: &str, at: usize) -> Range<usize> {
    let at = (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    let line = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let before = text[line..at].rfind(['=', ',', '[', '{']).map_or(line, |last| line + last + 1);
    let start = before + text[before..].len() - text[before..].trim_start_matches([' ', '\t']).len();
    let line = text[start..].find(['\n', '\r']).map_or(text.len(), |newline| start + newline);
    let ends = |rest: &str| rest.find([',', ']', '}']).into_iter().chain(rest.find(" #")).min();
    let mut start = start.min(line);
    let mut rest = &text[start..line];
    // An IPv6 address in brackets, with a port.
    if let Some(bracket) = start.checked_sub(1).filter(|at| text[*at..].starts_with('['))
        && let Some((address, _)) = rest.split_once("]:").filter(|(address, _)| is_ipv6(address))
    {
        let behind = start + address.len() + 1;
        start = bracket;
        rest = &text[start..behind + ends(&text[behind..line]).unwrap_or(line - behind)];
        return start..start + rest.trim_end().len();
    }
    rest = &rest[..ends(rest).unwrap_or(rest.len())];
    start..start + rest.trim_end().len()
}

fn is_ipv6(text: &str) -> bool {
    text.contains(':') && text.bytes().all(|byte| byte.is_ascii_hexdigit() || b":.".contains(&byte))
}

fn about_bare_value(written: &str) -> PlainWords {
    let lower = written.to_ascii_lowercase();
    let is_digit = |byte: u8| byte.is_ascii_digit() || b"_+-.".contains(&byte);
    let digits = lower.trim_start_matches(['+', '-']);
    let has_radix = ["0x", "0o", "0b"].iter().any(|radix| digits.starts_with(radix));
    let is_number = lower.matches('.').count() < 2
        && (has_radix || lower.strip_suffix('e').unwrap_or(&lower).bytes().all(is_digit));
    match lower.as_str() {
        "" => PlainWords { message: "a value is missing after =".to_owned(), expected: None },
        "true" | "false" => PlainWords::new(format!("{written} is not a value"), lower),
        _ if is_number => PlainWords::new(
            format!("{written} is not a number"),
            format!("a number such as 80 or 0.5, or text in quotes: \"{written}\""),
        ),
        _ if written.contains(['"', '\\']) => {
            PlainWords { message: format!("{written} is not a value"), expected: None }
        }
        _ => PlainWords::new(format!("{written} is not a value"), format!("text in quotes: \"{written}\"")),
    }
}

/// Rewords a message of serde about JSON. A position at the end of the message is kept.
pub fn json_error(message: &str) -> String {
    let PlainWords { message, expected } = value_error(message);
    let in_json = |words: String| match words.as_str() {
        "this is a table" => "this is an object".to_owned(),
        other => other.strip_prefix("a table").map_or(other.to_owned(), |rest| format!("an object{rest}")),
    };
    PlainWords { message: in_json(message), expected: expected.map(in_json) }.sentence()
}

/// Rewords a message of serde about TOML, or of a number parser. A position at the end of the message is kept.
pub fn value_error(message: &str) -> PlainWords {
    let position = message.rfind(" at line ");
    let (said, position) = message.split_at(position.unwrap_or(message.len()));
    let mut words = about_value(said);
    let end = words.expected.as_mut().unwrap_or(&mut words.message);
    end.push_str(position);
    words
}

fn about_value(said: &str) -> PlainWords {
    if let Some((_, plain)) = PARSERS.iter().find(|(known, _)| *known == said) {
        return PlainWords { message: (*plain).to_owned(), expected: None };
    }
    if said == "wanted string or table" {
        return PlainWords::new("this is neither a string nor a table", "a string or a table");
    }
    if said.starts_with("EOF while parsing") {
        return PlainWords { message: "the text ends too early".to_owned(), expected: None };
    }
    let found = ["invalid type: ", "invalid value: "].iter().find_map(|start| {
        let (found, expected) = said.strip_prefix(start)?.rsplit_once(", expected ")?;
        Some((*start == "invalid type: ", found, expected))
    });
    match found {
        Some((is_type, found, expected)) => {
            let value = found.trim_end_matches(" as i128").trim_end_matches(" as u128");
            let value = value.split_once(' ').map_or("", |(_, value)| value).trim_matches('`');
            let message = match found.split([' ', '`']).next().unwrap_or_default() {
                _ if !is_type && !value.is_empty() => format!("{value} is not possible"),
                "string" => "this is a string".to_owned(),
                "integer" => "this is an integer".to_owned(),
                "floating" => "this is a number with a fraction".to_owned(),
                "boolean" => "this is true or false".to_owned(),
                "sequence" => "this is an array".to_owned(),
                "map" => "this is a table".to_owned(),
                "null" | "unit" => "this is null".to_owned(),
                _ => format!("this is {found}"),
            };
            PlainWords::new(message, expectation(expected))
        }
        None => match said.split_once(", expected ") {
            Some((message, expected)) => PlainWords::new(message, expectation(expected)),
            None => PlainWords { message: said.to_owned(), expected: None },
        },
    }
}

/// Messages of Rust's number parsers, and their replacements.
const PARSERS: [(&str, &str); 13] = [
    ("invalid digit found in string", "it is not a whole number"),
    ("cannot parse integer from empty string", "it is empty, and not a number"),
    ("number too large to fit in target type", "the number is too large"),
    ("number too small to fit in target type", "the number is too small"),
    ("number would be zero for non-zero type", "it must be 1 or more"),
    ("invalid float literal", "it is not a number"),
    ("cannot parse float from empty string", "it is empty, and not a number"),
    ("provided string was not `true` or `false`", "it is neither true nor false"),
    ("invalid IP address syntax", "it is not an IP address"),
    ("invalid IPv4 address syntax", "it is not an IPv4 address"),
    ("invalid IPv6 address syntax", "it is not an IPv6 address"),
    ("invalid socket address syntax", "it is not an IP address with a port, such as 127.0.0.1:8080"),
    ("too many characters in string", "it is more than one character"),
];

/// Rewords the types that serde expects, without the names of Rust's types.
fn expectation(expected: &str) -> String {
    let is_type = |name: &str| {
        let bits = name.strip_prefix(['u', 'i', 'f']).unwrap_or_default();
        bits == "size" || (!bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let plain = match expected {
        "f32" | "f64" => "a number",
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "a boolean" => "true or false",
        "a sequence" => "an array",
        "a map" => "a table",
        "a character" => "one character",
        "IP address" => "an IP address such as 192.0.2.1",
        "socket address" => "an IP address with a port, such as 127.0.0.1:8080",
        name if name.strip_prefix("a nonzero ").is_some_and(is_type) => "a whole number, 1 or more",
        name if is_type(name) && name.starts_with('u') => "a whole number, 0 or more",
        name if is_type(name) => "a whole number",
        name if name.starts_with("struct ") => "a table",
        name if name.starts_with("a tuple of size ") => {
            return format!("an array of {} values", &name["a tuple of size ".len()..]);
        }
        other => other,
    };
    plain.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result for a document with this value and a message at `place` in it: the value that is marked, and the
    /// words.
    fn of_value(value: &str, place: usize, message: &str) -> String {
        let text = format!("a = 1\nb = {value}\nc = 2\n");
        let (at, words) = toml_syntax(&text, &(10 + place..10 + place), message);
        format!("{}: {}", &text[at], words.sentence())
    }

    #[test]
    fn a_value_without_quotes_is_shown_as_a_whole() {
        const FLOAT: &str = "invalid float, expected nothing";
        const STRING: &str = "string values must be quoted, expected literal string";
        for (value, place, message, whole) in [
            ("127.0.0.1:80", 5, FLOAT, "127.0.0.1:80"),
            ("10.0.0.0/8 # all", 4, FLOAT, "10.0.0.0/8"),
            ("[127.0.0.1:80, 10.0.0.0/8]", 6, FLOAT, "127.0.0.1:80"),
            ("[127.0.0.1:80, 10.0.0.0/8]", 19, FLOAT, "10.0.0.0/8"),
            ("{ x = 127.0.0.1:80, y = 1 }", 11, FLOAT, "127.0.0.1:80"),
            ("1.5s", 3, FLOAT, "1.5s"),
            ("2001:db8::1", 0, "invalid time, expected minute", "2001:db8::1"),
            ("fe80::1%eth0", 0, "invalid boolean, expected `false`", "fe80::1%eth0"),
            ("[::1]:80", 1, STRING, "[::1]:80"),
            ("[::1, ::2]", 1, STRING, "::1"),
            ("[[::1]:80]", 2, STRING, "[::1]:80"),
            ("[http://a, [::1]:80]", 1, STRING, "http://a"),
            ("http://a.b/c?d=e", 0, STRING, "http://a.b/c?d=e"),
            ("/etc/x y", 0, STRING, "/etc/x y"),
        ] {
            let expected = format!("{whole}: {whole} is not a value; expected text in quotes: \"{whole}\"");
            assert_eq!(of_value(value, place, message), expected, "{value}");
        }
        for (value, place, message, expected) in [
            ("", 0, STRING, ": a value is missing after ="),
            ("True", 0, "invalid boolean, expected `true`", "True: True is not a value; expected true"),
            (
                "08",
                0,
                "unexpected leading zero, expected nothing",
                "08: 08 is not a number; expected a number such as 80 or 0.5, or text in quotes: \"08\"",
            ),
            (
                "1e",
                2,
                "invalid exponent, expected digits",
                "1e: 1e is not a number; expected a number such as 80 or 0.5, or text in quotes: \"1e\"",
            ),
            ("1 \"x\"", 0, STRING, "1 \"x\": 1 \"x\" is not a value"),
        ] {
            assert_eq!(of_value(value, place, message), expected, "{value}");
        }
    }

    #[test]
    fn any_place_of_any_text_has_words() {
        for text in ["", "=", "a = é", "[", "a = [::é]:1", "\n\n", "a = 1,\r\n", "é"] {
            for at in 0..=text.len() + 1 {
                let (at, _) = toml_syntax(text, &(at..at), "invalid float");
                assert!(text.get(at).is_some());
            }
        }
    }

    #[test]
    fn names_of_types_become_words() {
        for (message, expected) in [
            (
                "invalid value: integer `0`, expected a nonzero usize",
                "0 is not possible; expected a whole number, 1 or more",
            ),
            (
                "invalid value: integer `256`, expected u8",
                "256 is not possible; expected a whole number from 0 to 255",
            ),
            (
                "invalid type: floating point `1.5`, expected u64",
                "this is a number with a fraction; expected a whole number, 0 or more",
            ),
            (
                "invalid type: string \"x\", expected f64 at line 1 column 6",
                "this is a string; expected a number at line 1 column 6",
            ),
            (
                "invalid type: string \"a, expected b\", expected a boolean",
                "this is a string; expected true or false",
            ),
            ("invalid type: integer `1`, expected struct Sub", "this is an integer; expected a table"),
            ("invalid type: sequence, expected a string", "this is an array; expected a string"),
            (
                "invalid length 1, expected a tuple of size 2",
                "invalid length 1; expected an array of 2 values",
            ),
            (
                "invalid type: integer `99999999999999999999` as i128, expected i64",
                "this is an integer; expected a whole number",
            ),
            (
                "invalid value: string \"ab\", expected a character",
                "\"ab\" is not possible; expected one character",
            ),
            ("unknown field `x`, expected `y` or `z`", "unknown field `x`; expected `y` or `z`"),
            ("number would be zero for non-zero type", "it must be 1 or more"),
            ("invalid float literal", "it is not a number"),
            ("EOF while parsing an object at line 1 column 1", "the text ends too early at line 1 column 1"),
            ("missing field `x`", "missing field `x`"),
        ] {
            assert_eq!(value_error(message).sentence(), expected, "{message}");
        }
        let message = "invalid type: map, expected struct Sub at line 1 column 2";
        assert_eq!(json_error(message), "this is an object; expected an object at line 1 column 2");
    }

    /// Fails if a version of Rust changes a message.
    #[test]
    fn the_parsers_of_rust_have_words() {
        let said = [
            "x".parse::<u8>().expect_err("fails").to_string(),
            "".parse::<u8>().expect_err("fails").to_string(),
            "256".parse::<u8>().expect_err("fails").to_string(),
            "-129".parse::<i8>().expect_err("fails").to_string(),
            "0".parse::<std::num::NonZeroU8>().expect_err("fails").to_string(),
            "x".parse::<f64>().expect_err("fails").to_string(),
            "".parse::<f64>().expect_err("fails").to_string(),
            "x".parse::<bool>().expect_err("fails").to_string(),
            "x".parse::<std::net::IpAddr>().expect_err("fails").to_string(),
            "x".parse::<std::net::Ipv4Addr>().expect_err("fails").to_string(),
            "x".parse::<std::net::Ipv6Addr>().expect_err("fails").to_string(),
            "x".parse::<std::net::SocketAddr>().expect_err("fails").to_string(),
            "xy".parse::<char>().expect_err("fails").to_string(),
        ];
        for said in said {
            assert_ne!(value_error(&said).message, said);
        }
    }
}
