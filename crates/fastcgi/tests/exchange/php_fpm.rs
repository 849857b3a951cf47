//! Exchanges with php-fpm over a Unix socket. Where it is not installed, these tests do nothing.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use fastcgi::{
    CgiHeadLimits, Gateway, ParamsLimits, Ping, Request, Response, ResponseLimits, STDIN_END, Script,
    ScriptCandidates, ScriptForm, ScriptRules, Stdin,
};
use http1::{HttpVersion, MessageHead, Parsed, RequestLine, RequestTarget};
use rustix::process::{Pid, Signal, kill_process};

use crate::{LIMITS, Seen, read_pieces};

const ROOMY: ResponseLimits =
    ResponseLimits { head: CgiHeadLimits { bytes: 16 * 1024, fields: 64 }, stderr_bytes: 4096, ..LIMITS };

/// Shows the variables that it gets, line by line, and whether the body is the expected one.
const SCRIPT: &str = "<?php
error_log('a warning');
if (isset($_GET['go'])) { header('Location: /elsewhere'); exit; }
http_response_code((int) ($_GET['status'] ?? 200));
foreach ($_SERVER as $name => $value) { if (is_string($value)) { echo \"$name=$value\\n\"; } }
echo file_get_contents('php://input') === str_repeat('0123456789', 20000) ? 'whole' : 'other';
";

/// A php-fpm with one worker, which ends with the test.
struct Fpm {
    child: Child,
    root: PathBuf,
    _directory: tempfile::TempDir,
}

impl Drop for Fpm {
    fn drop(&mut self) {
        // A request to end, not a kill: php-fpm has to end its workers first.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

/// The program: `php-fpm`, or with a version behind it.
fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    let files = folders.filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    files.map(|file| file.path()).find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let version = name.strip_prefix("php-fpm");
        version.is_some_and(|version| version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'))
    })
}

impl Fpm {
    fn start() -> Option<Self> {
        let program = program()?;
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("public");
        fs::create_dir_all(root.join("sub")).unwrap();
        fs::write(root.join("index.php"), SCRIPT).unwrap();
        fs::write(root.join("x.jpg"), "<?php echo 'an upload ran';").unwrap();
        let at = |name: &str| directory.path().join(name).display().to_string();
        let settings = format!(
            "[global]\nerror_log = {}\ndaemonize = no\n[www]\nuser = root\nlisten = {}\npm = static\n\
             pm.max_children = 1\nping.path = /ping\nsecurity.limit_extensions =\n",
            at("log"),
            at("socket"),
        );
        fs::write(at("fpm.conf"), settings).unwrap();
        let mut command = Command::new(program);
        command.args(["-n", "-R", "-F", "-y", &at("fpm.conf")]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut fpm = Self { child, root, _directory: directory };
        // The socket is there as soon as php-fpm listens.
        while UnixStream::connect(fpm.socket()).is_err() {
            assert_eq!(fpm.child.try_wait().unwrap(), None, "php-fpm runs");
            std::thread::yield_now();
        }
        Some(fpm)
    }

    fn socket(&self) -> PathBuf {
        self.root.with_file_name("socket")
    }

    fn connect(&self) -> Connection {
        let stream = UnixStream::connect(self.socket()).unwrap();
        Connection { stream, response: None, root: self.root.clone() }
    }
}

struct Connection {
    stream: UnixStream,
    response: Option<Response>,
    root: PathBuf,
}

impl Connection {
    /// Sends a request. `None` if its path names no script that exists.
    fn exchange(&mut self, text: &str, body: &[u8]) -> Option<Seen> {
        let path = text.split([' ', '?']).nth(1).unwrap();
        let mut memory = Vec::new();
        let rules = ScriptRules::new(".php", Some("index.php"), false).unwrap();
        let candidates = ScriptCandidates::new(path.as_bytes(), rules, &mut memory).unwrap();
        let root = self.root.clone();
        let is_file = |name: &[u8]| root.join(Path::new(std::str::from_utf8(&name[1..]).unwrap())).is_file();
        let script = candidates.first_existing(is_file)?;
        Some(self.run(script, text, body, &[("APP_ENV", "test")]))
    }

    /// Sends a request for a script with these further variables.
    fn run(&mut self, script: Script<'_>, text: &str, body: &[u8], params: &[(&str, &str)]) -> Seen {
        let mut head = MessageHead::<RequestLine>::default();
        let limits = http1::HeadLimits { bytes: 1 << 20, fields: 64, target: 4096 };
        assert_eq!(head.parse(text.as_bytes(), &limits), Ok(Parsed::Complete));
        let request = Request {
            head: &head,
            bytes: text.as_bytes(),
            target: RequestTarget::from_head(&head, text.as_bytes()).unwrap(),
            script,
            uri: None,
            content_length: None,
            version: HttpVersion::Http11,
            is_tls: true,
            client: Some("192.0.2.1:50000".parse().unwrap()),
            local: Some("198.51.100.1:443".parse().unwrap()),
            port: None,
            server_name: None,
            session: None,
            user: None,
        };
        let gateway = Gateway {
            root: self.root.to_str().unwrap().as_bytes(),
            software: b"vanward",
            params: &params
                .iter()
                .map(|(name, value)| (name.to_string(), value.to_string()))
                .collect::<Vec<_>>(),
            keep: true,
            limits: ParamsLimits { bytes: 1 << 20 },
        };
        let mut bytes = Vec::new();
        let outline = request.write(&gateway, &mut bytes).unwrap();
        let (mut stdin, mut rest) = (Stdin::new(outline.body), body);
        while !rest.is_empty() {
            let (header, taken) = stdin.record(rest.len()).unwrap();
            bytes.extend([&header[..], &rest[..taken]].concat());
            rest = &rest[taken..];
        }
        assert_eq!(stdin.left(), 0);
        bytes.extend(STDIN_END);
        let to_head = text.starts_with("HEAD ");
        self.send(&bytes, to_head)
    }

    fn send(&mut self, bytes: &[u8], to_head: bool) -> Seen {
        self.stream.write_all(bytes).unwrap();
        match &mut self.response {
            Some(response) => response.begin(to_head),
            None => self.response = Some(Response::new(ROOMY, to_head)),
        }
        let response = self.response.as_mut().unwrap();
        // Records are read to the last one: pieces are put together first, as this reader takes whole responses.
        let (mut all, mut piece) = (Vec::new(), [0; 4096]);
        let mut probe = fastcgi::Decoder::new(ROOMY.records);
        while !probe.has_ended() {
            let len = self.stream.read(&mut piece).unwrap();
            assert!(len > 0, "php-fpm has closed the connection within a response");
            let mut rest = &piece[..len];
            while !rest.is_empty() {
                let (taken, _) = probe.decode(rest).expect("php-fpm keeps to the protocol");
                rest = &rest[taken..];
            }
            all.extend_from_slice(&piece[..len]);
        }
        let seen = read_pieces(response, &all, [1, 7, 100]);
        assert_eq!((seen.error, seen.len), (None, all.len()));
        seen
    }
}

fn status(seen: &Seen) -> u16 {
    seen.outline.expect("a head").status
}

#[test]
fn php_fpm_reads_requests_and_is_read() {
    let Some(fpm) = Fpm::start() else { return };
    let mut connection = fpm.connect();

    let body = b"0123456789".repeat(20_000);
    let field = format!("X-Long: {}\r\n", "v".repeat(60_000));
    let text = format!(
        "POST /index.php/a%20b?status=201&q HTTP/1.1\r\nHost: www.example.com:8443\r\nContent-Type: text/plain\r\n\
         Content-Length: {}\r\nX-Real-IP: 192.0.2.1\r\nX.Real.IP: 10.0.0.1\r\nX_Real_IP: 10.0.0.1\r\nProxy: evil\r\n\
         X-Two: {}\r\n{field}\r\n",
        body.len(),
        "w".repeat(20_000),
    );
    let seen = connection.exchange(&text, &body).unwrap();
    assert_eq!(status(&seen), 201);
    let shown = String::from_utf8(seen.body).unwrap();
    let root = fpm.root.display();
    for line in [
        &format!("SCRIPT_FILENAME={root}/index.php"),
        "SCRIPT_NAME=/index.php",
        "PATH_INFO=/a b",
        "PHP_SELF=/index.php/a b",
        "QUERY_STRING=status=201&q",
        "REQUEST_URI=/index.php/a%20b?status=201&q",
        "CONTENT_LENGTH=200000",
        "HTTP_HOST=www.example.com:8443",
        "HTTP_X_REAL_IP=192.0.2.1",
        "HTTPS=on",
        "REMOTE_ADDR=192.0.2.1",
        "SERVER_NAME=www.example.com",
        "APP_ENV=test",
        "FCGI_ROLE=RESPONDER",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line} in {shown}");
    }
    assert!(!shown.contains("HTTP_PROXY"));
    assert!(shown.ends_with("\nwhole"), "{shown}");
    assert!(String::from_utf8_lossy(&seen.stderr).contains("a warning"));

    // The connection is kept.
    let seen = connection.exchange("GET /?go HTTP/1.1\r\nHost: a\r\n\r\n", b"").unwrap();
    assert_eq!(status(&seen), 302);
    assert!(seen.head.contains("Location: /elsewhere\r\n"));
    let seen = connection.exchange("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", b"").unwrap();
    assert_eq!((status(&seen), seen.body.as_slice()), (200, &b""[..]));
    let seen = connection.exchange("GET /?status=404 HTTP/1.1\r\nHost: a\r\n\r\n", b"").unwrap();
    assert_eq!(status(&seen), 404);
}

#[test]
fn php_fpm_runs_no_upload() {
    let Some(fpm) = Fpm::start() else { return };
    let mut connection = fpm.connect();
    let with = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    for path in ["/x.jpg/a.php", "/x.jpg/index.php", "/x.jpg"] {
        assert_eq!(connection.exchange(&with(path), b""), None, "{path}");
    }
    // A server that does not look whether the script exists would have it run (`cgi.fix_pathinfo`).
    let script = Script { name: b"/x.jpg/a.php", path_info: b"", form: ScriptForm::Script };
    let seen = connection.run(script, &with("/x.jpg/a.php"), b"", &[]);
    assert_eq!(seen.body, b"an upload ran");
}

#[test]
fn php_reads_dots_in_names_as_underscores() {
    let Some(fpm) = Fpm::start() else { return };
    let script = Script { name: b"/index.php", path_info: b"", form: ScriptForm::Script };
    let text = "GET / HTTP/1.1\r\nHost: a\r\nX.Other: dropped\r\n\r\n";
    let seen = fpm.connect().run(script, text, b"", &[("HTTP_X.REAL.IP", "192.0.2.1")]);
    let shown = String::from_utf8(seen.body).unwrap();
    assert!(shown.contains("\nHTTP_X_REAL_IP=192.0.2.1\n") && !shown.contains("dropped"), "{shown}");
}

#[test]
fn php_fpm_answers_a_ping() {
    let Some(fpm) = Fpm::start() else { return };
    for (page, expected) in [(&b"/ping"[..], (200, &b"pong"[..])), (b"/gone", (404, b"File not found.\n"))] {
        let mut bytes = Vec::new();
        let ping = Ping { page, root: b"/srv", host: b"localhost", software: b"vanward" };
        ping.write(&mut bytes).unwrap();
        let seen = fpm.connect().send(&bytes, false);
        assert_eq!((status(&seen), seen.body.as_slice()), expected);
    }
}
