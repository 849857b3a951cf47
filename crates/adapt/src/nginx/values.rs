//! Converts values of nginx: times, sizes, variables.

use crate::values::{measure, sum};

/// Parses a time to milliseconds: `30s`, `1h30m`, `500ms`, or a number of seconds.
pub(crate) fn milliseconds(text: &str) -> Option<u64> {
    const DAY: u64 = 86_400_000;
    let units = [("ms", 1), ("s", 1000), ("", 1000), ("m", 60_000), ("h", 3_600_000), ("d", DAY)];
    sum(text, &[&units[..], &[("w", 7 * DAY), ("M", 30 * DAY), ("y", 365 * DAY)]].concat())
}

/// Parses a size to bytes: `8k`, `10m`, `1g`, or a number.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    measure(&text.to_ascii_lowercase(), &[("", 1), ("k", 1 << 10), ("m", 1 << 20), ("g", 1 << 30)])
}

pub(crate) fn is_on(text: &str) -> bool {
    text == "on"
}

/// Splits the text after a `$` into the name of the variable, perhaps in braces, and the rest.
pub(super) fn split_name(text: &str) -> (&str, &str) {
    match text.strip_prefix('{').and_then(|braced| braced.split_once('}')) {
        Some(split) => split,
        None => text.split_at(name_length(text)),
    }
}

/// Returns the length of a variable's name. Groups of an expression have one digit.
fn name_length(text: &str) -> usize {
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        return 1;
    }
    text.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count()
}

/// The name of a variable in texts here.
pub(super) fn variable(name: &str) -> Option<String> {
    let here = match name {
        "host" => "host",
        "http_host" => "header.Host",
        "remote_addr" | "proxy_protocol_addr" | "realip_remote_addr" => "client_address",
        "scheme" => "scheme",
        "server_port" => "port",
        "request_id" => "request_id",
        "hostname" => "hostname",
        "msec" => "time.unix",
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

/// Converts `x_api_key` to `X-Api-Key`.
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
}
