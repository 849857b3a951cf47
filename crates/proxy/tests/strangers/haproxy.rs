//! HAProxy in front: each of its ports names the client in another way.

use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::installed::{PATIENCE, installed};
use super::nginx::free_address;

/// Options of HAProxy for connections of each port.
const WAYS: [&str; 3] =
    ["send-proxy", "send-proxy-v2", "send-proxy-v2 proxy-v2-options crc32c,unique-id,authority"];

/// HAProxy in front of one server; killed when dropped.
pub(crate) struct Haproxy {
    process: Child,
    /// A port for each way.
    pub(crate) doors: Vec<SocketAddr>,
    _directory: TempDir,
}

impl Haproxy {
    pub(crate) fn start(server: SocketAddr) -> Option<Self> {
        let program = installed("haproxy")?;
        let directory = tempfile::tempdir().expect("a temporary directory");
        let doors: Vec<SocketAddr> = WAYS.iter().map(|_| free_address()).collect();
        let mut text =
            "global\n maxconn 100\ndefaults\n mode tcp\n timeout connect 20s\n timeout client 20s\n \
                        timeout server 20s\n unique-id-format %pid-%rt\n"
                .to_owned();
        for (door, way) in doors.iter().zip(WAYS) {
            text += &format!("listen door-{}\n bind {door}\n server there {server} {way}\n", door.port());
        }
        let path = directory.path().join("haproxy.cfg");
        std::fs::write(&path, text).expect("is writable");
        let process = Command::new(program)
            .arg("-db")
            .arg("-f")
            .arg(&path)
            .stdin(Stdio::null())
            .spawn()
            .expect("HAProxy starts");
        let haproxy = Self { process, doors, _directory: directory };
        let began = Instant::now();
        for door in &haproxy.doors {
            while TcpStream::connect(door).is_err() {
                assert!(began.elapsed() < PATIENCE, "HAProxy does not listen");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Some(haproxy)
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
