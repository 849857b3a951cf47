//! Upgrades and reloads under load over HTTP/3: connections stay with the process that accepted them, whichever
//! process gets their datagrams, and no request fails.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use testkit::http3::{Got, H3TestClient, H3TestStream, RawClient, trusting};

use crate::process::{Patience, Process, read_head, run_in};

/// Clients that send requests without a pause.
const CLIENTS: usize = 4;
const AT_ONCE: usize = 4;
/// Requests that a test waits for between two changes.
const BETWEEN: u64 = 100;
/// Clients that have sent a part of their ClientHello when an upgrade begins.
const HANDSHAKES: usize = 24;
/// H3_REQUEST_REJECTED.
const REJECTED: u64 = 0x10b;

/// Starts a server that responds, or switches protocols and echoes.
fn serve() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it listens");
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || answer(stream));
        }
    });
    address
}

fn answer(mut stream: TcpStream) {
    while stream.peek(&mut [0]).is_ok_and(|count| count > 0) {
        let head = read_head(&mut stream);
        // If the end of a stream arrives after its head, the request has an empty body. Unread, its last chunk would
        // be taken for the next request and answered in its place.
        if head.to_ascii_lowercase().contains("\r\ntransfer-encoding: chunked\r\n") {
            assert_eq!(read_head(&mut stream), "0\r\n\r\n");
        }
        if !head.starts_with("GET /echo ") {
            assert!(head.starts_with("GET / "), "{head}");
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                return;
            }
            continue;
        }
        let mut sent = stream
            .write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
        let mut bytes = [0; 4096];
        while let (Ok(()), Ok(count @ 1..)) = (&sent, stream.read(&mut bytes)) {
            sent = stream.write_all(&bytes[..count]);
        }
        return;
    }
}

struct Scene {
    _last: LastProcess,
    folder: tempfile::TempDir,
    first: Process,
    address: SocketAddr,
    server: SocketAddr,
}

/// Kills the process with the ID in this file, so that a failed test leaves none behind.
struct LastProcess(PathBuf);

impl Drop for LastProcess {
    fn drop(&mut self) {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        if let Some(process) = text.trim().parse().ok().and_then(Pid::from_raw) {
            // It may have ended already.
            let _ = kill_process(process, Signal::KILL);
        }
    }
}

impl Scene {
    fn start(workers: usize) -> Self {
        let (folder, server) = (tempfile::tempdir().expect("a temporary folder"), serve());
        write(folder.path(), workers, server, "http3 = true\n");
        let mut first = Process::start_in(folder.path(), &["run", "--pid-file", "pid"]);
        let address = first.address();
        let _last = LastProcess(folder.path().join("pid"));
        Self { _last, folder, first, address, server }
    }

    fn write(&self, workers: usize, more: &str) {
        write(self.folder.path(), workers, self.server, more);
    }

    fn process(&self) -> u32 {
        let patience = Patience::new();
        loop {
            let text = std::fs::read_to_string(self.folder.path().join("pid")).unwrap_or_default();
            if let Ok(process) = text.trim().parse() {
                return process;
            }
            patience.wait_a_little("there is no file with the number of the process");
        }
    }

    fn signal(&self, signal: Signal) {
        let process = Pid::from_raw(self.process() as i32).expect("a process has a number");
        kill_process(process, signal).expect("it runs");
    }

    fn upgrade(&self) {
        let before = self.process();
        self.signal(Signal::USR2);
        let patience = Patience::new();
        while self.process() == before {
            patience.wait_a_little("no other process takes over");
        }
    }

    fn reload(&self) {
        run_in(self.folder.path(), &["reload"]).with_code(0);
    }

    /// Opens a tunnel, which stays with the process that accepted it.
    fn tunnel(&self) -> (H3TestClient, H3TestStream) {
        let client = H3TestClient::connect(self.address);
        let mut stream = client.open();
        stream.sends_head(
            ":method: CONNECT\n:protocol: echo\n:scheme: https\n:authority: test\n:path: /echo\n",
        );
        let head = stream.head();
        assert!(head.starts_with(":status: 200\n"), "{head}{}", self.failures());
        (client, stream)
    }

    /// Returns the log of failed requests, once there is some.
    fn failures(&self) -> String {
        let patience = Patience::new();
        loop {
            let lines = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            if lines.ends_with('\n') {
                return lines;
            }
            patience.wait_a_little("the log has no failure");
        }
    }

    fn end(self) {
        self.signal(Signal::TERM);
        let patience = Patience::new();
        while self.folder.path().join("pid").exists() {
            patience.wait_a_little("the last process does not end");
        }
        self.first.ended().with_code(0);
    }
}

fn write(folder: &Path, workers: usize, server: SocketAddr, listen: &str) {
    let text = format!(
        "workers = {workers}\nadmin = \"{0}/admin\"\n[log]\ntarget = \"{0}/log\"\n[timeouts]\ndrain = \"1s\"\n[shed]\nconcurrency = \"off\"\n\
         [[route]]\nupstream = \"app\"\naccess_log = \"0%\"\n[upstream.app]\nservers = [\"http://{server}\"]\n\
         [[listen]]\naddress = \"127.0.0.1:0\"\ntls = {{ self_signed = true }}\n{listen}",
        folder.display()
    );
    std::fs::write(folder.join("next"), text).expect("it is writable");
    std::fs::rename(folder.join("next"), folder.join("vanward.toml")).expect("it is writable");
}

fn goes_on(stream: &mut H3TestStream) {
    for round in 0..5 {
        let piece = [b'a' + round; 3000];
        stream.sends_data(&piece);
        let mut back = Vec::new();
        while back.len() < piece.len() {
            match stream.gets() {
                Got::Data(bytes) => back.extend(bytes),
                other => panic!("the tunnel gives {other:?}"),
            }
        }
        assert!(back == piece, "the tunnel gives something else");
    }
}

/// Sends requests without a pause, and reconnects on GOAWAY; panics if a request fails.
fn asks(address: SocketAddr, is_over: &AtomicBool, answered: &AtomicU64) {
    while !is_over.load(Ordering::Relaxed) {
        let client = H3TestClient::connect(address);
        let last = client.last_named();
        while last.load(Ordering::Acquire) == u64::MAX && !is_over.load(Ordering::Relaxed) {
            let streams: Option<Vec<_>> = (0..AT_ONCE).map(|_| client.try_open()).collect();
            // RFC 9114 §5.2: the connection may end between requests.
            let Some(mut streams) = streams else { break };
            for stream in &mut streams {
                stream.asks("GET", "/", "");
            }
            for stream in &mut streams {
                if whole(stream, &last) {
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        client.ends();
    }
}

/// Whether a request has its response. A request that the proxy declares unprocessed may be sent again.
fn whole(stream: &mut H3TestStream, last: &AtomicU64) -> bool {
    let mut got = stream.gets();
    match &got {
        Got::Headers(head) => assert!(head.starts_with(":status: 200\n"), "{head}"),
        Got::Reset(REJECTED) => return false,
        Got::Gone if is_named(stream.id(), last) => return false,
        other => panic!("the request fails: {other:?}, with the last one named {last:?}"),
    }
    let mut body = Vec::new();
    loop {
        got = stream.gets();
        match got {
            Got::Data(bytes) => body.extend(bytes),
            Got::End => break,
            other => panic!("the response is cut off: {other:?}"),
        }
    }
    assert_eq!(body, b"ok");
    true
}

/// Whether the proxy has declared this request unprocessed. Another task reads that.
fn is_named(id: u64, last: &AtomicU64) -> bool {
    const LOOKS: u32 = 500;
    (0..LOOKS).any(|_| {
        let is_named = id >= last.load(Ordering::Acquire);
        if !is_named {
            thread::sleep(std::time::Duration::from_millis(10));
        }
        is_named
    })
}

fn under_load(reloads: usize, upgrades: usize) {
    let scene = Scene::start(2);
    let (is_over, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let loads: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (address, is_over, answered) = (scene.address, Arc::clone(&is_over), Arc::clone(&answered));
            thread::spawn(move || asks(address, &is_over, &answered))
        })
        .collect();
    let go_on = || {
        let before = answered.load(Ordering::Relaxed);
        let patience = Patience::new();
        while answered.load(Ordering::Relaxed) < before + BETWEEN {
            assert!(!loads.iter().any(thread::JoinHandle::is_finished), "a client has failed");
            patience.wait_a_little("the load does not go on");
        }
    };
    go_on();
    let mut tunnels = vec![scene.tunnel()];
    for index in 0..reloads {
        let other = ["", "name = \"a\"\n", "name = \"b\"\n"][index % 3];
        scene.write(2, &format!("http3 = true\n{other}"));
        scene.reload();
        go_on();
        goes_on(&mut tunnels[0].1);
    }
    for index in 0..upgrades {
        // As many workers as sockets, fewer, more.
        scene.write([2, 1, 3][index % 3], "http3 = true\n");
        scene.upgrade();
        go_on();
        tunnels.push(scene.tunnel());
        for (_, tunnel) in &mut tunnels {
            goes_on(tunnel);
        }
    }
    is_over.store(true, Ordering::Relaxed);
    for load in loads {
        load.join().expect("no request fails");
    }
    tunnels.into_iter().for_each(|(client, _)| client.ends());
    scene.end();
}

#[test]
fn reloads_and_upgrades_lose_nothing_of_http3() {
    under_load(5, 5);
}

#[test]
#[ignore = "takes minutes: the figures of a release"]
fn a_hundred_reloads_and_five_upgrades_lose_nothing_of_http3() {
    under_load(100, 5);
}

/// While one process leaves and the next one starts to receive, each new client belongs to one of them.
#[test]
fn no_client_is_refused_that_begins_during_an_upgrade() {
    let scene = Scene::start(2);
    let (is_over, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (address, is_over, begun) = (scene.address, Arc::clone(&is_over), Arc::clone(&begun));
            thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    H3TestClient::connect(address).ends();
                    begun.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for workers in [1, 3, 2, 2] {
        scene.write(workers, "http3 = true\n");
        scene.upgrade();
        let (before, patience) = (begun.load(Ordering::Relaxed), Patience::new());
        while begun.load(Ordering::Relaxed) < before + 2 * CLIENTS as u64 {
            assert!(!clients.iter().any(thread::JoinHandle::is_finished), "a client has failed");
            patience.wait_a_little("no client begins");
        }
    }
    is_over.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().expect("no client fails");
    }
    scene.end();
}

/// The kernel may deliver later datagrams of a handshake to sockets of other workers, in either process.
#[test]
fn handshakes_continue_during_an_upgrade_to_more_workers() {
    let scene = Scene::start(2);
    for workers in [5, 1, 8] {
        let clients: Vec<_> = (0..HANDSHAKES)
            .map(|_| {
                // Long protocol names make the ClientHello long, as post-quantum keys do.
                let tls = trusting(&[b"h3", &[b'x'; 250], &[b'y'; 250], &[b'z'; 250], &[b'0'; 250]]);
                let mut client = RawClient::from_address(scene.address, tls, Default::default());
                let hello = client.next_datagram().expect("a hello");
                let rest = client.next_datagram().expect("it takes two datagrams");
                client.sends(&hello);
                (client, rest)
            })
            .collect();
        // The response to this later request shows that the earlier datagrams were received.
        scene.tunnel().0.ends();
        scene.write(workers, "http3 = true\n");
        scene.upgrade();
        for (mut client, rest) in clients {
            client.sends(&rest);
            client.until(&format!("a handshake is lost in the upgrade to {workers} workers"), |client| {
                !client.quic.is_handshaking()
            });
            client.quic.close(std::time::Instant::now(), 0x100_u32.into(), Default::default());
            client.turn();
        }
    }
    scene.end();
}

/// The next process asks the previous one about each new client, because a handshake was under way there. It hangs
/// and never responds.
#[test]
fn a_process_that_hangs_keeps_no_client_of_the_next_one_waiting() {
    let scene = Scene::start(1);
    let tls = trusting(&[b"h3", &[b'x'; 250], &[b'y'; 250], &[b'z'; 250], &[b'0'; 250]]);
    let mut unfinished = RawClient::from_address(scene.address, tls, Default::default());
    let hello = unfinished.next_datagram().expect("a hello");
    unfinished.sends(&hello);
    // The response to this later request shows that the earlier datagram was received.
    scene.tunnel().0.ends();
    let before = scene.process();
    scene.upgrade();
    let before = Pid::from_raw(before as i32).expect("a process has a number");
    kill_process(before, Signal::STOP).expect("it runs");
    H3TestClient::connect(scene.address).ends();
    kill_process(before, Signal::CONT).expect("it runs");
    scene.end();
}

/// RFC 9000 §10.3: with the key in a file, the next process knows the connections of a killed one, also if that one
/// had taken over from another.
#[test]
fn clients_of_a_killed_process_get_a_stateless_reset() {
    for upgrades in [false, true] {
        let (folder, server) = (tempfile::tempdir().expect("a temporary folder"), serve());
        let write_at = |folder: &Path, address: SocketAddr| {
            write(folder, 2, server, "http3 = true\n");
            let file = folder.join("vanward.toml");
            let text = std::fs::read_to_string(&file).expect("it is there");
            let text = text.replace("127.0.0.1:0", &address.to_string());
            let key = format!("quic_key_file = \"{}/key\"\n", folder.display());
            std::fs::write(file, key + &text).expect("it is writable");
        };
        std::fs::write(folder.path().join("key"), "0123456789abcdef".repeat(4)).expect("it is writable");
        write_at(folder.path(), SocketAddr::from(([127, 0, 0, 1], 0)));
        let mut first = Process::start_in(folder.path(), &["run", "--pid-file", "pid"]);
        let address = first.address();
        let _last = LastProcess(folder.path().join("pid"));
        let mut scene = Scene { _last, folder, first, address, server };
        if upgrades {
            scene.upgrade();
            let patience = Patience::new();
            while scene.first.is_running() {
                patience.wait_a_little("the process before goes on");
            }
        }
        let mut client = RawClient::connect(address, Default::default());
        // The response confirms the handshake.
        let stream = client.asks("GET", "/", "", true);
        client.until("no response", |client| client.reads(stream).1);
        scene.signal(Signal::KILL);
        let patience = Patience::new();
        while TcpStream::connect(address).is_ok() {
            patience.wait_a_little("the killed process goes on");
        }
        write_at(scene.folder.path(), address);
        scene.first = Process::start_in(scene.folder.path(), &["run", "--pid-file", "pid"]);
        // A reset is shorter than the packet that triggers it: a ping is too short.
        client.asks("GET", "/", &format!("x-long: {}\n", "x".repeat(100)), true);
        client.until("nothing ends the connection", |client| client.lost.is_some());
        assert_eq!(format!("{:?}", client.lost), "Some(Reset)", "after an upgrade: {upgrades}");
    }
}

/// The next process has no HTTP/3, so this one continues to receive for its connections.
#[test]
fn connections_outlive_an_upgrade_to_a_process_without_http3() {
    let scene = Scene::start(2);
    let (client, mut tunnel) = scene.tunnel();
    scene.write(2, "");
    scene.upgrade();
    goes_on(&mut tunnel);
    client.ends();
    scene.end();
}
