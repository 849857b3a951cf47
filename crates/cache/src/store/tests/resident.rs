//! The store's share of the machine's memory, measured in a separate process, with the program's allocator.

use std::process::Command;
use std::sync::Arc;

use super::{key, no_variant, opening};
use crate::fill::Filled;
use crate::store::object::Opening;
use crate::store::{MemoryStore, MissRole, StoreSettings};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const MEMORY_BYTES: u64 = 64 << 20;

/// The resident memory of the process.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux tells");
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number of pages");
    pages * 4096
}

/// In the child process: fills the store one and a half times with bodies of random sizes around a mean, and prints its
/// memory.
#[test]
#[ignore = "run by the other test, in a process of its own"]
#[expect(clippy::print_stdout, reason = "the figures are for who measures")]
fn child() {
    let body_bytes: usize = std::env::var("BODY_BYTES").expect("given").parse().expect("a number");
    let body = vec![b'x'; 2 * body_bytes];
    let before = resident_bytes();
    let store = Arc::new(MemoryStore::new(
        StoreSettings { memory_bytes: MEMORY_BYTES, object_bytes_max: u64::MAX },
        None,
    ));
    let mut highest = 0;
    let objects = 3 * MEMORY_BYTES / 2 / (body_bytes as u64 + 800);
    for number in 0..objects {
        let MissRole::Lead(lead) = store.join(key(number), None, no_variant, 0) else { panic!("a new key") };
        let opening = Opening { head: vec![b'h'; 300].into(), ..opening("http://example.org/some/path") };
        let (mut fill, _) = lead.open(opening);
        fill.push(&body[..body_bytes / 2 + fastrand::usize(0..body_bytes)], 0);
        assert!(matches!(fill.finish(), Filled::Stored(_)));
        // Some responses are used, so that eviction is not only by age.
        store.look(key(fastrand::u64(0..=number)), no_variant);
        if number % (objects / 50) == 0 {
            highest = highest.max(resident_bytes());
        }
    }
    println!("resident={} told={:?}", highest - before, store.tally());
    assert!(store.tally().evicted > 0);
    assert!(highest - before <= MEMORY_BYTES * 115 / 100, "{} bytes", highest - before);
    assert!(highest - before >= MEMORY_BYTES * 75 / 100, "the memory is put to use");
}

#[test]
fn the_memory_taken_is_within_15_percent_of_the_bound_whatever_the_objects() {
    for body_bytes in ["128", "2000", "20000", "100000", "1000000"] {
        let output = Command::new(std::env::current_exe().expect("it runs"))
            .args(["--exact", "store::tests::resident::child", "--ignored", "--nocapture"])
            .env("BODY_BYTES", body_bytes)
            .output()
            .expect("it starts again");
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "bodies of {body_bytes}: {told}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
