//! Listeners that refuse connections, as clients see it.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use testkit::http1::Http1Peer;
use testkit::scene::{Scene, Spoken, get, read, valid};
use testkit::text::OK;
use testkit::wait::PATIENCE;

use super::changed::{asks, clients};

const APP: &str = "admin = \"{dir}/admin\"\n[upstream.app]\nservers = [\"http://{0}\"]\n\
                   [[route]]\npath = \"/app\"\nupstream = \"app\"\n[[route]]\nrespond = { status = 200 }\n";
/// More than a listener has sockets.
const MANY: usize = 32;
const LEAST: &str = "[[listen]]\naddress = \"127.0.0.1:0\"\n[[route]]\nrespond = { status = 200 }\n";
const REFUSE: &str = "[[fault]]\nname = \"x\"\ninject = \"connection refuse\"\n";

/// Whether all connections there are refused; panics if only some are.
fn refuses(address: SocketAddr) -> bool {
    let refused = (0..MANY).filter(|_| is_refused(address)).count();
    assert!(refused == 0 || refused == MANY, "{refused} of {MANY} connections are refused");
    refused > 0
}

fn is_refused(address: SocketAddr) -> bool {
    match TcpStream::connect(address) {
        Ok(_) => false,
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => true,
        // The kernel had established it, and no worker had accepted it, when its listener began to refuse.
        Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
        Err(error) => panic!("neither refused nor taken: {error}"),
    }
}

/// Waits until connections are refused, or accepted.
fn wait_until_refused(address: SocketAddr, is: bool) {
    let began = Instant::now();
    while is_refused(address) != is {
        assert!(began.elapsed() < PATIENCE, "refused is {} for {PATIENCE:?}", !is);
        std::thread::yield_now();
    }
}

fn adds(scene: &Scene, fault: &str) {
    let (status, told) = asks(scene, "POST", "/faults", fault);
    assert_eq!(status, 200, "{told}");
}

#[test]
fn connections_are_refused_and_those_that_are_there_go_on() {
    let scene = Scene::new(APP);
    let address = scene.running().addresses()[0];
    let mut clients = clients(&scene);
    // The kernel holds a connection back until its client sends.
    for client in &mut clients {
        assert_eq!(client.asks_for(&get("/")).status, 200);
    }
    for _ in 0..3 {
        let mut asking = scene.client(Spoken::Http1).asking(&get("/app"));
        let mut server = scene.accept(0).after_head();
        adds(&scene, REFUSE);
        assert!(refuses(address));
        server.sends(OK);
        assert_eq!(asking.gets().status, 200);
        for client in &mut clients {
            assert_eq!(client.asks_for(&get("/")).status, 200);
        }
        let (_, told) = asks(&scene, "GET", "/faults", "");
        assert!(told.contains("\"injected\": 1"), "one listener does: {told}");
        assert_eq!(asks(&scene, "DELETE", "/faults/x", "").0, 200);
        assert!(!refuses(address));
        // All sockets are served again.
        for _ in 0..MANY {
            assert_eq!(scene.answer(Spoken::Http1, &get("/")).status, 200);
        }
    }
}

/// The port stays taken meanwhile.
#[test]
fn a_listener_that_refuses_is_named() {
    let other = "[upstream.db]\nservers = [\"tcp://127.0.0.1:9\"]\n\
                 [[listen]]\naddress = \"127.0.0.1:0\"\nname = \"bytes\"\ntcp = \"db\"\n";
    let scene = Scene::new(&format!("{APP}{other}"));
    let addresses = scene.running().addresses();
    adds(&scene, "[[fault]]\ninject = \"connection refuse\"\nlistener = \"bytes\"\n");
    assert_eq!([refuses(addresses[0]), refuses(addresses[1])], [true, false]);
    assert!(std::net::TcpListener::bind(addresses[0]).is_err(), "nobody else gets the port");
    assert_eq!(asks(&scene, "DELETE", "/faults", "").0, 200);
    assert_eq!([refuses(addresses[0]), refuses(addresses[1])], [false, false]);
}

#[test]
fn refusals_come_and_go_in_time() {
    let scene = Scene::new(APP);
    let address = scene.running().addresses()[0];
    adds(&scene, &format!("{REFUSE}expires = \"30ms\"\n"));
    wait_until_refused(address, false);
    assert!(!refuses(address), "it is over for good");
    adds(
        &scene,
        "[[fault]]\ninject = \"connection refuse\"\nfrom = \"10ms\"\nuntil = \"20ms\"\nrepeat = \"30ms\"\n",
    );
    for _ in 0..3 {
        wait_until_refused(address, true);
        wait_until_refused(address, false);
    }
}

#[test]
fn a_file_has_listeners_refuse() {
    let scene = Scene::new(&format!("{APP}{REFUSE}"));
    let address = scene.running().addresses()[0];
    assert!(refuses(address), "from the beginning");
    let (_, text) = asks(&scene, "GET", "/configuration", "");
    let reload = |fault: &str| {
        let mut config = read(&text).into_settings();
        config.faults.clone_from(&read(&format!("{LEAST}{fault}")).faults);
        scene.running().reload(valid(config)).expect("it is valid");
    };
    reload("");
    assert!(!refuses(address));
    reload(REFUSE);
    assert!(refuses(address));
    assert_eq!(asks(&scene, "DELETE", "/faults", "").0, 200);
    assert!(!refuses(address));
}

/// No connection that the kernel has established is lost.
#[test]
fn who_was_connected_before_is_served() {
    let scene = Scene::new(APP);
    let address = scene.running().addresses()[0];
    for _ in 0..MANY {
        let mut client = Http1Peer::new("client", TcpStream::connect(address).expect("it listens"));
        client.sends("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        adds(&scene, REFUSE);
        assert_eq!(client.message().status(), 200);
        assert_eq!(asks(&scene, "DELETE", "/faults", "").0, 200);
    }
}

/// Workers ignore the sockets meanwhile: no thread spins, and a drain ends at once.
#[test]
fn a_proxy_that_refuses_ends_as_others_do() {
    let scene = Scene::new(&format!("{APP}{REFUSE}"));
    let address = scene.running().addresses()[0];
    assert!(refuses(address));
    scene.running().drain();
}
