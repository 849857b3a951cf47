//! Instances in one process, and their server.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

use control::Running;
use testkit::http1::Http1Peer;
use testkit::scene::{BodylessRequest, Got, SceneClient, get, read};
use testkit::tls::{TestAuthority, tunnel};

/// The name in each instance's certificate.
pub(crate) const NAME: &str = "edge.internal";

/// Instances with one server behind them.
pub(crate) struct Fleet {
    /// `None` once the instance was ended.
    pub(crate) instances: Vec<Option<Running>>,
    pub(crate) server: Server,
    pub(crate) authority: TestAuthority,
    pub(crate) addresses: Vec<SocketAddr>,
}

impl Fleet {
    pub(crate) fn new(count: usize) -> Self {
        Self::with(count, "cache = {}", "", |_, addresses| addresses.to_vec())
    }

    /// Instances with these options of their route and of `[cache.peers]`, and different members each.
    pub(crate) fn with(
        count: usize,
        route: &str,
        options: &str,
        members: impl Fn(usize, &[SocketAddr]) -> Vec<SocketAddr>,
    ) -> Self {
        Self::with_each(count, route, |_| options.to_owned(), members)
    }

    /// With different options each, by number.
    pub(crate) fn with_each(
        count: usize,
        route: &str,
        options: impl Fn(usize) -> String,
        members: impl Fn(usize, &[SocketAddr]) -> Vec<SocketAddr>,
    ) -> Self {
        let (server, authority) = (Server::new(), TestAuthority::new());
        authority.files("edge", &[NAME, "127.0.0.1", tunnel::NAME]);
        let addresses = testkit::ports::free(count);
        let start = |number: usize| {
            let listed = members(number, &addresses);
            Some(start(&authority, (addresses[number], &listed), &server, route, &options(number)))
        };
        let instances = (0..count).map(start).collect();
        Self { instances, server, authority, addresses }
    }

    pub(crate) fn instance(&self, number: usize) -> &Running {
        self.instances[number].as_ref().expect("it runs")
    }

    pub(crate) fn client(&self, number: usize) -> SceneClient {
        let stream = TcpStream::connect(self.instance(number).addresses()[0]).expect("it listens");
        SceneClient::One(Http1Peer::new("client", stream))
    }

    pub(crate) fn ask(&self, number: usize, request: &BodylessRequest<'_>) -> Got {
        self.client(number).asks_for(request)
    }

    /// Returns a path whose key belongs to `owner`, and whose response is not stored yet.
    pub(crate) fn foreign_path(&self, asker: usize, owner: usize) -> String {
        let paths = (0..).map(|number| format!("/{asker}-{owner}-{number}"));
        let mut counted = paths.map(|path| {
            let before = self.served(owner);
            self.ask(asker, &get(&format!("{path}?probe")));
            (path, before)
        });
        // The query is part of the key, so the probe's owner only holds for that URL.
        counted.find(|(_, before)| self.served(owner) > *before).expect("it owns some").0 + "?probe"
    }

    /// Returns how many requests of other instances an instance has served.
    pub(crate) fn served(&self, number: usize) -> u64 {
        self.instance(number).counters().cache_peer_served
    }

    /// Returns how many requests an instance has counted for a route, with any status.
    pub(crate) fn requests(&self, number: usize, route: &str) -> u64 {
        let address = self.instance(number).metrics_address().expect("there are metrics");
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it answers");
        let series = format!("vanward_requests_total{{route={route:?},");
        let counts = text.lines().filter(|line| line.starts_with(&series));
        counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }

    pub(crate) fn end(&mut self, number: usize) {
        let running = self.instances[number].take().expect("it runs");
        running.stop();
        running.wait();
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        (0..self.instances.len()).filter(|number| self.instances[*number].is_some()).for_each(|number| {
            self.instances[number].as_ref().expect("it runs").stop();
        });
    }
}

fn start(
    authority: &TestAuthority,
    (address, members): (SocketAddr, &[SocketAddr]),
    server: &Server,
    route: &str,
    options: &str,
) -> Running {
    let members: Vec<String> = members.iter().map(|member| format!("{:?}", member.to_string())).collect();
    let (folder, members) = (authority.path().display(), members.join(", "));
    let config = format!(
        "workers = 2\nmetrics = \"127.0.0.1:0\"\n[cache]\nmemory = \"64MB\"\npurge_from = [\"127.0.0.1\"]\n[cache.peers]\nlisten = \"{address}\"\naddress = \"{address}\"\n\
         members = [{members}]\nca = \"{folder}/ca.pem\"\ncert = \"{folder}/edge.pem\"\nkey = \"{folder}/edge.key\"\n\
         {options}\n[[route]]\nupstream = \"app\"\n{route}\n[upstream.app]\nservers = [\"http://{}\"]\n\
         [[listen]]\naddress = \"127.0.0.1:0\"\n",
        server.address
    );
    control::start(read(&config)).unwrap_or_else(|error| panic!("{error}"))
}

/// A server that answers at once, and keeps the received heads.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    answers: Arc<Mutex<HashMap<String, String>>>,
}

impl Server {
    fn new() -> Self {
        let listener = testkit::ports::listen();
        let address = listener.local_addr().expect("it listens");
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let answers: Arc<Mutex<HashMap<String, String>>> = Arc::default();
        let (of_thread, of_paths) = (Arc::clone(&heads), Arc::clone(&answers));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (heads, answers) = (Arc::clone(&of_thread), Arc::clone(&of_paths));
                std::thread::spawn(move || serve(stream, &heads, &answers));
            }
        });
        Self { address, heads, answers }
    }

    /// The server does not answer while the guard is held.
    pub(crate) fn holds(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.answers.lock().expect("nobody panics")
    }

    /// Sets the response for a target.
    pub(crate) fn answers(&self, target: &str, response: &str) {
        self.answers.lock().expect("nobody panics").insert(target.to_owned(), response.to_owned());
    }

    /// Returns the heads of the requests for a target.
    pub(crate) fn heads(&self, target: &str) -> Vec<String> {
        let heads = self.heads.lock().expect("nobody panics");
        let is_for = |head: &&String| head.split(' ').nth(1) == Some(target);
        heads.iter().filter(is_for).cloned().collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.heads.lock().expect("nobody panics").len()
    }
}

fn serve(mut stream: TcpStream, heads: &Mutex<Vec<String>>, answers: &Mutex<HashMap<String, String>>) {
    let mut received = Vec::new();
    let mut bytes = [0; 4096];
    loop {
        while let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") {
            let head: Vec<u8> = received.drain(..end + 4).collect();
            let head = String::from_utf8(head).expect("is text");
            let target = head.split(' ').nth(1).expect("has a target").to_owned();
            let is_alone = head.starts_with("HEAD ");
            heads.lock().expect("nobody panics").push(head);
            let own = answers.lock().expect("nobody panics").get(&target).cloned();
            let mut response =
                own.unwrap_or_else(|| ok(&target, "Cache-Control: max-age=60\r\nETag: \"1\"\r\n"));
            if is_alone {
                response.truncate(response.find("\r\n\r\n").expect("has a head") + 4);
            }
            if stream.write_all(response.as_bytes()).is_err() {
                return;
            }
        }
        match stream.read(&mut bytes) {
            Ok(count @ 1..) => received.extend_from_slice(&bytes[..count]),
            _ => return,
        }
    }
}

pub(crate) fn ok(body: &str, fields: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len())
}
