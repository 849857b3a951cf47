//! The choice of a server: by session, by a hash, after a failure, in the queue. Clients use HTTP/1 and HTTP/2.

use std::collections::HashSet;

use testkit::http1::Http1Peer;
use testkit::scene::{BOTH, BodylessRequest, Got, Scene, SceneClient, get};
use testkit::text::OK;
use testkit::wait::{Patience, assert_soon};

/// Servers with their accepted connections.
struct Fleet {
    scene: Scene,
    connections: Vec<Vec<Http1Peer>>,
}

impl Fleet {
    /// Two servers with these options of their upstream.
    fn new(options: &str) -> Self {
        Self::of(2, &format!("servers = [\"http://{{0}}\", \"http://{{1}}\"]\n{options}"))
    }

    fn of(servers: usize, upstream: &str) -> Self {
        let scene = Scene::new(&format!("[[route]]\nupstream = \"app\"\n[upstream.app]\n{upstream}\n"));
        Self { scene, connections: (0..servers).map(|_| Vec::new()).collect() }
    }

    /// Returns the server with a new request, and the index of its connection.
    fn asked(&mut self) -> (usize, usize) {
        let patience = Patience::new();
        loop {
            for (server, known) in self.connections.iter_mut().enumerate() {
                known.extend(self.scene.try_accept(server));
                if let Some(place) = known.iter().position(Http1Peer::has_something) {
                    return (server, place);
                }
            }
            patience.wait("no server is asked");
        }
    }

    /// Returns which server answers, and the client's response.
    fn answered(
        &mut self,
        client: &mut SceneClient,
        request: &BodylessRequest<'_>,
        response: &str,
    ) -> (usize, Got) {
        client.asks(request);
        let (server, place) = self.asked();
        let peer = &mut self.connections[server][place];
        peer.head();
        peer.sends(response);
        (server, client.gets())
    }

    fn server_of(&mut self, client: &mut SceneClient, request: &BodylessRequest<'_>) -> usize {
        self.answered(client, request, OK).0
    }
}

#[test]
fn sessions_stay_by_whatever_names_them() {
    const NOTHING: BodylessRequest<'static> =
        BodylessRequest { method: "GET", host: "test", target: "/", fields: "" };
    let with = |fields| BodylessRequest { fields, ..NOTHING };
    let to = |target| BodylessRequest { target, ..NOTHING };
    // The session's source, and three requests of one session.
    for (by, session) in [
        ("client", [NOTHING, to("/a"), with("x-any: 1\n")]),
        ("client/24", [NOTHING, to("/a"), with("x-any: 1\n")]),
        (
            "header:X-Session",
            [with("x-session: a\n"), with("x-any: 1\nx-session: a\n"), with("x-session: a\n")],
        ),
        // One user with different passwords.
        (
            "basic-user",
            [
                with("authorization: Basic YTpi\n"),
                with("authorization: Basic YTpj\n"),
                with("authorization: Basic YTpk\n"),
            ],
        ),
        ("query:sid", [to("/?sid=7"), to("/other?a=b&sid=7"), to("/?sid=7&c")]),
        ("path-parameter:sid", [to("/a;sid=7"), to("/b;sid=7?x"), to("/c/d;sid=7")]),
        ("path-parameter", [to("/a;7"), to("/b;7?x"), to("/c/d;7")]),
    ] {
        for spoken in BOTH {
            let mut fleet = Fleet::new(&format!("sticky = {{ by = \"{by}\" }}"));
            let mut client = fleet.scene.client(spoken);
            let first = fleet.server_of(&mut client, &session[0]);
            // By the policy it would be the other server's turn, over any connection.
            for request in session.iter().cycle().skip(1).take(5) {
                let mut another = fleet.scene.client(spoken);
                assert_eq!(fleet.server_of(&mut client, request), first, "{by} {spoken:?}");
                assert_eq!(fleet.server_of(&mut another, request), first, "{by} {spoken:?}");
            }
        }
    }
}

#[test]
fn requests_without_a_session_take_turns() {
    for spoken in BOTH {
        let mut fleet = Fleet::new("sticky = { by = \"header:X-Session\" }");
        let mut client = fleet.scene.client(spoken);
        let servers: Vec<usize> = (0..4).map(|_| fleet.server_of(&mut client, &get("/"))).collect();
        assert!(servers[0] != servers[1] && servers[..2] == servers[2..], "{spoken:?} {servers:?}");
    }
}

/// 503 asks clients to retry later, which makes no sense if no server should be up.
#[test]
fn without_a_server_the_status_is_that_of_none_up() {
    for (none_up, status) in [("try-all", 503), ("refuse", 503), ("fail", 500)] {
        for spoken in BOTH {
            let servers = "servers = [{ url = \"http://{0}\", down = true }]";
            let fleet = Fleet::of(1, &format!("{servers}\nnone_up = \"{none_up}\""));
            assert_eq!(fleet.scene.client(spoken).asks_for(&get("/")).status, status, "{none_up} {spoken:?}");
        }
    }
}

/// Weight 0 only applies to new clients, `down` to all.
#[test]
fn a_server_without_weight_keeps_its_sessions_and_one_that_is_down_does_not() {
    for spoken in BOTH {
        let sticky = "sticky = { by = \"header:X-Session\" }";
        let mut fleet = Fleet::new(sticky);
        let urls = [0, 1].map(|server| format!("http://{}", fleet.scene.server_address(server)));
        let [first, second] = &urls;
        let reload = |fleet: &Fleet, servers: String| {
            let text = format!(
                "workers = 2\n[[route]]\nupstream = \"app\"\n[upstream.app]\nservers = [{servers}]\n{sticky}\n\
                 [[listen]]\naddress = \"127.0.0.1:0\"\n"
            );
            fleet.scene.running().reload(testkit::scene::read(&text)).expect("it is valid");
        };
        let mut client = fleet.scene.client(spoken);
        let session = |name: &str| format!("x-session: {name}\n");
        let mut server_of = |fleet: &mut Fleet, name: &str| {
            fleet.server_of(&mut client, &BodylessRequest { fields: &session(name), ..get("/") })
        };
        // They alternate.
        let old: Vec<(String, usize)> = (0..4)
            .map(|number| format!("old{number}"))
            .map(|name| (name.clone(), server_of(&mut fleet, &name)))
            .collect();
        assert!([0, 1].iter().all(|server| old.iter().any(|(_, of)| of == server)), "{old:?}");

        reload(&fleet, format!("\"{first}\", {{ url = \"{second}\", weight = 0 }}"));
        for (name, server) in &old {
            assert_eq!(server_of(&mut fleet, name), *server, "{spoken:?}: sessions stay");
        }
        for number in 0..4 {
            assert_eq!(server_of(&mut fleet, &format!("new{number}")), 0, "{spoken:?}: others go elsewhere");
        }

        reload(&fleet, format!("\"{first}\", {{ url = \"{second}\", down = true }}"));
        for (name, _) in &old {
            assert_eq!(server_of(&mut fleet, name), 0, "{spoken:?}: sessions move");
        }

        reload(&fleet, format!("{{ url = \"{first}\", down = true }}, \"{second}\""));
        assert_eq!(server_of(&mut fleet, "old0"), 1, "{spoken:?}: it is back");
        // No server is left, and a `down` one is not tried.
        reload(&fleet, format!("{{ url = \"{first}\", down = true }}, {{ url = \"{second}\", weight = 0 }}"));
        let mut other = fleet.scene.client(spoken);
        let got = other.asks_for(&BodylessRequest { fields: &session("newer"), ..get("/") });
        assert_eq!(got.status, 503, "{spoken:?}");
    }
}

#[test]
fn a_cookie_names_the_server_and_cannot_be_made_up() {
    for spoken in BOTH {
        let mut fleet = Fleet::new("sticky = { by = \"cookie\", name = \"stays\", ttl = \"1h\" }");
        let mut client = fleet.scene.client(spoken);
        let (first, got) = fleet.answered(&mut client, &get("/"), OK);
        let set = got.field("set-cookie").expect("a cookie is set").to_owned();
        let (value, attributes) = set.split_once("; ").expect("it has attributes");
        assert!(value.starts_with("stays=") && attributes.contains("HttpOnly"), "{spoken:?} {set}");
        let fields = format!("cookie: a=b; {value}\n");
        for _ in 0..4 {
            let (server, got) =
                fleet.answered(&mut client, &BodylessRequest { fields: &fields, ..get("/") }, OK);
            assert_eq!((server, got.field("set-cookie")), (first, None), "{spoken:?}: it is fresh");
        }
        let forged = fields.replace("stays=", "stays=A");
        let (_, got) = fleet.answered(&mut client, &BodylessRequest { fields: &forged, ..get("/") }, OK);
        assert!(got.field("set-cookie").is_some(), "{spoken:?}: it is worth nothing");
    }
}

#[test]
fn a_cookie_of_the_servers_is_learnt() {
    let response = OK.replace("Date: D\r\n", "Date: D\r\nSet-Cookie: SID=77; Path=/\r\n");
    for spoken in BOTH {
        let mut fleet = Fleet::new("sticky = { by = \"origin-cookie:SID\" }");
        let mut client = fleet.scene.client(spoken);
        let (first, got) = fleet.answered(&mut client, &get("/"), &response);
        assert_eq!(got.all("set-cookie"), ["SID=77; Path=/"], "{spoken:?}");
        for _ in 0..4 {
            let asked = BodylessRequest { fields: "cookie: a=b; SID=77\n", ..get("/") };
            assert_eq!(fleet.server_of(&mut client, &asked), first, "{spoken:?}");
        }
    }
}

#[test]
fn a_hash_of_a_key_chooses_the_server() {
    for spoken in BOTH {
        let mut fleet = Fleet::new("balance = \"consistent-hash\"\nhash_key = \"header:X-Key\"");
        let mut client = fleet.scene.client(spoken);
        let mut servers = HashSet::new();
        for key in 0..32 {
            let fields = format!("x-key: {key}\n");
            let asked = BodylessRequest { fields: &fields, ..get("/") };
            let server = fleet.server_of(&mut client, &asked);
            assert_eq!(fleet.server_of(&mut client, &asked), server, "{spoken:?}");
            servers.insert(server);
        }
        assert_eq!(servers.len(), 2, "{spoken:?}: no 32 keys are all of one");
    }
}

#[test]
fn another_server_is_asked_where_one_dies_or_answers_with_a_status_that_is_tried_again() {
    let refused = "HTTP/1.1 503 Busy\r\nDate: D\r\nContent-Length: 0\r\n\r\n";
    for spoken in BOTH {
        for answer in [refused, "HTTP/1.1 2", ""] {
            let mut fleet = Fleet::new("retry = { on = [\"connect\", \"reset\", \"503\"], attempts = 2 }");
            let mut client = fleet.scene.client(spoken).asking(&get("/"));
            let (first, place) = fleet.asked();
            let mut dying = fleet.connections[first].swap_remove(place);
            dying.head();
            dying.sends(answer);
            drop(dying);
            let (second, place) = fleet.asked();
            assert_ne!(first, second, "{spoken:?} {answer:?}");
            let peer = &mut fleet.connections[second][place];
            peer.head();
            peer.sends(OK);
            assert_eq!(client.gets().status, 200, "{spoken:?} {answer:?}");
            assert_eq!(fleet.scene.running().counters().upstream_retries, 1);
        }
    }
}

#[test]
fn what_may_not_be_done_twice_is_not() {
    for spoken in BOTH {
        let mut fleet = Fleet::new("retry = { on = [\"503\"] }");
        let mut client = fleet.scene.client(spoken);
        let post = BodylessRequest { method: "POST", ..get("/") };
        let refused = "HTTP/1.1 503 Busy\r\nDate: D\r\nContent-Length: 0\r\n\r\n";
        let (server, got) = fleet.answered(&mut client, &post, refused);
        assert_eq!(got.status, 503, "{spoken:?}");
        assert!(fleet.scene.try_accept(1 - server).is_none());
    }
}

#[test]
fn a_full_queue_is_said_so_and_room_is_given_on() {
    for spoken in BOTH {
        let mut fleet = Fleet::of(
            1,
            "servers = [{ url = \"http://{0}\", max_requests = 1 }]\nqueue = { length = 1, timeout = \"1m\" }",
        );
        let mut clients: Vec<SceneClient> = (0..4).map(|_| fleet.scene.client(spoken)).collect();
        clients[0].asks(&get("/"));
        fleet.asked();
        // One by one, because each joins the queue of its worker, which has one place.
        let mut refused = 0;
        for (place, client) in clients.iter_mut().enumerate().skip(1) {
            client.asks(&get("/"));
            let counted = || fleet.scene.running().counters();
            assert_soon("the request is not queued", || {
                counted().requests_queued + counted().requests_shed >= place as u64
            });
            refused = counted().requests_shed as usize;
        }
        assert!((1..=2).contains(&refused), "{spoken:?}: two queues refuse {refused} of three");
        for _ in 0..4 - refused {
            let (server, place) = fleet.asked();
            let peer = &mut fleet.connections[server][place];
            peer.head();
            peer.sends(OK);
        }
        let mut statuses: Vec<u16> = clients.iter_mut().map(|client| client.gets().status).collect();
        statuses.sort_unstable();
        let mut expected = vec![200; 4 - refused];
        expected.resize(4, 503);
        assert_eq!(statuses, expected, "{spoken:?}");
    }
}
