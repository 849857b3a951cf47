//! Readers of an arriving body at any speed: the memory held for them, and the source of their bytes.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll, Waker};

use super::behaviour::{Board, Woken, join, lead, no_waker, pattern, read_all, store, store_with, wait};
use super::{key, opening};
use crate::fill::{BodyDemand, FillReader, Filled, ReadError, Waited};
use crate::purge::{Force, PurgeScope};
use crate::store::{MemoryStore, MissRole, StoreSettings};

#[test]
fn a_reader_that_leaves_takes_nothing_from_slower_ones() {
    let part = pattern(64 << 10);
    // It leaves while the body is still to be stored, after it was given up, and after it is complete.
    for leaves_at in [8, 17, 18] {
        let store = store();
        let (mut fill, quick) = lead(&store, key(1)).open(opening("k"));
        let MissRole::Stream(slow) = join(&store, key(1)) else { panic!("it can be joined") };
        let mut quick = Some(quick);
        for number in 0..18 {
            quick.take_if(|_| number == leaves_at);
            assert_ne!(fill.push(&part, 50), BodyDemand::No);
            if let Some(quick) = &mut quick {
                assert!(
                    matches!(quick.poll_next(&no_waker()), Poll::Ready(Some(Ok(bytes))) if bytes == part)
                );
            }
        }
        assert!(matches!(fill.finish(), Filled::TooLarge));
        drop(quick);
        assert_eq!(read_all(slow).map(|body| body.len()), Ok(18 << 16), "{leaves_at}");
        assert_eq!(store.tally().filling_bytes, 0);
    }
}

#[test]
fn a_slow_reader_of_an_unkept_body_slows_the_fetch_and_loses_nothing() {
    let store = store();
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let context = Context::from_waker(&waker);
    let (mut fill, mut reader) = lead(&store, key(1)).open(opening("k"));
    let body = pattern(4 << 20);
    let (mut read, mut wakes) = (Vec::new(), 0);
    for part in body.chunks(128 << 10) {
        while fill.poll_room(&context).is_pending() {
            let Poll::Ready(Some(Ok(part))) = reader.poll_next(&no_waker()) else { panic!("there is more") };
            read.extend_from_slice(&part);
            wakes += 1;
            assert_eq!(woken.0.load(SeqCst), wakes);
        }
        assert_ne!(fill.push(part, 50), BodyDemand::No);
        assert!(store.tally().filling_bytes <= (1 << 20) + (256 << 10));
    }
    assert!(wakes > 0);
    assert!(matches!(fill.finish(), Filled::TooLarge));
    read.extend(read_all(reader).expect("nothing is lost"));
    assert!(read == body);
}

/// The fast reader waits for more and reports nothing until it gets some, so the fetch must know its position.
#[test]
fn a_slow_reader_that_leaves_does_not_stop_the_fetch_for_a_fast_one() {
    let part = pattern(64 << 10);
    let store = store();
    let (mut fill, mut fast) = lead(&store, key(1)).open(opening("k"));
    let slow = [(); 2].map(|()| match join(&store, key(1)) {
        MissRole::Stream(slow) => slow,
        _ => panic!("it can be joined"),
    });
    for _ in 0..32 {
        assert!(fill.poll_room(&no_waker()).is_ready());
        assert_ne!(fill.push(&part, 50), BodyDemand::No);
        assert!(matches!(fast.poll_next(&no_waker()), Poll::Ready(Some(Ok(_)))));
        assert!(fast.poll_next(&no_waker()).is_pending());
    }
    for mut slow in slow {
        assert_eq!(slow.poll_next(&no_waker()), Poll::Ready(Some(Err(ReadError::Behind))));
        drop(slow);
        assert!(fill.poll_room(&no_waker()).is_ready());
    }
}

#[test]
fn a_waiter_for_released_bytes_sends_a_separate_request() {
    let store = store();
    let body = pattern(1 << 20);
    let _full: Vec<_> = (10..18)
        .map(|number| {
            let (mut fill, reader) = lead(&store, key(number)).open(opening("k"));
            fill.push(&body, 0);
            (fill, reader)
        })
        .collect();
    let leader = lead(&store, key(1));
    let mut waits = [wait(&store, key(1)), wait(&store, key(1))];
    assert!(waits.iter_mut().all(|wait| wait.poll(&no_waker()).is_pending()));
    let (mut fill, mut reader) = leader.open(opening("k"));
    let Poll::Ready(Waited::Stream(mut early)) = waits[0].poll(&no_waker()) else {
        panic!("the head is there")
    };
    assert_eq!(fill.push(b"body", 0), BodyDemand::ToRead);
    assert!(matches!(reader.poll_next(&no_waker()), Poll::Ready(Some(Ok(part))) if *part == *b"body"));
    assert!(matches!(early.poll_next(&no_waker()), Poll::Ready(Some(Ok(part))) if *part == *b"body"));
    assert!(matches!(waits[1].poll(&no_waker()), Poll::Ready(Waited::Refused)));
}

#[test]
fn a_stored_response_frees_the_memory_for_arriving_bodies() {
    for shelf in [None, Some(u64::MAX)] {
        let store = store_with(shelf);
        // More than the limit for arriving bodies. The lengths end within a block and at its end.
        let bodies: Vec<_> = (0..12).map(|number| pattern((1 << 20) - 200_000 - number * 4096)).collect();
        let readers: Vec<FillReader> = bodies
            .iter()
            .zip(0..)
            .map(|(body, number)| {
                let (mut fill, mut reader) = lead(&store, key(number)).open(opening("k"));
                body.chunks(50_000).for_each(|part| assert_eq!(fill.push(part, 0), BodyDemand::ToStore));
                // Some readers have begun.
                (0..number).for_each(|_| drop(reader.poll_next(&no_waker())));
                let filled = fill.finish();
                assert!(matches!(filled, Filled::Stored(_)), "{number}: {filled:?}");
                assert_eq!(store.tally().filling_bytes, 0);
                reader
            })
            .collect();
        // Readers continue even if the response is purged.
        store.purge(PurgeScope::All, Force::Hard).expect("few rules");
        store.sweep();
        for (reader, body) in readers.into_iter().zip(&bodies) {
            let read_bytes = reader.read_bytes() as usize;
            assert!(read_all(reader).as_deref() == Ok(&body[read_bytes..]));
        }
    }
}

#[test]
fn a_waiter_for_a_stored_response_gets_it_from_the_store() {
    for (bytes, is_read) in [(10, false), (10, true), (100_000, false)] {
        let store = store();
        let leader = lead(&store, key(1));
        let mut waits = [wait(&store, key(1)), wait(&store, key(1))];
        let (mut fill, mut reader) = leader.open(opening("k"));
        fill.push(&pattern(bytes), 0);
        if is_read {
            while reader.poll_next(&no_waker()).is_ready() {}
        }
        assert!(matches!(fill.finish(), Filled::Stored(_)));
        let body = match waits[0].poll(&no_waker()) {
            Poll::Ready(Waited::Hit(object)) => object.body(0..u64::MAX).collect::<Vec<_>>().concat(),
            Poll::Ready(Waited::Stream(reader)) => read_all(reader).expect("all of it"),
            other => panic!("{other:?}"),
        };
        assert!(body == pattern(bytes));
        drop(reader);
        assert_eq!(store.tally().filling_bytes, 0);
        store.purge_key(key(1), Force::Hard);
        assert!(matches!(waits[1].poll(&no_waker()), Poll::Ready(Waited::Refused)));
    }
}

#[test]
fn one_body_alone_may_be_as_long_as_any_object() {
    for shelf in [None, Some(u64::MAX)] {
        let settings = StoreSettings { memory_bytes: 64 << 20, object_bytes_max: u64::MAX };
        let store = MemoryStore::new(settings, None);
        let store = Arc::new(match shelf {
            Some(room_bytes) => store.with_shelf(Arc::new(Board { room_bytes })),
            None => store,
        });
        let body = pattern(8_300_000);
        let (mut fill, _) = lead(&store, key(1)).open(opening("k"));
        body.chunks(64 << 10).for_each(|part| assert_eq!(fill.push(part, 0), BodyDemand::ToStore));
        assert!(matches!(fill.finish(), Filled::Stored(_)));
    }
}
