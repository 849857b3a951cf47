//! Requests for the branches of samples with maps and variables.

use super::asked::Ask;

/// The sample, the host, the method, the target, and fields.
type Branch = (&'static str, &'static str, &'static str, &'static str, &'static [&'static str]);

const APP: &str = "app.example.com";
const SHOP: &str = "shop7.example.com";
const A: &str = "a.example.com";
const BELOW: &str = "x.b.example.com";

const BRANCHES: &[Branch] = &[
    ("16-host-map.cfg", BELOW, "GET", "/files/x", &[]),
    ("16-host-map.cfg", "b.example.com", "GET", "/files/x", &[]),
    ("16-host-map.cfg", "bb.example.com", "GET", "/files/x", &[]),
    ("16-host-map.cfg", APP, "GET", "/files/x", &[]),
    ("16-host-map.cfg", "nobody.example", "GET", "/x", &["X-Tenant: me"]),
    ("17-blue-green.cfg", APP, "GET", "/x", &["Cookie: color=green"]),
    ("17-blue-green.cfg", APP, "GET", "/x", &["Cookie: color=blue"]),
    ("17-blue-green.cfg", APP, "GET", "/x", &["Cookie: a=b; color=canary"]),
    ("17-blue-green.cfg", APP, "GET", "/x", &["Cookie: color=red"]),
    ("17-blue-green.cfg", APP, "GET", "/x", &["Cookie: color=off"]),
    ("17-blue-green.cfg", APP, "GET", "/api/x", &["X-Odd: 1", "Cookie: color=blue"]),
    ("17-blue-green.cfg", APP, "GET", "/api/x", &["X-Odd: 2", "Cookie: color=blue"]),
    ("17-blue-green.cfg", APP, "GET", "/x", &["X-Odd: 1"]),
    ("18-block-lists.cfg", APP, "GET", "/admin/x", &["X-Odd: 1"]),
    ("18-block-lists.cfg", APP, "GET", "/administrator", &["X-Odd: 1"]),
    ("18-block-lists.cfg", APP, "GET", "/user/12", &[]),
    ("18-block-lists.cfg", APP, "GET", "/user/x", &[]),
    ("18-block-lists.cfg", APP, "GET", "/a/x.php", &[]),
    ("18-block-lists.cfg", APP, "GET", "/x", &["User-Agent: a Nikto/2"]),
    ("18-block-lists.cfg", APP, "GET", "/apis", &[]),
    ("18-block-lists.cfg", APP, "GET", "/api/users/1", &[]),
    ("18-block-lists.cfg", APP, "GET", "/docs", &[]),
    ("19-redirect-maps.cfg", APP, "GET", "/user/7?a=b", &[]),
    ("19-redirect-maps.cfg", APP, "GET", "/old/x", &[]),
    ("19-redirect-maps.cfg", APP, "GET", "/images/icons/a.png?v=2", &[]),
    ("19-redirect-maps.cfg", APP, "GET", "/images", &[]),
    ("19-redirect-maps.cfg", SHOP, "GET", "/x?a=b", &[]),
    ("19-redirect-maps.cfg", SHOP, "GET", "/old", &[]),
    ("19-redirect-maps.cfg", APP, "POST", "/login?next=/", &[]),
    ("20-tenant-maps.cfg", APP, "GET", "/private/x", &["X-Tenant: K-Acme"]),
    ("20-tenant-maps.cfg", APP, "GET", "/private/x", &["X-Tenant: k-docs"]),
    ("20-tenant-maps.cfg", APP, "GET", "/private/x", &["X-Tenant: k-other"]),
    ("20-tenant-maps.cfg", APP, "GET", "/x", &["X-Tenant: k-closed"]),
    ("20-tenant-maps.cfg", APP, "GET", "/x", &["X-Tenant: k-lost"]),
    ("20-tenant-maps.cfg", A, "GET", "/x", &["X-Tenant: k-docs"]),
    ("20-tenant-maps.cfg", A, "GET", "/private/x", &["X-Tenant: none"]),
    ("20-tenant-maps.cfg", SHOP, "GET", "/private/x", &[]),
    ("20-tenant-maps.cfg", BELOW, "GET", "/private/x?a=b", &[]),
    ("21-variables.cfg", APP, "GET", "/api/x", &["User-Agent: SQLmap"]),
    ("21-variables.cfg", APP, "GET", "/x", &["User-Agent: a crawler"]),
    ("21-variables.cfg", APP, "GET", "/api", &["User-Agent: a crawler", "X-Odd: 2"]),
    ("21-variables.cfg", APP, "PUT", "/api/x", &[]),
    ("21-variables.cfg", APP, "PUT", "/files/x", &[]),
    ("21-variables.cfg", APP, "POST", "/", &[]),
    ("21-variables.cfg", APP, "GET", "/files/a.png", &[]),
    ("21-variables.cfg", APP, "GET", "/filesx/a.css", &["X-Secret: 1"]),
    ("21-variables.cfg", SHOP, "GET", "/health/x", &[]),
    ("14-host-ports.Caddyfile", SHOP, "GET", "/docs/x?a=b", &[]),
    ("14-host-ports.Caddyfile", "nobody.example.org", "POST", "/x", &[]),
    ("14-host-ports.Caddyfile", BELOW, "POST", "/x", &[]),
    ("14-host-ports.Caddyfile", A, "GET", "/health", &[]),
    ("14-host-ports.Caddyfile", "gone.example.com", "GET", "/x", &[]),
    ("15-flags.Caddyfile", APP, "GET", "/x", &["Cookie: group=beta"]),
    ("15-flags.Caddyfile", APP, "POST", "/x", &["Cookie: group=beta"]),
    ("15-flags.Caddyfile", APP, "POST", "/assets/app.js", &["Cookie: group=beta"]),
    ("15-flags.Caddyfile", APP, "GET", "/login", &["Cookie: a=b; group=beta"]),
    ("15-flags.Caddyfile", APP, "GET", "/admin/x", &["Cookie: group=beta"]),
    ("15-flags.Caddyfile", APP, "PUT", "/admin/x", &[]),
    ("16-redirect-map.Caddyfile", APP, "GET", "/images/x.png", &[]),
    ("16-redirect-map.Caddyfile", APP, "GET", "/user/7?a=b", &[]),
    ("16-redirect-map.Caddyfile", SHOP, "GET", "/lan/x?a=b", &[]),
    ("16-redirect-map.Caddyfile", BELOW, "POST", "/lan/x", &[]),
    ("16-redirect-map.Caddyfile", BELOW, "GET", "/inside/", &[]),
    ("16-redirect-map.Caddyfile", A, "GET", "/login", &[]),
    ("17-tenants.Caddyfile", APP, "GET", "/api/x", &["X-Tenant: k-acme"]),
    ("17-tenants.Caddyfile", APP, "GET", "/user/8?a=b", &["X-Tenant: k-docs"]),
    ("17-tenants.Caddyfile", APP, "GET", "/x", &["X-Tenant: k-docs"]),
    ("17-tenants.Caddyfile", APP, "GET", "/x", &["X-Tenant: k-closed"]),
    ("17-tenants.Caddyfile", APP, "GET", "/x", &["X-Tenant: K-Acme"]),
    ("17-tenants.Caddyfile", APP, "PUT", "/health", &["X-Tenant: k-acme"]),
    ("09-devices-apart.vcl", APP, "GET", "/a", &["User-Agent: an iPhone"]),
    ("09-devices-apart.vcl", APP, "GET", "/a", &["User-Agent: other"]),
    ("09-devices-apart.vcl", APP, "GET", "/a", &["User-Agent: a bot"]),
    ("09-devices-apart.vcl", APP, "GET", "/a", &["User-Agent: Android"]),
    ("09-devices-apart.vcl", APP, "GET", "/a", &["X-Tenant: bot"]),
    ("09-devices-apart.vcl", APP, "GET", "/api/a", &["User-Agent: mobile", "X-Odd: 1"]),
    ("09-devices-apart.vcl", APP, "GET", "/api/a", &["User-Agent: mobile", "X-Odd: 2"]),
    ("10-keys.vcl", APP, "GET", "/a", &["Cookie: group=beta"]),
    ("10-keys.vcl", APP, "GET", "/a", &["Cookie: group=alpha"]),
    ("10-keys.vcl", APP, "GET", "/a", &["X-Odd: 1"]),
    ("10-keys.vcl", APP, "GET", "/a", &["X-Odd: 2", "X-Site: beta"]),
    ("10-keys.vcl", APP, "GET", "/a", &["X-Odd: 2", "Cookie: group=beta"]),
    ("10-keys.vcl", APP, "GET", "/images/a", &["X-Secret: 1"]),
    ("10-keys.vcl", APP, "GET", "/images/a", &["X-Secret: 2"]),
    ("10-keys.vcl", APP, "GET", "/images/a", &[]),
    ("10-keys.vcl", APP, "GET", "/b", &["X-Secret: 1"]),
    ("10-keys.vcl", APP, "GET", "/b", &["X-Secret: 2"]),
];

/// The requests for a sample.
pub(super) fn of_sample(sample: &str) -> Vec<Ask> {
    let of_it = BRANCHES.iter().filter(|(name, ..)| *name == sample);
    let ask = |(_, host, method, target, fields): &Branch| Ask {
        method,
        host,
        target,
        fields: fields.iter().map(|field| format!("{field}\r\n")).collect(),
        body: "",
    };
    of_it.map(ask).collect()
}
