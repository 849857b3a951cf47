//! The generator with nginx, a server that is independent of it, if it is installed. On CI it must be installed.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::made::Made;
use load::{Errors, LoadPlan, RunOutcome, Tls};

struct Nginx {
    child: Child,
    /// HTTP/1.1, HTTP/2 and both over TLS.
    ports: [u16; 3],
    made: Made,
}

impl Nginx {
    /// `None` if nginx is not installed, unless this is CI.
    fn start(files: &[(&str, usize)]) -> Option<Self> {
        // nginx cannot use a port that the kernel chooses. These three were free at once a moment ago, so they differ.
        let free = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port on loopback is free"));
        let ports = free.map(|listener| listener.local_addr().expect("it is bound").port());
        let made = Made::new(&format!("nginx-{}", ports[0]), &["localhost"]);
        let folder = made.folder();
        for (name, size_bytes) in files {
            std::fs::write(folder.join(name), vec![b'x'; *size_bytes]).expect("a file");
        }
        let path = folder.display();
        let [plain, http2, tls] = ports;
        let configuration = format!(
            "worker_processes 1; daemon off; master_process off; pid {path}/pid; error_log {path}/error.log;
             events {{ worker_connections 512; }}
             http {{ access_log off; keepalive_requests 100; client_body_temp_path {path}/body;
                     proxy_temp_path {path}/proxy; fastcgi_temp_path {path}/fastcgi;
                     uwsgi_temp_path {path}/uwsgi; scgi_temp_path {path}/scgi;
                     ssl_certificate {path}/cert.pem; ssl_certificate_key {path}/key.pem;
                     ssl_protocols TLSv1.2 TLSv1.3; ssl_session_cache shared:sessions:1m;
                     server {{ listen 127.0.0.1:{plain}; listen 127.0.0.1:{http2} http2;
                               listen 127.0.0.1:{tls} ssl http2; root {path}; }} }}"
        );
        let file = folder.join("nginx.conf");
        std::fs::write(&file, configuration).expect("a file");
        let spawned = Command::new("nginx").arg("-c").arg(&file).stderr(Stdio::null()).spawn();
        let child = match spawned {
            Ok(child) => child,
            Err(error) if std::env::var_os("CI").is_some() => {
                panic!("nginx must be installed on CI: {error}")
            }
            Err(_) => return None,
        };
        let mut nginx = Self { child, ports, made };
        while ports.iter().any(|port| TcpStream::connect(("127.0.0.1", *port)).is_err()) {
            let ended = nginx.child.try_wait().expect("a child of ours");
            assert!(ended.is_none(), "nginx ended: {ended:?}; see {}", nginx.made.folder().display());
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(nginx)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn base() -> LoadPlan {
    LoadPlan {
        connections: 8,
        threads: 2,
        requests: Some(1_000),
        duration_seconds: None,
        ..LoadPlan::default()
    }
}

fn run(plan: &LoadPlan) -> RunOutcome {
    load::run(plan).expect("the run starts")
}

/// Expects a thousand whole responses, with this many bytes in their bodies.
#[track_caller]
fn assert_whole(plan: &LoadPlan, body_bytes: u64) -> RunOutcome {
    let told = run(plan);
    let counted = (told.requests, told.errors, told.body_bytes);
    assert_eq!(counted, (1_000, Errors::default(), body_bytes), "{plan:?}: {:?}", told.error_examples);
    told
}

#[test]
fn every_response_of_nginx_is_whole() {
    let Some(nginx) = Nginx::start(&[("tiny", 128), ("large", 165_854)]) else { return };
    let url = |file: &str| format!("http://127.0.0.1:{}/{file}", nginx.ports[0]);
    // After every 100 requests nginx closes a connection, and announces it.
    let cases = [
        (LoadPlan { urls: vec![url("tiny")], ..base() }, 128_000),
        (LoadPlan { urls: vec![url("tiny"), url("large")], ..base() }, 500 * (128 + 165_854)),
        (LoadPlan { urls: vec![url("tiny")], keepalive: false, ..base() }, 128_000),
        (LoadPlan { urls: vec![url("large")], method: "HEAD".into(), ..base() }, 0),
    ];
    for (plan, body_bytes) in cases {
        assert_whole(&plan, body_bytes);
    }
    let told = run(&LoadPlan { urls: vec![url("missing")], ..base() });
    assert_eq!((told.requests, told.errors.status, told.statuses[&404]), (0, 1_000, 1_000));
}

#[test]
fn every_response_of_nginx_is_whole_over_tls_and_sessions_are_resumed() {
    let Some(nginx) = Nginx::start(&[("tiny", 128), ("large", 165_854)]) else { return };
    let url = |file: &str| format!("https://localhost:{}/{file}", nginx.ports[2]);
    let tls = || Tls { ca: Some(nginx.made.certificate()), ..Tls::default() };
    let base = || LoadPlan { tls: tls(), ..base() };
    assert_whole(&LoadPlan { urls: vec![url("tiny")], ..base() }, 128_000);
    assert_whole(&LoadPlan { urls: vec![url("tiny"), url("large")], ..base() }, 500 * (128 + 165_854));
    for version_max in [load::TlsVersion::Tls12, load::TlsVersion::Tls13] {
        let tls = Tls { version_max: Some(version_max), ..tls() };
        let fresh = LoadPlan { urls: vec![url("tiny")], keepalive: false, tls, ..base() };
        let made = assert_whole(&fresh, 128_000).tls.expect("it was https");
        assert_eq!(made.full + made.resumed, 1_000);
        // Each connection resumes its own sessions, after the first handshake.
        assert_eq!(made.full, fresh.connections as u64, "{version_max:?}");
        let fresh = LoadPlan { tls: Tls { resume: false, ..fresh.tls.clone() }, requests: Some(20), ..fresh };
        let made = run(&fresh).tls.expect("it was https");
        assert_eq!((made.full, made.resumed), (20, 0));
    }
}

#[test]
fn every_response_of_nginx_is_whole_over_http2() {
    let Some(nginx) = Nginx::start(&[("tiny", 128), ("large", 165_854)]) else { return };
    let tls = Tls { verify: false, ..Tls::default() };
    let base = || LoadPlan { http2: true, streams: 16, tls: tls.clone(), ..base() };
    let [_, plain, secure] = nginx.ports;
    for base_url in [format!("http://127.0.0.1:{plain}"), format!("https://127.0.0.1:{secure}")] {
        let url = |file: &str| format!("{base_url}/{file}");
        // After every 100 requests nginx sends GOAWAY, and refuses requests that crossed with it.
        assert_whole(&LoadPlan { urls: vec![url("tiny")], ..base() }, 128_000);
        assert_whole(&LoadPlan { urls: vec![url("tiny"), url("large")], ..base() }, 500 * (128 + 165_854));
        assert_whole(&LoadPlan { urls: vec![url("large")], method: "HEAD".into(), ..base() }, 0);
        assert_whole(&LoadPlan { urls: vec![url("tiny")], keepalive: false, streams: 1, ..base() }, 128_000);
        let told = run(&LoadPlan { urls: vec![url("missing")], ..base() });
        assert_eq!((told.requests, told.errors.status, told.statuses[&404]), (0, 1_000, 1_000));
    }
}
