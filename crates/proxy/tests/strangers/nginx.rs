//! nginx, as a server with a small, a large and a dynamic page, and with uploads by PUT.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::installed::{PATIENCE, installed};

pub(crate) const LARGE_BYTES: usize = 10 << 20;

/// nginx with three kinds of ports; killed when dropped.
pub(crate) struct Nginx {
    process: Child,
    directory: TempDir,
    pub(crate) address: SocketAddr,
    /// Behind a PROXY header: its page is the named client.
    pub(crate) introduced: SocketAddr,
    /// The ports that need a certificate.
    pub(crate) secured: Option<Secured>,
}

/// The ports that need a certificate, or are only useful with those.
pub(crate) struct Secured {
    /// TLS, with HTTP/2 and HTTP/1.1 by ALPN.
    pub(crate) tls: SocketAddr,
    /// HTTP/2 without TLS.
    pub(crate) h2c: SocketAddr,
    pub(crate) pair: Pair,
}

/// A self-signed certificate for localhost, and its key: files in a directory.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

impl Nginx {
    /// With the ports that need no certificate.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(|_| Some(None))
    }

    /// With all ports; `None` if nginx or openssl is missing.
    pub(crate) fn start_secured() -> Option<Self> {
        Self::start_with(|root| {
            let pair = Pair::make(root)?;
            Some(Some(Secured { tls: free_address(), h2c: free_address(), pair }))
        })
    }

    fn start_with(secured: impl FnOnce(&Path) -> Option<Option<Secured>>) -> Option<Self> {
        let program = installed("nginx")?;
        let directory = tempfile::tempdir().expect("a temporary directory");
        let root = directory.path();
        let secured = secured(root)?;
        let (address, introduced) = (free_address(), free_address());
        std::fs::create_dir(root.join("pages")).expect("is writable");
        std::fs::write(root.join("pages/small.txt"), "hello\n").expect("is writable");
        std::fs::write(root.join("pages/large.bin"), large_body()).expect("is writable");
        let text = configuration(root, [address, introduced], secured.as_ref());
        let process = launch(&program, root, &text);
        let nginx = Self { process, directory, address, introduced, secured };
        nginx.is_there();
        Some(nginx)
    }

    /// As a proxy that listens at this address, with these servers in its configuration.
    pub(crate) fn start_as(address: SocketAddr, servers: &dyn Fn(&str) -> String) -> Option<Self> {
        let program = installed("nginx")?;
        let directory = tempfile::tempdir().expect("a temporary directory");
        let root = directory.path();
        let text = in_http(root, &servers(&root.display().to_string()));
        let process = launch(&program, root, &text);
        let nginx = Self { process, directory, address, introduced: address, secured: None };
        nginx.is_there();
        Some(nginx)
    }

    fn is_there(&self) {
        let began = Instant::now();
        while TcpStream::connect(self.address).is_err() {
            let log = || std::fs::read_to_string(self.root().join("error.log")).unwrap_or_default();
            assert!(began.elapsed() < PATIENCE, "nginx does not listen: {}", log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A Unix socket for HTTP/1.1.
    pub(crate) fn socket(&self) -> PathBuf {
        self.root().join("nginx.sock")
    }

    /// The directory of its files.
    pub(crate) fn root(&self) -> &Path {
        self.directory.path()
    }
}

fn launch(program: &Path, root: &Path, text: &str) -> Child {
    std::fs::write(root.join("nginx.conf"), text).expect("is writable");
    Command::new(program)
        .arg("-p")
        .arg(root)
        .arg("-e")
        .arg(root.join("error.log"))
        .arg("-c")
        .arg(root.join("nginx.conf"))
        .stdin(Stdio::null())
        .spawn()
        .expect("nginx starts")
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns an address for a program that cannot use port 0. Each call has another loopback address, so no other program
/// takes the port meanwhile.
pub(crate) fn free_address() -> SocketAddr {
    static GIVEN: AtomicU16 = AtomicU16::new(1);
    let [high, low] = GIVEN.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let ours = Ipv4Addr::new(127, 2 + (std::process::id() % 250) as u8, high, low);
    let free = TcpListener::bind((ours, 0)).and_then(|listener| listener.local_addr());
    free.expect("a port on loopback is free")
}

fn configuration(root: &Path, [address, introduced]: [SocketAddr; 2], secured: Option<&Secured>) -> String {
    let path = root;
    let root = root.display();
    let doors = secured.map_or(String::new(), |Secured { tls, h2c, pair: Pair { cert, key } }| {
        format!(
            "listen {tls} ssl http2; listen {h2c} http2; ssl_protocols TLSv1.2 TLSv1.3; \
             ssl_certificate {cert:?}; ssl_certificate_key {key:?};"
        )
    });
    in_http(
        path,
        &format!(
            "server {{\n\
               listen {address}; listen unix:{root}/nginx.sock; {doors} root {root}/pages;\n\
               location = /seen {{ return 200 \"$http_host $http_x_forwarded_for $http_via\\n\"; }}\n\
               location = /spoken {{ return 200 \"$server_protocol $ssl_protocol $ssl_server_name\\n\"; }}\n\
               location /put/ {{ root {root}; dav_methods PUT; create_full_put_path on; }}\n\
               location /coded/ {{ gzip_static on; gzip_vary on; }}\n\
             location = /zipped {{ gzip on; gzip_types *; gzip_min_length 1; alias {root}/pages/large.bin; }}\n\
             }}\n\
             server {{ listen {introduced} proxy_protocol; return 200 \"$proxy_protocol_addr $http_x_forwarded_for\\n\"; }}\n"
        ),
    )
}

fn in_http(root: &Path, servers: &str) -> String {
    let root = root.display();
    // A single process, so that it ends with the test.
    format!(
        "daemon off; master_process off; pid {root}/nginx.pid;\n\
         events {{ worker_connections 64; }}\n\
         http {{\n\
           access_log off; client_max_body_size 64m;\n\
           client_body_temp_path {root}/body; proxy_temp_path {root}/proxy; fastcgi_temp_path {root}/fastcgi;\n\
           uwsgi_temp_path {root}/uwsgi; scgi_temp_path {root}/scgi;\n\
           {servers}\n\
         }}\n"
    )
}

pub(crate) fn large_body() -> Vec<u8> {
    (0..LARGE_BYTES).map(|at| (at % 251) as u8).collect()
}

impl Pair {
    fn make(directory: &Path) -> Option<Self> {
        let program = installed("openssl")?;
        let pair = Self { cert: directory.join("cert.pem"), key: directory.join("key.pem") };
        // Not a CA: rustls rejects a CA's certificate for a server.
        let request = "[req]\nprompt = no\ndistinguished_name = name\nx509_extensions = more\n\
                       [name]\nCN = localhost\n\
                       [more]\nsubjectAltName = DNS:localhost\nbasicConstraints = critical, CA:FALSE\n";
        std::fs::write(directory.join("request.conf"), request).expect("is writable");
        let output = Command::new(program)
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
            .args(["-days", "30", "-config"])
            .arg(directory.join("request.conf"))
            .arg("-out")
            .arg(&pair.cert)
            .arg("-keyout")
            .arg(&pair.key)
            .output()
            .expect("openssl starts");
        assert!(output.status.success(), "openssl: {}", String::from_utf8_lossy(&output.stderr));
        Some(pair)
    }
}
