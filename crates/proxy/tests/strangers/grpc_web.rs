//! gRPC-Web with a browser: a page calls a gRPC server of another origin.

use testkit::http2::H2End;
use testkit::http2::frame::{data, headers, last_headers};
use testkit::scene::Scene;

use super::chromium::Chromium;
use super::installed::installed;

const CONFIG: &str = r#"
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
path = "/shop.Orders"
upstream = "orders"
grpc_web = true
cors = { origins = ["https://app.example.test", "http://app.example.test"] }
[[route]]
host = "api.example.test"
path = "= /shop.Cart/Get"
upstream = "cart"
grpc_web = true
cors = { origins = ["https://app.example.test", "http://app.example.test"] }
[upstream.orders]
servers = ["http://{0}"]
protocol = "h2"
[upstream.cart]
servers = ["http://{1}"]
protocol = "h2"
[upstream.test]
servers = ["http://{2}"]
"#;

/// Reads the first message of a stream, then makes another call, then reads the rest.
const PAGE: &str = r#"<!doctype html><script>
const call = (method, type, body) =>
  fetch(`${location.protocol}//api.example.test/shop.${method}`, {
    method: "POST", body, headers: { "Content-Type": type, "X-Grpc-Web": "1", "X-User-Agent": "page" },
  });
const text = (bytes) => String.fromCharCode(...bytes).replace(/[^ -~]/g, ".");
(async () => {
  const lines = [];
  const stream = await call("Orders/List", "application/grpc-web+proto", Uint8Array.of(0, 0, 0, 0, 2, 104, 105));
  const reader = stream.body.getReader();
  const first = await reader.read();
  lines.push(`${stream.status} ${stream.headers.get("Content-Type")} ${text(first.value)}`);
  const only = await call("Cart/Get", "application/grpc-web-text", btoa("\0\0\0\0\x02hi"));
  lines.push(`${only.headers.get("Grpc-Status")} ${only.headers.get("Grpc-Message")} "${await only.text()}"`);
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    rest += text(value);
  }
  lines.push(rest);
  return lines.join("\n");
})().catch(String).then((body) => fetch("/told", { method: "POST", body }));
</script>
"#;

#[test]
fn chromium_calls_a_server_of_grpc_over_http2() {
    chromium_calls("https");
}

#[test]
fn chromium_calls_a_server_of_grpc_over_http1() {
    chromium_calls("http");
}

/// A page of this scheme calls servers of the same scheme.
fn chromium_calls(scheme: &str) {
    let Some(program) = installed("chromium") else { return };
    let scene = Scene::with_files(&[("page.html", PAGE)], CONFIG);
    let [secured, plain] = [0, 1].map(|place| scene.running().addresses()[place]);
    let resolver = format!("MAP *:443 {secured}, MAP *:80 {plain}");
    let _browser = Chromium::open(&program, &resolver, &format!("{scheme}://app.example.test/"));
    let accept = |server| {
        let stream = scene.accept(server).stream().try_clone().expect("is a socket");
        H2End::server(stream, &[])
    };
    let head = ":status: 200\ncontent-type: application/grpc+proto\n";
    let mut orders = accept(0);
    let asked = orders.whole(1);
    assert!(
        asked.contains("content-type: application/grpc+proto\n") && asked.contains("\u{2}hi\n"),
        "{asked}"
    );
    orders.sends([headers(1, head), data(1, "\0\0\0\0\x03one")].concat());
    // The page has read the first message before it makes the next call.
    let mut cart = accept(1);
    let asked = cart.whole(1);
    assert!(asked.contains("content-type: application/grpc\n") && asked.contains("\u{2}hi\n"), "{asked}");
    cart.sends(last_headers(1, &format!("{head}grpc-status: 5\ngrpc-message: no cart\n")));
    orders.sends([data(1, "\0\0\0\0\x03two"), last_headers(1, "grpc-status: 0\n")].concat());
    let told = scene.accept(2).message();
    assert_eq!(
        String::from_utf8_lossy(&told.body),
        "200 application/grpc-web+proto .....one\n5 no cart \"\"\n.....two.....grpc-status: 0..",
        "{scheme}"
    );
}
