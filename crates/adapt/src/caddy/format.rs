//! Placeholders (`{host}`, `{http.request.uri}`) as variables of Vanward.

use crate::environment;

/// Replacement of a placeholder in a text with variables.
pub(super) enum PlaceholderText {
    Text(String),
    /// The name of a value.
    Value(String),
}

/// Finds the meaning of placeholders that are no variables.
type Other<'o> = &'o mut dyn FnMut(&str) -> Result<PlaceholderText, String>;

/// Converts a text with placeholders, or returns the unsupported one.
pub(super) fn template(text: &str, other: Other<'_>) -> Result<String, String> {
    let made = converted(text, &|text| text.replace('$', "$$"), other)?;
    Ok(bare(&made))
}

/// Converts the body of a response, in which only `${` begins a variable.
pub(super) fn content(text: &str, other: Other<'_>) -> Result<String, String> {
    converted(text, &|text| text.replace("${", "$${"), other)
}

fn converted(text: &str, escaped: &dyn Fn(&str) -> String, other: Other<'_>) -> Result<String, String> {
    let mut made = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('{') {
        made += &escaped(before);
        let Some((name, after)) = behind.split_once('}').filter(|(name, _)| is_name(name)) else {
            made.push('{');
            rest = behind;
            continue;
        };
        made += &match name.strip_prefix("env.") {
            Some(variable) => environment::variable(variable, None),
            None => match variable(name) {
                Some(variable) => format!("${{{variable}}}"),
                None => match other(name)? {
                    PlaceholderText::Text(text) => escaped(&text),
                    PlaceholderText::Value(value) => format!("${{{value}}}"),
                },
            },
        };
        rest = after;
    }
    Ok(made + &escaped(rest))
}

/// Whether braces with this text are a placeholder: JSON has others.
fn is_name(name: &str) -> bool {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-[]".contains(&byte);
    name.bytes().all(is_of_name) && !name.is_empty()
}

/// Converts `${host}/x` to `$host/x`: braces stay only before a character that could belong to the name.
fn bare(text: &str) -> String {
    let mut made = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("${") {
        made.push_str(before);
        let Some((name, after)) = behind.split_once('}') else {
            made.push_str("${");
            rest = behind;
            continue;
        };
        let joins = |next: char| next.is_ascii_alphanumeric() || matches!(next, '_' | '.' | '-');
        // A bare name has no digits.
        let is_own = name.starts_with(|first: char| first.is_ascii_lowercase())
            && (name.contains('.') || !name.bytes().any(|byte| byte.is_ascii_digit()));
        if !is_own || after.starts_with(joins) || before.ends_with('$') {
            made.push_str(&format!("${{{name}}}"));
        } else {
            made.push_str(&format!("${name}"));
        }
        rest = after;
    }
    made + rest
}

fn variable(name: &str) -> Option<String> {
    let name = name.strip_prefix("http.request.").unwrap_or(name);
    let made = match name {
        "host" => "host",
        "hostport" => "header.Host",
        "port" => "port",
        "method" => "method",
        "path" | "uri.path" | "http.request.orig_uri.path" => "path",
        "query" | "uri.query" => "query",
        "uri" | "orig_uri" => "path_and_query",
        "scheme" => "scheme",
        "remote_host" | "remote" | "client_ip" | "remote.host" => "client_address",
        "uuid" => "request_id",
        "system.hostname" => "hostname",
        "time.now.unix_ms" => "time.unix_ms",
        "tls_version" | "tls.version" => "tls.version",
        "tls_cipher" | "tls.cipher_suite" => "tls.cipher",
        "tls.server_name" => "tls.sni",
        "tls_client_subject" | "tls.client.subject" => "tls.subject",
        "tls_client_issuer" | "tls.client.issuer" => "tls.issuer",
        "tls_client_serial" | "tls.client.serial" => "tls.serial",
        "tls_client_fingerprint" | "tls.client.fingerprint" => "tls.fingerprint",
        "http.auth.user.id" => "user",
        "http.reverse_proxy.upstream.hostport" | "upstream_hostport" => "server",
        _ => "",
    };
    if !made.is_empty() {
        return Some(made.to_owned());
    }
    let kinds = [("header.", "header"), ("cookie.", "cookie"), ("query.", "arg"), ("uri.query.", "arg")];
    let plain = |text: &&str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    kinds.iter().find_map(|(begin, kind)| {
        name.strip_prefix(begin).filter(plain).map(|field| format!("{kind}.{field}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_have_the_names_of_here() {
        let cases = [
            ("https://{host}{uri}", Ok("https://$host$path_and_query")),
            ("{http.request.header.X-A}-b", Ok("${header.X-A}-b")),
            ("{header.X-A} b", Ok("$header.X-A b")),
            ("{host}/{env.NAME}", Ok("$host/${NAME}")),
            ("a$b", Ok("a$$b")),
            ("{vars.a}/{vars.b}{vars.a}x", Ok("$a/$$b${a}x")),
            ("{re.a.1}", Err("{re.a.1}")),
            ("{ \"json\": 1 }", Ok("{ \"json\": 1 }")),
        ];
        for (text, here) in cases {
            let made = template(text, &mut |name| match name {
                "vars.a" => Ok(PlaceholderText::Value("a".to_owned())),
                "vars.b" => Ok(PlaceholderText::Text("$b".to_owned())),
                _ => Err(format!("{{{name}}}")),
            });
            let made = made.map(|made| environment::written(&made));
            assert_eq!(made.as_deref().map_err(String::as_str), here, "{text}");
        }
    }
}
