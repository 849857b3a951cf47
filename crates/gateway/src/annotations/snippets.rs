//! Snippets of nginx's configuration are never read. The reason names what to write instead of their directives.

/// Most pieces of advice in a reason.
const TOLD_MAX: usize = 10;

/// Returns the reason for a snippet.
pub(super) fn why(snippet: &str) -> String {
    let mut told: Vec<(&str, &str)> = Vec::new();
    for (directive, parameters) in statements(snippet) {
        let advice = (directive, instead(directive, &parameters));
        if told.len() < TOLD_MAX && !told.contains(&advice) {
            told.push(advice);
        }
    }
    let advice = told.iter().map(|(directive, instead)| format!("; instead of {directive}: {instead}"));
    format!("it is not supported: nginx configuration is not read{}", advice.collect::<String>())
}

/// Lists the statements of a snippet: the directive, and its parameters.
fn statements(snippet: &str) -> impl Iterator<Item = (&str, String)> {
    let mut rest = snippet;
    std::iter::from_fn(move || {
        loop {
            rest = rest.trim_start_matches(|letter: char| letter.is_whitespace() || "{};".contains(letter));
            if let Some(comment) = rest.strip_prefix('#') {
                rest = comment.split_once('\n').map_or("", |(_, after)| after);
            } else if rest.is_empty() {
                return None;
            } else {
                break;
            }
        }
        let (statement, after) = rest.split_at(end(rest));
        rest = after;
        let (directive, parameters) = statement.split_once(char::is_whitespace).unwrap_or((statement, ""));
        Some((directive, parameters.trim().to_lowercase()))
    })
}

/// Returns the length of the first statement, up to `;` or `{` outside of quotes and variables.
fn end(text: &str) -> usize {
    let (mut quote, mut before) = (None, ' ');
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(open), letter) if letter == open && before != '\\' => quote = None,
            (None, '"' | '\'') => quote = Some(letter),
            (None, ';') => return at,
            (None, '{') if before != '$' => return at,
            _ => {}
        }
        before = letter;
    }
    text.len()
}

/// Returns what to write instead of a directive with these parameters, which are in lower case.
fn instead(directive: &str, parameters: &str) -> &'static str {
    const RULE: &str = "a rule of the Ingress with its own path";
    const BASE: &str = "a route in --gateway-base";
    let first = parameters.split_whitespace().next().unwrap_or_default();
    match directive {
        "add_header" | "more_set_headers" | "expires" => "custom-headers with a ConfigMap",
        "more_clear_headers" | "proxy_hide_header" => {
            "response_headers.remove of [route_defaults] in --gateway-base"
        }
        "return" | "rewrite" if is_redirect(directive, first, parameters) => {
            "permanent-redirect or temporal-redirect"
        }
        "return" => "respond of a route in --gateway-base",
        "rewrite" => "rewrite-target with a regular expression as path",
        "if" if parameters.contains("$host") || parameters.contains("$http_host") => {
            "a rule for each host, server-alias or from-to-www-redirect"
        }
        "if" if parameters.contains("$scheme") || parameters.contains("x_forwarded_proto") => {
            "force-ssl-redirect"
        }
        "if" | "set" | "map" => "when of a route in --gateway-base",
        "proxy_set_header" if first == "host" => "upstream-vhost",
        "proxy_set_header" if first == "x-forwarded-prefix" => "x-forwarded-prefix",
        "proxy_set_header" | "more_set_input_headers" => {
            "an HTTPRoute with RequestHeaderModifier, or request_headers in --gateway-base"
        }
        "client_max_body_size" => "proxy-body-size",
        "client_body_buffer_size" => "client-body-buffer-size",
        "allow" => "allowlist-source-range",
        "deny" if first == "all" => "allowlist-source-range",
        "deny" => "denylist-source-range",
        "auth_basic" | "auth_basic_user_file" => "auth-type and auth-secret",
        "auth_request" => "auth-url",
        directive if directive.starts_with("gzip") || directive.starts_with("brotli") => {
            "compress of [route_defaults] in --gateway-base"
        }
        "proxy_read_timeout" | "grpc_read_timeout" => "proxy-read-timeout",
        "proxy_send_timeout" | "grpc_send_timeout" => "proxy-send-timeout",
        "proxy_connect_timeout" => "proxy-connect-timeout",
        "proxy_buffering" => "nothing, because responses are never collected",
        "proxy_request_buffering" => "proxy-request-buffering",
        directive if directive.starts_with("proxy_buffer") => "proxy-buffer-size",
        directive if directive.starts_with("proxy_next_upstream") => "proxy-next-upstream",
        directive if directive.starts_with("proxy_cookie") => "cookies of a route in --gateway-base",
        "error_page" | "proxy_intercept_errors" => "custom-http-errors and default-backend",
        "limit_req" | "limit_req_status" => "limit-rps or limit-rpm",
        "limit_rate" => "rate of a route in --gateway-base",
        "access_log" => "enable-access-log",
        "proxy_pass" | "location" => RULE,
        _ => BASE,
    }
}

fn is_redirect(directive: &str, first: &str, parameters: &str) -> bool {
    match directive {
        "return" => matches!(first, "301" | "302" | "303" | "307" | "308") || first.starts_with("http"),
        _ => parameters.ends_with("permanent") || parameters.ends_with("redirect"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_usual_directive_has_its_advice() {
        for (snippet, expected) in [
            (
                "more_set_headers \"X-A: b; c\";",
                "instead of more_set_headers: custom-headers with a ConfigMap",
            ),
            ("add_header X-A b;", "instead of add_header: custom-headers with a ConfigMap"),
            (
                "return 301 https://b.example$request_uri;",
                "instead of return: permanent-redirect or temporal-redirect",
            ),
            ("return 403;", "instead of return: respond of a route in --gateway-base"),
            (
                "rewrite ^/a/(.*)$ /$1 break;",
                "instead of rewrite: rewrite-target with a regular expression as path",
            ),
            (
                "rewrite ^ https://$host/ permanent;",
                "instead of rewrite: permanent-redirect or temporal-redirect",
            ),
            (
                "if ($host = 'a.example') { return 301 https://b; }",
                "instead of if: a rule for each host, server-alias or from-to-www-redirect; instead of return: permanent-redirect or temporal-redirect",
            ),
            ("if ($http_x_forwarded_proto = \"http\") {\n}", "instead of if: force-ssl-redirect"),
            ("if ($request_method = POST) {}", "instead of if: when of a route in --gateway-base"),
            ("proxy_set_header Host b.example;", "instead of proxy_set_header: upstream-vhost"),
            (
                "proxy_set_header X-A ${x};",
                "instead of proxy_set_header: an HTTPRoute with RequestHeaderModifier",
            ),
            ("client_max_body_size 50m;", "instead of client_max_body_size: proxy-body-size"),
            ("# deny it\ndeny 10.0.0.0/8;", "instead of deny: denylist-source-range"),
            (
                "allow 10.0.0.0/8; deny all;",
                "instead of allow: allowlist-source-range; instead of deny: allowlist-source-range",
            ),
            ("auth_basic \"a\";", "instead of auth_basic: auth-type and auth-secret"),
            ("gzip_types text/css;", "instead of gzip_types: compress of [route_defaults] in --gateway-base"),
            ("proxy_read_timeout 300s;", "instead of proxy_read_timeout: proxy-read-timeout"),
            ("sub_filter a b;", "instead of sub_filter: a route in --gateway-base"),
            (
                "gzip on; gzip on;",
                "not read; instead of gzip: compress of [route_defaults] in --gateway-base",
            ),
        ] {
            let why = why(snippet);
            assert!(why.ends_with(expected) || why.contains(&format!("{expected}, ")), "{snippet}: {why}");
        }
        assert_eq!(why(" # nothing"), "it is not supported: nginx configuration is not read");
        let many: String = (0..50).map(|number| format!("x{number} on;")).collect();
        assert_eq!(why(&many).matches("instead of").count(), TOLD_MAX);
    }
}
