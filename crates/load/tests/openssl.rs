//! The generator with `openssl s_server`, another TLS library, if installed (on CI it must be). Its responses end with
//! the connection, so only close_notify shows that they are whole.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::made::Made;
use load::{Errors, LoadPlan, Tls};

struct Server(Child);

impl Server {
    /// `None` without openssl, unless this is CI.
    fn start(made: &Made, options: &[&str]) -> Option<(Self, u16)> {
        let spawned = Command::new("openssl")
            .args(["s_server", "-www", "-accept", "127.0.0.1:0"])
            .arg("-cert")
            .arg(made.certificate())
            .arg("-key")
            .arg(made.key())
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut child = match spawned {
            Ok(child) => child,
            Err(error) if std::env::var_os("CI").is_some() => {
                panic!("openssl must be installed on CI: {error}")
            }
            Err(_) => return None,
        };
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
        // Such as `ACCEPT 127.0.0.1:41873`: the kernel has chosen the port.
        let port = lines.find_map(|line| line.strip_prefix("ACCEPT ")?.rsplit_once(':')?.1.parse().ok());
        let server = Self(child);
        // A full pipe would stop the server.
        std::thread::spawn(move || lines.for_each(drop));
        Some((server, port.expect("openssl accepts connections")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn every_response_of_openssl_is_whole_and_of_the_version_asked_for() {
    let made = Made::new("openssl", &["localhost"]);
    for (option, version) in [("-tls1_2", "TLSv1.2 "), ("-tls1_3", "TLSv1.3 ")] {
        let Some((_server, port)) = Server::start(&made, &[option]) else { return };
        let told = load::run(&LoadPlan {
            tls: Tls { ca: Some(made.certificate()), ..Tls::default() },
            connections: 1,
            requests: Some(20),
            duration_seconds: None,
            ..LoadPlan::new(format!("https://localhost:{port}/"))
        });
        let told = told.expect("the run starts");
        assert_eq!((told.requests, told.errors), (20, Errors::default()), "{:?}", told.error_examples);
        let made = told.tls.expect("it was https");
        assert!(made.agreed[0].starts_with(version), "{:?}", made.agreed);
        assert!(made.resumed > 0, "{made:?}");
    }
}
