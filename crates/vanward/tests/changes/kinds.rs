//! Requests of each kind that asks a second place: files, another upstream, an application, a named file, a backup.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};

use load::Arrival;
use tempfile::TempDir;
use testkit::php_fpm::PhpFpm;

use super::Scene;
use crate::application_errors::{reads_request, record};
use crate::process::read_head;

/// Requests per second of each kind.
const RATE: f64 = 100.0;
const NOT_FOUND: &str = "HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nlost";
const NAMING: &str = "HTTP/1.1 200 OK\r\nX-Accel-Redirect: /protected/page.txt\r\nContent-Length: 0\r\n\r\n";

/// The servers and files of the kinds.
pub(super) struct Kinds {
    files: TempDir,
    application: Result<PhpFpm, SocketAddr>,
    lost: SocketAddr,
    naming: SocketAddr,
}

impl Kinds {
    pub(super) fn start() -> Self {
        let files = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(files.path().join("page.txt"), "a page").expect("it is writable");
        std::fs::write(files.path().join("index.php"), "").expect("it is writable");
        let script = "<?php echo 'an answer of ', 'PHP';";
        Self {
            files,
            application: PhpFpm::start(&[("index.php", script)]).ok_or_else(application),
            lost: answering(NOT_FOUND),
            naming: answering(NAMING),
        }
    }

    /// Routes and upstreams, for a file with the upstream `app`.
    pub(super) fn tables(&self, origin: SocketAddr) -> String {
        let (files, lost, naming) = (self.files.path().display(), self.lost, self.naming);
        let php = match &self.application {
            Ok(fpm) => fpm.upstream("php"),
            Err(address) => {
                format!(
                    "[upstream.php]\nservers = [\"fcgi://{address}\"]\nfastcgi = {{ root = \"{files}\" }}\n"
                )
            }
        };
        // A kept connection would occupy one of php-fpm's few processes.
        format!(
            "[[route]]\npath = \"/mixed\"\nrewrite = {{ path = \"/\" }}\nfiles = {{ root = \"{files}\", else = {{ upstream = \"app\" }} }}\n\
             [[route]]\npath = \"/lost\"\nupstream = \"lost\"\non_status = {{ 404 = {{ upstream = \"app\", path = \"/tiny\" }} }}\n\
             [[route]]\npath = \"/php\"\nrewrite = {{ path = \"/\" }}\nupstream = \"php\"\n\
             [[route]]\npath = \"/named\"\nupstream = \"naming\"\naccel = {{ \"/protected/\" = \"{files}\" }}\n\
             [[route]]\npath = \"/backup\"\nrewrite = {{ path = \"/\" }}\nupstream = \"backed\"\n\
             [upstream.lost]\nservers = [\"http://{lost}\"]\n[upstream.naming]\nservers = [\"http://{naming}\"]\n\
             [upstream.backed]\nservers = [\"http://127.0.0.1:1\", {{ url = \"http://{origin}\", priority = 1 }}]\n\
             {php}pool = {{ idle = 0 }}\n"
        )
    }

    /// Starts a load of each kind. Each response has to be that of its place.
    pub(super) fn loads(&self, scene: &Scene) -> Vec<(&'static str, load::RunningLoad)> {
        let tiny: String = (0..128).map(|at| char::from(origin::body_byte(at))).collect();
        [
            ("a file before a server", "/mixed/page.txt", "a page"),
            ("a server behind files", "/mixed/tiny", &tiny),
            ("another answer on a status", "/lost", &tiny),
            ("an application", "/php/", "an answer of PHP"),
            ("a named file", "/named", "a page"),
            ("a backup", "/backup/tiny", &tiny),
        ]
        .map(|(kind, path, text)| {
            let load = scene.load(|plan| {
                plan.urls = plan.urls.iter().map(|url| url.replace("/tiny", path)).collect();
                plan.arrival = Arrival::Constant { requests_per_second: RATE };
                plan.connections = 4;
                plan.check.status = vec![(200, 200)];
                plan.check.contains = vec![text.to_owned()];
            });
            (kind, load)
        })
        .into()
    }
}

/// A server that gives the same response to each request.
fn answering(response: &'static str) -> SocketAddr {
    serving(|stream| {
        while stream.peek(&mut [0]).is_ok_and(|count| count > 0) {
            read_head(stream);
            if stream.write_all(response.as_bytes()).is_err() {
                return;
            }
        }
    })
}

/// An application that plays PHP, where it is not installed.
fn application() -> SocketAddr {
    serving(|stream| {
        while reads_request(stream).is_ok() {
            let answer = [record(6, b"\r\nan answer of PHP"), record(3, &[0; 8])].concat();
            if stream.write_all(&answer).is_err() {
                return;
            }
        }
    })
}

fn serving(serve: impl Fn(&mut TcpStream) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it listens");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let serve = serve.clone();
            std::thread::spawn(move || serve(&mut stream));
        }
    });
    address
}
