//! Unsupported annotations of ingress-nginx: the reasons, and the alternatives.

use super::snippets;

/// Returns the reason for an annotation with this value.
pub(super) fn why(name: &str, value: &str) -> String {
    match name {
        "configuration-snippet" | "server-snippet" => snippets::why(value),
        name => why_name(name).to_owned(),
    }
}

/// Returns the reason for a known annotation, or a generic one.
fn why_name(name: &str) -> &'static str {
    match name {
        "auth-snippet" | "stream-snippet" => {
            "it is not supported: it is nginx configuration; routes in --gateway-base can express much of it"
        }
        name if name.contains("modsecurity") => "it is not supported: there is no web application firewall",
        name if name.starts_with("proxy-ssl-") => {
            "it is not supported: a BackendTLSPolicy for the service names the trusted CAs"
        }
        "ssl-passthrough" => "it is not supported: a TLSRoute forwards TLS connections",
        "limit-rate" | "limit-rate-after" => {
            "it is not supported: rate of a route in --gateway-base limits the rate of bodies"
        }
        "proxy-cookie-path" | "proxy-cookie-domain" => {
            "it is not supported: cookies of a route in --gateway-base changes them"
        }
        "service-upstream" => "it is not supported: requests go directly to the endpoints in EndpointSlices",
        "mirror-target" | "mirror-request-body" | "mirror-host" => {
            "it is not supported: an HTTPRoute with RequestMirror does it"
        }
        name if name.starts_with("enable-opent") || name.starts_with("opent") => {
            "it is not supported: [tracing] in --gateway-base applies to all routes"
        }
        "auth-cache-key" | "auth-cache-duration" => {
            "it is not supported: the authentication server is asked about each request"
        }
        _ => "it is not supported",
    }
}
