//! Three instances that share a cache and find each other in etcd: origin requests, compared with one instance with
//! three times the memory; and an instance that is killed.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::super::process::{Process, free_address};
use super::{FleetScene, INSTANCES, LIMIT, until};
use crate::say;

const MEMORY_MB: usize = 4;
/// Number of URLs, the first being the most popular, and the size of their bodies.
const URLS: usize = 5000;
const BODY_BYTES: usize = 4096;
/// Zipf's exponent.
const EXPONENT: f64 = 0.9;
/// Requests of each client. The first half warms up the caches and is not counted.
const REQUESTS: usize = 5000;
/// Maximum ratio of origin requests to those of the single instance.
const RATIO_MAX: f64 = 1.1;

pub(super) fn check(scene: &FleetScene) -> Result<(), String> {
    let server = CountingServer::start()?;
    let one = {
        let single = PeerFleet::start(scene, &server, 1, MEMORY_MB * INSTANCES)?;
        single.trace(&server)?
    };
    let mut fleet = PeerFleet::start(scene, &server, INSTANCES, MEMORY_MB)?;
    let shared = fleet.trace(&server)?;
    let alone = one.max(1);
    let ratio = shared as f64 / alone as f64;
    say(format_args!(
        "one cache: {shared} of {} requests reached the server behind {INSTANCES} instances with {MEMORY_MB} MB each, {one} behind one with \
         {} MB: {ratio:.3}",
        REQUESTS / 2 * INSTANCES,
        MEMORY_MB * INSTANCES
    ));
    if ratio > RATIO_MAX {
        return Err(format!("more than {RATIO_MAX} times as many requests reach the server: {ratio:.3}"));
    }
    fleet.instances[2].1 = None;
    let began = Instant::now();
    let mut lost = 0;
    for number in 0..URLS / 5 {
        lost += usize::from(!fleet.get(number % 2, number)?);
    }
    if lost > 0 {
        return Err(format!("{lost} requests failed when an instance was killed"));
    }
    say(format_args!("one cache: an instance is killed, and none of {} requests fails", URLS / 5));
    for index in 0..2 {
        until("the killed instance is no longer a member", || {
            let said = fleet.instances[index].1.as_ref().map(Process::said).unwrap_or_default();
            Ok(said.contains("removed, as etcd reports"))
        })?;
    }
    say(format_args!("one cache: it is no longer a member after {} s", began.elapsed().as_secs()));
    Ok(())
}

struct PeerFleet {
    instances: Vec<(SocketAddr, Option<Process>)>,
}

impl PeerFleet {
    fn start(
        scene: &FleetScene,
        server: &CountingServer,
        count: usize,
        memory_mb: usize,
    ) -> Result<Self, String> {
        let file = scene.folder.join(format!("peers-{count}.toml"));
        let pair = &scene.trust.pair;
        let config = format!(
            "workers = 1\n[cache]\nmemory = \"{memory_mb}MB\"\n[cache.peers]\nlisten = \"${{PEER}}\"\naddress = \"${{PEER}}\"\n\
             ca = {:?}\ncert = {:?}\nkey = {:?}\nname = \"localhost\"\n\
             [[listen]]\naddress = \"127.0.0.1:0\"\n[[route]]\nupstream = \"app\"\ncache = {{}}\n\
             [upstream.app]\nservers = [\"http://{}\"]\n",
            pair.cert, pair.cert, pair.key, server.address
        );
        fs::write(&file, config).map_err(|error| error.to_string())?;
        let hosts: Vec<String> = scene.etcd.iter().map(|node| node.client.to_string()).collect();
        let url = format!("etcd://{}/edge-cache-{count}", hosts.join(","));
        let mut push = Command::new(&scene.vanward);
        push.args(["fleet", "push"]).arg(&file).args(["--config", &url]).env("PEER", "127.0.0.1:1");
        scene.identify(&mut push);
        let output = push.output().map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(super::said(&output));
        }
        let mut instances = Vec::new();
        for index in 0..count {
            let name = format!("cache-{count}-{index}");
            let mut command = Command::new(&scene.vanward);
            command.args(["run", "--config", &url, "--instance", &name, "--fleet-dir"]);
            command.arg(scene.folder.join(&name)).env("PEER", free_address()?.to_string());
            scene.identify(&mut command);
            let mut process = Process::start(&name, &mut command, &scene.folder)?;
            let address = process.addresses()?.first().copied().ok_or("an instance listens nowhere")?;
            instances.push((address, Some(process)));
        }
        let fleet = Self { instances };
        for (_, process) in &fleet.instances {
            until("all instances know of each other", || {
                let said = process.as_ref().map(Process::said).unwrap_or_default();
                Ok(said.matches("added; its share of requests grows slowly, as etcd reports").count() + 1
                    >= count)
            })?;
        }
        Ok(fleet)
    }

    /// Sends popular requests to each instance. Returns the origin requests of the second half.
    fn trace(&self, server: &CountingServer) -> Result<u64, String> {
        let mut counted = 0;
        for half in 0..2 {
            let before = server.requests.load(Ordering::SeqCst);
            let clients = (0..INSTANCES).map(|client| {
                let address = self.instances[client % self.instances.len()].0;
                std::thread::spawn(move || ask_for_popular(address, (client * 2 + half) as u64))
            });
            let clients: Vec<_> = clients.collect();
            for client in clients {
                client.join().map_err(|_| "a client panicked")??;
            }
            counted = server.requests.load(Ordering::SeqCst) - before;
        }
        Ok(counted)
    }

    fn get(&self, instance: usize, url: usize) -> Result<bool, String> {
        let mut connection = connect(self.instances[instance].0)?;
        ask(&mut connection, url)
    }
}

/// Sends half of a trace, which is determined by the seed.
fn ask_for_popular(address: SocketAddr, seed: u64) -> Result<(), String> {
    let popularity = (1..=URLS).map(|rank| (rank as f64).powf(-EXPONENT));
    let sums: Vec<f64> = popularity
        .scan(0.0, |sum, one| {
            *sum += one;
            Some(*sum)
        })
        .collect();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
    let mut connection = connect(address)?;
    for _ in 0..REQUESTS / 2 {
        // xorshift64*: any uniform generator would do.
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let drawn = (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64;
        let url = sums.partition_point(|sum| *sum < drawn * sums[URLS - 1]);
        if !ask(&mut connection, url)? {
            return Err(format!("/{url} was not answered with 200"));
        }
    }
    Ok(())
}

fn connect(address: SocketAddr) -> Result<BufReader<TcpStream>, String> {
    let stream = TcpStream::connect(address).map_err(|error| error.to_string())?;
    stream.set_read_timeout(Some(LIMIT)).map_err(|error| error.to_string())?;
    Ok(BufReader::new(stream))
}

/// Requests a URL. Returns whether the response was 200 with the whole body.
fn ask(connection: &mut BufReader<TcpStream>, url: usize) -> Result<bool, String> {
    let request = format!("GET /{url} HTTP/1.1\r\nHost: site.example\r\n\r\n");
    connection.get_mut().write_all(request.as_bytes()).map_err(|error| error.to_string())?;
    let (mut status, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        connection.read_line(&mut line).map_err(|error| error.to_string())?;
        if status.is_empty() {
            status.clone_from(&line);
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().map_err(|_| format!("{line:?} is no length"))?;
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    connection.read_exact(&mut body).map_err(|error| error.to_string())?;
    Ok(status.starts_with("HTTP/1.1 200") && length == BODY_BYTES)
}

struct CountingServer {
    address: SocketAddr,
    requests: Arc<AtomicU64>,
}

impl CountingServer {
    fn start() -> Result<Self, String> {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let requests = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let counted = Arc::clone(&counted);
                std::thread::spawn(move || serve(stream, &counted));
            }
        });
        Ok(Self { address, requests })
    }
}

fn serve(stream: TcpStream, requests: &AtomicU64) {
    let mut stream = BufReader::new(stream);
    let mut response =
        format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nContent-Length: {BODY_BYTES}\r\n\r\n")
            .into_bytes();
    response.resize(response.len() + BODY_BYTES, b'x');
    let mut line = String::new();
    while stream.read_line(&mut line).is_ok_and(|count| count > 0) {
        if line.trim().is_empty() {
            requests.fetch_add(1, Ordering::SeqCst);
            if stream.get_mut().write_all(&response).is_err() {
                return;
            }
        }
        line.clear();
    }
}
