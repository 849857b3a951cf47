//! Unsupported annotations of ingress-nginx: the reasons, and the alternatives.

/// Returns the reason for a known annotation, or a generic one.
pub(super) fn why(name: &str) -> &'static str {
    match name {
        "configuration-snippet" | "server-snippet" | "auth-snippet" | "stream-snippet" => {
            "it is not supported: it is nginx configuration; routes in --gateway-base can express much of it"
        }
        name if name.contains("modsecurity") => "it is not supported: there is no web application firewall",
        name if name.starts_with("auth-tls-") => {
            "it is not supported: listeners in --gateway-base request client certificates"
        }
        name if name.starts_with("proxy-ssl-") => {
            "it is not supported: a BackendTLSPolicy for the service names the trusted CAs"
        }
        "ssl-passthrough" => "it is not supported: a TLSRoute forwards TLS connections",
        "limit-rate" | "limit-rate-after" => {
            "it is not supported: rate of a route in --gateway-base limits the rate of bodies"
        }
        "limit-whitelist" => "it is not supported: limit-rps and limit-connections count all clients",
        "custom-http-errors" | "default-backend" | "disable-proxy-intercept-errors" => {
            "it is not supported: responses of servers are forwarded unchanged; error_pages of a route in \
             --gateway-base replaces them"
        }
        "from-to-www-redirect" => {
            "it is not supported: an HTTPRoute for the other host, with RequestRedirect, does it"
        }
        "server-alias" => "it is not supported: a rule for each host does it",
        "proxy-cookie-path" | "proxy-cookie-domain" => {
            "it is not supported: cookies of a route in --gateway-base changes them"
        }
        "proxy-next-upstream" | "proxy-next-upstream-tries" | "proxy-next-upstream-timeout" => {
            "it is not supported: requests are retried if no server has seen them, or if a retry is safe"
        }
        "service-upstream" => "it is not supported: requests go directly to the endpoints in EndpointSlices",
        "upstream-vhost" => "it is not supported: an HTTPRoute with URLRewrite changes the host",
        "custom-headers" => "it is not supported: an HTTPRoute with ResponseHeaderModifier adds them",
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
