//! Clients and servers that others have written: curl in front, nginx behind. Where one is not installed its tests
//! are left out, but for CI, where it has to be.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use config::Config;
use proxy::Running;
use socket2::SockRef;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(20);
const LARGE_BYTES: usize = 10 << 20;

/// Where a program is; `None` where it is missing and may be.
fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    let found = places.map(|place| place.join(program)).find(|file| file.is_file());
    assert!(
        found.is_some() || std::env::var_os("CI").is_none(),
        "{program} is not installed, and CI is set: install it, e.g. apt-get install {program}"
    );
    found
}

fn proxy_to(server: SocketAddr) -> Running {
    let url = format!("http://{server}").parse().expect("is a URL");
    proxy::start(Config::for_servers(vec![SocketAddr::from(([127, 0, 0, 1], 0))], vec![url]))
        .expect("it starts")
}

/// nginx with a small, a large and a dynamic page, and what it takes by PUT.
struct Nginx {
    process: Child,
    directory: TempDir,
    address: SocketAddr,
}

impl Nginx {
    fn start() -> Option<Self> {
        let program = installed("nginx")?;
        let directory = tempfile::tempdir().expect("a temporary directory");
        let root = directory.path();
        // nginx takes no port of the kernel's choice: one that was free a moment ago.
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = free.expect("a port on loopback is free");
        std::fs::create_dir(root.join("pages")).expect("is writable");
        std::fs::write(root.join("pages/small.txt"), "hello\n").expect("is writable");
        std::fs::write(root.join("pages/large.bin"), large_body()).expect("is writable");
        std::fs::write(root.join("nginx.conf"), configuration(root, address)).expect("is writable");
        let process = Command::new(program)
            .arg("-p")
            .arg(root)
            .arg("-e")
            .arg(root.join("error.log"))
            .arg("-c")
            .arg(root.join("nginx.conf"))
            .stdin(Stdio::null())
            .spawn()
            .expect("nginx starts");
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            let log = || std::fs::read_to_string(root.join("error.log")).unwrap_or_default();
            assert!(began.elapsed() < PATIENCE, "nginx does not listen: {}", log());
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(Self { process, directory, address })
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn configuration(root: &Path, address: SocketAddr) -> String {
    let root = root.display();
    // One process, so that it ends with the test.
    format!(
        "daemon off; master_process off; pid {root}/nginx.pid;\n\
         events {{ worker_connections 64; }}\n\
         http {{\n\
           access_log off; client_max_body_size 64m;\n\
           client_body_temp_path {root}/body; proxy_temp_path {root}/proxy; fastcgi_temp_path {root}/fastcgi;\n\
           uwsgi_temp_path {root}/uwsgi; scgi_temp_path {root}/scgi;\n\
           server {{\n\
             listen {address}; root {root}/pages;\n\
             location = /seen {{ return 200 \"$http_host $http_x_forwarded_for $http_via\\n\"; }}\n\
             location /put/ {{ root {root}; dav_methods PUT; create_full_put_path on; }}\n\
             location = /zipped {{ gzip on; gzip_types *; gzip_min_length 1; alias {root}/pages/large.bin; }}\n\
           }}\n\
         }}\n"
    )
}

fn large_body() -> Vec<u8> {
    (0..LARGE_BYTES).map(|at| (at % 251) as u8).collect()
}

/// curl, silent but for errors, with a limit of time that nothing comes near.
fn curl(program: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(["-q", "--silent", "--show-error", "--max-time", "60", "--noproxy", "*"]).args(arguments);
    let output = command.output().expect("curl starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "curl {arguments:?}: {}: {said}", output.status);
    output
}

#[test]
fn curl_gets_pages_of_nginx() {
    let (Some(program), Some(nginx)) = (installed("curl"), Nginx::start()) else { return };
    let proxy = proxy_to(nginx.address);
    let front = format!("http://{}", proxy.addresses()[0]);
    let get = |arguments: &[&str], path: &str| {
        let url = format!("{front}{path}");
        curl(&program, &[arguments, &[url.as_str()]].concat()).stdout
    };
    for version in ["--http1.1", "--http1.0"] {
        assert_eq!(get(&[version], "/small.txt"), b"hello\n", "{version}");
        assert!(get(&[version], "/large.bin") == large_body(), "{version}");
        assert!(get(&[version, "--compressed"], "/zipped") == large_body(), "{version}, compressed");
    }
    let range = get(&["--range", "100-199"], "/large.bin");
    assert_eq!(range, large_body()[100..200]);
    let head = String::from_utf8(get(&["--head"], "/large.bin")).expect("is text");
    assert!(head.contains(&format!("Content-Length: {LARGE_BYTES}\r\n")), "{head}");
    let missing = get(&["--output", "/dev/null", "--write-out", "%{http_code}"], "/missing");
    assert_eq!(missing, b"404");
    let seen = String::from_utf8(get(&[], "/seen")).expect("is text");
    assert_eq!(seen, format!("{} 127.0.0.1 1.1 vanward\n", proxy.addresses()[0]));
    // Two pages on one connection.
    let both = format!("{front}/small.txt");
    let output = curl(&program, &[&both, &both, "--write-out", "%{num_connects}\n"]);
    assert_eq!(output.stdout, b"hello\n1\nhello\n0\n");
}

#[test]
fn curl_puts_files_on_nginx() {
    let (Some(program), Some(nginx)) = (installed("curl"), Nginx::start()) else { return };
    let proxy = proxy_to(nginx.address);
    let file = nginx.directory.path().join("pages/large.bin");
    let file = file.to_str().expect("is text");
    let put = |name: &str, arguments: &[&str]| {
        let url = format!("http://{}/put/{name}", proxy.addresses()[0]);
        let status = ["--output", "/dev/null", "--write-out", "%{http_code}", url.as_str()];
        let said = curl(&program, &[arguments, &status].concat()).stdout;
        assert_eq!(String::from_utf8_lossy(&said), "201", "{name}");
        let stored = std::fs::read(nginx.directory.path().join("put").join(name)).expect("it was stored");
        assert!(stored == large_body(), "{name}: what was stored is not what was sent");
    };
    put("length", &["--upload-file", file]);
    put("expect", &["--header", "Expect: 100-continue", "--upload-file", file]);
    put("chunked", &["--header", "Transfer-Encoding: chunked", "--upload-file", file]);
    put("http10", &["--http1.0", "--upload-file", file]);
}

#[test]
fn curl_posts_with_an_expectation() {
    let Some(program) = installed("curl") else { return };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback is free");
    SockRef::from(&listener).set_read_timeout(Some(PATIENCE)).expect("is a socket");
    let proxy = proxy_to(listener.local_addr().expect("it listens"));
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), large_body()).expect("is writable");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the proxy connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("is a socket");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a head arrives");
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).expect("is text");
        assert!(head.contains("\r\nExpect: 100-continue\r\n"), "{head}");
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").expect("the proxy takes it");
        let mut body = vec![0; LARGE_BYTES];
        stream.read_exact(&mut body).expect("the body arrives");
        assert!(body == large_body(), "the body is not what was sent");
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone").expect("the proxy takes it");
    });
    let data = format!("@{}", file.path().display());
    let url = format!("http://{}/", proxy.addresses()[0]);
    // Longer than any test: it must be the server's word that makes curl send.
    let arguments =
        ["--header", "Expect: 100-continue", "--expect100-timeout", "600", "--data-binary", &data, &url];
    assert_eq!(curl(&program, &arguments).stdout, b"done");
    server.join().expect("no panic");
}
