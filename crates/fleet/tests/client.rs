//! Authentication of the etcd client and the end of its watches, against fake servers.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;

use fleet::{EtcdClient, EtcdCredentials, EtcdFailure, EtcdKeys, Location};

fn server(answer: fn(&str) -> (u16, &'static str)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it listens");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream.try_clone().expect("a socket"));
            thread::spawn(move || {
                let mut writer = stream;
                while let Some(path) = request(&mut reader) {
                    let (status, body) = answer(&path);
                    let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n", body.len());
                    writer.write_all((head + body).as_bytes()).expect("the client reads");
                }
            });
        }
    });
    address
}

fn request(reader: &mut impl BufRead) -> Option<String> {
    let (mut first, mut len) = (String::new(), 0);
    reader.read_line(&mut first).ok().filter(|count| *count > 0)?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length: ") {
            len = value.parse().ok()?;
        }
        if line.is_empty() {
            break;
        }
    }
    reader.read_exact(&mut vec![0; len]).ok()?;
    first.split(' ').nth(1).map(str::to_owned)
}

fn read(servers: &[SocketAddr]) -> Result<i64, EtcdFailure> {
    let folder = tempfile::tempdir().expect("a folder");
    let password = folder.path().join("password");
    std::fs::write(&password, "secret\n").expect("it is written");
    let hosts: Vec<String> = servers.iter().map(ToString::to_string).collect();
    let location = Location::parse(&format!("etcd+http://{}/edge", hosts.join(","))).expect("is one");
    let access = EtcdCredentials { user: Some(("app".to_owned(), password)), ..EtcdCredentials::default() };
    let client = EtcdClient::new(location, access).expect("a client");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let reading =
        async { client.read(&[EtcdKeys::One("/edge".to_owned())]).await.map(|(revision, _)| revision) };
    tokio::task::LocalSet::new().block_on(&runtime, reading)
}

/// Answers as a server that accepts the client and has revision 7.
fn well(path: &str) -> (u16, &'static str) {
    match path {
        "/v3/auth/authenticate" => (200, r#"{"token":"t"}"#),
        _ => (200, r#"{"header":{"revision":"7"},"succeeded":true}"#),
    }
}

#[test]
fn a_server_that_cannot_let_anybody_in_now_is_passed_over() {
    // gRPC code UNAVAILABLE.
    let changing = |_: &str| (503, r#"{"code":14,"message":"etcdserver: leader changed"}"#);
    assert_eq!(read(&[server(changing), server(well)]), Ok(7));
    let failure = read(&[server(changing)]).expect_err("nobody lets it in");
    assert!(
        matches!(&failure, EtcdFailure::Unreachable(why) if why.contains("leader changed")),
        "{failure:?}"
    );
}

#[test]
fn a_wrong_password_is_wrong_at_all_servers() {
    // gRPC code INVALID_ARGUMENT.
    let refusing = |_: &str| (400, r#"{"code":3,"message":"invalid user ID or password"}"#);
    let failure = read(&[server(refusing), server(well)]).expect_err("it is refused");
    let expected = "user app: invalid user ID or password".to_owned();
    assert_eq!(failure, EtcdFailure::Refused(expected));
}

/// Compacted changes are lost. If the watch did not end, the client would wait for the next change and miss these.
#[test]
fn a_watch_from_a_revision_that_was_compacted_ends_as_with_a_change() {
    let compacted = |_: &str| {
        let created = r#"{"result":{"header":{"revision":"20"},"created":true}}"#;
        let canceled = r#"{"result":{"canceled":true,"compact_revision":"9"}}"#;
        (200, &*format!("{created}\n{canceled}\n").leak())
    };
    let location = Location::parse(&format!("etcd+http://{}/edge", server(compacted))).expect("is one");
    let client = EtcdClient::new(location, EtcdCredentials::default()).expect("a client");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let keys = EtcdKeys::Below("/edge/".to_owned());
    let watching = client.change(&keys, 5);
    assert_eq!(tokio::task::LocalSet::new().block_on(&runtime, watching), Ok(()));
}
