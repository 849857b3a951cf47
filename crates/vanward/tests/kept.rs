//! The disk cache: complete after kill -9 at any time, and unused if the disk is full.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use crate::process::{Patience, Process, connect, read_head};
use rustix::process::{Pid, Signal, kill_process};

/// A server with cacheable responses that differ by path.
fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback is free");
    let address = listener.local_addr().expect("it listens");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let head = read_head(&mut stream);
            let path = head.split(' ').nth(1).expect("has a path");
            let body = body(path);
            let fields = "Cache-Control: max-age=3600\r\nConnection: close";
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{fields}\r\n\r\n", body.len());
            // The proxy may have been killed meanwhile.
            let _ = stream.write_all(&[head.as_bytes(), &body].concat());
        }
    });
    address
}

fn body(path: &str) -> Vec<u8> {
    let mut state = path.bytes().fold(17u64, |sum, byte| sum.wrapping_mul(31) + u64::from(byte));
    let len = 100 + state % 60_000;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn write(folder: &Path, server: SocketAddr) {
    let admin = folder.join("admin");
    let text = format!(
        "admin = {admin:?}\nworkers = 2\n[[listen]]\naddress = \"127.0.0.1:0\"\n[cache]\nmemory = \"64MiB\"\n\
         purge_from = [\"127.0.0.1\"]\n\
         disk = {{ path = \"./kept\", size = \"64MiB\" }}\n[[route]]\nupstream = \"app\"\ncache = {{}}\n\
         [upstream.app]\nservers = [\"http://{server}\"]\n"
    );
    std::fs::write(folder.join("vanward.toml"), text).expect("it can be written");
}

fn ask(address: SocketAddr, path: &str, fields: &str) -> Option<Vec<u8>> {
    let mut stream = connect(address);
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let is_whole = read_head(&mut stream).starts_with("HTTP/1.1 200");
    let mut body = Vec::new();
    stream.read_to_end(&mut body).expect("it answers, and closes");
    is_whole.then_some(body)
}

/// Waits until the status of the disk meets a condition.
fn wait_for(folder: &Path, is_so: impl Fn(&serde_json::Value) -> bool) {
    let patience = Patience::new();
    loop {
        let mut stream = UnixStream::connect(folder.join("admin")).expect("the admin API listens");
        stream.write_all(b"GET /status HTTP/1.1\r\nHost: admin\r\n\r\n").expect("it reads");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("it answers");
        let (_, body) = response.split_once("\r\n\r\n").expect("has a head");
        let status: serde_json::Value = serde_json::from_str(body).expect("is JSON");
        if is_so(&status["cache"]["disk"]) {
            return;
        }
        patience.wait_a_little("the disk does not come to that");
    }
}

#[test]
fn after_kills_all_that_is_served_is_whole() {
    const ROUNDS: u64 = 6;
    const PATHS: u64 = 60;
    let folder = tempfile::tempdir().expect("a temporary directory");
    write(folder.path(), server());
    let mut served = 0;
    for round in 0..ROUNDS {
        let mut proxy = Process::start_in(folder.path(), &["run"]);
        let address = proxy.address();
        wait_for(folder.path(), |disk| disk["is_on"] == true);
        for path in (0..round * PATHS).map(|number| format!("/{number}")) {
            if let Some(found) = ask(address, &path, "Cache-Control: only-if-cached\r\n") {
                assert!(found == body(&path), "{path}");
                served += 1;
            }
        }
        for path in (round * PATHS..(round + 1) * PATHS).map(|number| format!("/{number}")) {
            assert!(ask(address, &path, "").is_some_and(|found| found == body(&path)), "{path}");
        }
        wait_for(folder.path(), |disk| disk["written"].as_u64() >= Some(PATHS / 2));
        // Dropping the proxy kills it in the middle of the rest.
    }
    assert!(served >= ROUNDS * (ROUNDS - 1) / 2 * (PATHS / 2), "{served}");
}

/// Sends a request on a connection that may be reused. Returns the start of the response.
fn ask_on(stream: &mut TcpStream, method: &str, path: &str) -> String {
    let request = format!("{method} {path} HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let head = read_head(stream);
    let (_, length) = head.split_once("ontent-Length: ").expect("it has one");
    let length = length.lines().next().and_then(|length| length.parse().ok()).expect("a number");
    stream.read_exact(&mut vec![0; length]).expect("it is whole");
    head
}

/// A purge by a process that leaves takes effect in the next one, too, on its disk and in its memory.
#[test]
fn a_purge_by_a_leaving_process_holds_for_the_next_one() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    write(folder.path(), server());
    let mut proxy = Process::start_in(folder.path(), &["run", "--pid-file", "pid"]);
    let address = proxy.address();
    wait_for(folder.path(), |disk| disk["is_on"] == true);
    let is_stored = |path: &str| ask(address, path, "Cache-Control: only-if-cached\r\n").is_some();
    let paths = ["/changed", "/purged", "/kept"];
    for path in paths {
        assert!(ask(address, path, "").is_some());
    }
    wait_for(folder.path(), |disk| disk["written"] == 3);
    // The kernel keeps a connection until data arrives on it.
    let mut clients: Vec<TcpStream> = (0..3).map(|_| connect(address)).collect();
    for client in &mut clients {
        assert!(ask_on(client, "GET", "/kept").starts_with("HTTP/1.1 200 "));
    }
    let process =
        || std::fs::read_to_string(folder.path().join("pid")).unwrap_or_default().trim().parse::<i32>();
    proxy.signal(Signal::USR2);
    proxy.warns("has taken over");
    // Stored by the serving process, once it has the disk.
    let patience = Patience::new();
    while !paths.into_iter().all(is_stored) {
        patience.wait_a_little("the disk is not handed over");
    }
    while !is_stored("/new") {
        assert!(ask(address, "/new", "").is_some());
    }

    for (client, (method, path)) in
        clients.iter_mut().zip([("POST", "/changed"), ("PURGE", "/purged"), ("DELETE", "/new")])
    {
        let head = ask_on(client, method, path);
        assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("onnection: close"), "{method}: {head}");
        assert!(!is_stored(path), "{method}");
        assert!(is_stored("/kept"));
    }
    drop(clients);
    let next = process().ok().and_then(Pid::from_raw).expect("it has a number");
    kill_process(next, Signal::TERM).expect("it runs");
    // The output ends with the next process, which shares it.
    proxy.ended().with_code(0);
}

#[test]
fn a_disk_that_takes_no_more_is_done_without() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    write(folder.path(), server());
    // Limits files to about 32 KiB.
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; ulimit -f 64; exec \"$0\" run", env!("CARGO_BIN_EXE_vanward")]);
    let mut proxy = Process::of(shell.current_dir(folder.path()));
    let address = proxy.address();
    wait_for(folder.path(), |disk| disk["is_on"] == true);
    let paths: Vec<String> = (0..20).map(|number| format!("/{number}")).collect();
    for path in &paths {
        assert!(ask(address, path, "").is_some_and(|found| found == body(path)), "{path}");
    }
    wait_for(folder.path(), |disk| disk["is_on"] == false);
    // The next response to be stored triggers the warning.
    assert!(ask(address, "/next", "").is_some());
    proxy.warns("the cache does not use its disk until the next start");
    for path in &paths {
        let found = ask(address, path, "Cache-Control: only-if-cached\r\n");
        assert!(found.is_some_and(|found| found == body(path)), "{path}");
    }
}
