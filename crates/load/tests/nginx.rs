//! Against nginx, where it is installed: a server whose responses nobody here wrote. On CI it must be there.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use load::{Errors, Plan};

struct Nginx {
    child: Child,
    port: u16,
    folder: PathBuf,
}

impl Nginx {
    /// `None` where nginx is not installed, unless this is CI.
    fn start(files: &[(&str, usize)]) -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .expect("a port")
            .port();
        let folder = std::env::temp_dir().join(format!("vanward-load-nginx-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        for (name, size_bytes) in files {
            std::fs::write(folder.join(name), vec![b'x'; *size_bytes]).expect("a file");
        }
        let path = folder.display();
        let configuration = format!(
            "worker_processes 1; daemon off; master_process off; pid {path}/pid; error_log {path}/error.log;
             events {{ worker_connections 512; }}
             http {{ access_log off; keepalive_requests 100; client_body_temp_path {path}/body;
                     proxy_temp_path {path}/proxy; fastcgi_temp_path {path}/fastcgi;
                     uwsgi_temp_path {path}/uwsgi; scgi_temp_path {path}/scgi;
                     server {{ listen 127.0.0.1:{port}; root {path}; }} }}"
        );
        let file = folder.join("nginx.conf");
        std::fs::File::create(&file)
            .and_then(|mut file| file.write_all(configuration.as_bytes()))
            .expect("a file");
        let spawned = Command::new("nginx").arg("-c").arg(&file).stderr(Stdio::null()).spawn();
        let child = match spawned {
            Ok(child) => child,
            Err(error) if std::env::var_os("CI").is_some() => {
                panic!("nginx must be installed on CI: {error}")
            }
            Err(_) => return None,
        };
        let mut nginx = Self { child, port, folder };
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = nginx.child.try_wait().expect("a child of ours");
            assert!(ended.is_none(), "nginx ended: {ended:?}; see {}", nginx.folder.display());
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(nginx)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn every_response_of_nginx_is_whole() {
    let Some(nginx) = Nginx::start(&[("tiny", 128), ("large", 165_854)]) else { return };
    let url = |file: &str| format!("http://127.0.0.1:{}/{file}", nginx.port);
    let base = || Plan {
        connections: 8,
        threads: 2,
        requests: Some(1_000),
        duration_seconds: None,
        ..Plan::default()
    };
    // After every 100 requests nginx closes a connection, and says so.
    let cases = [
        (Plan { urls: vec![url("tiny")], ..base() }, 128_000),
        (Plan { urls: vec![url("tiny"), url("large")], ..base() }, 500 * (128 + 165_854)),
        (Plan { urls: vec![url("tiny")], keepalive: false, ..base() }, 128_000),
        (Plan { urls: vec![url("large")], method: "HEAD".into(), ..base() }, 0),
    ];
    for (plan, body_bytes) in cases {
        let told = load::run(&plan).expect("the run starts");
        assert_eq!(
            (told.requests, told.errors, told.body_bytes),
            (1_000, Errors::default(), body_bytes),
            "{plan:?}"
        );
    }
    let told = load::run(&Plan { urls: vec![url("missing")], ..base() }).expect("the run starts");
    assert_eq!((told.requests, told.errors.status, told.statuses[&404]), (0, 1_000, 1_000));
}
