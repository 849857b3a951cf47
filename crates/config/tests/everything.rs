//! A file with every option of routing, balancing and surviving: what it means, and that it can be printed and read again.

use std::num::{NonZeroU32, NonZeroU64};
use std::path::Path;
use std::time::Duration;

use balance::{AddressPrefixes, NoneUp, SessionSource};
use config::{
    Action, B3, Bandwidth, Bandwidths, BodyRule, ConcurrencyLimit, Config, Dns, FollowCallers, Link,
    ListenAddress, MemoryBound, Probe, Route, Scope, Shared, StickySessions, examine, parse,
};
use proptest::prelude::*;
use route::{ActiveEdits, Alone, HostRule, PathRule, ProxyVersion, RateKey, ValueRule};
use shape::{LinkLoss, Model};

const FULL: &str = r#"
admin = "/run/vanward/admin.sock"
metrics = "127.0.0.1:9090"
dashboard = "127.0.0.1:9901"
dashboard_write = true
dashboard_token_file = "DIR/tokens"
dashboard_hosts = ["proxy.example.com"]
values = { tenant = 'request.headers["x-tenant"] ?? "none"', is_big = '(request.size ?? 0) > 1000000' }
error_pages = { 404 = "DIR/404.html", 5xx = "DIR/error.json", "*" = "DIR/404.html", 418 = { body = "no {status}", content_type = "text/x" } }

[[listen]]
address = "127.0.0.1:8080"
name = "web"
values = { tenant = '"web"' }
proxy_protocol = ["10.0.0.0/8"]
rate = "1GB/s"
connections_per_client = 100
connect_delay = "1s"
latency = "50ms±10ms pareto"
loss = "0.5% 300ms"
upload_rate = ["10MB/s per connection"]

[[listen]]
address = "unix:/run/vanward/web.sock"
profile = "narrow"
latency = "20ms"

[[listen]]
address = "127.0.0.1:8444"
tls = { self_signed = true }
http3 = true
datagram_rate = "10Mbit/s queue 64KB"
datagram_upload_rate = "2Mbit/s"

[[listen]]
address = "127.0.0.1:5432"
tcp = "database"
tls = { certificates = [{ cert = "a.pem", key = "a.key", passphrase = "a.pass", names = ["a.example", "*.b.example", "**.c.example", "*"] }], key_log = true, preset = "intermediate", min_version = "1.2", max_version = "1.3", ciphers = ["TLS_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"], groups = ["X25519MLKEM768", "secp256r1"], client_certificates = { mode = "optional", ca = "ca.pem", crls = ["a.crl", "b.crl"], expired_crls = "use", depth = 2 }, client_certificates_by_name = [{ names = ["a.example", "*.b.example", "**.d.example"], mode = "required", ca = "b.pem", crls = ["b.crl"] }, { names = ["c.example"], mode = "none" }] }
passthrough = [
    { names = ["*.example.org", "*"], alpn = ["acme-tls/1", "h2"], upstream = "database" },
    { names = ["a.example.org"], split = { database = 3, canary = 1 } },
]

[[route]]
name = "api"
values = { own = 'values.tenant + "!"' }
listener = ["web", "unix:/run/vanward/web.sock"]
host = ["api.example.com", "*.api.example.com", "~ api-[0-9]+"]
path = "~ /v(?<version>[0-9]+)/(.*)"
methods = ["GET", "POST", "OPTIONS"]
headers = { X-Tenant = "a*", X-Debug = true, X-Kind = "~ (b|c)", Accept = "text/html" }
cookie = { canary = "1", session = true, kind = "~ (b|c)" }
query = { page = "1", "a b" = true }
when = 'client.port > 1023 && !("X-No" in request.headers)'
clients = ["192.0.2.0/24"]
split = { app = 9, canary = 1 }
sticky = { by = "cookie", name = "side", ttl = "30d", secure = true, same_site = "strict" }
allow = ["192.0.2.0/25"]
deny = ["192.0.2.7"]
auth = { realm = "Staff \"only\"", users = "DIR/users" }
jwt = { keys = "DIR/keys.json", algorithms = ["ES256", "EdDSA"], issuer = "https://id.example.com/", audience = ["api", "web"], leeway = "1m", allow_no_expiry = true, require = { "https://example.com/roles" = ["admin", "owner"], sub = "*" }, from = "cookie:session", token_bytes = "4KiB", remove_token = true, user = "email", claims = { X-User = "sub", X-Roles = "realm_access.roles" } }
web_bot_auth = { agents = ["https://bot.example.com", "http://[::1]:8080"], lifetime = "1h", leeway = "1m", refresh = "2h", ca = "DIR/ca.pem" }
rate_limit = [{ rate = "100/s", burst = 200, key = ["client/24/56", "header:X-Key"] }, { rate = "5/10s", key = "route", shared = "closed", zone = "posts", when = 'request.method == "POST"' }]
concurrency = [{ by = ["client/24/56", "host"], max = 20, queue = 50, wait = "2s", when = 'has(client.user)' }, { by = "route", max = 1000, shared = "open" }]
cors = { origins = ["https://*.example.com:8443", "null"], methods = ["PUT", "PATCH"], headers = "X-Key", expose = ["X-Total"], credentials = true, max_age = "10m", private_network = true }
forward_auth = { upstream = "canary", path = "/verify?a=b", timeout = "2s", request_headers = ["Cookie"], copy_headers_as = { X-Mail = "X-Auth-Mail" }, user_header = "X-Auth-User", set_cookie = true, pass_answer = false, sign_in = "https://$host/start", cache = { key = ["cookie:id", "client/24", "header:Authorization", "query:t", "method", "host", "path"], ttl = "10s", negative_ttl = "1s", entries = 100, shared = true } }
require = "any"
request_buffering = { memory = "1MiB", max_size = "10MB" }
on_status = { 404 = { upstream = "canary" }, 5xx = { upstream = "app", path = "/{status}.html", fields = { X-Code = "$status" }, keep_status = true, only_failures = true } }
accel = { "/protected/" = "DIR", "/protected/deep" = "DIR" }
mirror = { upstream = "canary", share = "0.5%", bodies = "1MB", max_requests = 7, mark = "X-Mirrored", when = 'request.method == "GET"' }
rewrite = { path = "/$capture.version/$2", host = "$host.internal:8080" }
request_headers = { set = { X-Version = "$1" }, add = { X-Via = "vanward" }, remove = ["Cookie"] }
response_headers = { use = ["security", "own"], set = { X-Status = "$status \"$$\"" }, default = { Server-Timing = "a" }, remove = "Server" }
access_log = "0.5%"
cookies = { names = ["id"], domain = { "app.internal" = "example.com" }, secure = true, http_only = false, same_site = "none" }
error_pages = { 503 = "DIR/error.json" }
replace_errors = true
alt_svc = true
retry = { attempts = 1, on = ["connect", "503", "502-504", "grpc-unavailable"], non_idempotent = true }
timeouts = { upstream_first_byte = "5m", upstream_send = "4m", tunnel_idle = "1d", request = "6m" }
rate = ["5KB/s", "1KB/s burst 64KB per client/24"]
upload_rate = "1Mbit/s per request"
weight = 3
delay = "2s±100ms normal"
cache = { ttl = "1m", default_ttl = "10s", status_ttl = { 404 = "10s", 5xx = "0s" }, heuristic = "20%", heuristic_max = "1h", grace = "1h", stale_while_revalidate = "30s", show_key = true, send_tags = true, targets = ["Shop-Cache-Control", "surrogate-control"], send_targets = ["shop-cache-control"], force = true, ignore = ["request-directives", "vary"], query_drop = ["utm_*", "id"], sort_query = true, key_headers = "X-Tenant", key_cookies = ["lang"], when = '!("session" in request.cookies)' }

[faults]
seed = 7
header = "X-Fault"
header_clients = ["127.0.0.0/8"]

[[fault]]
inject = "delay 2s±100ms normal"
probability = "0.5%"
client_share = "10%"
first = 3
key = ["client", "header:X-Key"]
from = "10s"
until = "15s"
repeat = "20s"
expires = "1h"
show = true
route = "api"
listener = "web"
host = "*.example.com"
path = "= /api"
methods = "POST"
headers = { X-Debug = true }
cookie = { debug = "1*" }
query = { page = "1" }
when = "request.scheme == 'https'"
clients = ["192.0.2.0/24"]

[[fault]]
inject = "connection slice 100 10ms up"
listener = "web"

[[fault]]
inject = "429"
response = { body = "{}", content_type = "application/json", headers = { Retry-After = "$5" }, grpc_status = 8, grpc_message = "no" }

[[fault]]
name = "all"
inject = "length -3"
first = 1
key = "route"

[[route]]
path = "/sides"
client_cert = "chain"
split = { app = 1, canary = 1, php = 1 }
sticky = { by = "client/24" }

[[route]]
path = "/old"
upstream = "app"
rewrite = { path = "/new" }
location = false
cookies = { domain = "remove" }

[[route]]
path = "= /exact/"
upstream = "app"
response_delay = "10ms"
rewrite = { path = "/other", pattern = "/e(.*)" }

[[route]]
path = "~ /moved/(.*)"
redirect = { to = "https://www.example.com/$1", status = 301 }

[[route]]
path = "/moved"
methods = "GET"
redirect = { to = "https://$host$path_and_query" }

[[route]]
path = "/health"
maintenance = { on = false, page = "DIR/404.html", retry_after = "90s", allow = ["10.0.0.0/8"] }
respond = { status = 200, body = "ok\n\"quoted\" \\", content_type = "text/plain" }

[[route]]
path = "/page"
respond = { status = 503, file = "DIR/404.html" }

[[route]]
path = "/page"
headers = { x-none = true }
respond = { status = 204 }

[[route]]
path = "/site"
files = { root = "DIR", index = ["index.html", "index.htm"], try = ["/static$path", "$path/", "$path.html"], fallback = "/app/index.html", precompressed = true, cache_control = " max-age=60 ", cache_control_for = { "*.js" = "no-cache" }, listing = true, symlinks = true }
rewrite = { path = "/", normalize = true }
location = "absolute"

[[route]]
path = "/downloads"
files = { root = "DIR", index = [], else = { upstream = "app", path = "/index.php$path" } }

[[route]]
path = "/gone"
redirect = { to = "/moved$1", pattern = "/gone(/.*)?" }

[headers.own]
add = { X-Own = "$host" }
[profile.narrow]
rate = "1MB/s per client"
upload_rate = "1Mbit/s"
connect_delay = "80ms"
latency = "40ms±5ms"
loss = "1% 200ms"

[upstream.app]
servers = [
    { url = "https://a.example:8443", name = "a", weight = 3, priority = 1, max_requests = 100 },
    { url = "https://b.example:8443", weight = 0, down = true },
    "http://b.example",
]
dns = "one"
balance = "least-connections"
latency_memory = "5s"
slow_start = "0s"
priority_suffices = "50%"
none_up = "refuse"
send_proxy_protocol = "v2"
sticky = { by = "cookie", name = "where", ttl = "1h", path = "/app", domain = "example.com", secure = true, same_site = "none", private = true, secret_file = "DIR/secret" }
queue = { length = 10, timeout = "250ms" }
eject = "off"
rate = "2MB/s"
latency = "1ms"
upload_rate = "1MB/s burst 1MB"

[upstream.app.check]
type = "http"
path = "/health?deep=1"
host = "health.example"
status = ["2xx", 304, "400-404"]
headers = { X-Ready = "yes" }
body = "~ .*ok.*"
port = 8081
interval = "5s"
timeout = "500ms"
rise = 1
fall = 2
jitter = "0%"

[upstream.app.breaker]
failures = 3
open = "2s"
open_max = "1m"
probes = 2
successes = 3

[upstream.app.retry]
on = []
attempts = 2
within = "3s"
budget = "10%"
per_second_min = 1

[upstream.canary]
servers = ["http://canary", "http+unix:/run/app.sock", "http+consul://web?tag=v2&dc=eu-1"]
balance = "consistent-hash"
hash_key = "header:X-Tenant"
load_bound = "off"
none_up = "fail"
check = { type = "grpc", service = "shop.Cart" }
eject = { failures_in_a_row = "off", failures = "50%", latency_factor = 3, latency_floor = "0s", base = "1s", longest = "10s", up_min = "0%" }

[upstream.database]
servers = ["tcp://db:5432"]
sticky = { by = "client/24", ttl = "10m", sessions = 100, shared = true }
check = { type = "command", command = ["/usr/bin/pg_isready", "-q"], interval_in_doubt = "1s" }

[upstream.php]
servers = ["fcgi://10.0.0.1:9000", "fcgi+unix:/run/php/php-fpm.sock"]
fastcgi = { root = "DIR", index = "main.php", split = ".php", front_controller = false, check_files = false, params = { APP_ENV = "production" } }
check = { type = "http", path = "/ping" }

[request_buffering]
memory = "1MiB"
disk = "2GiB"
path = "DIR/"

[cache]
memory = "64MiB"
purge_from = ["10.0.0.0/8"]
object = "1MiB"
disk = { path = "/var/cache/vanward", size = "10GiB" }

[cache.peers]
listen = "10.0.0.1:7443"
address = "edge-1.test:7443"
members = ["edge-1.test:7443", "[2001:db8::2]:7443"]
ca = "edge-ca.pem"
cert = "edge.pem"
key = "edge.key"
name = "edge.test"
timeout = "500ms"
hot = 7
hot_memory = "20%"

[redis]
url = "rediss://redis.test:6380/2"
user = "edge"
password_file = "DIR/password"
ca = "DIR/ca.pem"
name = "site"
instance = "edge-1"
instances = 3
secret_file = "DIR/shared"

[consul]
address = "https://consul.test:8501/api"
token_file = "DIR/token"
ca = "DIR/ca.pem"
cert = "edge.pem"
key = "edge.key"
name = "agent.test"

[tracing]
collector = "https://collector.test/v1/traces"
ca = "DIR/ca.pem"
authorization_file = "DIR/authorization"
service = "edge"
sample = "0.5%"
follow = "all"
slow = "off"
errors = false
b3 = "multi"

[shed]
memory = "512MiB"
concurrency = { latency_floor = "1s", tolerance = "500%", min = 4, crowd = 8, crowd_latency = "2s", window = "1s", samples_min = 1 }

[request_id]
header = "X-Correlation-Id"
follow = "nobody"
form = "trace"

[[log]]
target = "stdout"
format = "json"

[[log]]
target = "/var/log/vanward/access.log"
format = '{"client":$client,"price in $$":"$header.X-Price"}'
mask = ["token"]
addresses = "masked"
hide_headers = ["X-Api-Key"]
show_headers = ["Cookie"]
rotate = { size = "100MiB", every = "1d", keep = 3 }
"#;

/// RFC 7515 Appendix A.3.
const KEYS: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}"#;

/// The text with existing files.
fn full(directory: &Path) -> String {
    let put = |name: &str, text: &str| std::fs::write(directory.join(name), text).unwrap();
    put("404.html", "<h1>Nothing here</h1>");
    put("error.json", "{}");
    put("users", "ann:$apr1$salt$xxxxxxxxxxxxxxxxxxxxxx\n# nobody else\n");
    put("keys.json", KEYS);
    put("shared", "0123456789abcdef0123456789abcdef\n");
    put("tokens", &"t".repeat(24));
    put("secret", &format!("{}\n\n{}\n", "a".repeat(32), "b".repeat(64)));
    FULL.replace("DIR", directory.to_str().unwrap())
}

fn read(text: &str) -> Config {
    let reading = examine(text, "f");
    let said: Vec<String> =
        reading.mistakes.iter().chain(&reading.warnings).map(ToString::to_string).collect();
    assert_eq!(said, Vec::<String>::new());
    reading.config.unwrap()
}

#[test]
fn every_option_is_taken() {
    let directory = tempfile::tempdir().unwrap();
    let config = read(&full(directory.path()));
    assert_eq!(config.admin.as_deref(), Some(Path::new("/run/vanward/admin.sock")));
    assert_eq!(config.metrics, Some("127.0.0.1:9090".parse().unwrap()));
    let peers = config.cache.as_ref().unwrap().peers.as_ref().unwrap();
    assert_eq!(
        (peers.listen.to_string().as_str(), peers.members.as_ref().map(Vec::len)),
        ("10.0.0.1:7443", Some(2))
    );
    assert_eq!((peers.name.as_deref(), peers.timeout), (Some("edge.test"), Duration::from_millis(500)));
    assert_eq!((peers.hot_requests, peers.hot_percent), (7, 20));
    let listener = config.listeners.last().unwrap();
    assert!(listener.is_for_peers && listener.tls.is_some(), "{listener:?}");
    assert_eq!(config.peers(), Some(config.upstreams.len() - 1));
    let told = config.upstreams.last().map(|upstream| upstream.tls.table);
    assert_eq!(told, Some("cache.peers"), "what a failed handshake names the options of");
    let redis = config.redis.as_ref().unwrap();
    assert_eq!(redis.url.to_string(), "rediss://redis.test:6380/2");
    assert_eq!(
        (redis.user.as_deref(), &*redis.name, redis.instance.as_deref(), redis.instances),
        (Some("edge"), "site", Some("edge-1"), 3)
    );
    assert_eq!(redis.secret.as_ref().map(|secret| secret.bytes.len()), Some(32));
    assert!(!format!("{redis:?}").contains("0123456789"));
    let consul = &config.consul;
    assert_eq!(consul.address.to_string(), "https://consul.test:8501/api");
    assert_eq!((consul.name.as_deref(), consul.certificate.is_some()), (Some("agent.test"), true));
    let tracing = config.tracing.as_ref().unwrap();
    assert_eq!(tracing.collector.to_string(), "https://collector.test/v1/traces");
    assert_eq!((tracing.follow, tracing.b3, tracing.slow), (FollowCallers::All, B3::Multi, None));
    assert_eq!(
        (tracing.sample.millionths(), tracing.errors, tracing.service.as_str()),
        (5_000, false, "edge")
    );
    let dashboard = config.dashboard.as_ref().unwrap();
    assert_eq!((dashboard.address.port(), dashboard.is_writable, dashboard.hosts.len()), (9901, true, 1));
    assert_eq!(dashboard.tokens.as_ref().map(|tokens| tokens.tokens.len()), Some(1));
    let page = |status| config.error_pages.page(status).map(|page| (&*page.content_type, page.body.len()));
    assert_eq!(page(404), Some(("text/html; charset=utf-8", 21)));
    assert_eq!(page(500), Some(("application/json", 2)));
    assert_eq!(page(400), page(404));
    assert_eq!(page(418), Some(("text/x", 6)));
    let [web, unix, quic, tcp, _] = &config.listeners[..] else { panic!("{:?}", config.listeners) };
    assert_eq!((web.name.as_str(), web.proxy_protocol.len()), ("web", 1));
    let per_client = [web, unix].map(|listener| listener.connections_per_client.map(NonZeroU32::get));
    assert_eq!(per_client, [Some(100), None]);
    assert_eq!(unix.address, ListenAddress::Unix("/run/vanward/web.sock".into()));
    assert_eq!(unix.bandwidths.down, [config::bandwidth("1MB/s per client").unwrap()]);
    let link = Link {
        connect_delay: Some(config::delay("80ms").unwrap()),
        latency: Some(config::delay("20ms").unwrap()),
        loss: Some(LinkLoss { per_million: 10_000, stall_ns: 200_000_000 }),
    };
    let queues =
        [quic.datagram_rates.down, quic.datagram_rates.up].map(|rate| rate.map(|rate| rate.queue_bytes));
    assert_eq!((quic.http3, queues), (true, [Some(64_000), Some(25_000)]));
    assert_eq!(unix.link, link, "what it says itself goes before its profile");
    assert_eq!(
        (unix.name.as_str(), tcp.tcp.as_ref().map(|to| to.shares().collect::<Vec<_>>())),
        ("unix:/run/vanward/web.sock", Some(vec![(2, 1)]))
    );
    assert_eq!((config.profiles.len(), config.profiles[0].name.as_str()), (1, "narrow"));
    check_shed(&config);
    check_api(&config.routes[0]);
    check_routes(&config.routes);
    check_upstreams(&config);
}

fn check_shed(config: &Config) {
    assert_eq!(config.shed.memory, MemoryBound::Bytes(512 << 20));
    let concurrency = config.shed.concurrency.unwrap();
    assert_eq!((concurrency.tolerance_percent, concurrency.min), (500, 4));
}

fn check_api(route: &Route) {
    assert_eq!(route.name, "api");
    let hosts: Vec<String> = route.rules.iter().map(|rule| rule.host.to_string()).collect();
    assert_eq!(hosts, ["api.example.com", "*.api.example.com", "~ api-[0-9]+"]);
    let rule = &route.rules[2];
    assert!(matches!((&rule.host, &rule.path), (HostRule::Pattern(_), PathRule::Pattern(_))));
    assert_eq!(
        (&rule.listeners[..], &rule.methods[..]),
        (&[0, 1][..], &["GET", "POST", "OPTIONS"].map(str::to_owned)[..])
    );
    let headers: Vec<String> = rule.headers.iter().map(|(name, value)| format!("{name} {value}")).collect();
    assert_eq!(headers, ["X-Tenant = a*", "X-Debug is present", "X-Kind ~ (b|c)", "Accept = text/html"]);
    assert_eq!(rule.query[1], ("a b".to_owned(), ValueRule::Present));
    let Action::Split(split) = &route.action else { panic!("{:?}", route.action) };
    assert_eq!(split.shares().collect::<Vec<_>>(), [(0, 9), (1, 1)]);
    let policies = &route.policies;
    assert_eq!((policies.access.allow.len(), policies.access.deny.len()), (1, 1));
    let auth = policies.auth.as_ref().unwrap();
    assert_eq!((auth.realm.as_str(), auth.users.name(0)), ("Staff \"only\"", Some("ann")));
    let [fast, slow] = &policies.rate_limits[..] else { panic!("{:?}", policies.rate_limits) };
    assert_eq!((fast.rate.burst().get(), fast.key.0.len()), (200, 2));
    assert_eq!(slow.rate.requests_per().1, Duration::from_secs(10));
    assert_eq!((slow.rate.burst().get(), &slow.key), (5, &RateKey::default()));
    assert_eq!((fast.shared, slow.shared), (None, Some(Alone::Closed)));
    let [narrow, wide] = &policies.concurrency[..] else { panic!("{:?}", policies.concurrency) };
    let of =
        |limit: &ConcurrencyLimit| (limit.limit.max.get(), limit.limit.waiting_max, limit.wait.as_secs());
    assert_eq!((of(narrow), narrow.key.0.len(), narrow.when.is_some()), ((20, 50, 2), 2, true));
    assert_eq!((of(wide), &wide.key, wide.when.is_some()), ((1000, 0, 1), &RateKey::default(), false));
    assert_eq!((narrow.shared, wide.shared), (None, Some(Alone::Open)));
    assert!(
        policies.request_headers.has_groups()
            && policies.response_headers.remove(b"server", ActiveEdits::FIRST)
    );
    assert!(policies.location.is_some() && policies.cookies.as_ref().unwrap().secure == Some(true));
    let fallbacks = policies.on_status.as_ref().unwrap();
    let page = fallbacks.page(503).unwrap();
    assert_eq!((page.upstream, page.keep_status, page.only_failures), (0, true, true));
    assert!(page.fields.remove(b"x_code", ActiveEdits::FIRST));
    assert_eq!(page.path_for(503).as_deref(), Some("/503.html"));
    assert_eq!(
        fallbacks.page(404).map(|fallback| (fallback.upstream, fallback.path_for(404))),
        Some((1, None))
    );
    assert!(fallbacks.page(403).is_none());
    let folders: Vec<&str> = policies.accel.iter().map(|folder| folder.path.as_str()).collect();
    assert_eq!(folders, ["/protected/deep/", "/protected/"]);
    let retry = policies.retry.as_ref().unwrap();
    assert_eq!(
        (retry.attempts, retry.on.connect, retry.on.reset, retry.non_idempotent),
        (1, true, false, true)
    );
    assert!([502, 503, 504].iter().all(|&status| retry.on.status.contains(status)));
    assert_eq!(retry.on.grpc.names().collect::<Vec<_>>(), ["unavailable"]);
    assert_eq!(policies.timeouts.upstream_first_byte, Some(Duration::from_secs(300)));
    assert_eq!(policies.timeouts.request, Some(Some(Duration::from_secs(360))));
    let Bandwidths { down, up } = &route.shaping.bandwidths;
    let link = |rate| Bandwidth::link(NonZeroU64::new(rate).unwrap());
    assert_eq!(
        (down.len(), down[0], up[0]),
        (2, link(5_000), Bandwidth { scope: Scope::Request, ..link(125_000) })
    );
    assert_eq!(down[1].limit.model, Model::TokenBucket { burst_bytes: 64_000 });
    assert!(matches!(down[1].scope, Scope::Client(prefixes) if prefixes.v4 == 24));
    assert_eq!(route.shaping.weight.get(), 3);
    assert!(route.shaping.delay.as_ref().is_some_and(|delay| delay.mean_ns == 2_000_000_000));
}

fn check_routes(routes: &[Shared<Route>]) {
    let [_, _, old, exact, moved, _, health, page, none, site, downloads, gone] = routes else {
        panic!("{routes:?}")
    };
    assert!(old.policies.location.is_none() && exact.policies.location.is_some());
    let prefixes = old.policies.rewrite.path.as_ref().unwrap().prefixes();
    assert_eq!(prefixes, Some((&b"/old"[..], &b"/new"[..])));
    let cookies = old.policies.cookies.as_ref().unwrap();
    assert_eq!(cookies.path, Some(("/old".to_owned(), "/new".to_owned())));
    assert!(exact.policies.rewrite.path.as_ref().unwrap().of_pattern().is_some());
    let Action::Redirect(redirect) = &moved.action else { panic!("{:?}", moved.action) };
    assert_eq!((redirect.status.code(), redirect.to()), (301, "https://www.example.com/$1"));
    assert!(matches!(&gone.action, Action::Redirect(redirect) if redirect.pattern().is_some()));
    let response = |route: &Route| match &route.action {
        Action::Respond(respond) => respond.response.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(response(health).body(), b"ok\n\"quoted\" \\");
    assert_eq!((response(page).status(), response(page).content_type()), (503, "text/html; charset=utf-8"));
    assert_eq!(response(none).status(), 204);
    assert_eq!((page.name.as_str(), none.name.as_str()), ("/page", "/page #2"));
    let files = |route: &Route| match &route.action {
        Action::Files(files) => config::Files::clone(files),
        other => panic!("{other:?}"),
    };
    let root = files(site).root;
    assert_eq!(
        files(site),
        config::Files {
            below: None,
            root: root.clone(),
            index: vec!["index.html".to_owned(), "index.htm".to_owned()],
            tries: ["/static$path", "$path/", "$path.html"].map(str::to_owned).to_vec(),
            fallback: Some("app/index.html".to_owned()),
            otherwise: None,
            else_path: None,
            precompressed: true,
            cache_control: Some("max-age=60".to_owned()),
            cache_control_for: config::FilePattern::new("*.js")
                .map(|pattern| (pattern, "no-cache".to_owned()))
                .into_iter()
                .collect(),
            listing: true,
            symlinks: true,
        }
    );
    assert_eq!(
        files(downloads),
        config::Files {
            index: Vec::new(),
            otherwise: Some(0),
            else_path: route::PathRewrite::whole("/index.php$path", route::NamedValues::NONE).ok(),
            ..config::Files::from_root(root)
        }
    );
}

fn check_upstreams(config: &Config) {
    let [app, canary, database, php, _] = &config.upstreams[..] else { panic!("{:?}", config.upstreams) };
    let server = &app.servers[0];
    assert_eq!((server.label().as_str(), server.weight, server.priority), ("a", 3, 1));
    assert_eq!(server.max_requests.map(std::num::NonZeroU32::get), Some(100));
    assert_eq!((app.dns, app.balance.name), (Dns::One, "least-connections"));
    assert_eq!((app.settings.slow_start, app.settings.group_suffices_percent), (Duration::ZERO, 50));
    assert_eq!((app.settings.none_up, app.settings.ejection), (NoneUp::Refuse, None));
    assert_eq!(app.settings.breaker.unwrap().probes, 2);
    assert_eq!(app.send_proxy_protocol, Some(ProxyVersion::V2));
    let Some(StickySessions::Cookie(cookie)) = &app.sticky else { panic!("{:?}", app.sticky) };
    assert_eq!((cookie.name.as_str(), cookie.ttl), ("where", Some(Duration::from_secs(3600))));
    let secrets = cookie.secrets.as_ref().unwrap();
    assert_eq!(secrets.secrets.iter().map(|secret| secret.len()).collect::<Vec<_>>(), [32, 64]);
    assert!(!format!("{secrets:?}").contains("aaa"), "secrets are not shown");
    let check = app.check.as_ref().unwrap();
    assert_eq!((check.port, check.settings.interval_in_doubt), (Some(8081), Duration::from_millis(2500)));
    let Probe::Http { path, status, body, .. } = &check.probe else { panic!("{check:?}") };
    assert_eq!((path.as_str(), status.contains(304), status.contains(405)), ("/health?deep=1", true, false));
    assert!(
        matches!(body, Some(rule @ BodyRule::Pattern(_)) if rule.passes(b"is ok\n") && !rule.passes(b""))
    );
    assert_eq!((app.retry.attempts, app.retry.on.connect, app.retry_budget.percent), (2, false, 10));
    assert_eq!(canary.hash_key, SessionSource::Header("X-Tenant".to_owned()));
    assert_eq!(canary.settings.load_bound_percent, None);
    let ejection = canary.settings.ejection.unwrap();
    assert_eq!((ejection.failures_in_a_row, ejection.up_percent_min), (None, 0));
    assert_eq!(canary.check.as_ref().unwrap().probe, Probe::Grpc { service: "shop.Cart".to_owned() });
    let Some(StickySessions::Table(table)) = &database.sticky else { panic!("{:?}", database.sticky) };
    assert_eq!(table.source, SessionSource::ClientAddress(AddressPrefixes { v4: 24, v6: 64 }));
    assert_eq!((table.sessions_max, table.ttl), (100, Duration::from_secs(600)));
    assert_eq!(table.shared, config.redis.as_ref().and_then(|redis| redis.secret.clone()));
    assert!(table.shared.is_some());
    let scripts = php.fastcgi.as_ref().unwrap();
    assert_eq!(
        (php.protocol, php.servers[1].to_string().as_str()),
        (config::Protocol::Fastcgi, "fcgi+unix:/run/php/php-fpm.sock")
    );
    assert_eq!(
        (scripts.index.as_str(), scripts.front_controller, scripts.check_files),
        ("main.php", false, false)
    );
    assert_eq!(scripts.params, [("APP_ENV".to_owned(), "production".to_owned())]);
}

#[test]
fn everything_is_printed_as_it_was_written() {
    let directory = tempfile::tempdir().unwrap();
    let config = read(&full(directory.path()));
    assert_eq!(config.text(&config), full(directory.path()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is written for an option: a meaning that can be printed, or mistakes.
    #[test]
    fn any_value_for_any_option(
        option in any::<prop::sample::Index>(),
        value in "(\"[ -!#-\\[\\]-~]{0,24}\"|\"[/a$]{0,3}[$]{1,4}\\{(HOME|ABSENT:-x|ABSENT|host|1)\\}[$a]{0,2}\"|\"~ ?[a-c(|)*/.]{0,8}\"|\"/[$a-z{}.1?]{0,12}\"|[0-9]{1,6}|\"[0-9]{1,4}(%|/s|ms|xx)\"|true|\\[\\]|\\{\\}|\\[\"a\", 1\\]|\"off\")",
    ) {
        let directory = tempfile::tempdir().unwrap();
        let text = full(directory.path());
        let options: Vec<&str> = text.lines().filter(|line| line.contains(" = ")).collect();
        let line = options[option.index(options.len())];
        let name = line.split(" = ").next().unwrap_or_default();
        let edited = text.replacen(line, &format!("{name} = {value}"), 1);
        let reading = examine(&edited, "f");
        prop_assert_eq!(reading.config.is_some(), reading.mistakes.is_empty());
        if let Some(config) = reading.config {
            let printed = config.text(&config);
            prop_assert!(parse(&printed, "printed") == Ok(config), "{line} as {value}:\n{printed}");
        }
    }
}
