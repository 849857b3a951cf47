//! Annotations of Ingresses. Supported annotations of ingress-nginx keep their meaning; all others are refused.

/// Client authentication.
mod access;
/// Sticky sessions.
mod affinity;
/// Canaries.
mod canary;
/// Certificates of clients.
mod client_tls;
/// Another service's answer in place of errors.
mod errors;
/// Other hosts.
mod hosts;
/// Limits of requests.
mod limits;
/// Protocol, timeouts, retries and load balancing of servers.
mod servers;
/// Reasons for unsupported annotations.
mod refused;
/// Advice for snippets.
mod snippets;

use std::collections::BTreeMap;

pub(crate) use access::{AuthServer, Passwords, UserListForm};
pub(crate) use affinity::{Affinity, is_token};
pub(crate) use canary::{Canary, exactly};
pub(crate) use client_tls::{ClientTls, WITHOUT};
pub(crate) use errors::{DefaultBackend, error_fields};
pub(crate) use hosts::{OtherHosts, with_names};

use crate::backends::Spoken;
use crate::filters::Options;
use crate::object::Metadata;
use crate::written::{escaped, inline, list, literal, template, text};

/// Prefixes of supported annotations. If both are set, the second takes precedence.
const PREFIXES: [&str; 2] = ["nginx.ingress.kubernetes.io/", "vanward.dev/"];

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct IngressOptions {
    pub(crate) options: Options,
    /// Tables of `request_headers`.
    pub(crate) request_headers: Vec<String>,
    /// Entries of `deny`.
    pub(crate) denied: Vec<String>,
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
    pub(crate) other_hosts: OtherHosts,
    /// The host that servers get, with variables.
    pub(crate) upstream_host: Option<String>,
    pub(crate) default_backend: Option<DefaultBackend>,
    /// A ConfigMap with response fields, in the namespace of the Ingress.
    pub(crate) custom_headers: Option<String>,
    pub(crate) client_tls: Option<ClientTls>,
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
    let unknown =
        unknown.into_iter().map(|(name, value)| format!("annotation {name}: {}", refused::why(name, value)));
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
            other_hosts: self.other_hosts(),
            upstream_host: self.upstream_host(),
            default_backend: self.default_backend(),
            custom_headers: self.value("custom-headers", |map| {
                in_namespace(map, namespace).ok_or("a ConfigMap in the namespace of the Ingress")
            }),
            client_tls: self.client_tls(namespace),
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
        wanted.options.extend(self.retries());
        let allowed = ["whitelist-source-range", "allowlist-source-range"];
        let allowed = allowed.iter().find_map(|name| self.value(name, words));
        wanted.options.extend(allowed.map(|networks| ("allow", networks)));
        let denied = self.value("denylist-source-range", texts).unwrap_or_default();
        wanted.denied = denied.into_iter().map(text).collect();
        wanted.options.extend(self.limits());
        wanted.options.extend(self.cors().map(|cors| ("cors", cors)));
        let prefix = self.value("x-forwarded-prefix", |prefix| Ok(literal(prefix)));
        let prefix = prefix.map(|prefix| inline([("set", inline([("X-Forwarded-Prefix", prefix)]))]));
        wanted.request_headers = prefix.into_iter().collect();
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

fn texts(value: &str) -> Result<Vec<&str>, &'static str> {
    let words: Vec<&str> = value.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
    if words.is_empty() { Err("a list with commas") } else { Ok(words) }
}

fn words(value: &str) -> Result<String, &'static str> {
    Ok(list(texts(value)?.into_iter().map(text)))
}

/// Returns the name of an object, `NAME` or `NAMESPACE/NAME`; `None` if it is in another namespace.
fn in_namespace(name: &str, namespace: &str) -> Option<String> {
    let name = match name.split_once('/') {
        None => name,
        Some((own, name)) if own == namespace => name,
        Some(_) => return None,
    };
    (!name.is_empty()).then(|| name.to_owned())
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
            ("limit-rps", "10", Ok(("rate_limit", r#"[{ "rate" = "10/s", "burst" = 51 }]"#))),
            ("limit-rps", "0", Err("1 to 1000000")),
            (
                "proxy-next-upstream",
                "error timeout http_503 non_idempotent",
                Ok(("retry", r#"{ "on" = ["connect", "reset", "timeout", 503], "non_idempotent" = true }"#)),
            ),
            ("proxy-next-upstream", "invalid_header", Ok(("retry", r#"{ "on" = ["reset"] }"#))),
            ("proxy-next-upstream", "off", Ok(("retry", r#"{ "attempts" = 1 }"#))),
            ("proxy-next-upstream", "error off", Err("or off alone")),
            ("proxy-next-upstream", "http_99", Err("http_STATUS")),
            ("proxy-next-upstream-tries", "2", Ok(("retry", r#"{ "attempts" = 2 }"#))),
            ("proxy-next-upstream-tries", "0", Ok(("retry", r#"{ "attempts" = 16 }"#))),
            ("proxy-next-upstream-tries", "17", Err("at most 16")),
            ("proxy-next-upstream-timeout", "5", Ok(("retry", r#"{ "within" = "5s" }"#))),
            ("proxy-next-upstream-timeout", "0", Ok(("retry", r#"{ "within" = "3600s" }"#))),
            ("proxy-next-upstream-timeout", "1h", Err("at most 3600 seconds")),
            ("server-alias", "~^www\\d$", Err("no expressions")),
            ("upstream-vhost", "$http_x.example", Err("no variables but $service_name and $namespace")),
            ("upstream-vhost", "a.example:x", Err("a host, with or without a port")),
            ("custom-http-errors", "404", Err("it needs default-backend")),
            ("default-backend", "other/errors", Err("in the namespace of the Ingress")),
            ("custom-headers", "other/headers", Err("a ConfigMap in the namespace of the Ingress")),
            ("session-cookie-conditional-samesite-none", "true", Err("from before 2020")),
            ("session-cookie-change-on-failure", "false", Err("gets another server")),
            ("auth-tls-secret", "other/ca", Err("a Secret in the namespace of the Ingress")),
            ("auth-tls-verify-client", "on", Err("it needs auth-tls-secret")),
            ("auth-tls-verify-client", "optional_no_ca", Err("is always rejected")),
            ("auth-tls-match-cn", "O=x", Err("CN= and a regular expression")),
            ("auth-tls-verify-depth", "7", Err("1 to 6 intermediate certificates")),
            ("auth-tls-error-page", "/page", Err("a URL without variables")),
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
                    assert!(faults.iter().any(|fault| fault.contains(why)), "{name}: {faults:?}");
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
            ("auth-tls-secret", "ca"),
            ("auth-tls-verify-client", "off"),
            ("auth-tls-verify-depth", "1"),
            ("auth-realm", "shop"),
            ("auth-response-headers", "X-User"),
            ("backend-protocol", "GRPC"),
            ("client-body-buffer-size", "1m"),
            ("cors-allow-credentials", "true"),
            ("cors-allow-headers", "X-A"),
            ("cors-allow-methods", "GET, PUT"),
            ("cors-allow-origin", "https://a.example"),
            ("cors-max-age", "600"),
            ("custom-headers", "headers"),
            ("default-backend", "errors"),
            ("disable-proxy-intercept-errors", "true"),
            ("enable-access-log", "true"),
            ("enable-cors", "true"),
            ("force-ssl-redirect", "true"),
            ("from-to-www-redirect", "true"),
            ("limit-allowlist", "10.0.0.0/8"),
            ("limit-rpm", "60"),
            ("limit-rps", "5"),
            ("limit-whitelist", "10.0.0.0/8"),
            ("permanent-redirect", "https://a.example"),
            ("proxy-body-size", "50m"),
            ("proxy-buffer-size", "16k"),
            ("proxy-buffering", "off"),
            ("proxy-buffers-number", "8"),
            ("proxy-connect-timeout", "30"),
            ("proxy-http-version", "1.1"),
            ("proxy-max-temp-file-size", "1024m"),
            ("proxy-next-upstream", "error timeout invalid_header http_502 http_503 http_504"),
            ("proxy-next-upstream-timeout", "10"),
            ("proxy-next-upstream-tries", "3"),
            ("proxy-read-timeout", "3600"),
            ("proxy-request-buffering", "off"),
            ("proxy-send-timeout", "3600"),
            ("rewrite-target", "/$2"),
            ("server-alias", "www.a.example, *.b.example"),
            ("session-cookie-change-on-failure", "true"),
            ("session-cookie-conditional-samesite-none", "false"),
            ("session-cookie-expires", "172800"),
            ("session-cookie-max-age", "172800"),
            ("session-cookie-name", "route"),
            ("session-cookie-path", "/"),
            ("session-cookie-samesite", "Lax"),
            ("ssl-redirect", "false"),
            ("temporal-redirect", "/maintenance"),
            ("upstream-hash-by", "$remote_addr"),
            ("upstream-vhost", "$service_name.$namespace.svc.cluster.local:8080"),
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
            "configuration-snippet",
            "enable-modsecurity",
            "enable-opentelemetry",
            "enable-owasp-modsecurity-crs",
            "limit-rate",
            "mirror-target",
            "modsecurity-snippet",
            "proxy-cookie-domain",
            "proxy-cookie-path",
            "proxy-ssl-secret",
            "proxy-ssl-verify",
            "server-snippet",
            "service-upstream",
            "ssl-passthrough",
            "stream-snippet",
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
