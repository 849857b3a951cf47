//! Values of nginx as those of Vanward: times, sizes, variables.

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

/// `on` and `off`.
pub(crate) fn is_on(text: &str) -> bool {
    text == "on"
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::{duration, size};

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
}
