//! `vanward adapt`: as a person meets it, and judged by running both. nginx and Vanward with what was made of nginx's file get
//! the same requests before one origin, and every difference is in a list with its reason.

/// The program as a process.
mod process;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use process::{Patience, Process, connect, run, run_in};

/// Configurations in the manner of tutorials and projects that run without certificates.
const SAMPLES: [&str; 8] = [
    "01-reverse-proxy",
    "03-load-balancing",
    "04-spa-api",
    "05-static-site",
    "06-websocket",
    "07-cache",
    "08-limits-auth",
    "10-names-regex",
];

const HOSTS: [&str; 4] = ["app.example.com", "a.example.com", "x.b.example.com", "shop7.example.com"];

const PATHS: [&str; 24] = [
    "/",
    "/index.html",
    "/new.html",
    "/assets/app.js",
    "/assets/none.js",
    "/api",
    "/api/",
    "/api/users?id=1",
    "/health",
    "/files/a.txt",
    "/files/none",
    "/old",
    "/ws",
    "/private/x",
    "/missing",
    "/admin/",
    "/inside/",
    "/lan/x",
    "/images/a.png",
    "/a.PNG",
    "/user/7",
    "/exact.png",
    "/docs/a/b",
    "/.git/config",
];

/// A reason, and whether it explains how two answers differ.
type Reason = (&'static str, fn(&Pair) -> bool);

/// What differs, and why.
const REASONS: [Reason; 5] = [
    ("an answer of the proxy's own has another body", |pair| {
        pair.nginx.body.contains("<center>") && pair.is_alike_without("location", false)
    }),
    ("redirects to a path have a path in Location", |pair| {
        let whole = pair.nginx.field("location").unwrap_or_default();
        let is_path = |path: &str| path.starts_with('/') && whole.ends_with(path);
        pair.vanward.field("location").is_some_and(is_path) && pair.is_alike_without("location", false)
    }),
    ("names that begin with a dot are never sent as files", |pair| {
        pair.path.starts_with("/.") && [403, 404].contains(&pair.vanward.status)
    }),
    ("the challenge says that names and passwords are UTF-8", |pair| {
        let told = |got: &Got| got.field("www-authenticate").map(str::to_owned);
        told(&pair.vanward) == told(&pair.nginx).map(|told| told + ", charset=\"UTF-8\"")
            && pair.is_alike_without("www-authenticate", false)
    }),
    ("Expires is not sent beside Cache-Control", |pair| pair.is_alike_without("expires", true)),
];

/// The fields of a response that configurations set.
const FIELDS: [&str; 6] =
    ["location", "cache-control", "x-frame-options", "x-served-by", "www-authenticate", "expires"];

#[derive(Debug, PartialEq)]
struct Got {
    status: u16,
    fields: Vec<(String, String)>,
    body: String,
}

impl Got {
    fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// The two answers to a request.
#[derive(Debug)]
struct Pair {
    path: &'static str,
    nginx: Got,
    vanward: Got,
}

impl Pair {
    fn is_alike_without(&self, field: &str, with_body: bool) -> bool {
        let rest =
            |got: &Got| got.fields.iter().filter(|(name, _)| name != field).cloned().collect::<Vec<_>>();
        self.nginx.status == self.vanward.status
            && rest(&self.nginx) == rest(&self.vanward)
            && (!with_body || self.nginx.body == self.vanward.body)
    }
}

#[test]
fn nginx_and_vanward_with_its_adapted_file_answer_alike() {
    let Some(nginx) = installed("nginx") else { return };
    let origin = origin();
    let mut unexplained = Vec::new();
    for sample in SAMPLES {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (mine, theirs) = (free_address(), free_address());
        site(folder.path());
        let text = std::fs::read_to_string(sample_path(sample)).expect("the sample is there");
        let filled = |listen: SocketAddr| {
            text.replace("@LISTEN@", &listen.to_string())
                .replace("@ORIGIN@", &origin.to_string())
                .replace("@ORIGIN2@", &origin.to_string())
                .replace("@DIR@", &folder.path().display().to_string())
        };
        let _nginx = Peer::start(&nginx, folder.path(), &filled(theirs), theirs);
        std::fs::write(folder.path().join("mine.conf"), filled(mine)).expect("it is writable");
        run_in(folder.path(), &["adapt", "nginx", "mine.conf", "-o", "vanward.toml"]).with_code(0);
        let mut vanward = Process::start_in(folder.path(), &["run", "--config", "vanward.toml"]);
        vanward.address();
        let mut asked = 0;
        // Only the last has several names.
        let hosts = if sample.starts_with("10") { &HOSTS[..] } else { &HOSTS[..1] };
        for host in hosts {
            for path in PATHS {
                for method in ["GET", "HEAD"] {
                    let pair = Pair {
                        path,
                        nginx: ask(theirs, method, host, path),
                        vanward: ask(mine, method, host, path),
                    };
                    asked += 1;
                    let is_explained = REASONS.iter().any(|(_, explains)| explains(&pair));
                    if pair.nginx != pair.vanward && !is_explained {
                        unexplained.push(format!("{sample}: {method} {host} {path}: {pair:?}"));
                    }
                }
            }
        }
        assert_eq!(asked, hosts.len() * PATHS.len() * 2);
    }
    assert!(unexplained.is_empty(), "{}", unexplained.join("\n"));
}

#[test]
fn what_is_made_of_a_file_is_told_and_never_overwrites_another() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let text =
        "server {\n  listen 127.0.0.1:8080;\n  include more/*.conf;\n  location / { fastcgi_pass a; }\n}\n";
    std::fs::create_dir(folder.path().join("more")).expect("it is writable");
    std::fs::write(folder.path().join("more/a.conf"), "sendfile on;\n").expect("it is writable");
    std::fs::write(folder.path().join("n.conf"), text).expect("it is writable");
    let made = run_in(folder.path(), &["adapt", "nginx", "n.conf"]).with_code(0);
    assert!(made.output.contains("address = \"127.0.0.1:8080\"  # n.conf:2 listen\n"), "{}", made.output);
    assert!(made.errors.contains("n.conf:4: not taken over: fastcgi_pass a: "), "{}", made.errors);
    assert!(made.errors.contains("more/a.conf:1: needs nothing: sendfile on: "), "{}", made.errors);
    let summary = "n.conf: 6 directives: 3 taken over, 2 need nothing, 1 not taken over (listed above)\n";
    assert!(made.errors.ends_with(summary), "{}", made.errors);
    let checked = run_in(folder.path(), &["adapt", "nginx", "--check", "n.conf"]).with_code(1);
    assert_eq!((checked.output.as_str(), checked.errors), ("", made.errors));
    let write = ["adapt", "nginx", "n.conf", "-o", "v.toml"];
    run_in(folder.path(), &write).with_code(0);
    assert!(run_in(folder.path(), &write).with_code(1).errors.contains("--force overwrites it"));
    run_in(folder.path(), &["adapt", "nginx", "n.conf", "-o", "v.toml", "--force"]).with_code(0);
    let json = run_in(folder.path(), &["adapt", "nginx", "n.conf", "--json"]).with_code(0).output;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&json["directives"], &json["taken"], &json["not_taken"]), (&6.into(), &3.into(), &1.into()));
    assert_eq!(json["toml"], made.output);
}

#[test]
fn wrong_syntax_has_its_place() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("n.conf"), "server {\n  listen 80\n}\n").expect("it is writable");
    let ended = run_in(folder.path(), &["adapt", "nginx", "n.conf"]).with_code(78);
    assert!(
        ended.errors.starts_with("n.conf:2:3: the directive \"listen\" does not end; expected a ;"),
        "{}",
        ended.errors
    );
    assert!(run(&["adapt", "nginx", "/nowhere"]).with_code(1).errors.contains("it cannot be read"));
    run(&["adapt", "squid", "n.conf"]).with_code(2);
}

fn sample_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../adapt/samples/nginx/{name}.conf"))
}

/// Where a program is; on CI it has to be somewhere.
fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    let found = places.map(|place| place.join(program)).find(|file| file.is_file());
    assert!(found.is_some() || std::env::var_os("CI").is_none(), "{program} is missing, and CI is set");
    found
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port is free")
}

/// The files that samples name.
fn site(folder: &Path) {
    for (name, text) in [
        ("www/index.html", "<p>index</p>\n"),
        ("www/new.html", "<p>new</p>\n"),
        ("www/404.html", "<p>nothing</p>\n"),
        ("www/assets/app.js", "let a = 1;\n"),
        ("files/a.txt", "a\n"),
        ("mime.types", "types { text/html html; application/javascript js; text/plain txt; }\n"),
        ("users", "staff:$apr1$abcdefgh$EG9uAbGbnMM.Yx7ANiMdB.\n"),
        ("logs/none", ""),
    ] {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().expect("it has a folder")).expect("it is writable");
        std::fs::write(path, text).expect("it is writable");
    }
    // Workers of nginx may run as another user.
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
}

/// A running nginx; killed when dropped.
struct Peer(Child);

impl Peer {
    fn start(program: &Path, folder: &Path, text: &str, address: SocketAddr) -> Self {
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|kind| format!("{kind}_temp_path {}/{kind};", folder.display()))
            .collect();
        let text = text.replacen("http {", &format!("http {{ access_log off; {temporary}"), 1);
        let head = "daemon off; master_process off; pid nginx.pid; error_log stderr crit;\n";
        std::fs::write(folder.join("nginx.conf"), format!("{head}{text}")).expect("it is writable");
        let mut command = Command::new(program);
        command.arg("-p").arg(folder).arg("-c").arg(folder.join("nginx.conf")).arg("-e").arg("stderr");
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::inherit()).spawn().expect("nginx starts");
        let patience = Patience::new();
        while TcpStream::connect(address).is_err() {
            assert!(child.try_wait().expect("a child of ours").is_none(), "nginx ended");
            patience.wait_a_little("nginx does not listen");
        }
        Self(child)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ask(address: SocketAddr, method: &str, host: &str, path: &str) -> Got {
    let mut stream = connect(address);
    let request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("it answers and closes");
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.get(9..12)?.parse().ok()).expect("a status");
    let mut fields: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .filter(|(name, _)| FIELDS.contains(&name.as_str()))
        .collect();
    fields.sort();
    Got { status, fields, body: body.to_owned() }
}

/// A server whose pages are what it was asked; `/missing` is 404.
fn origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it listens");
    std::thread::spawn(move || {
        for stream in listener.incoming().filter_map(Result::ok) {
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

fn serve(mut stream: TcpStream) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let (mut line, mut told) = (String::new(), String::new());
        reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
        let mut request = line.split(' ');
        let (method, target) = (request.next()?, request.next()?);
        loop {
            let mut field = String::new();
            reader.read_line(&mut field).ok().filter(|bytes| *bytes > 0)?;
            let lower = field.trim_end().to_ascii_lowercase();
            if lower.is_empty() {
                break;
            }
            // What configurations send to servers.
            if ["host:", "x-site:", "x-real-ip:", "x-forwarded-proto:"]
                .iter()
                .any(|name| lower.starts_with(name))
            {
                told += &format!("{lower}\n");
            }
        }
        let mut told: Vec<&str> = told.lines().collect();
        told.retain(|line| !line.starts_with("x-forwarded-proto"));
        told.sort_unstable();
        let body = format!("{target}\n{}\n", told.join("\n"));
        let status = if target.starts_with("/missing") { "404 Not Found" } else { "200 OK" };
        let page = if method == "HEAD" { "" } else { body.as_str() };
        let length = body.len();
        write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nContent-Type: text/plain\r\n\r\n{page}"
        )
        .ok()?;
    }
}
