//! Messages at the end of the proxy: spans that no collector accepted.

/// The program as a process.
#[cfg_attr(feature = "lab", allow(dead_code, reason = "it takes little of it"))]
mod process;

use std::net::TcpListener;

use rustix::process::Signal;

use process::{Process, get};

#[test]
fn the_number_of_lost_spans_is_reported_at_the_end() {
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let collector = closed.local_addr().expect("it is bound");
    drop(closed);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let text = format!(
        "[tracing]\ncollector = \"http://{collector}\"\nsample = \"100%\"\n\
         [[listen]]\naddress = \"127.0.0.1:0\"\n[[route]]\nrespond = {{ status = 200 }}\n"
    );
    std::fs::write(folder.path().join("vanward.toml"), text).expect("it is writable");
    let mut proxy = Process::start_in(folder.path(), &["run"]);
    let address = proxy.address();
    get(address, "/");
    proxy.warns("cannot send 1 span ");
    get(address, "/");
    get(address, "/");
    proxy.signal(Signal::TERM);
    let ended = proxy.ended().with_code(0);
    let lost: Vec<&str> = ended.errors.lines().filter(|line| line.contains("; lost")).collect();
    assert!(lost.len() == 1 && lost[0].contains("cannot send 3 spans to"), "{ended:?}");
}
