//! Vanward under a service manager (systemd): passed sockets, and the watchdog.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;
use std::process::Command;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::process::{PATIENCE, Process, read_head};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";

/// A folder with a configuration that responds without a server at an address.
fn folder_with(address: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let text = format!(
        "workers = 2\n[[listen]]\naddress = \"{address}\"\n[[route]]\nredirect = {{ to = \"https://elsewhere.test/\" }}\n"
    );
    std::fs::write(folder.path().join("vanward.toml"), text).expect("it can be written");
    folder
}

/// Starts a proxy with a passed socket, as a service manager does: as descriptor 3 of the named process.
fn activated(folder: &Path, socket: &impl AsFd) -> Process {
    const PASS: &str = r#"exec 3<&"$1"; LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" run"#;
    // It is inherited by other children of this test, too, which ignore it.
    fcntl_setfd(socket, FdFlags::empty()).expect("it is open");
    let number = socket.as_fd().as_raw_fd().to_string();
    let program = env!("CARGO_BIN_EXE_vanward");
    Process::of(Command::new("bash").args(["-c", PASS, program, &number]).current_dir(folder))
}

#[test]
fn a_socket_of_the_service_manager_is_served_by_all_workers() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it listens");
    // A client that connects before the proxy runs has to wait.
    let mut waiting = TcpStream::connect(address).expect("the kernel accepts");
    waiting.write_all(REQUEST).expect("the kernel takes it");
    let folder = folder_with(&address.to_string());
    let mut proxy = activated(folder.path(), &listener);
    drop(listener);
    assert_eq!(proxy.address(), address);
    assert!(head(&mut waiting).starts_with("HTTP/1.1 30"));
    for _ in 0..16 {
        assert!(asked(address).starts_with("HTTP/1.1 30"));
    }
    // The next process gets it as well.
    let next = upgraded(&proxy);
    assert!(asked(address).starts_with("HTTP/1.1 30"));
    kill_process(next, Signal::TERM).expect("it runs");
    proxy.ended().with_code(0);
}

#[test]
fn a_socket_that_nothing_serves_is_refused() {
    let folder = folder_with("127.0.0.1:0");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it listens").to_string();
    let said = activated(folder.path(), &listener).ended().with_code(1).errors;
    assert!(said.contains(&format!("a socket for {address}, and no [[listen]] has that address")), "{said}");

    let unix = UnixListener::bind(folder.path().join("socket")).expect("the folder is there");
    let said = activated(folder.path(), &unix).ended().with_code(1).errors;
    assert!(
        said.contains("file descriptor 3 from the service manager is not a listening TCP socket"),
        "{said}"
    );
}

#[test]
fn the_watchdog_is_told_by_the_process_that_serves() {
    let folder = folder_with("127.0.0.1:0");
    let place = folder.path().join("notify");
    let manager = UnixDatagram::bind(&place).expect("the folder is there");
    manager.set_read_timeout(Some(PATIENCE)).expect("it is a socket");
    let script = r#"WATCHDOG_PID=$$ exec "$0" run"#;
    let mut command = Command::new("bash");
    command.args(["-c", script, env!("CARGO_BIN_EXE_vanward")]).current_dir(folder.path());
    let proxy = Process::of(command.env("NOTIFY_SOCKET", &place).env("WATCHDOG_USEC", "200000"));
    let told = |expected: &str| {
        let mut buffer = [0; 256];
        loop {
            let count = manager.recv(&mut buffer).expect("it is told");
            let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
            if text.starts_with(expected) {
                return text;
            }
        }
    };
    told("READY=1");
    (0..3).for_each(|_| drop(told("WATCHDOG=1")));
    let next = upgraded(&proxy);
    assert_eq!(told("MAINPID="), format!("MAINPID={next}"));
    (0..3).for_each(|_| drop(told("WATCHDOG=1")));
    kill_process(next, Signal::TERM).expect("it runs");
    told("STOPPING=1");
    proxy.ended().with_code(0);
}

#[test]
fn the_journal_gets_priorities_and_no_second_time() {
    // As systemd does: device and inode of the journal's stream.
    let lines = |stream: &str, toml: &str| {
        let folder = tempfile::tempdir().expect("a folder can be made");
        std::fs::write(folder.path().join("vanward.toml"), toml).expect("it can be written");
        let script = format!(r#"JOURNAL_STREAM={stream} exec "$0" run"#);
        let mut command = Command::new("bash");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_vanward")]).current_dir(folder.path());
        let mut proxy = Process::of(&mut command);
        if toml.contains("respond") {
            proxy.address();
            proxy.signal(Signal::TERM);
        }
        proxy.ended().errors
    };
    let own = "$(stat --dereference --format=%d:%i /proc/self/fd/2)";
    let served = "[[listen]]\naddress = \"127.0.0.1:0\"\n[[route]]\nrespond = { status = 200 }\n";
    let said = lines(own, served);
    assert!(said.contains("<6>[info] listening on 127.0.0.1:"), "{said}");
    // Tests that run as root cause a warning.
    let is_marked = |line: &str| line.starts_with("<6>[info] ") || line.starts_with("<4>[warn] ");
    assert!(said.lines().all(is_marked), "{said}");
    let said = lines(own, "[[listen]]\nadress = \"127.0.0.1:0\"\n");
    assert!(said.lines().count() > 1 && said.lines().all(|line| line.starts_with("<3>")), "{said}");
    // Another process's stream.
    for other in ["1:1", "''", "x"] {
        let said = lines(other, served);
        assert!(said.starts_with("20") && said.contains("Z [info] listening on "), "{said}");
    }
}

/// Has the next process take over, and returns its number.
fn upgraded(proxy: &Process) -> Pid {
    proxy.signal(Signal::USR2);
    proxy.warns("has taken over");
    let told = proxy.told("process ").expect("it names it");
    let number = told.split(' ').next().and_then(|number| number.parse().ok());
    number.and_then(Pid::from_raw).expect("a number")
}

fn asked(address: SocketAddr) -> String {
    let mut client = TcpStream::connect(address).expect("somebody listens");
    client.write_all(REQUEST).expect("it reads");
    head(&mut client)
}

fn head(client: &mut TcpStream) -> String {
    client.set_read_timeout(Some(PATIENCE)).expect("it is a socket");
    read_head(client)
}
