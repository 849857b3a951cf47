//! php-fpm, as an application with a front controller.

use std::fs;

use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use control::Running;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use testkit::http1::Http1Peer;
use testkit::scene::read;
use testkit::wait::assert_soon;

use super::installed::installed;

/// A front controller like that of WordPress: it looks at the path of the request.
const FRONT: &str = "<?php header('X-Path: ' . $_SERVER['REQUEST_URI']);
echo $_SERVER['SCRIPT_NAME'], ' ', $_SERVER['QUERY_STRING'], ' ', $_SERVER['REMOTE_ADDR'];";
/// Reads the body, and shows its length and hash.
const UPLOAD: &str = "<?php $body = fopen('php://input', 'r'); $hash = hash_init('sha1'); $bytes = 0;
while (!feof($body)) { $piece = fread($body, 1 << 16); $bytes += strlen($piece); hash_update($hash, $piece); }
echo $bytes, ' ', hash_final($hash), ' ', $_SERVER['CONTENT_LENGTH'];";
/// Sends one piece, and the other one once a file is there.
const STREAM: &str = "<?php header('X-Accel-Buffering: no'); header('Content-Type: text/event-stream');
echo \"data: first\\n\\n\"; while (ob_get_level()) { ob_end_flush(); } flush();
while (!file_exists(__DIR__ . '/go')) { clearstatcache(); usleep(1000); } echo \"data: second\\n\\n\";";
const ERROR: &str = "<?php error_log('what went wrong'); http_response_code(500); echo 'broken';";
/// Names its process, and waits to be killed.
const DIE: &str = "<?php if (isset($_GET['flush'])) { echo 'begun'; flush(); }
file_put_contents(__DIR__ . '/pid', getmypid()); while (true) { usleep(1000); }";

struct Fpm {
    child: Child,
    directory: TempDir,
}

impl Drop for Fpm {
    fn drop(&mut self) {
        // Not a kill: php-fpm has to end its workers first.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

/// The program, which Debian names by its version. The package is required in CI.
fn program() -> Option<PathBuf> {
    let files = fs::read_dir("/usr/sbin").into_iter().flatten().flatten().map(|file| file.path());
    let found = files
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("php-fpm")));
    found.max().or_else(|| installed("php-fpm"))
}

impl Fpm {
    fn start() -> Option<Self> {
        let program = program()?;
        let directory = tempfile::tempdir().expect("a temporary directory");
        let root = directory.path().join("public");
        fs::create_dir_all(root.join("wp-admin")).expect("a directory");
        for (name, text) in [
            ("index.php", FRONT),
            ("wp-admin/index.php", FRONT),
            ("upload.php", UPLOAD),
            ("stream.php", STREAM),
            ("error.php", ERROR),
            ("die.php", DIE),
            ("x.jpg", "<?php echo 'an upload ran';"),
        ] {
            fs::write(root.join(name), text).expect("a file");
        }
        let at = |name: &str| directory.path().join(name).display().to_string();
        let settings = format!(
            "[global]\nerror_log = {}\ndaemonize = no\n[www]\nuser = root\nlisten = {}\npm = static\n\
             pm.max_children = 2\nping.path = /ping\nphp_admin_value[post_max_size] = 200M\n\
             php_admin_value[memory_limit] = 32M\nphp_admin_value[sys_temp_dir] = {}\n",
            at("log"),
            at("socket"),
            directory.path().display(),
        );
        fs::write(at("fpm.conf"), settings).expect("a file");
        let mut command = Command::new(program);
        command.args(["-n", "-R", "-F", "-y", &at("fpm.conf")]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut fpm = Self { child: child.expect("it starts"), directory };
        assert_soon("php-fpm does not listen", || {
            assert_eq!(fpm.child.try_wait().expect("is a child"), None, "php-fpm runs");
            UnixStream::connect(fpm.path("socket")).is_ok()
        });
        Some(fpm)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn proxy(&self) -> Running {
        let text = format!(
            "workers = 1\n[[listen]]\naddress = \"127.0.0.1:0\"\n[[route]]\nupstream = \"php\"\n[upstream.php]\n\
             servers = [\"fcgi+unix:{}\"]\nfastcgi = {{ root = \"{}\" }}\n\
             check = {{ type = \"http\", path = \"/ping\", body = \"pong\" }}\n",
            self.path("socket").display(),
            self.path("public").display(),
        );
        control::start(read(&text)).expect("it starts")
    }
}

fn client(proxy: &Running) -> Http1Peer {
    Http1Peer::new("client", TcpStream::connect(proxy.addresses()[0]).expect("the proxy listens"))
}

fn get(peer: &mut Http1Peer, target: &str) -> (u16, String, String) {
    peer.sends(format!("GET {target} HTTP/1.1\r\nHost: blog.example\r\n\r\n"));
    let message = peer.message();
    let body = String::from_utf8(message.body.clone()).expect("is text");
    (message.status(), message.head, body)
}

#[test]
fn a_front_controller_of_php_fpm_answers() {
    let Some(fpm) = Fpm::start() else { return };
    let proxy = fpm.proxy();
    let mut peer = client(&proxy);
    // More requests than processes, on kept connections.
    for _ in 0..5 {
        for (target, body) in [
            ("/", "/index.php  127.0.0.1"),
            ("/2026/a-post/?p=1&q", "/index.php p=1&q 127.0.0.1"),
            ("/wp-admin/", "/wp-admin/index.php  127.0.0.1"),
            ("/x.jpg/a.php", "/index.php  127.0.0.1"),
        ] {
            let (status, head, got) = get(&mut peer, target);
            assert_eq!((status, got.as_str()), (200, body), "{head}");
            assert!(head.contains(&format!("X-Path: {target}\r\n")), "{head}");
        }
    }
    assert_eq!(get(&mut peer, "/wp-admin").0, 301);
    let (status, _, body) = get(&mut peer, "/error.php");
    assert_eq!((status, body.as_str()), (500, "broken"));
}

#[test]
fn php_fpm_gets_an_upload_of_100_mb() {
    let Some(fpm) = Fpm::start() else { return };
    let proxy = fpm.proxy();
    let piece: Vec<u8> = (0..1_000_003_u32).map(|number| (number % 251) as u8).collect();
    let (pieces, bytes) = (100, 100 * piece.len());
    for is_chunked in [false, true] {
        let mut peer = client(&proxy);
        let framing = if is_chunked {
            "Transfer-Encoding: chunked".to_owned()
        } else {
            format!("Content-Length: {bytes}")
        };
        peer.sends(format!("POST /upload.php HTTP/1.1\r\nHost: blog.example\r\n{framing}\r\n\r\n"));
        let mut hash = sha1::Sha1::default();
        for _ in 0..pieces {
            sha1::Digest::update(&mut hash, &piece);
            if is_chunked {
                peer.sends(format!("{:x}\r\n", piece.len()));
            }
            peer.sends(&piece);
            if is_chunked {
                peer.sends("\r\n");
            }
        }
        if is_chunked {
            peer.sends("0\r\n\r\n");
        }
        let hash: String = sha1::Digest::finalize(hash).iter().map(|byte| format!("{byte:02x}")).collect();
        let message = peer.message();
        assert_eq!(String::from_utf8_lossy(&message.body), format!("{bytes} {hash} {bytes}"), "{is_chunked}");
    }
}

#[test]
fn pieces_of_php_fpm_pass_at_once() {
    let Some(fpm) = Fpm::start() else { return };
    let proxy = fpm.proxy();
    let mut peer = client(&proxy);
    peer.sends("GET /stream.php HTTP/1.1\r\nHost: blog.example\r\n\r\n");
    assert!(peer.head().contains("Transfer-Encoding: chunked"));
    peer.gets(b"d\r\ndata: first\n\n\r\n");
    fs::write(fpm.path("public/go"), "").expect("a file");
    peer.gets(b"e\r\ndata: second\n\n\r\n0\r\n\r\n");
}

/// Kills the process that runs `die.php`.
fn kill(fpm: &Fpm) {
    let file = fpm.path("public/pid");
    let mut pid = None;
    assert_soon("the script does not run", || {
        pid = fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok());
        pid.is_some()
    });
    fs::remove_file(&file).expect("it is there");
    let pid = pid.and_then(Pid::from_raw).expect("is a process");
    kill_process(pid, Signal::KILL).expect("it runs");
}

#[test]
fn a_process_of_php_fpm_that_dies_fails_its_request_alone() {
    let Some(fpm) = Fpm::start() else { return };
    let proxy = fpm.proxy();
    let mut peer = client(&proxy);
    peer.sends("POST /die.php HTTP/1.1\r\nHost: blog.example\r\nContent-Length: 1\r\n\r\nx");
    kill(&fpm);
    assert_eq!(peer.message().status(), 502);
    let mut peer = client(&proxy);
    peer.sends("GET /die.php?flush HTTP/1.1\r\nHost: blog.example\r\n\r\n");
    assert!(peer.head().starts_with("HTTP/1.1 200"));
    peer.gets(b"5\r\nbegun\r\n");
    kill(&fpm);
    // Without the last chunk, the client sees that the response is incomplete.
    peer.is_closed();
    assert_eq!(get(&mut client(&proxy), "/").0, 200);
}
