//! Log formats (`%[…]`, `%ci`) as variables of Vanward.

/// Converts a log format, or returns the unsupported part.
pub(crate) fn template(text: &str) -> Result<String, String> {
    let mut made = String::new();
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let behind = &rest[letter.len_utf8()..];
        match letter {
            '$' => {
                made.push_str("$$");
                rest = behind;
            }
            '%' if behind.starts_with('%') => {
                made.push('%');
                rest = &behind[1..];
            }
            '%' if behind.starts_with('[') => {
                let end = closing(behind).ok_or_else(|| rest.to_owned())?;
                let sample = &behind[1..end];
                rest = &behind[end + 1..];
                match constant(sample) {
                    Some(text) => made.push_str(&text.replace('$', "$$")),
                    None => push(&mut made, &variable(sample).ok_or_else(|| format!("%[{sample}]"))?, rest),
                }
            }
            '%' => {
                let length = behind.bytes().take_while(u8::is_ascii_alphabetic).count();
                let name = &behind[..length];
                rest = &behind[length..];
                push(&mut made, short(name).ok_or_else(|| format!("%{name}"))?, rest);
            }
            other => {
                made.push(other);
                rest = behind;
            }
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

/// Appends a variable, in braces before a character that could belong to its name.
fn push(made: &mut String, name: &str, behind: &str) {
    let joins = |next: char| next.is_ascii_alphanumeric() || matches!(next, '_' | '.' | '-');
    if behind.starts_with(joins) {
        made.push_str(&format!("${{{name}}}"));
    } else {
        made.push('$');
        made.push_str(name);
    }
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
            ("%[path", Err("%[path")),
            ("%Tq", Err("%Tq")),
        ];
        for (format, here) in cases {
            assert_eq!(template(format).as_deref().map_err(String::as_str), here, "{format}");
        }
    }
}
