//! A fixed page costs no allocation. The only test in its process, because it counts every thread's allocations.

#![allow(unsafe_code, reason = "an allocator that counts can be installed in no other way")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    // SAFETY: the caller keeps to the same contract.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller keeps to `alloc`'s contract, which is the system's.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: the caller keeps to the same contract.
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `alloc` above, so from the system.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[test]
fn a_fixed_page_is_served_without_allocating() {
    const REQUESTS: usize = 2000;
    let running = origin::start(origin::OriginOptions::default()).expect("starts");
    let mut client = TcpStream::connect(running.addresses()[0]).expect("it listens");
    let mut response = vec![0; 64 * 1024];
    for (page, bytes) in [("/tiny", 128), ("/medium", 11_268)] {
        let request = format!("GET {page} HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut exchange = |client: &mut TcpStream| {
            client.write_all(request.as_bytes()).expect("the origin takes it");
            let (mut length, mut end) = (0, None);
            while end.is_none_or(|end| length < end + bytes) {
                length += client.read(&mut response[length..]).expect("a response arrives");
                end = response[..length].windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4);
            }
            assert_eq!(end.map(|end| length - end), Some(bytes));
        };
        (0..10).for_each(|_| exchange(&mut client));
        let before = ALLOCATIONS.load(Relaxed);
        (0..REQUESTS).for_each(|_| exchange(&mut client));
        let allocations = ALLOCATIONS.load(Relaxed) - before;
        // The date changes once a second, and the runtime allocates its timer.
        assert!(allocations < REQUESTS / 100, "{allocations} allocations for {REQUESTS} requests of {page}");
    }
}
