//! The configurations in `examples`: each is checked, runs with addresses and folders of the test, and works as
//! described.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;

use crate::process::{Process, connect, get, read_head, response, run_in};

/// Pages have the origin's name and the path; `/verify` accepts requests with a cookie, `/live` switches protocols.
fn origin(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it listens");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().filter_map(Result::ok) {
            std::thread::spawn(move || while serve(&mut stream, name).is_some() {});
        }
    });
    address
}

fn serve(stream: &mut TcpStream, name: &str) -> Option<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1)?;
    if head.contains("Upgrade: websocket") {
        let switched =
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello";
        stream.write_all(switched.as_bytes()).ok()?;
        return None;
    }
    let user =
        head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("x-user: ").map(str::to_owned));
    let (status, field) = match (path, head.contains("session=1")) {
        ("/verify", true) => ("200 OK", "X-User: alice\r\n"),
        ("/verify", false) => ("401 Unauthorized", ""),
        _ => ("200 OK", ""),
    };
    let page = format!("{name} {path} {}\n", user.unwrap_or_default());
    let length = page.len();
    stream
        .write_all(format!("HTTP/1.1 {status}\r\n{field}Content-Length: {length}\r\n\r\n{page}").as_bytes())
        .ok()
}

/// Checks an example and runs it, with names of other machines replaced.
fn started(name: &str, folder: &Path) -> (Process, SocketAddr) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    let text = std::fs::read_to_string(path).expect("the example is there");
    let here = folder.display();
    let text = text
        .replace("0.0.0.0:80", "127.0.0.1:0")
        .replace("0.0.0.0:443", "127.0.0.2:0")
        .replace("127.0.0.1:9000", &origin("app").to_string())
        .replace("127.0.0.1:9001", &origin("other").to_string())
        // Nothing listens there.
        .replace("127.0.0.1:50051", "127.0.0.1:1")
        .replace("127.0.0.1:6379", "127.0.0.1:1")
        .replace("contact = ", "directory = \"https://127.0.0.1:1/\"\ncontact = ")
        .replace("/run/vanward/", &format!("{here}/"))
        .replace("/var/lib/vanward/acme", &format!("{here}/acme"))
        .replace("/srv/www", &format!("{here}/www"));
    std::fs::write(folder.join(name), text).expect("it is writable");
    for (file, text) in
        [("www/index.html", "index\n"), ("www/404.html", "nothing here\n"), ("www/assets/a.js", "1\n")]
    {
        let file = folder.join(file);
        std::fs::create_dir_all(file.parent().expect("it has a folder")).expect("it is writable");
        std::fs::write(file, text).expect("it is writable");
    }
    run_in(folder, &["check", name]).with_code(0);
    let mut process = Process::start_in(folder, &["run", "--config", name]);
    let address = process.address();
    (process, address)
}

fn head_of(answer: &str) -> String {
    answer.split("\r\n\r\n").next().unwrap_or_default().to_ascii_lowercase()
}

fn with(name: &str, then: impl FnOnce(SocketAddr)) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_process, address) = started(name, folder.path());
    then(address);
}

#[test]
fn sites_over_https_redirect_to_it() {
    for name in ["tls-site.toml", "http3.toml"] {
        with(name, |address| {
            let mut stream = connect(address);
            stream.write_all(b"GET /a?b HTTP/1.1\r\nHost: example.com\r\n\r\n").expect("it reads");
            let head = read_head(&mut stream).to_ascii_lowercase();
            assert!(
                head.starts_with("http/1.1 308 ") && head.contains("location: https://example.com"),
                "{name}: {head}"
            );
        });
    }
}

#[test]
fn a_slow_site_is_asked_once() {
    with("cache.toml", |address| {
        assert!(!head_of(&get(address, "/a?utm_source=x")).contains("; hit"));
        let second = get(address, "/a?utm_source=y");
        assert!(head_of(&second).contains("; hit"), "{second}");
        assert!(second.ends_with("app /a \n"), "{second}");
        get(address, "/account");
        assert!(!head_of(&get(address, "/account")).contains("; hit"));
    });
}

#[test]
fn servers_share_the_requests_until_one_is_drained() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_process, address) = started("balance.toml", folder.path());
    let names = || -> Vec<bool> { (0..8).map(|_| get(address, "/").ends_with("other / \n")).collect() };
    let told = names();
    assert!(told.contains(&true) && told.contains(&false), "{told:?}");
    let text = std::fs::read_to_string(folder.path().join("balance.toml")).expect("it was written");
    let servers = text.lines().find(|line| line.starts_with("servers")).expect("it has servers");
    let other = servers.split('"').nth(3).expect("two of them").trim_start_matches("http://");
    let socket = folder.path().join("admin.sock").display().to_string();
    run_in(folder.path(), &["drain", "--server", other, "--socket", &socket]).with_code(0);
    assert_eq!(names(), [false; 8]);
}

#[test]
fn testers_get_the_new_version() {
    with("canary.toml", |address| {
        assert!(response(address, "/", "X-Canary: yes\r\n").ends_with("other / \n"));
        assert!(head_of(&get(address, "/")).contains("set-cookie: vanward_split="));
    });
}

#[test]
fn calls_without_a_server_are_answered_in_their_own_way() {
    with("grpc.toml", |address| {
        let head = head_of(&response(
            address,
            "/shop.Cart/Get",
            "Content-Type: application/grpc\r\nTE: trailers\r\n",
        ));
        assert!(head.starts_with("http/1.1 200 ") && head.contains("grpc-status: 14"), "{head}");
    });
}

#[test]
fn websockets_pass() {
    with("websocket.toml", |address| {
        let mut stream = connect(address);
        let fields = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
        stream
            .write_all(format!("GET /live HTTP/1.1\r\nHost: test\r\n{fields}\r\n").as_bytes())
            .expect("it reads");
        assert!(read_head(&mut stream).starts_with("HTTP/1.1 101 "));
        let mut hello = [0; 5];
        stream.read_exact(&mut hello).expect("the server speaks");
        assert_eq!(&hello, b"hello");
    });
}

#[test]
fn clients_above_a_rate_get_429_with_retry_after() {
    // Without Redis, each instance admits a third of the rate.
    let cases = [
        ("rate-limits.toml", "/login", 5),
        #[cfg(feature = "fleet")]
        ("fleet.toml", "/", 3),
    ];
    for (name, path, admitted) in cases {
        with(name, |address| {
            for _ in 0..admitted {
                assert!(get(address, path).starts_with("HTTP/1.1 200 "), "{name}");
            }
            let refused = head_of(&get(address, path));
            assert!(
                refused.starts_with("http/1.1 429 ") && refused.contains("retry-after: "),
                "{name}: {refused}"
            );
        });
    }
}

#[test]
fn the_first_orders_fail() {
    with("chaos.toml", |address| {
        let statuses: Vec<String> = (0..3).map(|_| get(address, "/orders")[9..12].to_owned()).collect();
        assert_eq!(statuses, ["503", "503", "200"]);
        assert!(get(address, "/slow").starts_with("HTTP/1.1 200 "));
    });
}

#[test]
fn files_and_the_page_for_what_is_missing() {
    with("static-site.toml", |address| {
        assert!(get(address, "/").ends_with("index\n"));
        assert!(head_of(&get(address, "/assets/a.js")).contains("immutable"));
        let missing = get(address, "/none");
        assert!(missing.starts_with("HTTP/1.1 404 ") && missing.ends_with("nothing here\n"), "{missing}");
    });
}

#[test]
fn another_server_says_who_is_let_in() {
    with("forward-auth.toml", |address| {
        assert!(get(address, "/a").starts_with("HTTP/1.1 401 "));
        let known = response(address, "/a", "Cookie: session=1\r\nX-User: mallory\r\n");
        assert!(known.ends_with("app /a alice\n"), "{known}");
        assert!(get(address, "/public").ends_with("app /public \n"));
    });
}

#[test]
fn the_list_has_all_examples() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let list = std::fs::read_to_string(folder.join("README.md")).expect("it is there");
    let tests = include_str!("examples.rs");
    for entry in std::fs::read_dir(&folder).expect("it is there") {
        let name = entry.expect("it is there").file_name().to_string_lossy().into_owned();
        // The list names a folder by one of its files.
        let is_listed = [")", "/"].iter().any(|end| list.contains(&format!("({name}{end}")));
        assert!(name == "README.md" || is_listed, "{name} is not in examples/README.md");
        // The front door has a separate test: proxy/tests/front_door.rs.
        let is_tested = !name.ends_with(".toml") || name == "front-door.toml" || tests.contains(&name);
        assert!(is_tested, "{name} is not asked by a test");
    }
}
