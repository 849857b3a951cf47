//! Lines at their receivers: syslog over every transport, read by a strict parser of RFC 5424, and the journal.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::thread;
use std::time::UNIX_EPOCH;

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use telemetry::{
    AccessLog, LineFormat, LogDestination, LogEntry, LogLines, LoggedVersion, Masks, Syslog, SyslogReceiver,
    WorkerLog,
};

/// So many that a stream consists of several pieces with several lines each.
const LINES: u16 = 600;

fn syslog(receiver: SyslogReceiver) -> LogDestination {
    LogDestination::Syslog(Syslog { receiver, facility: 16, severity: 6, app_name: "edge".to_owned() })
}

fn open(target: LogDestination) -> AccessLog {
    let format = LineFormat::new("$status $path", &[]).expect("a format");
    AccessLog::open(vec![(target, LogLines::new(format, Masks::default()))]).expect("opens")
}

fn record(log: &mut WorkerLog, status: u16) {
    let entry = LogEntry {
        method: b"GET",
        target: b"/a b\n<34>1 ",
        version: Some(LoggedVersion(1, 1)),
        status,
        ..LogEntry::new(IpAddr::V4(Ipv4Addr::LOCALHOST))
    };
    log.record(&entry, UNIX_EPOCH);
}

fn record_all(log: &AccessLog) {
    let mut worker = log.for_worker();
    (0..LINES).for_each(|number| record(&mut worker, 1000 + number));
}

/// The text of a message of RFC 5424 §6, whose parts are all checked.
fn message(bytes: &[u8]) -> String {
    let text = std::str::from_utf8(bytes).expect("ASCII");
    let rest = text.strip_prefix('<').expect("PRI");
    let (priority, rest) = rest.split_once('>').expect("PRI");
    assert_eq!(priority, "134", "local0 and informational");
    let parts: Vec<&str> = rest.splitn(8, ' ').collect();
    let [version, time, host, app, process, id, data, message] = parts[..] else { panic!("{text}") };
    assert_eq!((version, app, id, data), ("1", "edge", "access", "-"), "{text}");
    let time: Vec<&str> = time.split(['-', 'T', ':', '.']).collect();
    let lengths: Vec<usize> = time.iter().map(|part| part.len()).collect();
    assert_eq!(lengths, [4, 2, 2, 2, 2, 2, 4], "{text}");
    assert!(time[6].ends_with('Z') && !host.is_empty() && host.is_ascii(), "{text}");
    assert_eq!(process, std::process::id().to_string());
    message.to_owned()
}

fn expected(number: u16) -> String {
    format!("{} /a\\x20b\\n<34>1\\x20", 1000 + number)
}

fn assert_all(messages: &[String]) {
    let expected: Vec<String> = (0..LINES).map(expected).collect();
    assert_eq!(messages, expected);
}

/// Messages with their lengths in front (RFC 6587 §3.4.1), up to the end.
fn counted(stream: &mut impl Read) -> Vec<String> {
    let mut bytes = Vec::new();
    // A TLS connection without close_notify is an error at its end.
    let _ = stream.read_to_end(&mut bytes);
    let (mut rest, mut messages) = (&bytes[..], Vec::new());
    while !rest.is_empty() {
        let space = rest.iter().position(|&byte| byte == b' ').expect("a length");
        let length: usize = std::str::from_utf8(&rest[..space]).expect("digits").parse().expect("a number");
        messages.push(message(&rest[space + 1..space + 1 + length]));
        rest = &rest[space + 1 + length..];
    }
    messages
}

#[test]
fn over_udp_each_line_is_a_datagram() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("binds");
    let port = socket.local_addr().expect("bound").port();
    let log = open(syslog(SyslogReceiver::Udp { host: "127.0.0.1".to_owned(), port }));
    let mut worker = log.for_worker();
    for number in 0..20 {
        record(&mut worker, 1000 + number);
        worker.flush();
        let mut buffer = [0; 2048];
        let length = socket.recv(&mut buffer).expect("a datagram");
        assert_eq!(message(&buffer[..length]), expected(number));
    }
    drop(worker);
    log.close();
}

#[test]
fn over_a_unix_socket_each_line_is_a_datagram() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("log");
    let socket = UnixDatagram::bind(&path).expect("binds");
    let log = open(syslog(SyslogReceiver::Unix(path)));
    let received = thread::spawn(move || {
        let next = || {
            let mut buffer = [0; 2048];
            let length = socket.recv(&mut buffer).expect("a datagram");
            message(&buffer[..length])
        };
        (0..LINES).map(|_| next()).collect::<Vec<_>>()
    });
    record_all(&log);
    log.close();
    assert_all(&received.join().expect("received"));
}

#[test]
fn over_tcp_each_message_has_its_length_in_front() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let port = listener.local_addr().expect("bound").port();
    let log = open(syslog(SyslogReceiver::Tcp { host: "127.0.0.1".to_owned(), port, tls: None }));
    let received = thread::spawn(move || counted(&mut listener.accept().expect("a connection").0));
    record_all(&log);
    let counter = log.clone();
    log.close();
    assert_all(&received.join().expect("received"));
    assert_eq!(counter.dropped(), 0);
}

#[test]
fn where_the_receiver_closes_the_connection_the_next_line_has_another_one() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let port = listener.local_addr().expect("bound").port();
    let log = open(syslog(SyslogReceiver::Tcp { host: "127.0.0.1".to_owned(), port, tls: None }));
    let mut worker = log.for_worker();
    for number in 0..3 {
        record(&mut worker, 1000 + number);
        worker.flush();
        let (mut stream, _) = listener.accept().expect("a connection");
        // Reads two digits of the length, so that the rest is unread when the connection ends.
        stream.read_exact(&mut [0; 2]).expect("a length");
    }
    record(&mut worker, 1003);
    drop(worker);
    let (mut stream, _) = listener.accept().expect("another connection");
    let counter = log.clone();
    log.close();
    assert_eq!(counted(&mut stream), [expected(3)]);
    assert_eq!(counter.dropped(), 0);
}

#[test]
fn over_tls_the_receiver_has_to_prove_its_name() {
    let certified = rcgen::generate_simple_self_signed(["logs.test".to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der()));
    let server = ServerConfig::builder().with_no_client_auth();
    let server = server.with_single_cert(vec![certified.cert.der().clone()], key).expect("a configuration");
    let server = Arc::new(server);
    let mut roots = RootCertStore::empty();
    roots.add(certified.cert.der().clone()).expect("a root");
    let client = Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth());

    for (name, is_right) in [("logs.test", true), ("other.test", false)] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
        let port = listener.local_addr().expect("bound").port();
        let tls = Some((Arc::clone(&client), ServerName::try_from(name).expect("a name")));
        let log = open(syslog(SyslogReceiver::Tcp { host: "127.0.0.1".to_owned(), port, tls }));
        let config = Arc::clone(&server);
        let received = thread::spawn(move || {
            let (stream, _): (TcpStream, _) = listener.accept().expect("a connection");
            let connection = ServerConnection::new(config).expect("a connection");
            counted(&mut StreamOwned::new(connection, stream))
        });
        record_all(&log);
        log.close();
        let received = received.join().expect("received");
        if is_right { assert_all(&received) } else { assert!(received.is_empty()) }
    }
}

#[test]
fn a_receiver_that_never_was_costs_lines_and_no_time_of_workers() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let log = open(syslog(SyslogReceiver::Unix(folder.path().join("nobody"))));
    let mut worker = log.for_worker();
    let mut recorded = 0;
    // The queue becomes full, however fast the writer is.
    while log.dropped() == 0 {
        record(&mut worker, 1000);
        recorded += 1;
        assert!(recorded < 10_000_000, "nothing is dropped");
    }
}

#[test]
fn the_journal_gets_each_line_with_its_fields() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("socket");
    let socket = UnixDatagram::bind(&path).expect("binds");
    let log = open(LogDestination::Journal(Some(path)));
    let mut worker = log.for_worker();
    for number in 0..20 {
        record(&mut worker, 1000 + number);
        worker.flush();
        let mut buffer = [0; 2048];
        let length = socket.recv(&mut buffer).expect("a datagram");
        let text = std::str::from_utf8(&buffer[..length]).expect("text");
        let fields: Vec<(&str, &str)> =
            text.lines().map(|line| line.split_once('=').expect("a field")).collect();
        let own = [
            ("PRIORITY", "6"),
            ("SYSLOG_FACILITY", "3"),
            ("SYSLOG_IDENTIFIER", "vanward"),
            ("VANWARD_LOG", "access"),
            ("MESSAGE", &expected(number)),
        ];
        assert_eq!(fields, own);
        assert!(text.ends_with('\n'));
    }
    drop(worker);
    log.close();
}
