//! Values of nginx as those of Vanward: times, sizes, rates, variables, expressions, networks.

/// A time in milliseconds: `30s`, `1h30m`, `500ms`, or a number of seconds.
pub(crate) fn milliseconds(text: &str) -> Option<u64> {
    let (mut total, mut rest): (u64, &str) = (0, text.trim());
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest.get(..digits)?.parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let unit = match &rest[..letters] {
            "ms" => 1,
            "" | "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 7 * 86_400_000,
            "M" => 30 * 86_400_000,
            "y" => 365 * 86_400_000,
            _ => return None,
        };
        rest = rest[letters..].trim_start();
        total = total.checked_add(number.checked_mul(unit)?)?;
    }
    Some(total)
}

/// Milliseconds as Vanward writes a duration, in the largest unit that leaves no rest.
pub(crate) fn duration(milliseconds: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")];
    for (unit, name) in UNITS {
        if milliseconds >= unit && milliseconds.is_multiple_of(unit) {
            return format!("{}{name}", milliseconds / unit);
        }
    }
    if milliseconds == 0 { "0s".to_owned() } else { format!("{milliseconds}ms") }
}

/// A size in bytes: `8k`, `10m`, `1g`, or a number.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text.get(..digits)?.parse().ok()?;
    let unit = match &text[digits..] {
        "" => 1,
        "k" | "K" => 1 << 10,
        "m" | "M" => 1 << 20,
        "g" | "G" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(unit)
}

/// Bytes as Vanward writes a size.
pub(crate) fn size(bytes: u64) -> String {
    for (unit, name) in [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if bytes >= unit && bytes.is_multiple_of(unit) {
            return format!("{}{name}", bytes / unit);
        }
    }
    bytes.to_string()
}

/// `on` and `off`.
pub(crate) fn is_on(text: &str) -> bool {
    text == "on"
}

/// Whether a text is a network or an address, as access lists take them.
pub(crate) fn is_network(text: &str) -> bool {
    let (address, length) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
    let Ok(address) = address.parse::<std::net::IpAddr>() else { return false };
    let bits = if address.is_ipv4() { 32 } else { 128 };
    length.is_none_or(|length| length.parse::<u8>().is_ok_and(|length| length <= bits))
}

/// A text with variables of nginx as one with those of Vanward, or the variable that there is none for.
pub(crate) fn template(text: &str) -> Result<String, String> {
    let mut made = String::new();
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        made.push_str(&rest[..dollar]);
        rest = &rest[dollar + 1..];
        let (name, behind) = match rest.strip_prefix('{').and_then(|braced| braced.split_once('}')) {
            Some(split) => split,
            None => rest.split_at(name_length(rest)),
        };
        if name.is_empty() {
            made.push_str("$$");
            continue;
        }
        let variable = variable(name).ok_or_else(|| format!("${name}"))?;
        // In braces where what stands behind could be taken for a part of the name.
        let joins = |next: char| next.is_ascii_alphanumeric() || matches!(next, '_' | '.' | '-');
        if behind.starts_with(joins) {
            made.push_str(&format!("${{{variable}}}"));
        } else {
            made.push('$');
            made.push_str(&variable);
        }
        rest = behind;
    }
    made.push_str(rest);
    Ok(made)
}

/// How long the name of a variable is; groups of an expression have one digit.
fn name_length(text: &str) -> usize {
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        return 1;
    }
    text.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count()
}

/// The name here of a variable.
fn variable(name: &str) -> Option<String> {
    let here = match name {
        "host" => "host",
        "http_host" => "header.Host",
        "remote_addr" | "proxy_protocol_addr" | "realip_remote_addr" => "client_address",
        "scheme" => "scheme",
        "server_port" => "port",
        "request_id" => "request_id",
        "uri" | "document_uri" => "path",
        "request_uri" => "path_and_query",
        "args" | "query_string" => "query",
        "request_method" => "method",
        "remote_user" => "user",
        "status" => "status",
        "ssl_server_name" => "tls.sni",
        "ssl_protocol" => "tls.version",
        "ssl_cipher" => "tls.cipher",
        "ssl_client_s_dn" => "tls.subject",
        "ssl_client_i_dn" => "tls.issuer",
        "ssl_client_serial" => "tls.serial",
        "upstream_addr" => "server",
        _ => "",
    };
    if !here.is_empty() {
        return Some(here.to_owned());
    }
    if name.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(name.to_owned());
    }
    if let Some(field) = name.strip_prefix("http_").filter(|field| !field.is_empty()) {
        return Some(format!("header.{}", field_name(field)));
    }
    if let Some(cookie) = name.strip_prefix("cookie_").filter(|cookie| !cookie.is_empty()) {
        return Some(format!("cookie.{cookie}"));
    }
    name.strip_prefix("arg_")
        .filter(|argument| !argument.is_empty())
        .map(|argument| format!("arg.{argument}"))
}

/// `x_api_key` as `X-Api-Key`.
pub(crate) fn field_name(variable: &str) -> String {
    let words = variable.split('_').map(|word| {
        let mut letters = word.chars();
        letters
            .next()
            .map_or(String::new(), |first| first.to_ascii_uppercase().to_string() + letters.as_str())
    });
    words.collect::<Vec<_>>().join("-")
}

/// An expression that nginx looks for anywhere, as one that matches a whole text; or why there is none.
pub(crate) fn expression(text: &str, ignores_case: bool) -> Result<String, String> {
    let mut body = text;
    let mut made = String::new();
    if ignores_case {
        made.push_str("(?i)");
    }
    let has_choice = has_bare_choice(text);
    if has_choice {
        made.push_str(".*(?:");
        made.push_str(text);
        made.push_str(").*");
    } else {
        match body.strip_prefix('^') {
            Some(rest) => body = rest,
            None => made.push_str(".*"),
        }
        match body.strip_suffix('$') {
            Some(rest) if !ends_escaped(rest) => made.push_str(rest),
            _ => {
                made.push_str(body);
                made.push_str(".*");
            }
        }
    }
    let made = made.replace(".*.*", ".*");
    let mut parser = regex_syntax::ParserBuilder::new();
    parser.unicode(false).utf8(false).nest_limit(50);
    match parser.build().parse(&made) {
        Ok(_) if made.len() <= 4096 => Ok(made),
        Ok(_) => Err("the expression is longer than 4096 bytes".to_owned()),
        Err(_) if ["(?=", "(?!", "(?<=", "(?<!"].iter().any(|around| text.contains(around)) => {
            Err("there is no looking ahead or behind in expressions here".to_owned())
        }
        Err(_) => {
            Err("the expression is not one of the syntax here (that of the Rust crate regex)".to_owned())
        }
    }
}

/// Whether a `|` stands outside of groups and classes.
fn has_bare_choice(text: &str) -> bool {
    let (mut depth, mut in_class, mut escaped) = (0_usize, false, false);
    for character in text.chars() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ']' => in_class = false,
            '[' => in_class = true,
            '(' if !in_class => depth += 1,
            ')' if !in_class => depth = depth.saturating_sub(1),
            '|' if !in_class && depth == 0 => return true,
            _ => {}
        }
    }
    false
}

fn ends_escaped(text: &str) -> bool {
    text.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

/// A text as an expression that matches it alone.
pub(crate) fn escaped(text: &str) -> String {
    regex_syntax::escape(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_have_the_units_of_here() {
        let cases =
            [("30", "30s"), ("1h30m", "90m"), ("500ms", "500ms"), ("1d", "1d"), ("0", "0s"), ("2w", "14d")];
        for (nginx, here) in cases {
            assert_eq!(milliseconds(nginx).map(duration).as_deref(), Some(here), "{nginx}");
        }
        for wrong in ["", "x", "5q", "s", "99999999999999999999y"] {
            assert_eq!(milliseconds(wrong), None, "{wrong}");
        }
        for (nginx, here) in
            [("8k", "8KiB"), ("10m", "10MiB"), ("1g", "1GiB"), ("100", "100"), ("1025k", "1025KiB")]
        {
            assert_eq!(bytes(nginx).map(size).as_deref(), Some(here), "{nginx}");
        }
        assert_eq!(bytes("10q"), None);
    }

    #[test]
    fn variables_have_the_names_of_here() {
        let cases = [
            ("https://$host$request_uri", Ok("https://$host$path_and_query")),
            ("$http_x_api_key", Ok("$header.X-Api-Key")),
            ("a${host}b", Ok("a${host}b")),
            ("/new/$1.html", Ok("/new/${1}.html")),
            ("/new/$1/x", Ok("/new/$1/x")),
            ("a$", Ok("a$$")),
            ("$cookie_id;$arg_q", Ok("$cookie.id;$arg.q")),
            ("$geoip_country", Err("$geoip_country")),
        ];
        for (nginx, here) in cases {
            assert_eq!(template(nginx).as_deref().map_err(String::as_str), here, "{nginx}");
        }
    }

    #[test]
    fn expressions_match_the_whole_path() {
        let cases = [
            (r"\.php$", false, Ok(r".*\.php")),
            (r"^/api/(v\d+)/", false, Ok(r"/api/(v\d+)/.*")),
            (r"\.(jpg|png)$", true, Ok(r"(?i).*\.(jpg|png)")),
            ("^/a|^/b", false, Ok(".*(?:^/a|^/b).*")),
            (r"^/a\$", false, Ok(r"/a\$.*")),
            ("^/a.*", false, Ok("/a.*")),
            ("^/(?!x)", false, Err("there is no looking ahead or behind in expressions here")),
        ];
        for (nginx, ignores_case, here) in cases {
            assert_eq!(expression(nginx, ignores_case).as_deref().map_err(String::as_str), here, "{nginx}");
        }
    }

    #[test]
    fn networks_are_told_from_words() {
        for (text, is) in
            [("10.0.0.0/8", true), ("::1", true), ("10.0.0.0/33", false), ("all", false), ("unix:", false)]
        {
            assert_eq!(is_network(text), is, "{text}");
        }
    }
}
