//! Many instances in one process, for `cargo xtask fleet --sizes`: either followers of a configuration in etcd
//! without proxies, or whole proxies with one worker each that share a limit through Redis.

// The command that started it reads its output.
#![allow(clippy::print_stdout)]

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use fleet::{EtcdCredentials, InstanceOptions, Location, WrittenSecrets};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["etcd", url, count, folder] => follow(url, number(count), folder),
        ["redis", file, count, rate] => proxies(file, number(count), number(rate)),
        _ => panic!("instances etcd URL COUNT FOLDER, or instances redis FILE COUNT RATE"),
    }
}

fn number(text: &str) -> usize {
    text.parse().unwrap_or_else(|_| panic!("{text} is no number"))
}

/// Stands in for a proxy: it applies each version at once. Counts the applied versions.
struct Nothing(Arc<AtomicUsize>);

impl fleet::FollowedProxy for Nothing {
    fn reload(&self) -> Result<(), String> {
        self.0.fetch_add(1, SeqCst);
        Ok(())
    }

    fn requests(&self) -> (u64, u64) {
        (0, 0)
    }

    fn peer_address(&self) -> Option<String> {
        None
    }

    fn take_peers(&self, _: &[String]) {}

    fn maps(&self) -> Vec<(String, Option<String>)> {
        Vec::new()
    }

    fn take_map(&self, _: &str, _: fleet::MapState) {}

    fn take_map_changes(&self, _: &str, _: Vec<fleet::MapChange>) {}

    fn note_maps(&self, _: u64) {}

    fn note(&self, _: &fleet::InstanceStanding) {}

    fn warn(&self, message: &str) {
        println!("{message}");
    }

    fn inform(&self, _: &str) {}
}

/// Follows the configuration in etcd as `count` instances, and prints how often a new version was applied.
fn follow(url: &str, count: usize, folder: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default());
    let reloads = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&reloads);
    std::thread::spawn(move || tell(&counted));
    runtime.expect("a runtime").block_on(async move {
        for number in 0..count {
            let options = InstanceOptions {
                location: Location::parse(url).expect("is a URL"),
                access: EtcdCredentials::default(),
                name: format!("edge-{number:04}"),
                folder: PathBuf::from(folder).join(format!("edge-{number:04}")),
                program: env!("CARGO_PKG_VERSION").to_owned(),
                secrets: WrittenSecrets::Refused,
            };
            let proxy = Nothing(Arc::clone(&reloads));
            let beginning = fleet::begin(options).await.unwrap_or_else(|why| panic!("{why}"));
            let (_, orders) = tokio::sync::mpsc::unbounded_channel();
            tokio::task::spawn_local(beginning.follow(proxy, orders, std::future::pending::<()>()));
        }
        println!("ready");
        std::future::pending::<()>().await;
    });
}

/// Prints each number once it has changed.
fn tell(number: &AtomicUsize) {
    let mut last = 0;
    loop {
        let now = number.load(SeqCst);
        if now != last {
            println!("{now}");
            last = now;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Starts `count` proxies, and sends `rate` requests per second to all together.
fn proxies(file: &str, count: usize, rate: usize) {
    let text = std::fs::read_to_string(file).expect("the file can be read");
    let proxies: Vec<_> = (0..count)
        .map(|number| {
            let text = text.replace("NUMBER", &number.to_string());
            let config = config::parse(&text, file).unwrap_or_else(|mistakes| panic!("{mistakes:?}"));
            control::start(config).unwrap_or_else(|error| panic!("{error}"))
        })
        .collect();
    println!("ready");
    let addresses: Vec<SocketAddr> = proxies.iter().map(|proxy| proxy.addresses()[0]).collect();
    if rate == 0 {
        loop {
            std::thread::park();
        }
    }
    // Consecutive requests of an instance have different keys.
    let pause = Duration::from_secs(1) / u32::try_from(rate).unwrap_or(u32::MAX);
    let mut connections: Vec<Option<BufReader<TcpStream>>> = addresses.iter().map(|_| None).collect();
    for turn in 0.. {
        let place = turn % count;
        let connection = connections[place].get_or_insert_with(|| {
            BufReader::new(TcpStream::connect(addresses[place]).expect("a proxy listens"))
        });
        let key = turn / count % 100;
        write!(connection.get_mut(), "GET / HTTP/1.1\r\nHost: a\r\nX-Key: {key}\r\n\r\n").expect("it reads");
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            assert!(
                connection.read_line(&mut line).expect("it answers") > 0,
                "a proxy has closed a connection"
            );
        }
        std::thread::sleep(pause);
    }
}
