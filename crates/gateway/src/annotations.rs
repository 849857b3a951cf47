//! Annotations of Ingresses. Supported annotations of ingress-nginx keep their meaning; all others are refused.

/// Client authentication.
mod access;
/// Sticky sessions.
mod affinity;
/// Canaries.
mod canary;
/// Protocol, timeouts and load balancing of servers.
mod servers;
/// Reasons for unsupported annotations.
mod refused;

use std::collections::BTreeMap;

pub(crate) use access::{AuthServer, Passwords, UserListForm};
pub(crate) use affinity::Affinity;
pub(crate) use canary::{Canary, exactly};

use crate::backends::Spoken;
use crate::filters::Options;
use crate::object::Metadata;
use crate::written::{escaped, inline, list, literal, template, text};

/// Prefixes of supported annotations. If both are set, the second takes precedence.
const PREFIXES: [&str; 2] = ["nginx.ingress.kubernetes.io/", "vanward.dev/"];

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct IngressOptions {
    pub(crate) options: Options,
    /// Answers with a redirect instead of a backend.
    pub(crate) redirect: Option<String>,
    pub(crate) rewrite_target: Option<String>,
    /// Whether `ImplementationSpecific` paths are regular expressions.
    pub(crate) uses_expressions: bool,
    pub(crate) app_root: Option<String>,
    /// Redirects to HTTPS; `None` means for hosts with a certificate.
    pub(crate) secure: Option<Secure>,
    pub(crate) spoken: Option<ServerOptions>,
    pub(crate) passwords: Option<Passwords>,
    pub(crate) auth_server: Option<AuthServer>,
    pub(crate) upstream: Options,
    pub(crate) affinity: Option<Affinity>,
    /// Selects the requests of another Ingress that this one takes.
    pub(crate) canary: Option<Canary>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Secure {
    Nobody,
    Everybody,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServerOptions {
    pub(crate) spoken: Spoken,
    /// Whether servers must prove their identity (TLS).
    pub(crate) is_secure: bool,
}

/// Annotations for this controller that were not read yet, by name.
struct Annotations<'m> {
    values: BTreeMap<&'m str, &'m str>,
    /// Reasons for unsupported annotations.
    faults: Vec<String>,
}

pub(crate) fn wanted(metadata: &Metadata) -> (IngressOptions, Vec<String>) {
    let mut values = BTreeMap::new();
    for prefix in PREFIXES {
        let own =
            metadata.annotations.iter().filter_map(|(name, value)| Some((name.strip_prefix(prefix)?, value)));
        values.extend(own.map(|(name, value)| (name, value.trim())));
    }
    let mut annotations = Annotations { values, faults: Vec::new() };
    let wanted = annotations.read(&metadata.namespace);
    let unknown = std::mem::take(&mut annotations.values);
    let unknown = unknown.into_keys().map(|name| format!("annotation {name}: {}", refused::why(name)));
    let faults = annotations.faults.into_iter().chain(unknown).collect();
    (wanted, faults)
}

impl<'m> Annotations<'m> {
    fn read(&mut self, namespace: &str) -> IngressOptions {
        let mut wanted = IngressOptions {
            redirect: self.redirect(),
            rewrite_target: self.value("rewrite-target", |path| {
                path.starts_with('/').then(|| path.to_owned()).ok_or("a path such as /$1")
            }),
            uses_expressions: self.is_on("use-regex"),
            app_root: self.value("app-root", |path| {
                path.starts_with('/').then(|| literal(path)).ok_or("a path such as /app")
            }),
            spoken: self.value("backend-protocol", servers::spoken),
            upstream: self.upstream(),
            passwords: self.passwords(namespace),
            auth_server: self.auth_server(),
            affinity: self.affinity(),
            canary: self.canary(),
            ..IngressOptions::default()
        };
        let (is_usual, is_forced) = (self.value("ssl-redirect", switch), self.is_on("force-ssl-redirect"));
        wanted.secure = match is_usual {
            _ if is_forced => Some(Secure::Everybody),
            Some(false) => Some(Secure::Nobody),
            Some(true) | None => None,
        };
        wanted.options.extend(self.timeouts());
        wanted.options.extend(
            self.value("proxy-body-size", size).map(|size| ("limits", inline([("body_bytes", text(&size))]))),
        );
        for (option, names) in [
            ("allow", &["whitelist-source-range", "allowlist-source-range"][..]),
            ("deny", &["denylist-source-range"]),
        ] {
            let networks = names.iter().find_map(|name| self.value(name, words));
            wanted.options.extend(networks.map(|networks| (option, networks)));
        }
        wanted.options.extend(self.limits().map(|limits| ("rate_limit", limits)));
        let under_way = self.value("limit-connections", number);
        wanted.options.extend(under_way.map(|max| ("concurrency", inline([("max", max.to_string())]))));
        wanted.options.extend(self.cors().map(|cors| ("cors", cors)));
        let prefix = self.value("x-forwarded-prefix", |prefix| Ok(literal(prefix)));
        wanted.options.extend(
            prefix.map(|prefix| {
                ("request_headers", inline([("set", inline([("X-Forwarded-Prefix", prefix)]))]))
            }),
        );
        let is_logged = self.value("enable-access-log", switch);
        wanted.options.extend(is_logged.map(|is_logged| ("access_log", is_logged.to_string())));
        let is_buffered = self.value("proxy-request-buffering", |value| match value {
            "on" => Ok(true),
            "off" => Ok(false),
            _ => Err("on or off"),
        });
        wanted.options.extend(
            is_buffered.filter(|is_buffered| *is_buffered).map(|_| ("request_buffering", "true".to_owned())),
        );
        self.usual();
        wanted
    }

    /// Removes annotations that ask for the default behavior.
    fn usual(&mut self) {
        for (name, usual) in [
            ("proxy-buffering", "off"),
            ("proxy-http-version", "1.1"),
            ("auth-method", "GET"),
            ("auth-signin-redirect-param", "rd"),
            ("satisfy", "all"),
            ("proxy-redirect-from", "off"),
            ("proxy-redirect-to", "off"),
            ("load-balance", "round_robin"),
        ] {
            self.value(name, |value| if value == usual { Ok(()) } else { Err(usual) });
        }
        // Buffers of nginx; the limit for heads here is `limits.header_bytes`, 64 KiB by default.
        const HEAD: &str =
            "at most 64k: limits.header_bytes of --gateway-base bounds the header sections from servers";
        let number = |value: &str| value.parse::<u64>().map(drop).map_err(|_| "a number");
        self.value("proxy-buffers-number", number);
        self.value("proxy-buffer-size", |value| {
            bytes(value).filter(|size| *size <= 64 << 10).map(drop).ok_or(HEAD)
        });
        for name in ["proxy-busy-buffers-size", "proxy-max-temp-file-size", "client-body-buffer-size"] {
            self.value(name, |value| bytes(value).map(drop).ok_or("a size such as 8k"));
        }
    }

    /// Takes and parses an annotation. A parse error becomes a fault.
    fn value<T>(&mut self, name: &str, read: impl Fn(&'m str) -> Result<T, &'static str>) -> Option<T> {
        let value = self.values.remove(name)?;
        match read(value) {
            Ok(value) => Some(value),
            Err(expected) => {
                self.faults
                    .push(format!("annotation {name}: {value:?} is not supported; expected {expected}"));
                None
            }
        }
    }

    fn is_on(&mut self, name: &str) -> bool {
        self.value(name, switch).unwrap_or(false)
    }

    fn redirect(&mut self) -> Option<String> {
        let code = |code: &str| match code {
            "301" | "302" | "303" | "307" | "308" => Ok(code.to_owned()),
            _ => Err("301, 302, 303, 307 or 308"),
        };
        let (permanent, code) =
            (self.value("permanent-redirect", target), self.value("permanent-redirect-code", code));
        let temporary = self.value("temporal-redirect", target);
        let (to, status) = match (temporary, permanent) {
            (Some(to), _) => (to, "302".to_owned()),
            (None, Some(to)) => (to, code.unwrap_or_else(|| "301".to_owned())),
            (None, None) => return None,
        };
        Some(inline([("to", to), ("status", status)]))
    }

    fn limits(&mut self) -> Option<String> {
        let multiplier = self.value("limit-burst-multiplier", number).unwrap_or(5);
        let (second, minute) = (self.value("limit-rps", number), self.value("limit-rpm", number));
        let limit = |rate: Option<u32>, unit| {
            let rate = rate?;
            // nginx admits this many requests above the rate at once.
            let burst = rate.saturating_mul(multiplier).saturating_add(1);
            Some(inline([("rate", text(&format!("{rate}/{unit}"))), ("burst", burst.to_string())]))
        };
        let limits: Vec<String> = [limit(second, "s"), limit(minute, "m")].into_iter().flatten().collect();
        (!limits.is_empty()).then(|| list(limits))
    }

    fn cors(&mut self) -> Option<String> {
        const HEADERS: &str = "DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,Cache-Control,Content-Type,Range,Authorization";
        let is_on = self.is_on("enable-cors");
        let origins = self.value("cors-allow-origin", words);
        let methods = self.value("cors-allow-methods", words);
        let headers = self.value("cors-allow-headers", words);
        let expose = self.value("cors-expose-headers", words);
        let credentials = self.value("cors-allow-credentials", switch);
        let age = self.value("cors-max-age", |age| {
            age.parse::<u32>().map(|age| age.min(86_400)).map_err(|_| "a number of seconds")
        });
        if !is_on {
            return None;
        }
        let is_any = origins.as_ref().is_none_or(|origins| origins == &list([text("*")]));
        let or = |given: Option<String>, usual: &'static str| {
            given.unwrap_or_else(|| words(usual).unwrap_or_default())
        };
        let mut parts = vec![
            ("origins", or(origins, "*")),
            ("methods", or(methods, "GET,PUT,POST,DELETE,PATCH,OPTIONS")),
            ("headers", or(headers, HEADERS)),
            // Browsers reject credentials if any origin may read the response.
            ("credentials", (credentials.unwrap_or(true) && !is_any).to_string()),
            ("max_age", text(&format!("{}s", age.unwrap_or(86_400)))),
        ];
        parts.extend(expose.map(|expose| ("expose", expose)));
        Some(inline(parts))
    }
}

fn number(text: &str) -> Result<u32, &'static str> {
    text.parse().ok().filter(|number| (1..=1_000_000).contains(number)).ok_or("1 to 1000000")
}

fn switch(value: &str) -> Result<bool, &'static str> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("true or false"),
    }
}

fn words(value: &str) -> Result<String, &'static str> {
    let words: Vec<&str> = value.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
    if words.is_empty() { Err("a list with commas") } else { Ok(list(words.into_iter().map(text))) }
}

/// Parses the target of a redirect. The client's query is not appended.
fn target(value: &str) -> Result<String, &'static str> {
    let is_url = ["http://", "https://"].iter().any(|scheme| value.starts_with(scheme));
    match value {
        _ if value.contains('$') => Err("a URL without variables"),
        _ if !is_url && !value.starts_with('/') => Err("a URL or a path"),
        url if url.contains('?') => Ok(template(&escaped(url))),
        url => Ok(template(&format!("{}?", escaped(url)))),
    }
}

/// Splits a size in nginx's notation into number and unit, in lower case.
fn number_and_unit(value: &str) -> Option<(u64, String)> {
    let unit = value.trim_start_matches(|digit: char| digit.is_ascii_digit());
    let number = value[..value.len() - unit.len()].parse().ok()?;
    Some((number, unit.to_ascii_lowercase()))
}

fn bytes(value: &str) -> Option<u64> {
    let (number, unit) = number_and_unit(value)?;
    let scale = match unit.as_str() {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(scale)
}

/// Converts a size from nginx's notation to that of options.
fn size(value: &str) -> Result<String, &'static str> {
    const EXPECTED: &str = "a size such as 8m";
    let (number, unit) = number_and_unit(value).ok_or(EXPECTED)?;
    match (number, unit.as_str()) {
        (0, _) => Ok("none".to_owned()),
        (1..=1_000_000_000, "k") => Ok(format!("{number}KiB")),
        (1..=1_000_000, "m") => Ok(format!("{number}MiB")),
        (1..=1000, "g") => Ok(format!("{number}GiB")),
        (1..=1_000_000_000_000, "") => Ok(format!("{number}B")),
        _ => Err(EXPECTED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> (IngressOptions, Vec<String>) {
        let annotations =
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        wanted(&Metadata { annotations, ..Metadata::default() })
    }

    #[test]
    fn annotations_are_options_or_refused() {
        for (name, value, expected) in [
            ("proxy-body-size", "8m", Ok(("limits", r#"{ "body_bytes" = "8MiB" }"#))),
            ("proxy-body-size", "0", Ok(("limits", r#"{ "body_bytes" = "none" }"#))),
            ("proxy-body-size", "8 m", Err("a size such as 8m")),
            (
                "whitelist-source-range",
                "10.0.0.0/8, 192.0.2.1",
                Ok(("allow", r#"["10.0.0.0/8", "192.0.2.1"]"#)),
            ),
            ("denylist-source-range", "10.0.0.0/8", Ok(("deny", r#"["10.0.0.0/8"]"#))),
            ("limit-rps", "10", Ok(("rate_limit", r#"[{ "rate" = "10/s", "burst" = 51 }]"#))),
            ("limit-rps", "0", Err("1 to 1000000")),
            ("limit-connections", "10", Ok(("concurrency", r#"{ "max" = 10 }"#))),
            ("limit-connections", "0", Err("1 to 1000000")),
            ("enable-access-log", "false", Ok(("access_log", "false"))),
            ("proxy-buffering", "on", Err("expected off")),
            ("proxy-send-timeout", "90", Ok(("timeouts", r#"{ "upstream_send" = "90s" }"#))),
            ("proxy-send-timeout", "1h", Err("1 to 86400 seconds")),
            ("proxy-connect-timeout", "0", Err("1 to 86400 seconds")),
            ("proxy-request-buffering", "on", Ok(("request_buffering", "true"))),
            ("proxy-buffer-size", "128k", Err("at most 64k: limits.header_bytes of --gateway-base")),
            ("upstream-hash-by", "$request_uri$x", Err("$cookie_NAME")),
            ("auth-signin-redirect-param", "next", Err("expected rd")),
            ("backend-protocol", "FCGI", Err("HTTP, HTTPS, GRPC or GRPCS")),
            ("permanent-redirect", "https://a$request_uri", Err("without variables")),
            ("ssl-redirect", "yes", Err("true or false")),
        ] {
            let (wanted, faults) = read(&[(&format!("nginx.ingress.kubernetes.io/{name}"), value)]);
            match expected {
                Ok((option, value)) => {
                    assert_eq!(
                        (wanted.options, faults),
                        (vec![(option, value.to_owned())], vec![]),
                        "{name}"
                    );
                }
                Err(why) => {
                    assert!(faults.len() == 1 && faults[0].contains(why), "{name}: {faults:?}");
                    assert!(faults[0].starts_with(&format!("annotation {name}: ")), "{faults:?}");
                }
            }
        }
    }

    /// The most common annotations in tutorials and charts are supported, or have an own reason why not.
    #[test]
    fn each_of_the_usual_annotations_is_obeyed_or_refused_with_a_reason() {
        for (name, value) in [
            ("affinity", "cookie"),
            ("affinity-mode", "balanced"),
            ("allowlist-source-range", "10.0.0.0/8"),
            ("app-root", "/app"),
            ("auth-realm", "shop"),
            ("auth-response-headers", "X-User"),
            ("backend-protocol", "GRPC"),
            ("client-body-buffer-size", "1m"),
            ("cors-allow-credentials", "true"),
            ("cors-allow-headers", "X-A"),
            ("cors-allow-methods", "GET, PUT"),
            ("cors-allow-origin", "https://a.example"),
            ("cors-max-age", "600"),
            ("enable-access-log", "true"),
            ("enable-cors", "true"),
            ("force-ssl-redirect", "true"),
            ("limit-rpm", "60"),
            ("limit-rps", "5"),
            ("permanent-redirect", "https://a.example"),
            ("proxy-body-size", "50m"),
            ("proxy-buffer-size", "16k"),
            ("proxy-buffering", "off"),
            ("proxy-buffers-number", "8"),
            ("proxy-connect-timeout", "30"),
            ("proxy-http-version", "1.1"),
            ("proxy-max-temp-file-size", "1024m"),
            ("proxy-read-timeout", "3600"),
            ("proxy-request-buffering", "off"),
            ("proxy-send-timeout", "3600"),
            ("rewrite-target", "/$2"),
            ("session-cookie-expires", "172800"),
            ("session-cookie-max-age", "172800"),
            ("session-cookie-name", "route"),
            ("session-cookie-path", "/"),
            ("session-cookie-samesite", "Lax"),
            ("ssl-redirect", "false"),
            ("temporal-redirect", "/maintenance"),
            ("upstream-hash-by", "$remote_addr"),
            ("use-regex", "true"),
            ("whitelist-source-range", "10.0.0.0/8"),
            ("x-forwarded-prefix", "/app"),
        ] {
            let (_, faults) = read(&[(&format!("nginx.ingress.kubernetes.io/{name}"), value)]);
            assert_eq!(faults, [""; 0], "{name}");
        }
        for name in [
            "auth-cache-key",
            "auth-snippet",
            "auth-tls-secret",
            "auth-tls-verify-client",
            "configuration-snippet",
            "custom-headers",
            "custom-http-errors",
            "default-backend",
            "enable-modsecurity",
            "enable-opentelemetry",
            "enable-owasp-modsecurity-crs",
            "from-to-www-redirect",
            "limit-rate",
            "limit-whitelist",
            "mirror-target",
            "modsecurity-snippet",
            "proxy-cookie-domain",
            "proxy-cookie-path",
            "proxy-next-upstream",
            "proxy-next-upstream-tries",
            "proxy-ssl-secret",
            "proxy-ssl-verify",
            "server-alias",
            "server-snippet",
            "service-upstream",
            "ssl-passthrough",
            "stream-snippet",
            "upstream-vhost",
        ] {
            let (_, faults) = read(&[(&format!("nginx.ingress.kubernetes.io/{name}"), "x")]);
            let told = format!("annotation {name}: it is not supported: ");
            assert!(faults.len() == 1 && faults[0].starts_with(&told), "{name}: {faults:?}");
        }
    }

    #[test]
    fn annotations_of_others_are_ignored_and_our_own_prefix_takes_precedence() {
        let (wanted, faults) = read(&[
            ("nginx.ingress.kubernetes.io/force-ssl-redirect", "true"),
            ("vanward.dev/force-ssl-redirect", "false"),
            ("cert-manager.io/cluster-issuer", "x"),
        ]);
        assert_eq!((wanted, faults), (IngressOptions::default(), vec![]));
    }

    #[test]
    fn redirects_leave_the_query_out() {
        let (wanted, _) = read(&[("vanward.dev/permanent-redirect", "https://a.example/b")]);
        assert_eq!(wanted.redirect.as_deref(), Some(r#"{ "to" = "https://a.example/b?", "status" = 301 }"#));
        let (wanted, _) = read(&[("vanward.dev/temporal-redirect", "/b?c=d")]);
        assert_eq!(wanted.redirect.as_deref(), Some(r#"{ "to" = "/b?c=d", "status" = 302 }"#));
    }
}
