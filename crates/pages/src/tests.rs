//! Written bytes are the ones that are mapped and sent, while other bodies come and go.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;

use super::*;

const PAGE_BYTES: u64 = 4096;

fn body(bytes: usize, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(|| random.u8(..)).take(bytes).collect()
}

fn shelve(pages: &Pages, body: &[u8]) -> Arc<dyn Shelved> {
    let mut draft = pages.begin(body.len() as u64).expect("there is room");
    for piece in body.chunks(10_000) {
        assert!(draft.append(piece));
    }
    draft.finish().expect("it can be mapped")
}

fn send(shelved: &dyn Shelved, socket: &TcpStream, offset: u64) -> Result<usize, Errno> {
    let region: &Region = (shelved as &dyn std::any::Any).downcast_ref().expect("it is ours");
    region.send(socket.as_fd(), offset)
}

fn send_with(shelved: &dyn Shelved, socket: &TcpStream, head: &[u8]) -> Option<usize> {
    let region: &Region = (shelved as &dyn std::any::Any).downcast_ref().expect("it is ours");
    region.send_with(socket.as_fd(), head).map(|sent| sent.expect("there is room"))
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let one = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    (one, listener.accept().expect("it connects").0)
}

/// Memory that the file takes.
fn held_bytes(pages: &Pages) -> u64 {
    pages.0.file.metadata().expect("it is open").blocks() * 512
}

#[test]
fn what_is_written_is_what_is_read_and_sent() {
    let pages = Pages::new().expect("the system has such files");
    for (number, bytes) in [1, 4095, 4096, 4097, 165_854, 1 << 20].into_iter().enumerate() {
        let body = body(bytes, number as u64);
        let shelved = shelve(&pages, &body);
        assert_eq!(shelved.bytes(), body);
        let from = bytes / 3;
        let (sender, mut receiver) = pair();
        let received = std::thread::spawn(move || {
            let mut received = Vec::new();
            receiver.read_to_end(&mut received).map(|_| received)
        });
        let mut at = from;
        while at < bytes {
            at += send(&*shelved, &sender, at as u64).expect("it is read");
        }
        assert_eq!(send(&*shelved, &sender, bytes as u64), Err(Errno::IO));
        drop(sender);
        assert_eq!(received.join().expect("no panic").expect("it is read"), body[from..]);
    }
}

#[test]
fn what_is_on_its_way_stays_what_it_was_when_its_place_is_given_up() {
    let pages = Pages::new().expect("the system has such files");
    let first = body(60_000, 1);
    let (sender, mut receiver) = pair();
    let shelved = shelve(&pages, &first);
    let sent = send(&*shelved, &sender, 0).expect("there is room");
    drop(shelved);
    // The client has read nothing yet, and all freed memory is written to.
    let others: Vec<_> = (2..40).map(|seed| shelve(&pages, &body(60_000, seed))).collect();
    let mut received = vec![0; sent];
    receiver.read_exact(&mut received).expect("it was sent");
    assert_eq!(received, first[..sent]);
    drop(others);
}

#[test]
fn memory_goes_back_with_what_it_was_for() {
    let pages = Pages::new().expect("the system has such files");
    let shelved: Vec<_> = (0..10).map(|seed| shelve(&pages, &body(100_000, seed))).collect();
    assert_eq!(held_bytes(&pages), 10 * 100_000u64.next_multiple_of(PAGE_BYTES));
    drop(shelved);
    assert_eq!(held_bytes(&pages), 0);
    let mut draft = pages.begin(100_000).expect("there is room");
    assert!(draft.append(&body(50_000, 1)));
    assert!(held_bytes(&pages) > 0);
    drop(draft);
    assert_eq!(held_bytes(&pages), 0);
}

#[test]
fn nothing_is_written_into_what_belongs_to_another() {
    let pages = Pages::new().expect("the system has such files");
    let mut draft = pages.begin(5000).expect("there is room");
    let neighbour = shelve(&pages, &body(5000, 1));
    // A range consists of whole pages: two here.
    assert!(draft.append(&[1; 8192]));
    assert!(!draft.append(&[1; 1]));
    assert_eq!(neighbour.bytes(), body(5000, 1));
}

#[test]
fn there_are_only_so_many_ranges() {
    let pages = Pages::new().expect("the system has such files");
    let mut drafts: Vec<_> = (0..RANGES_MAX).map_while(|_| pages.begin(1)).collect();
    assert_eq!(drafts.len() as u64, RANGES_MAX);
    assert!(pages.begin(1).is_none());
    drafts.pop();
    assert!(pages.begin(1).is_some());
    assert!(pages.begin(u64::MAX).is_none(), "nothing is that long");
}

#[test]
fn a_head_that_is_asked_for_again_leaves_with_its_body() {
    let pages = Pages::new().expect("the system has such files");
    let body = body(10_000, 1);
    let shelved = shelve(&pages, &body);
    let (sender, mut receiver) = pair();
    let longest = vec![b'c'; PAGE_BYTES as usize];
    let too_long = vec![b'd'; PAGE_BYTES as usize + 1];
    let rows: [(&[u8], bool); 13] = [
        (b"a", false),
        (b"a", true),
        (b"a", true),
        (b"another head", false),
        (b"a", true),
        // Requested twice in a row, but not stored.
        (b"another head", true),
        (b"a", false),
        (&longest, false),
        (&longest, true),
        (&too_long, false),
        (&too_long, false),
        (b"a", false),
        (b"a", true),
    ];
    let mut received = Vec::new();
    for (at, (head, is_sent)) in rows.into_iter().enumerate() {
        let sent = send_with(&*shelved, &sender, head);
        assert_eq!(sent, is_sent.then_some(head.len() + body.len()), "{at}");
        received.resize(sent.unwrap_or(0), 0);
        receiver.read_exact(&mut received).expect("it was sent");
        assert!(!is_sent || received == [head, &body].concat(), "{at}");
    }
    drop(shelved);
    assert_eq!(held_bytes(&pages), 0);
}

#[test]
fn a_head_that_is_on_its_way_stays_what_it_was_when_another_takes_its_place() {
    let pages = Pages::new().expect("the system has such files");
    let body = body(10_000, 1);
    let shelved = shelve(&pages, &body);
    let (sender, mut receiver) = pair();
    let mut expected = Vec::new();
    for head in ["first", "second", "third"] {
        assert_eq!(send_with(&*shelved, &sender, head.as_bytes()), None);
        assert!(send_with(&*shelved, &sender, head.as_bytes()).is_some());
        expected.extend([head.as_bytes(), &body].concat());
    }
    let mut received = vec![0; expected.len()];
    receiver.read_exact(&mut received).expect("it was sent");
    assert!(received == expected);
}

/// Several threads send one body, each with its own head or with another's.
#[test]
fn heads_of_several_threads_are_never_mixed() {
    let pages = Pages::new().expect("the system has such files");
    let body = body(5_000, 1);
    let shelved = shelve(&pages, &body);
    let send = |own: usize| {
        let (sender, mut receiver) = pair();
        let mut with_body = 0;
        for round in 0..3_000 {
            let head = format!("head {}", if round % 7 < 4 { 0 } else { own });
            let Some(sent) = send_with(&*shelved, &sender, head.as_bytes()) else { continue };
            with_body += 1;
            let mut received = vec![0; sent];
            receiver.read_exact(&mut received).expect("it was sent");
            assert!(received == [head.as_bytes(), &body].concat());
        }
        with_body
    };
    let sent: usize = std::thread::scope(|scope| {
        let threads = [1, 2, 3].map(|own| scope.spawn(move || send(own)));
        threads.map(|thread| thread.join().expect("no panic")).into_iter().sum()
    });
    assert!(sent > 0);
}
