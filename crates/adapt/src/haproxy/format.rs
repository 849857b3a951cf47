//! Log formats (`%[…]`, `%ci`) as variables of Vanward.

/// A part of a log format.
#[derive(Debug, PartialEq)]
pub(crate) enum Piece {
    Text(String),
    Sample(String),
    /// Short name such as `ci`.
    Alias(String),
}

impl Piece {
    /// As in a log format.
    pub(crate) fn written(&self) -> String {
        match self {
            Self::Text(text) => text.replace('%', "%%"),
            Self::Sample(sample) => format!("%[{sample}]"),
            Self::Alias(name) => format!("%{name}"),
        }
    }
}

/// Replacement of a sample in a text with variables.
pub(crate) enum SampleText {
    Text(String),
    /// The name of a value.
    Value(String),
}

/// Splits a log format.
///
/// # Errors
/// A bracket is not closed: the rest of the text.
pub(crate) fn pieces(text: &str) -> Result<Vec<Piece>, String> {
    let mut made: Vec<Piece> = Vec::new();
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let behind = &rest[letter.len_utf8()..];
        let text = match letter {
            '%' if behind.starts_with('[') => {
                let end = closing(behind).ok_or_else(|| rest.to_owned())?;
                made.push(Piece::Sample(behind[1..end].to_owned()));
                rest = &behind[end + 1..];
                continue;
            }
            '%' if !behind.starts_with('%') => {
                let length = behind.bytes().take_while(u8::is_ascii_alphabetic).count();
                made.push(Piece::Alias(behind[..length].to_owned()));
                rest = &behind[length..];
                continue;
            }
            '%' => &behind[..1],
            _ => &rest[..letter.len_utf8()],
        };
        match made.last_mut() {
            Some(Piece::Text(known)) => known.push_str(text),
            _ => made.push(Piece::Text(text.to_owned())),
        }
        rest = if letter == '%' { &behind[1..] } else { behind };
    }
    Ok(made)
}

/// Converts a log format to a text with variables, or returns the unsupported part. `other` converts samples that are
/// no variables.
pub(crate) fn template(
    text: &str,
    other: &mut dyn FnMut(&str) -> Result<SampleText, String>,
) -> Result<String, String> {
    let mut made = String::new();
    let mut pieces = pieces(text)?.into_iter().peekable();
    while let Some(piece) = pieces.next() {
        let name = match piece {
            Piece::Text(text) => {
                made.push_str(&text.replace('$', "$$"));
                continue;
            }
            Piece::Alias(name) => short(&name).ok_or_else(|| format!("%{name}"))?.to_owned(),
            Piece::Sample(sample) => match (constant(&sample), variable(&sample)) {
                (Some(text), _) => {
                    made.push_str(&text.replace('$', "$$"));
                    continue;
                }
                (None, Some(name)) => name,
                (None, None) => match other(&sample)? {
                    SampleText::Value(name) => name,
                    SampleText::Text(text) => {
                        made.push_str(&text.replace('$', "$$"));
                        continue;
                    }
                },
            },
        };
        let joins = |next: char| next.is_ascii_alphanumeric() || matches!(next, '_' | '.' | '-');
        let is_plain = name.contains('.') || !name.bytes().any(|byte| byte.is_ascii_digit());
        match pieces.peek() {
            Some(Piece::Text(text)) if !text.starts_with(joins) && is_plain => {
                made.push_str(&format!("${name}"));
            }
            Some(Piece::Text(_)) => made.push_str(&format!("${{{name}}}")),
            _ if is_plain => made.push_str(&format!("${name}")),
            _ => made.push_str(&format!("${{{name}}}")),
        }
    }
    Ok(made)
}

/// Returns the position of the bracket that closes the first one.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, letter) in text.char_indices() {
        match letter {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// Returns the text in `str(x)`.
fn constant(sample: &str) -> Option<String> {
    let inner = sample.strip_prefix("str(").and_then(|rest| rest.strip_suffix(')'))?;
    (!inner.contains([')', ','])).then(|| inner.to_owned())
}

pub(crate) fn variable(sample: &str) -> Option<String> {
    let sample = sample.trim();
    // Hosts are in lower case here.
    let sample = sample.strip_suffix(",lower").unwrap_or(sample);
    let (name, argument) = match sample.split_once('(') {
        Some((name, rest)) => (name, Some(rest.strip_suffix(')')?.split(',').next()?.trim())),
        None => (sample, None),
    };
    let argument = argument.filter(|text| !text.is_empty());
    let plain =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    if argument.is_some_and(|argument| !plain(argument)) {
        return None;
    }
    let made = match (name, argument) {
        ("path", None) => "path",
        ("query", None) => "query",
        ("url" | "pathq" | "capture.req.uri", None) => "path_and_query",
        ("method" | "capture.req.method", None) => "method",
        ("src", None) => "client_address",
        ("dst_port", None) => "port",
        ("unique-id", None) | ("uuid", _) => "request_id",
        ("ssl_fc_sni", None) => "tls.sni",
        ("ssl_fc_protocol", None) => "tls.version",
        ("ssl_fc_cipher", None) => "tls.cipher",
        ("ssl_fc_alpn", None) => "tls.alpn",
        ("ssl_c_s_dn", None) => "tls.subject",
        ("ssl_c_i_dn", None) => "tls.issuer",
        ("http_auth_user", None) => "user",
        ("be_name", None) => "upstream",
        ("hostname", None) => "hostname",
        ("hdr" | "req.hdr" | "req.fhdr" | "capture.req.hdr", Some(field))
            if field.eq_ignore_ascii_case("host") =>
        {
            "header.Host"
        }
        ("hdr" | "req.hdr" | "req.fhdr", Some(field)) => return Some(format!("header.{field}")),
        ("cook" | "req.cook", Some(cookie)) => return Some(format!("cookie.{cookie}")),
        ("url_param" | "urlp", Some(parameter)) => return Some(format!("arg.{parameter}")),
        _ => return None,
    };
    Some(made.to_owned())
}

/// Returns the variable for an alias of log formats.
fn short(name: &str) -> Option<&'static str> {
    Some(match name {
        "ci" => "client_address",
        "HM" => "method",
        "HP" => "path",
        "HPO" | "HU" => "path_and_query",
        "HQ" => "query",
        "ID" => "request_id",
        "H" => "hostname",
        "ST" => "status",
        "b" => "upstream",
        "sslv" => "tls.version",
        "sslc" => "tls.cipher",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_have_the_variables_of_here() {
        let cases = [
            ("https://%[hdr(host)]%[capture.req.uri]", Ok("https://$header.Host$path_and_query")),
            ("%[src]", Ok("$client_address")),
            ("a%[method]b", Ok("a${method}b")),
            ("100%% of $5", Ok("100% of $$5")),
            ("%[str(x)]%ci", Ok("x$client_address")),
            ("%[req.cook(id)];%[url_param(q)]", Ok("$cookie.id;$arg.q")),
            ("%[var(txn.host)]", Err("%[var(txn.host)]")),
            ("%[var(txn.ab1)]%[var(txn.a)]c", Ok("${ab1}${a}c")),
            ("%[var(txn.a)]%[var(txn.a)]/", Ok("$a$a/")),
            ("%[path", Err("%[path")),
            ("%Tq", Err("%Tq")),
        ];
        let mut other =
            |sample: &str| match sample.strip_prefix("var(txn.").and_then(|rest| rest.strip_suffix(')')) {
                Some(name) if name.starts_with('a') => Ok(SampleText::Value(name.to_owned())),
                _ => Err(format!("%[{sample}]")),
            };
        for (format, here) in cases {
            let made = template(format, &mut other);
            assert_eq!(made.as_deref().map_err(String::as_str), here, "{format}");
        }
    }
}
