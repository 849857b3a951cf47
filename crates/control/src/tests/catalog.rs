//! Tests of services in Consul's catalog. The test plays the agent, which responds after changes, and every server.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use balance::{AddressPrefixes, SessionSource};
use config::{Config, Settings, StickySessions, StickyTable};

use super::names::{NamesScene, NumberedServers};
use crate::server_changes;

const PATIENCE: Duration = Duration::from_secs(20);

/// The agent's response for every service.
#[derive(Debug, Clone)]
enum Says {
    /// Instances: server N at `127.0.0.N`, and its weight.
    Instances(Vec<(u8, u16)>),
    Answer(u16, String),
    /// An empty list, because the token may read nothing.
    Filtered,
    /// An empty list of servers without a leader.
    Leaderless,
    /// No response: it closes connections.
    Nothing,
}

#[derive(Clone)]
struct ConsulAgent {
    address: SocketAddr,
    state: Arc<(Mutex<FakeCatalogState>, Condvar)>,
}

struct FakeCatalogState {
    says: Says,
    index: u64,
    port: u16,
    /// Request lines and Authorization fields.
    asked: Vec<String>,
    waiting: usize,
}

impl ConsulAgent {
    fn start(says: Says) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
        let address = listener.local_addr().expect("it listens");
        let state = FakeCatalogState { says, index: 10, port: 0, asked: Vec::new(), waiting: 0 };
        let agent = Self { address, state: Arc::new((Mutex::new(state), Condvar::new())) };
        let answering = agent.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let agent = answering.clone();
                std::thread::spawn(move || agent.answer(stream));
            }
        });
        agent
    }

    /// Sets the response with the next index.
    fn says(&self, says: Says) {
        let index = self.state.0.lock().expect("no panic").index + 1;
        self.says_at(index, says);
    }

    fn says_at(&self, index: u64, says: Says) {
        let mut state = self.state.0.lock().expect("no panic");
        (state.says, state.index) = (says, index);
        self.state.1.notify_all();
    }

    fn until<T>(&self, look: impl Fn(&FakeCatalogState) -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = look(&self.state.0.lock().expect("no panic")) {
                return found;
            }
            assert!(began.elapsed() < PATIENCE, "{:?}", self.state.0.lock().expect("no panic").asked);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn waits_for_requests(&self, count: usize) {
        let before = self.state.0.lock().expect("no panic").asked.len();
        self.until(|state| (state.asked.len() >= before + count).then_some(()));
    }

    fn answer(&self, mut stream: TcpStream) {
        let mut lines =
            BufReader::new(stream.try_clone().expect("is a socket")).lines().map_while(Result::ok);
        let Some(request) = lines.next() else { return };
        let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
        let field = head.iter().find(|line| line.to_ascii_lowercase().starts_with("authorization:"));
        let index = request.split(['?', '&', ' ']).find_map(|part| part.strip_prefix("index="));
        let index = index.map(|index| index.parse::<u64>().expect("is a number"));
        let (state, changed) = &*self.state;
        let mut state = state.lock().expect("no panic");
        let authorization = field.map(|field| format!(" {field}")).unwrap_or_default();
        state.asked.push(format!("{request}{authorization}"));
        state.waiting += 1;
        while index == Some(state.index) {
            stream.set_nonblocking(true).expect("is a socket");
            if matches!(stream.peek(&mut [0]), Ok(0)) {
                break;
            }
            stream.set_nonblocking(false).expect("is a socket");
            (state, _) = changed.wait_timeout(state, Duration::from_millis(20)).expect("no panic");
        }
        state.waiting -= 1;
        let (mut field, mut status) = ("", 200);
        let body = match &state.says {
            Says::Nothing => return,
            Says::Instances(instances) => {
                let of = |(server, weight): &(u8, u16)| {
                    format!(
                        r#"{{"Node":{{"Address":"127.0.0.{server}"}},"Service":{{"ID":"web-{server}","Address":"",
                            "Port":{},"Weights":{{"Passing":{weight},"Warning":1}}}}}}"#,
                        state.port
                    )
                };
                format!("[{}]", instances.iter().map(of).collect::<Vec<_>>().join(","))
            }
            Says::Answer(other, body) => {
                status = *other;
                body.clone()
            }
            Says::Filtered => {
                field = "X-Consul-Results-Filtered-By-ACLs: true\r\n";
                "[]".to_owned()
            }
            Says::Leaderless => {
                field = "X-Consul-KnownLeader: false\r\n";
                "[]".to_owned()
            }
        };
        let (index, length) = (state.index, body.len());
        let _ = write!(
            stream,
            "HTTP/1.1 {status} Some\r\nX-Consul-Index: {index}\r\n{field}Content-Length: {length}\r\n\r\n{body}"
        );
    }
}

/// A proxy that queries the agent for a service with these options, and its settings.
fn scene_with(
    agent: &ConsulAgent,
    options: &str,
    change: impl FnOnce(&mut Settings),
) -> NamesScene<ConsulAgent> {
    let told = agent.clone();
    let url = move |servers: &NumberedServers| {
        told.state.0.lock().expect("no panic").port = servers.port;
        format!("http+consul://web{options}")
    };
    let address = agent.address;
    let change = |settings: &mut Settings| {
        settings.consul.address.server = format!("http://{address}").parse().expect("is a URL");
        change(settings);
    };
    NamesScene::at(agent.clone(), url, || None, change)
}

fn scene(says: Says) -> NamesScene<ConsulAgent> {
    scene_with(&ConsulAgent::start(says), "", |_| ())
}

fn troubles(scene: &NamesScene<ConsulAgent>) -> Vec<String> {
    let troubles = scene.proxy.control.plan().names.troubles();
    troubles.values().flatten().map(|trouble| trouble.why.clone()).collect()
}

#[test]
fn servers_come_and_go_with_the_instances_of_a_service() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let token = folder.path().join("token");
    std::fs::write(&token, "s3cr3t\n").expect("it is writable");
    let agent = ConsulAgent::start(Says::Instances(vec![(2, 1), (1, 1)]));
    let scene = scene_with(&agent, "?tag=v%2f2&dc=eu", |settings| settings.consul.token_file = Some(token));
    assert_eq!(scene.who(), [1, 1, 2, 2], "from the first request on");
    let before = scene.proxy.control.plan();
    agent.says(Says::Instances(vec![(1, 3), (3, 1)]));
    scene.waits_for(&[1, 1, 1, 3]);
    let said = |server: u8, what: &str| {
        format!("upstream default, server web (127.0.0.{server}:{}): {what}", scene.servers.port)
    };
    assert_eq!(
        server_changes::changes(&before, &scene.proxy.control.plan()),
        [
            said(1, "weight 3, before 1"),
            said(3, "added; its share of requests grows slowly"),
            said(2, "removed")
        ]
    );
    let asked = agent.until(|state| (state.asked.len() == 3).then(|| state.asked.clone()));
    let request = |of: &str| {
        let path = "/v1/health/service/web?passing=true";
        format!("GET {path}{of}&tag=v%2f2&dc=eu HTTP/1.1 authorization: Bearer s3cr3t")
    };
    let wait = |index| request(&format!("&index={index}&wait=60s"));
    let lower = |line: &String| line.replacen("Authorization", "authorization", 1);
    assert_eq!(asked.iter().map(lower).collect::<Vec<_>>(), [request(""), wait(10), wait(11)]);
}

#[test]
fn sessions_stay_with_their_instance_as_long_as_the_catalog_has_it() {
    let agent = ConsulAgent::start(Says::Instances(vec![(2, 1), (1, 1)]));
    let sticky = StickySessions::Table(StickyTable {
        source: SessionSource::ClientAddress(AddressPrefixes::default()),
        ttl: Duration::from_secs(3600),
        sessions_max: 10,
        shared: None,
    });
    let scene = scene_with(&agent, "", |settings| settings.upstreams[0].sticky = Some(sticky));
    let own: u8 = scene.ask().1.parse().expect("it says who it is");
    for instances in [vec![(1, 1), (2, 1), (3, 1)], vec![(3, 9), (own, 1)], vec![(own, 2), (4, 1)]] {
        agent.says(Says::Instances(instances));
        // The proxy sends the next query once it has applied this response.
        agent.waits_for_requests(1);
        assert_eq!(scene.who(), [usize::from(own); 4]);
    }
    agent.says(Says::Instances(vec![(4, 1)]));
    scene.waits_for(&[4; 4]);
    agent.says(Says::Instances(vec![(own, 1), (4, 1)]));
    agent.waits_for_requests(1);
    assert_eq!(scene.who(), [4; 4], "a session that has moved stays there");
}

#[test]
fn a_service_without_healthy_instances_is_answered_for_until_there_are_some() {
    let scene = scene(Says::Instances(vec![(1, 1)]));
    assert_eq!(scene.who(), [1; 4]);
    scene.names.says(Says::Instances(Vec::new()));
    let began = Instant::now();
    while scene.ask().0 != 503 {
        assert!(began.elapsed() < PATIENCE, "an instance that is gone is asked");
    }
    assert_eq!(troubles(&scene), ["Consul has no healthy instance of web"]);
    scene.names.says(Says::Instances(vec![(4, 1)]));
    scene.waits_for(&[4; 4]);
    assert_eq!(troubles(&scene), [""; 0]);
}

#[test]
fn while_consul_says_nothing_that_counts_the_last_servers_stay() {
    let scene = scene(Says::Instances(vec![(1, 1), (2, 1)]));
    assert_eq!(scene.who(), [1, 1, 2, 2]);
    let port = scene.names.address.port();
    let gone = format!("Consul cannot be queried: 127.0.0.1:{port}: ");
    let refused = |why: &str| format!("Consul at 127.0.0.1:{port}: web: {why}");
    for (says, expected) in [
        (Says::Nothing, gone),
        (
            Says::Answer(403, "ACL not found".to_owned()),
            refused("status 403: \"ACL not found\"; its last servers stay"),
        ),
        (Says::Answer(200, "<html>".to_owned()), refused("its answer cannot be read: ")),
        (
            Says::Answer(200, " ".repeat((8 << 20) + 1)),
            format!("Consul cannot be queried: 127.0.0.1:{port}: its answer is larger than 8192 KiB; "),
        ),
        (Says::Filtered, refused("the token has no permission")),
        (Says::Leaderless, refused("its servers have no leader")),
        (
            Says::Answer(
                200,
                r#"[{"Node":{"Address":"127.0.0.1"},"Service":{"ID":"web-9","Port":0}}]"#.to_owned(),
            ),
            refused("none of its instances can be used: \"web-9\" has the port 0"),
        ),
    ] {
        scene.names.says(says.clone());
        scene.names.waits_for_requests(2);
        assert_eq!(scene.who(), [1, 1, 2, 2], "{expected}");
        let told = troubles(&scene);
        assert!(told.len() == 1 && told[0].starts_with(&expected), "{told:?}");
        // The agent was restored from a backup, so its data is older.
        scene.names.says_at(3, Says::Instances(vec![(1, 1), (2, 1)]));
        scene.names.until(|_| troubles(&scene).is_empty().then_some(()));
    }
    scene.names.says(Says::Instances(vec![(3, 1)]));
    scene.waits_for(&[3; 4]);
}

#[test]
fn a_service_that_was_never_known_is_a_clear_failure() {
    let scene = scene(Says::Answer(500, "No cluster leader".to_owned()));
    let (status, body) = scene.ask();
    assert_eq!((status, body.contains("The server's name could not be resolved.")), (503, true), "{body}");
    scene.names.says(Says::Instances(vec![(1, 1)]));
    scene.waits_for(&[1; 4]);
}

#[test]
fn another_agent_is_asked_after_a_reload_and_the_first_one_no_longer() {
    let scene = scene(Says::Instances(vec![(1, 1)]));
    assert_eq!(scene.who(), [1; 4]);
    scene.names.until(|state| (state.waiting == 1).then_some(()));
    let other = ConsulAgent::start(Says::Nothing);
    other.state.0.lock().expect("no panic").port = scene.servers.port;
    let reload = |url: &str, agent: &ConsulAgent| {
        let mut settings = Settings::clone(&scene.proxy.control.plan().config);
        settings.consul.address.server = format!("http://{}", agent.address).parse().expect("is a URL");
        settings.upstreams[0].servers = vec![url.parse().expect("is a URL")];
        scene.proxy.reload(Config::new(settings).expect("is valid")).expect("it reloads");
    };
    reload("http+consul://web", &other);
    assert_eq!(scene.who(), [1; 4], "until the other one says something");
    scene.names.until(|state| (state.waiting == 0).then_some(()));
    other.says(Says::Instances(vec![(2, 1)]));
    scene.waits_for(&[2; 4]);
    other.until(|state| (state.waiting == 1).then_some(()));
    reload(&format!("http://127.0.0.3:{}", scene.servers.port), &other);
    other.until(|state| (state.waiting == 0).then_some(()));
    assert_eq!(scene.who(), [3; 4]);
}
