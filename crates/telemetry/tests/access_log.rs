//! The log as the proxy uses it: files that rotate, disks that are full.

use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use telemetry::{AccessLog, LineFormat, LogDestination, LogEntry, LogLines, LoggedVersion, Masks, WorkerLog};

fn record(log: &mut WorkerLog, target: &[u8]) {
    let entry = LogEntry {
        method: b"GET",
        target,
        version: Some(LoggedVersion(1, 1)),
        status: 200,
        body_bytes_sent: 1,
        bytes_received: 1,
        duration: Duration::from_millis(1),
        ..LogEntry::new(IpAddr::V6(Ipv6Addr::LOCALHOST))
    };
    log.record(&entry, SystemTime::now());
}

fn scratch(name: &str) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    drop(fs::remove_dir_all(&directory));
    fs::create_dir_all(&directory).expect("the target directory can be written to");
    directory
}

#[test]
fn a_file_is_appended_to() {
    let directory = scratch("appended");
    let path = directory.join("access.log");
    for target in [b"/first", b"/again"] {
        let log = AccessLog::open(vec![(
            LogDestination::File(path.clone(), None),
            LogLines::new(LineFormat::Extended, Masks::default()),
        )])
        .expect("opens");
        record(&mut log.for_worker(), target);
        log.close();
    }
    let text = fs::read_to_string(&path).expect("written");
    let targets: Vec<_> = text.lines().filter_map(|line| line.split(' ').nth(6)).collect();
    assert_eq!(targets, ["/first", "/again"]);
    fs::remove_dir_all(directory).expect("removed");
}

#[test]
fn a_rotated_file_is_followed_by_a_new_one() {
    let directory = scratch("rotated");
    let (path, rotated) = (directory.join("access.log"), directory.join("access.log.1"));
    let log = AccessLog::open(vec![(
        LogDestination::File(path.clone(), None),
        LogLines::new(LineFormat::Extended, Masks::default()),
    )])
    .expect("opens");
    let mut worker = log.for_worker();
    record(&mut worker, b"/before");
    worker.flush();
    fs::rename(&path, &rotated).expect("renamed");
    log.reopen();
    record(&mut worker, b"/after");
    drop(worker);
    log.close();

    // The earlier line may be in either file. No line must be lost, and the new name must be used.
    let (old, new) =
        (fs::read_to_string(&rotated).expect("kept"), fs::read_to_string(&path).expect("created"));
    assert_eq!((old.clone() + &new).lines().count(), 2);
    assert!(new.contains("/after") && !old.contains("/after"), "old: {old}new: {new}");
    fs::remove_dir_all(directory).expect("removed");
}

#[test]
fn a_full_disk_costs_lines_not_the_process() {
    let log = AccessLog::open(vec![(
        LogDestination::File("/dev/full".into(), None),
        LogLines::new(LineFormat::Json, Masks::default()),
    )])
    .expect("opens");
    let counter = log.clone();
    let mut worker = log.for_worker();
    for _ in 0..3 {
        record(&mut worker, b"/");
        worker.flush();
    }
    drop(worker);
    log.close();
    assert_eq!(counter.dropped(), 3);
}

#[test]
fn a_missing_directory_is_reported_at_once() {
    let missing = scratch("missing").join("nowhere").join("access.log");
    let error = AccessLog::open(vec![(
        LogDestination::File(missing, None),
        LogLines::new(LineFormat::Json, Masks::default()),
    )])
    .err()
    .expect("refused");
    assert_eq!((error.0, error.1.kind()), (0, std::io::ErrorKind::NotFound));
}
