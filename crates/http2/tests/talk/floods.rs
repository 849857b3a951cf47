//! Floods end the connection, and similar legitimate traffic does not.

use http2::{Flood, H2Broken, H2ErrorCause, H2Event, H2Role, Now, Reason, WireScheme};

use crate::end::{PREFACE, asking, end, frame, read_all, receive, receive_at, sends};

/// A sender does not control how its frames are split: small pieces are no flood of small frames.
#[test]
fn a_body_that_arrives_byte_by_byte_is_no_flood() {
    let (mut client, mut server) = (end(H2Role::Client), end(H2Role::Server));
    let key = client.open();
    let body = vec![b'x'; 10_000];
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000\r\n\r\n";
    let (got, _) = sends((&mut client, key), &mut server, &[&head[..], &body].concat(), 1, None);
    assert!(got.ends_with(&body));
}

/// Frames that cost their sender nothing, generated from the count of earlier ones, after a prefix.
struct FloodOf {
    name: &'static str,
    flood: Flood,
    role: H2Role,
    begin: Vec<u8>,
    frames: fn(u32) -> Vec<u8>,
}

/// CVE-2019-9511 and related ones, CVE-2023-44487 (rapid reset), CVE-2024-27316 (endless heads).
fn floods() -> Vec<FloodOf> {
    const REQUEST: [u8; 6] = [0x82, 0x86, 0x84, 0x41, 1, b'a'];
    let settings: fn(u32) -> Vec<u8> = |_| frame(4, 0, 0, &[0, 4, 0, 0, 0, 1]);
    let pings: fn(u32) -> Vec<u8> = |_| frame(6, 0, 0, &[0; 8]);
    let priorities: fn(u32) -> Vec<u8> = |at| frame(2, 0, 1 + 2 * (at % 1000), &[0, 0, 0, 0, 1]);
    let row = |name, flood, role, begin: &[u8], frames| FloodOf {
        name,
        flood,
        role,
        begin: begin.to_vec(),
        frames,
    };
    let both = [H2Role::Server, H2Role::Client];
    let mut floods: Vec<FloodOf> = both
        .into_iter()
        .flat_map(|role| {
            [
                row("settings", Flood::Settings, role, b"", settings),
                row("pings", Flood::Pings, role, b"", pings),
                row("priorities", Flood::Priorities, role, b"", priorities),
            ]
        })
        .collect();
    let malformed: fn(u32) -> Vec<u8> =
        |at| frame(1, 5, 1 + 2 * at, &[&REQUEST[..], &[0, 1, b'A', 0]].concat());
    let resets = |at| [frame(1, 5, 1 + 2 * at, &REQUEST), frame(3, 0, 1 + 2 * at, &[0, 0, 0, 8])].concat();
    let upload = frame(1, 4, 1, &[&[0x83], &REQUEST[1..]].concat());
    let head = frame(1, 1, 1, &REQUEST);
    floods.extend([
        row("rapid resets", Flood::Resets, H2Role::Server, b"", resets),
        row("malformed requests", Flood::Errors, H2Role::Server, b"", malformed),
        row("empty data", Flood::EmptyFrames, H2Role::Server, &upload, |_| frame(0, 0, 1, b"")),
        row("data of a little padding", Flood::EmptyFrames, H2Role::Server, &upload, |_| {
            frame(0, 8, 1, b"\0")
        }),
        row("a head without an end", Flood::HeaderBlock, H2Role::Server, &head, |_| frame(9, 0, 1, &[0x82])),
        row("a head of nothing", Flood::HeaderBlock, H2Role::Server, &head, |_| frame(9, 0, 1, b"")),
    ]);
    floods.extend(overhead(&upload));
    floods
}

/// Frames that carry nothing, and whose kind has no separate limit.
fn overhead(upload: &[u8]) -> Vec<FloodOf> {
    let overflow = frame(8, 0, 1, &[0x7f, 0xff, 0xff, 0xff]);
    let is_reset = [upload, &overflow].concat();
    let all_that_may_be: Vec<u8> = (0..10).flat_map(|at| frame(1, 4, 1 + 2 * at, &upload[9..])).collect();
    let later = frame(1, 5, 7, &[0x82, 0x86, 0x84, 0x41, 1, b'a']);
    let row = |name, begin: &[u8], frames| FloodOf {
        name,
        flood: Flood::Overhead,
        role: H2Role::Server,
        begin: begin.to_vec(),
        frames,
    };
    vec![
        row("windows of the connection", b"", |_| frame(8, 0, 0, &[0, 0, 0, 1])),
        row("windows of a stream", upload, |_| frame(8, 0, 1, &[0, 0, 0, 1])),
        row("windows of what is over", &later, |at| frame(8, 0, 1 + 2 * (at % 3), &[0, 0, 0, 1])),
        row("frames that nobody knows", b"", |at| frame(10 + at as u8 % 200, 255, at, b"x")),
        row("answers to no settings", b"", |_| frame(4, 1, 0, b"")),
        row("answers to no ping", b"", |_| frame(6, 1, 0, &[0; 8])),
        row("farewells", b"", |_| frame(7, 0, 0, &[0; 8])),
        row("padding", upload, |_| frame(0, 8, 1, &[&[255][..], &[0; 255]].concat())),
        row("a byte and padding", upload, |_| frame(0, 8, 1, &[&[9][..], &[0; 10]].concat())),
        row("data that is reset", &is_reset, |_| frame(0, 0, 1, b"x")),
        row("trailers that are reset", &is_reset, |_| frame(1, 5, 1, &[0, 1, b'x', 1, b'y'])),
        row("more streams than may be", &all_that_may_be, |at| {
            frame(1, 5, 21 + 2 * at, &[0x82, 0x86, 0x84, 0x41, 1, b'a'])
        }),
    ]
}

#[test]
fn floods_end_the_connection_and_fill_nothing() {
    for FloodOf { name, flood, role, begin, frames } in floods() {
        let mut connection = end(role);
        let preface: &[u8] = if role == H2Role::Server { PREFACE } else { b"" };
        let begin = [preface, &frame(4, 0, 0, b""), &begin].concat();
        receive(&mut connection, &begin, usize::MAX).expect("nothing is wrong yet");
        // The peer never reads the answers.
        let mut outcome = Ok(Vec::new());
        for at in 0..20_000 {
            outcome = receive(&mut connection, &frames(at), usize::MAX);
            let Ok(events) = &outcome else { break };
            // The caller releases streams that are reset.
            for event in events {
                if let H2Event::Opened(key) = event {
                    connection.release(*key);
                }
            }
            assert!(connection.unsent().len() < 16 * 1024, "{name}: {} bytes", connection.unsent().len());
            assert!(connection.held() < 100, "{name}: {} streams", connection.held());
        }
        let broken = H2Broken { reason: Reason::ENHANCE_YOUR_CALM, cause: H2ErrorCause::Flood(flood) };
        assert_eq!(outcome, Err(broken), "{name} {role:?}");
    }
}

/// A frame has room for 2,730 settings, and applying each would change and wake every stream.
#[test]
fn windows_that_are_set_again_and_again_in_one_frame_count_once() {
    let mut connection = end(H2Role::Server);
    let upload = frame(1, 4, 1, &[0x83, 0x86, 0x84, 0x41, 1, b'a']);
    let settings = frame(4, 0, 0, &[0, 4, 0, 0, 0, 1, 0, 4, 0, 0, 0, 7].repeat(1365));
    let events = receive(&mut connection, &[PREFACE, &settings, &upload].concat(), usize::MAX);
    let Ok([H2Event::AllWritable, H2Event::Opened(key)]) = events.as_deref() else { panic!("{events:?}") };
    let key = *key;
    connection.write_head(key, b"HTTP/1.1 200 OK\r\n\r\n", false, WireScheme::Http).expect("a head");
    assert!(matches!(connection.room(key), Ok(7)));
    // An invalid window is an error at any position (RFC 9113 §6.5.2).
    let bad = [0, 4, 0x80, 0, 0, 0, 0, 4, 0, 0, 0, 7];
    let broken = receive(&mut connection, &frame(4, 0, 0, &bad), usize::MAX);
    assert_eq!(broken.map_err(|broken| broken.reason), Err(Reason::FLOW_CONTROL_ERROR));
}

/// Only the first RST_STREAM has an effect, whether the request had ended or not.
#[test]
fn resets_of_a_stream_that_is_reset_are_a_flood() {
    for flags in [4, 5] {
        let mut connection = end(H2Role::Server);
        let request = frame(1, flags, 1, &[0x83, 0x86, 0x84, 0x41, 1, b'a']);
        let begin = [PREFACE, &frame(4, 0, 0, b""), &request].concat();
        let events = receive(&mut connection, &begin, usize::MAX).expect("all is well");
        let Some(&H2Event::Opened(key)) = events.last() else { panic!("{events:?}") };
        // A response has begun, so this is no rapid reset.
        connection.write_head(key, b"HTTP/1.1 200 OK\r\n\r\n", false, WireScheme::Http).expect("a head");
        let outcome = receive(&mut connection, &frame(3, 0, 1, &[0, 0, 0, 8]).repeat(2000), usize::MAX);
        let broken =
            H2Broken { reason: Reason::ENHANCE_YOUR_CALM, cause: H2ErrorCause::Flood(Flood::Overhead) };
        assert_eq!(outcome, Err(broken), "{flags}");
    }
}

/// CVE-2019-9517 and related ones: the client opens its window by a byte at a time, or by larger steps.
#[test]
fn windows_of_a_few_bytes_are_a_flood() {
    for (name, window, updates_stream, is_flood) in [
        ("of a stream", 1, true, true),
        ("all together", 255, false, true),
        ("small", 256, true, false),
        ("usual", 16_384, true, false),
    ] {
        let mut connection = end(H2Role::Server);
        let request = frame(1, 5, 1, &[0x82, 0x86, 0x84, 0x41, 1, b'a']);
        let of_stream = if updates_stream { window } else { 1 << 20 };
        let settings = frame(4, 0, 0, &[&[0, 4][..], &u32::to_be_bytes(of_stream)].concat());
        let events = receive(&mut connection, &[PREFACE, &settings, &request].concat(), usize::MAX);
        let Ok([H2Event::AllWritable, H2Event::Opened(key)]) = events.as_deref() else {
            panic!("{events:?}")
        };
        let key = *key;
        connection.write_head(key, b"HTTP/1.1 200 OK\r\n\r\n", false, WireScheme::Http).expect("a head");
        let mut outcome = Ok(Vec::new());
        let mut writes = 0;
        while outcome.is_ok() && writes < 10_000 {
            let room = connection.room(key).expect("it goes on").min(connection.room_of_connection());
            connection.write(key, &[0; 1 << 17], room, false);
            connection.sent(connection.unsent().len());
            let taken = u32::to_be_bytes(if writes == 0 { window } else { room as u32 });
            let of_stream = if updates_stream { frame(8, 0, 1, &taken) } else { Vec::new() };
            outcome = receive(&mut connection, &[frame(8, 0, 0, &taken), of_stream].concat(), usize::MAX);
            writes += 1;
        }
        let broken =
            H2Broken { reason: Reason::ENHANCE_YOUR_CALM, cause: H2ErrorCause::Flood(Flood::Overhead) };
        assert_eq!(outcome.err(), is_flood.then_some(broken), "{name}");
    }
}

/// gRPC sends a ping for each piece of a message, and cancels calls during their response.
#[test]
fn pings_and_resets_that_go_with_bodies_are_no_flood() {
    let request = [0x82, 0x86, 0x84, 0x41, 1, b'a'];
    let mut connection = end(H2Role::Server);
    let begin = [PREFACE, &frame(4, 0, 0, b"")].concat();
    receive(&mut connection, &begin, usize::MAX).expect("a beginning");
    for at in 0..1000 {
        let id = 1 + 2 * at;
        let events = receive(&mut connection, &frame(1, 5, id, &request), usize::MAX).expect("a request");
        let Some(&H2Event::Opened(key)) = events.first() else { panic!("{events:?}") };
        let head = b"HTTP/1.1 200 OK\r\n\r\n";
        connection.write_head(key, head, false, WireScheme::Http).expect("a head");
        assert_eq!(connection.write(key, b"answer", 6, false), 6);
        let rest = [frame(6, 0, 0, &[0; 8]), frame(3, 0, id, &[0, 0, 0, 8])].concat();
        receive(&mut connection, &rest, usize::MAX).expect("no flood");
        connection.release(key);
        connection.sent(connection.unsent().len());
    }
}

#[test]
fn a_head_is_late_from_its_first_byte_on() {
    let mut server = end(H2Role::Server);
    let mut say = |tick, bytes: &[u8]| {
        receive_at(&mut server, bytes, usize::MAX, Now { tick, second: 0 }).expect("it is well-formed");
        server.head_since()
    };
    assert_eq!(say(1, &[PREFACE, &frame(4, 0, 0, b"")].concat()), None);
    let [first, next, last] =
        [frame(1, 0, 1, b"\x82"), frame(9, 0, 1, b"\x87\x84"), frame(9, 4, 1, b"\x41\x01a")];
    // Counts from the first byte of the first frame.
    for (tick, bytes) in [(2, &first[..4]), (3, &first[4..]), (4, &next), (5, &last[..2]), (6, &last[2..7])] {
        assert_eq!(say(tick, bytes), Some(2), "at {tick}");
    }
    assert_eq!(say(7, &last[7..]), None);
    // Consecutive frames, each cut in two; none of them is late.
    let pings = frame(6, 0, 0, b"01234567").repeat(9);
    let mut at = 0;
    for tick in 8..15 {
        let next = (at + 17 + 3).min(pings.len());
        assert_eq!(say(tick, &pings[at..next]), Some(tick), "at {tick}");
        at = next;
    }
    assert_eq!(say(17, &pings[at..]), None);
    // A body in transit has separate time-outs.
    let body = frame(0, 0, 1, b"body");
    assert_eq!(say(18, &body[..3]), Some(18));
    assert_eq!(say(19, &body[3..4]), None);
    assert_eq!(say(20, &body[4..11]), None);
}

/// RFC 9113 §5.2: nothing is read meanwhile, and all bytes fit the window.
#[test]
fn a_body_in_crumbs_is_no_flood() {
    let settings = frame(4, 0, 0, b"");
    let crumbs = frame(0, 0, 1, b"x").repeat(60_000);
    let mut server = end(H2Role::Server);
    let upload = frame(1, 4, 1, &[0x83, 0x86, 0x84, 0x41, 1, b'a']);
    receive(&mut server, &[PREFACE, &settings, &upload, &crumbs].concat(), usize::MAX).expect("no flood");
    let mut client = asking();
    receive(&mut client, &[&settings[..], &frame(1, 4, 1, &[0x88]), &crumbs].concat(), usize::MAX)
        .expect("no flood");
}

/// Interim responses of a few encoded bytes that expand to 4,000 each: unread ones are limited, and read ones are
/// released.
#[test]
fn unread_interim_responses_are_bounded() {
    let long = [&[0x08, 3][..], b"103", &[0x40, 1, b'x', 127, 0xa1, 0x1e], &[b'y'; 4000]].concat();
    let begin = [frame(4, 0, 0, b""), frame(1, 4, 1, &long)].concat();
    let short = frame(1, 4, 1, &[&[0x08, 3][..], b"103", &[0xbe]].concat());

    let mut client = asking();
    receive(&mut client, &begin, usize::MAX).expect("all is well");
    let mut buffer = [0; 5000];
    for _ in 0..100 {
        receive(&mut client, &short, usize::MAX).expect("all is well");
        // Reads less than one response, so that something is always left.
        assert!(matches!(client.read(0, &mut buffer[..4000], 0), Ok(Some(4000))));
    }

    let mut client = asking();
    receive(&mut client, &begin, usize::MAX).expect("all is well");
    let events = receive(&mut client, &short.repeat(100), usize::MAX).expect("the connection goes on");
    assert!(events.contains(&H2Event::Reset(0)), "{events:?}");
    let mut held = 0;
    while let Ok(Some(count)) = client.read(0, &mut buffer, 0) {
        held += count;
    }
    assert!(held < 32 * 1024, "{held} bytes are held");
    // The other stream is unaffected.
    let answer = receive(&mut client, &frame(1, 5, 3, &[0x88]), usize::MAX);
    assert_eq!(answer, Ok(vec![H2Event::Readable(1), H2Event::Readable(1)]));
}

/// RFC 9113 §5.4.2: an invalid message is a stream error, because a connection may carry streams of many users.
#[test]
fn occasional_errors_end_no_connection() {
    let mut server = end(H2Role::Server);
    receive(&mut server, &[PREFACE, &frame(4, 0, 0, b"")].concat(), usize::MAX).expect("all is well");
    let malformed = [0x82, 0x86, 0x84, 0x41, 1, b'a', 0, 1, b'A', 0];
    for at in 0..1000 {
        let now = Now { tick: at, second: at / 50 };
        let events = receive_at(&mut server, &frame(1, 5, 1 + 2 * at, &malformed), usize::MAX, now);
        assert_eq!(events, Ok(Vec::new()));
        server.sent(server.unsent().len());
    }
    // A server only answers our requests.
    let mut client = end(H2Role::Client);
    receive(&mut client, &frame(4, 0, 0, b""), usize::MAX).expect("all is well");
    for at in 0..1000 {
        let key = client.open();
        client
            .write_head(key, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", true, WireScheme::Http)
            .expect("is a head");
        let events = receive(&mut client, &frame(1, 5, 1 + 2 * at, &[0x88, 0, 1, b'A', 0]), usize::MAX);
        assert_eq!(events, Ok(vec![H2Event::Reset(key)]));
        client.release(key);
        client.sent(client.unsent().len());
    }
}

/// RFC 9113 §5.4.2: a client may cancel all its open streams at once, twice. Resets of streams that are never released
/// are limited.
#[test]
fn all_streams_may_be_reset_at_once() {
    let request = [0x82, 0x86, 0x84, 0x41, 1, b'a'];
    let reset = |id| frame(3, 0, id, &[0, 0, 0, 8]);
    let mut server = end(H2Role::Server);
    receive(&mut server, &[PREFACE, &frame(4, 0, 0, b"")].concat(), usize::MAX).expect("all is well");
    for (round, is_well) in [true, true, false].into_iter().enumerate() {
        let ids = || (0..10).map(|at| 1 + 2 * (10 * round as u32 + at));
        let requests: Vec<u8> = ids().flat_map(|id| frame(1, 5, id, &request)).collect();
        receive(&mut server, &requests, usize::MAX).expect("all is well");
        let resets = receive(&mut server, &ids().flat_map(reset).collect::<Vec<u8>>(), usize::MAX);
        assert_eq!(resets.is_ok(), is_well, "{resets:?} in round {round}");
    }
}

/// Trailers of a few encoded bytes that expand to 12,000 each: unread ones count like long heads.
#[test]
fn unread_trailers_are_bounded() {
    let mut server = end(H2Role::Server);
    let upload = |id| frame(1, 4, id, &[0x83, 0x86, 0x84, 0x01, 1, b'a']);
    let long = [&[0x40, 1, b'x', 127, 0xa1, 0x1e][..], &[b'y'; 4000], &[0xbe; 2]].concat();
    let begin = [PREFACE, &frame(4, 0, 0, b""), &upload(1), &frame(1, 5, 1, &long)].concat();
    receive(&mut server, &begin, usize::MAX).expect("all is well");
    // Released streams no longer count.
    server.release(0);
    for round in 0..3 {
        let mut keys = Vec::new();
        let mut reset = Vec::new();
        for at in 0..10 {
            let id = 3 + 2 * (10 * round + at);
            let message = [upload(id), frame(1, 5, id, &[0xbe; 3])].concat();
            for event in receive(&mut server, &message, usize::MAX).expect("the connection goes on") {
                match event {
                    H2Event::Opened(key) => keys.push(key),
                    H2Event::Reset(key) => reset.push(key),
                    _ => {}
                }
            }
        }
        let mut text = Vec::new();
        for key in keys {
            // Trailers that arrived while there was room are complete.
            if !reset.contains(&key) {
                assert!(read_all(&mut server, key, &mut text));
                assert!(text.ends_with(b"y\r\n\r\n"));
            }
            server.release(key);
        }
        assert!((12_000..40_000).contains(&text.len()), "{} bytes were held in round {round}", text.len());
        server.sent(server.unsent().len());
    }
}
