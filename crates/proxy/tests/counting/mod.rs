//! Counts the memory of the proxy's threads, present and maximum, for tests in separate programs. Also contains their
//! server.

// Each test program uses a part of it.
#![allow(dead_code)]
#![allow(unsafe_code, reason = "an allocator that counts can be installed in no other way")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};

const BODY_BYTES: usize = 4 << 20;

struct Counting;

/// Bytes that the proxy's threads hold.
pub(crate) static HELD: AtomicIsize = AtomicIsize::new(0);
/// Maximum of `HELD` since the last reset.
pub(crate) static MOST: AtomicIsize = AtomicIsize::new(0);
/// Requests that the server has received.
pub(crate) static ASKED: AtomicIsize = AtomicIsize::new(0);

thread_local! {
    /// Whether this thread belongs to the test, and does not count.
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(bytes: isize) {
    if !IS_OURS.get() {
        let held = HELD.fetch_add(bytes, Relaxed) + bytes;
        MOST.fetch_max(held, Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator unchanged; `realloc` and `alloc_zeroed` come here by default.
unsafe impl GlobalAlloc for Counting {
    // SAFETY: it is the trait's contract that the caller keeps.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps to `alloc`'s contract, which is the system's.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: as for `alloc`.
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: `pointer` came from `alloc` above, thus from the system.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// An HTTP/1.1 server: `/` is a large page, `/never` is not answered, and bodies are never read.
///
/// The calling thread does not count from then on.
pub(crate) fn serve() -> SocketAddr {
    IS_OURS.set(true);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback is free");
    let address = listener.local_addr().expect("it listens");
    std::thread::spawn(move || {
        IS_OURS.set(true);
        for stream in listener.incoming() {
            std::thread::spawn(move || answer(stream.expect("the proxy connects")));
        }
    });
    address
}

fn answer(mut stream: TcpStream) {
    IS_OURS.set(true);
    let mut head = vec![0; 128 * 1024];
    let mut len = 0;
    while !head[..len].windows(4).any(|window| window == b"\r\n\r\n") {
        match stream.read(&mut head[len..]) {
            Ok(count) if count > 0 => len += count,
            _ => return,
        }
    }
    ASKED.fetch_add(1, Relaxed);
    if head.starts_with(b"GET / ") {
        let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {BODY_BYTES}\r\n\r\n");
        let _ = stream.write_all(&vec![b'x'; BODY_BYTES]);
    }
    // Until the proxy closes, without reading a byte of the body.
    while stream.peek(&mut [0]).is_ok_and(|count| count > 0) {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[allow(clippy::print_stderr, reason = "the figures themselves")]
pub(crate) fn show(text: &str) {
    eprintln!("{text}");
}
