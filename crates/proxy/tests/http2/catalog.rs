//! HTTP/2 servers that are instances in Consul's catalog, with and without TLS, while they come and go, and with faults
//! of the route. The test plays the agent, which answers once something changes, and every server.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

use control::Running;
use testkit::http2::frame::{NO_ERROR, data, headers, last_data, last_headers};
use testkit::http2::{H2End, H2Ended};
use testkit::ports;
use testkit::scene::read;
use testkit::tls::{TestAuthority, tunnel};

/// The agent's answer for every service with its index, and the last index that was asked for.
struct Says {
    index: u64,
    instances: Vec<u16>,
    asked_behind: u64,
}

#[derive(Clone)]
struct Agent {
    address: SocketAddr,
    says: Arc<(Mutex<Says>, Condvar)>,
}

impl Agent {
    fn start(instances: &[&TcpListener]) -> Self {
        let listener = ports::listen();
        let address = listener.local_addr().expect("it listens");
        let says = Says { index: 10, instances: ports_of(instances), asked_behind: 0 };
        let agent = Self { address, says: Arc::new((Mutex::new(says), Condvar::new())) };
        let answering = agent.clone();
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let agent = answering.clone();
                std::thread::spawn(move || agent.answers(stream));
            }
        });
        agent
    }

    fn answers(&self, mut stream: TcpStream) {
        let lines = BufReader::new(stream.try_clone().expect("is a socket")).lines().map_while(Result::ok);
        let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
        let Some(request) = head.first() else { return };
        let index = request.split(['?', '&', ' ']).find_map(|part| part.strip_prefix("index="));
        let index = index.map_or(0, |index| index.parse().expect("is a number"));
        let (says, changed) = &*self.says;
        let mut says = says.lock().expect("no panic");
        says.asked_behind = index;
        changed.notify_all();
        let says = changed.wait_while(says, |says| says.index == index).expect("no panic");
        let instances = says.instances.iter().map(|port| {
            format!(
                r#"{{"Node":{{"Address":"127.0.0.1"}},"Service":{{"ID":"web-{port}","Address":"","Port":{port},
                    "Weights":{{"Passing":1,"Warning":1}}}}}}"#
            )
        });
        let body = format!("[{}]", instances.collect::<Vec<_>>().join(","));
        let (index, length) = (says.index, body.len());
        let head = format!("HTTP/1.1 200 OK\r\nX-Consul-Index: {index}\r\nContent-Length: {length}\r\n\r\n");
        let _ = stream.write_all((head + &body).as_bytes());
    }

    /// Sets the instances, and waits until the proxy has applied them: then it asks for the next index.
    fn says(&self, instances: &[&TcpListener]) {
        let (says, changed) = &*self.says;
        let mut now = says.lock().expect("no panic");
        now.index += 1;
        now.instances = ports_of(instances);
        changed.notify_all();
        drop(changed.wait_while(now, |says| says.asked_behind != says.index).expect("no panic"));
    }
}

fn ports_of(listeners: &[&TcpListener]) -> Vec<u16> {
    listeners.iter().map(|listener| listener.local_addr().expect("it listens").port()).collect()
}

/// A proxy for the service `web`, whose instances use HTTP/2.
struct Scene {
    running: Running,
    agent: Agent,
    servers: [TcpListener; 2],
    authority: Option<TestAuthority>,
}

impl Scene {
    fn new(has_tls: bool, more: &str) -> Self {
        let servers = [ports::listen(), ports::listen()];
        let agent = Agent::start(&[&servers[0]]);
        let authority = has_tls.then(TestAuthority::new);
        let (scheme, tls) = match &authority {
            None => ("http", String::new()),
            Some(authority) => {
                let ca = authority.file.display();
                ("https", format!("tls = {{ ca = \"{ca}\", name = \"{}\" }}\n", tunnel::NAME))
            }
        };
        let text = format!(
            "workers = 1\n[[listen]]\naddress = \"127.0.0.1:0\"\n[consul]\naddress = \"http://{}\"\n\
             [[route]]\nname = \"app\"\nupstream = \"app\"\n{more}\n\
             [upstream.app]\nservers = [\"{scheme}+consul://web\"]\nprotocol = \"h2\"\n{tls}",
            agent.address
        );
        let running = control::start(read(&text)).unwrap_or_else(|error| panic!("{error}"));
        Self { running, agent, servers, authority }
    }

    fn client(&self) -> H2End {
        let stream = TcpStream::connect(self.running.addresses()[0]).expect("the proxy listens");
        H2End::client(stream, &[])
    }

    fn accept(&self, server: usize) -> H2End {
        let stream = ports::accept(&self.servers[server]);
        let stream = match &self.authority {
            None => stream,
            Some(authority) => tunnel::server(authority, true, stream),
        };
        H2End::server(stream, &[])
    }
}

fn ask(client: &mut H2End, stream: u32, fields: &str) {
    let pseudo = ":method: GET\n:scheme: http\n:authority: test\n:path: /\n";
    client.sends(last_headers(stream, &format!("{pseudo}{fields}")));
}

/// Answers the request on a stream, once it has arrived.
fn answers(server: &mut H2End, stream: u32, body: &str) {
    server.whole(stream);
    server.sends([headers(stream, ":status: 200\n"), last_data(stream, body)].concat());
}

#[track_caller]
fn gets(client: &mut H2End, stream: u32, body: &str) {
    let got = client.whole(stream);
    assert!(got.starts_with(":status: 200\n") && got.ends_with(&format!("---\n{body}\n---\n")), "{got}");
}

#[test]
fn streams_end_where_they_began_while_instances_come_and_go() {
    for has_tls in [false, true] {
        let scene = Scene::new(has_tls, "");
        let mut client = scene.client();
        ask(&mut client, 1, "");
        let mut first = scene.accept(0);
        answers(&mut first, 1, "one");
        gets(&mut client, 1, "one");
        // The next request uses the same connection, and is under way while its server leaves.
        ask(&mut client, 3, "");
        first.whole(3);
        first.sends([headers(3, ":status: 200\n"), data(3, "begun, ")].concat());
        scene.agent.says(&[&scene.servers[1]]);
        ask(&mut client, 5, "");
        let mut second = scene.accept(1);
        answers(&mut second, 1, "two");
        gets(&mut client, 5, "two");
        first.sends(last_data(3, "ended"));
        gets(&mut client, 3, "begun, ended");
        assert_eq!(first.ends(), H2Ended::Told(NO_ERROR), "its last stream has ended");
        // Without an instance, requests fail; a returning one gets a new connection.
        scene.agent.says(&[]);
        ask(&mut client, 7, "");
        assert!(client.whole(7).starts_with(":status: 503\n"));
        scene.agent.says(&[&scene.servers[0]]);
        ask(&mut client, 9, "");
        let mut first = scene.accept(0);
        answers(&mut first, 1, "three");
        gets(&mut client, 9, "three");
    }
}

#[test]
fn faults_are_the_client_s_alone_and_count_on_while_instances_come_and_go() {
    let fault = |inject: &str| {
        format!(
            "[[fault]]\nname = \"f\"\ninject = \"{inject}\"\nroute = \"app\"\nheaders = {{ x-break = true }}\nshow = true\n"
        )
    };
    for has_tls in [false, true] {
        for (inject, asks_server, end) in [
            ("503", false, "This answer was injected on purpose: no server gave it.\n\n---\n"),
            ("reset", false, "reset 2\n"),
            ("delay 10ms", true, "---\nbody\n---\nx-trailer: 1\n"),
            ("cut 1", true, "---\nb\n---\nreset 2\n"),
            ("bad-chunk", true, "reset 2\n"),
            ("no-trailers", true, "---\nbody\n---\n"),
        ] {
            let scene = Scene::new(has_tls, &fault(inject));
            let mut client = scene.client();
            ask(&mut client, 1, "");
            let mut server = scene.accept(0);
            answers(&mut server, 1, "one");
            gets(&mut client, 1, "one");
            let (mut of_client, mut of_server) = (3, 3);
            for place in [0, 1] {
                if place == 1 {
                    scene.agent.says(&[&scene.servers[1]]);
                }
                ask(&mut client, of_client, "x-break: 1\n");
                if asks_server {
                    if place == 1 {
                        (server, of_server) = (scene.accept(1), 1);
                    }
                    server.whole(of_server);
                    let trailers = last_headers(of_server, "x-trailer: 1\n");
                    server.sends(
                        [headers(of_server, ":status: 200\n"), data(of_server, "body"), trailers].concat(),
                    );
                    of_server += 2;
                }
                let got = client.whole(of_client);
                assert!(got.ends_with(end), "{inject} {has_tls}: {got}");
                let told = format!("vanward-fault: f; seed=1; number={place}\n");
                assert!(inject == "reset" || got.contains(&told), "{inject} {has_tls}: {got}");
                of_client += 2;
                // Other requests on the same connections are not affected.
                ask(&mut client, of_client, "");
                if place == 1 && !asks_server {
                    (server, of_server) = (scene.accept(1), 1);
                }
                answers(&mut server, of_server, "whole");
                gets(&mut client, of_client, "whole");
                (of_client, of_server) = (of_client + 2, of_server + 2);
            }
            assert_eq!(scene.running.counters().faults_injected, 2, "{inject} {has_tls}");
        }
    }
}
