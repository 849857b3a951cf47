//! Access of scripts to another origin (CORS), with curl and with a browser.

use testkit::scene::Scene;

use super::chromium::Chromium;
use super::curl::curl;
use super::installed::installed;

const CONFIG: &str = r#"
[log]
target = "{dir}/access.log"
[[listen]]
name = "secured"
address = "127.0.0.1:0"
tls = { self_signed = true }
[[route]]
host = "app.example.test"
respond = { status = 200, file = "{dir}/page.html" }
[[route]]
host = "app.example.test"
path = "/told"
upstream = "test"
[[route]]
host = "api.example.test"
path = "/allowed"
respond = { status = 200, body = "allowed" }
response_headers = { set = { X-Cookie = "got $cookie.side", Set-Cookie = "side=a; Path=/" } }
cors = { origins = ["https://*.example.test", "http://app.example.test"], methods = "PUT", headers = "X-Key", expose = "X-Cookie", credentials = true, max_age = "10m" }
[[route]]
host = "api.example.test"
path = "/other"
respond = { status = 200, body = "other" }
cors = { origins = ["https://other.example.test", "https://app.example.test:8443", "null"] }
[[route]]
host = "api.example.test"
path = "/anybody"
respond = { status = 200, body = "anybody" }
cors = { origins = "*" }
[[route]]
host = "api.example.test"
path = "/limited"
respond = { status = 200, body = "limited" }
rate_limit = { rate = "1/h", key = "route" }
cors = { origins = "*", methods = "PUT" }
[[route]]
host = "api.example.test"
path = "/without"
respond = { status = 200, body = "without" }
response_headers = { set = { X-Open = "no" } }
[upstream.test]
servers = ["http://{0}"]
"#;

/// Reports the result of each request, line by line: status and body, or a failure.
const PAGE: &str = r#"<!doctype html><script>
const api = location.protocol + "//api.example.test";
async function ask(path, options = {}) {
  try {
    const answer = await fetch(api + path, options);
    return `${answer.status} ${(await answer.text()).trim()} ${answer.headers.get("X-Cookie")}`;
  } catch (error) {
    return "refused";
  }
}
(async () => {
  const key = { headers: { "X-Key": "1" } };
  const lines = [];
  for (const [path, options] of [
    ["/allowed"],
    ["/allowed", { credentials: "include" }],
    ["/allowed", { credentials: "include" }],
    ["/allowed", { method: "PUT", ...key }],
    ["/allowed", { method: "PUT", ...key }],
    ["/allowed", { method: "DELETE" }],
    ["/allowed", { headers: { "X-Other": "1" } }],
    ["/other"],
    ["/anybody"],
    ["/anybody", { credentials: "include" }],
    ["/anybody", key],
    ["/limited", { method: "PUT" }],
    ["/limited", { method: "PUT" }],
    ["/without"],
  ]) {
    lines.push(`${(options || {}).method || "GET"} ${path}: ${await ask(path, options)}`);
  }
  await fetch("/told", { method: "POST", body: lines.join("\n") });
})();
</script>
"#;

#[test]
fn chromium_lets_scripts_read_what_is_allowed_over_http2() {
    chromium_reads("https");
}

#[test]
fn chromium_lets_scripts_read_what_is_allowed_over_http1() {
    chromium_reads("http");
}

/// A page of this scheme sends requests to the API of the same scheme.
fn chromium_reads(scheme: &str) {
    let Some(program) = installed("chromium") else { return };
    let scene = Scene::with_files(&[("page.html", PAGE)], CONFIG);
    let [secured, plain] = [0, 1].map(|place| scene.running().addresses()[place]);
    let resolver = format!("MAP *:443 {secured}, MAP *:80 {plain}");
    let _browser = Chromium::open(&program, &resolver, &format!("{scheme}://app.example.test/"));
    let mut server = scene.accept(0);
    let told = server.message();
    server.sends("HTTP/1.1 204 No Content\r\n\r\n");
    let told = String::from_utf8(told.body.clone()).expect("is text");
    assert_eq!(
        told.lines().collect::<Vec<_>>(),
        [
            "GET /allowed: 200 allowed got",
            "GET /allowed: 200 allowed got",
            // The cookie of the previous response, which was read with credentials.
            "GET /allowed: 200 allowed got a",
            "PUT /allowed: 200 allowed got",
            "PUT /allowed: 200 allowed got",
            "DELETE /allowed: refused",
            "GET /allowed: refused",
            "GET /other: refused",
            "GET /anybody: 200 anybody null",
            "GET /anybody: refused",
            "GET /anybody: refused",
            "PUT /limited: 200 limited null",
            "PUT /limited: 429 Too many requests; try again later. null",
            "GET /without: refused",
        ],
        "{scheme}"
    );
    let asked = preflights(scene);
    // A preflight each for PUT, DELETE and X-Other: the first PUT's also permits the second.
    assert_eq!(asked.iter().filter(|line| line.contains("/allowed")).count(), 3, "{scheme} {asked:#?}");
}

/// Ends the proxy, and returns the preflights in its log.
fn preflights(scene: Scene) -> Vec<String> {
    let (running, directory) = scene.into_parts();
    drop(running);
    let log = std::fs::read_to_string(directory.path().join("access.log")).expect("there is a log");
    log.lines().filter(|line| line.contains("OPTIONS ")).map(str::to_owned).collect()
}

#[test]
fn curl_is_told_what_an_origin_may() {
    let Some(program) = installed("curl") else { return };
    let scene = Scene::with_files(&[("page.html", PAGE)], CONFIG);
    let [secured, plain] = [0, 1].map(|place| scene.running().addresses()[place]);
    let ask = |url: &str, flags: &[&str]| {
        let mut all =
            vec!["--insecure", "--head", "--request", "OPTIONS", "--header", "Host: api.example.test"];
        all.extend(flags);
        all.extend(["--header", "Access-Control-Request-Method: PUT", url]);
        String::from_utf8(curl(&program, &all).stdout).expect("is text").to_ascii_lowercase()
    };
    let allowed = ["--header", "Origin: https://app.example.test"];
    for (scheme, address, version) in
        [("https", secured, "--http2"), ("https", secured, "--http1.1"), ("http", plain, "--http1.1")]
    {
        let url = format!("{scheme}://{address}/allowed");
        let got = ask(&url, &[&allowed[..], &[version]].concat());
        assert!(got.contains(" 204"), "{got}");
        for line in [
            "access-control-allow-origin: https://app.example.test",
            "access-control-allow-credentials: true",
            "access-control-allow-methods: put",
            "access-control-allow-headers: x-key",
            "access-control-max-age: 600",
            "vary: origin",
        ] {
            assert!(got.lines().any(|known| known.trim() == line), "{line}: {got}");
        }
        let got = ask(&url, &["--header", "Origin: https://app.example.test.evil", version]);
        assert!(got.contains(" 204") && !got.contains("access-control-"), "{got}");
    }
}
