//! php-fpm, as an application with a front controller.

use std::fs;
use std::net::TcpStream;

use control::Running;
use rustix::process::{Pid, Signal, kill_process};
use testkit::http1::Http1Peer;
use testkit::php_fpm::PhpFpm;
use testkit::scene::read;
use testkit::wait::assert_soon;

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

/// Answers the first 8 KiB of the body before it reads the rest.
const EARLY: &str =
    "<?php $body = fopen('php://input', 'r'); echo 'first ', strlen(fread($body, 8192)), \"\\n\"; flush();
echo 'rest ', strlen(stream_get_contents($body));";

const SCRIPTS: &[(&str, &str)] = &[
    ("index.php", FRONT),
    ("wp-admin/index.php", FRONT),
    ("upload.php", UPLOAD),
    ("stream.php", STREAM),
    ("error.php", ERROR),
    ("die.php", DIE),
    ("early.php", EARLY),
    ("x.jpg", "<?php echo 'an upload ran';"),
];

/// A proxy before php-fpm.
fn proxy(fpm: &PhpFpm) -> Running {
    let text = format!(
        "workers = 1\n[[listen]]\naddress = \"127.0.0.1:0\"\n[[route]]\nupstream = \"php\"\n{}\
         check = {{ type = \"http\", path = \"/ping\", body = \"pong\" }}\n",
        fpm.upstream("php"),
    );
    control::start(read(&text)).expect("it starts")
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
    let Some(fpm) = PhpFpm::start(SCRIPTS) else { return };
    let proxy = proxy(&fpm);
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
    let Some(fpm) = PhpFpm::start(SCRIPTS) else { return };
    let proxy = proxy(&fpm);
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
    let Some(fpm) = PhpFpm::start(SCRIPTS) else { return };
    let proxy = proxy(&fpm);
    let mut peer = client(&proxy);
    peer.sends("GET /stream.php HTTP/1.1\r\nHost: blog.example\r\n\r\n");
    assert!(peer.head().contains("Transfer-Encoding: chunked"));
    peer.gets(b"d\r\ndata: first\n\n\r\n");
    fs::write(fpm.root().join("go"), "").expect("a file");
    peer.gets(b"e\r\ndata: second\n\n\r\n0\r\n\r\n");
}

/// PHP reads the body of a POST before the script begins, and no other.
#[test]
fn php_fpm_answers_before_the_end_of_the_body() {
    let Some(fpm) = PhpFpm::start(SCRIPTS) else { return };
    let proxy = proxy(&fpm);
    for rest in [5, 100_000] {
        // A response that begins before the end of the body ends the connection.
        let mut peer = client(&proxy);
        let length = 8192 + rest;
        peer.sends(format!(
            "PUT /early.php HTTP/1.1\r\nHost: blog.example\r\nContent-Length: {length}\r\n\r\n"
        ));
        peer.sends(vec![b'x'; 8192]);
        let head = peer.head();
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("Transfer-Encoding: chunked"), "{head}");
        peer.gets(b"b\r\nfirst 8192\n\r\n");
        peer.sends(vec![b'x'; rest]);
        let text = format!("rest {rest}");
        peer.gets(format!("{:x}\r\n{text}\r\n0\r\n\r\n", text.len()).as_bytes());
    }
}

/// Kills the process that runs `die.php`.
fn kill(fpm: &PhpFpm) {
    let file = fpm.root().join("pid");
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
    let Some(fpm) = PhpFpm::start(SCRIPTS) else { return };
    let proxy = proxy(&fpm);
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
