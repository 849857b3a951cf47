//! Content coding, as other implementations decode it: curl, a browser, and nginx for comparison.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use testkit::scene::Scene;

use super::chromium::Chromium;
use super::curl::curl;
use super::installed::{PATIENCE, installed};

/// A script that differs little between versions.
fn script(version: u32) -> String {
    let line = |number: u32| format!("export const f{number} = {};\n", number.wrapping_mul(2_654_435_761));
    format!("// version {version}\n{}", (0..2000).map(line).collect::<String>())
}

/// Reports the coding of a version of the script, once an earlier one is a dictionary for the browser.
const PAGE: &str = r#"<!doctype html><script>
(async () => {
  const first = await (await fetch("/app/1.js")).text();
  let told = "";
  // The browser keeps a dictionary asynchronously.
  for (let round = 0; round < 100 && !told; round++) {
    const answer = await fetch(`/app/2.js?${round}`);
    const coding = answer.headers.get("Content-Encoding");
    const text = await answer.text();
    const isWhole = text === first.replace("version 1", "version 2");
    if (!isWhole) told = `${coding}: not what the server sent`;
    if (coding === "dcz" || coding === "dcb") told = `${coding}: ${isWhole}`;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  await fetch("/told", { method: "POST", body: told || "no dictionary was used" });
})();
</script>
"#;

/// An origin with a page and versions of a script. Bodies of POST requests are sent to the channel.
fn origin() -> (SocketAddr, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it listens");
    let (tells, told) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let tells = tells.clone();
            std::thread::spawn(move || serve(stream, &tells));
        }
    });
    (address, told)
}

fn serve(mut stream: TcpStream, tells: &mpsc::Sender<String>) -> Option<()> {
    let mut request = Vec::new();
    let mut bytes = [0; 4096];
    let end = loop {
        let count = stream.read(&mut bytes).ok().filter(|count| *count > 0)?;
        request.extend_from_slice(&bytes[..count]);
        if let Some(end) = request.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let head = String::from_utf8_lossy(&request[..end]).to_lowercase();
    if head.starts_with("post ") {
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
        let length: usize = length.parse().ok()?;
        while request.len() < end + length {
            let count = stream.read(&mut bytes).ok().filter(|count| *count > 0)?;
            request.extend_from_slice(&bytes[..count]);
        }
        tells.send(String::from_utf8_lossy(&request[end..]).into_owned()).ok()?;
    }
    let (media_type, body) = match head.split(' ').nth(1)?.split('?').next()? {
        "/" => ("text/html", PAGE.to_owned()),
        "/app/1.js" => ("text/javascript", script(1)),
        "/app/2.js" => ("text/javascript", script(2)),
        _ => ("text/plain", String::new()),
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nContent-Type: {media_type}\r\nETag: \"a\"\r\n\
         Accept-Ranges: bytes\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{}",
        if head.starts_with("head ") { "" } else { &body }
    )
    .ok()
}

/// A browser uses an earlier version of a script as the dictionary for the next one, and gets the server's bytes.
#[test]
fn chromium_decodes_with_a_dictionary() {
    let Some(program) = installed("chromium") else { return };
    let (address, told) = origin();
    let scene = Scene::new(&format!(
        "[cache]\nmemory = \"64MiB\"\n[[route]]\npath = \"/app\"\nupstream = \"app\"\ncache = {{}}\n\
         compress = {{ dictionaries = [\"/app/*.js\"] }}\n[[route]]\nupstream = \"app\"\n\
         [upstream.app]\nservers = [\"http://{address}\"]\n"
    ));
    // Without TLS a browser only trusts localhost.
    let port = scene.running().addresses()[0].port();
    let _browser = Chromium::open(&program, "MAP nothing 127.0.0.1", &format!("http://localhost:{port}/"));
    let told = told.recv_timeout(3 * PATIENCE).expect("the page tells");
    assert!(["dcz: true", "dcb: true"].contains(&&*told), "{told}");
}

#[test]
fn curl_decodes_every_coding() {
    let Some(program) = installed("curl") else { return };
    let (address, _told) = origin();
    let scene = Scene::new(&format!(
        "[cache]\nmemory = \"64MiB\"\n[[route]]\npath = \"/app/1.js\"\nupstream = \"app\"\ncache = {{}}\ncompress = true\n\
         [[route]]\nupstream = \"app\"\ncompress = true\n[upstream.app]\nservers = [\"http://{address}\"]\n"
    ));
    let proxy = scene.running().addresses()[0];
    // The first is coded in transit, the others come from the store.
    for (path, version) in [("/app/2.js", 2), ("/app/1.js", 1), ("/app/1.js", 1)] {
        for coding in ["gzip", "br", "zstd"] {
            for spoken in ["--http1.1", "--http2-prior-knowledge"] {
                let field = format!("Accept-Encoding: {coding}");
                let url = format!("http://{proxy}{path}");
                let got = curl(&program, &[spoken, "--compressed", "--header", &field, "--include", &url]);
                let text = String::from_utf8_lossy(&got.stdout).into_owned();
                let (head, body) = text.split_once("\r\n\r\n").expect("there is a head");
                assert!(head.to_lowercase().contains(&format!("content-encoding: {coding}")), "{head}");
                assert!(body == script(version), "{path} {coding} {spoken}");
            }
        }
    }
}

/// nginx with `gzip` in front of the same origin; killed when dropped.
struct Yardstick {
    process: Child,
    address: SocketAddr,
    _directory: TempDir,
}

impl Yardstick {
    fn start(origin: SocketAddr) -> Option<Self> {
        let program = installed("nginx")?;
        let directory = tempfile::tempdir().expect("a temporary directory");
        let root = directory.path();
        let address = testkit::ports::nobody();
        let text = format!(
            "daemon off; master_process off; pid {root}/pid; events {{}}\n\
             http {{ access_log off; client_body_temp_path {root}; proxy_temp_path {root}; fastcgi_temp_path {root};\n\
             uwsgi_temp_path {root}; scgi_temp_path {root};\n\
             gzip on; gzip_vary on; gzip_proxied any; gzip_types text/javascript text/plain; gzip_min_length 1000;\n\
             server {{ listen {address}; location / {{ proxy_pass http://{origin}; proxy_http_version 1.1; }} }} }}",
            root = root.display()
        );
        std::fs::write(root.join("nginx.conf"), text).expect("is writable");
        let process = Command::new(program)
            .args([
                std::ffi::OsStr::new("-p"),
                root.as_os_str(),
                "-e".as_ref(),
                root.join("error.log").as_os_str(),
            ])
            .arg("-c")
            .arg(root.join("nginx.conf"))
            .stdin(Stdio::null())
            .spawn()
            .expect("nginx starts");
        let yardstick = Self { process, address, _directory: directory };
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(began.elapsed() < PATIENCE, "nginx does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(yardstick)
    }
}

impl Drop for Yardstick {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The fields about content are equal, except for features that nginx lacks.
#[test]
fn the_same_requests_get_from_nginx_what_they_get_here() {
    let (origin, _told) = origin();
    let (Some(program), Some(nginx)) = (installed("curl"), Yardstick::start(origin)) else { return };
    let scene = Scene::new(&format!(
        "[[route]]\nupstream = \"app\"\ncompress = {{ codings = [\"gzip\"] }}\n[upstream.app]\nservers = [\"http://{origin}\"]\n"
    ));
    let ask = |address: SocketAddr, flags: &[&str], path: &str| {
        let url = format!("http://{address}{path}");
        let got = curl(&program, &[&["--http1.1", "--include", "--compressed"], flags, &[&url]].concat());
        let text = String::from_utf8_lossy(&got.stdout).to_lowercase();
        let (head, body) = text.split_once("\r\n\r\n").expect("there is a head");
        let names = ["content-encoding", "vary", "etag", "content-length", "accept-ranges", "content-type"];
        let is_named = |line: &&str| names.iter().any(|name| line.starts_with(&format!("{name}:")));
        let mut lines: Vec<String> = head.lines().filter(is_named).map(str::to_owned).collect();
        lines.insert(0, head.lines().next().unwrap_or_default().to_owned());
        lines.sort();
        (lines, body.to_owned())
    };
    let proxy = scene.running().addresses()[0];
    let coded: &[&str] = &["--header", "Accept-Encoding: gzip"];
    for (flags, path) in [
        (coded, "/app/1.js"),
        (&["--header", "Accept-Encoding: gzip;q=0.5, br;q=0"], "/app/1.js"),
        (&["--header", "Accept-Encoding: gzip;q=0"], "/app/1.js"),
        (&["--header", "Accept-Encoding: identity"], "/app/1.js"),
        // RFC 9110 §9.3.2: the fields of HEAD are those of GET.
        (&["--header", "Accept-Encoding: gzip", "--head"], "/app/1.js"),
        // Shorter than the minimum length for coding.
        (coded, "/short"),
    ] {
        let (theirs, their_body) = ask(nginx.address, flags, path);
        let (ours, our_body) = ask(proxy, flags, path);
        assert_eq!(ours, theirs, "{flags:?} {path}");
        assert!(our_body == their_body, "{flags:?} {path}");
    }
    // RFC 9110 §12.5.3: `*` means any coding, which nginx does not support.
    let any: &[&str] = &["--header", "Accept-Encoding: *"];
    assert!(ask(proxy, any, "/app/1.js").0.contains(&"content-encoding: gzip".to_owned()));
    assert!(!ask(nginx.address, any, "/app/1.js").0.contains(&"content-encoding: gzip".to_owned()));
}
