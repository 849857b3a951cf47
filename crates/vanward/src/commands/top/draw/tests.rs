//! Tests of the drawing, on a terminal in memory.

use std::time::{Duration, Instant};

use super::super::keys::KeyCommand;
use super::super::sample::fresh;
use super::*;

fn drawn(state: &TopState, width: usize, height: usize) -> Vec<String> {
    screen(state, width, height).lines()
}

fn screen(state: &TopState, width: usize, height: usize) -> Screen {
    let mut screen = Screen::new(width, height);
    draw(&mut screen, state);
    screen
}

fn state(keys: &str) -> TopState {
    let mut state = TopState::new("/run/admin.sock".to_owned(), String::new(), false);
    state.learn(Ok(fresh(1000, Instant::now())));
    for key in keys.chars() {
        state.press(KeyCommand::Char(key));
    }
    state
}

#[test]
fn a_small_terminal_shows_the_whole_and_the_columns_that_matter() {
    let lines = drawn(&state("2"), 80, 14);
    let expected = [
        "vanward 1.2.3, process 77, up 1 h 1 min, 2 workers, 1 reload",
        "10 connections, 3 requests running; 1.20 kB/s in, 3.40 MB/s out",
        "last 60 s: 50.0/s, 1.00% 4xx, 0% failed or 5xx; p50 1.25 ms, p99 20.0 ms",
        "failures: upstream-refused 12, bad-request 3",
        " 1 Routes  2 Servers  3 Clients  4 Requests  5 Cache  6 Faults  7 Listeners",
        "app: 4 wait for a server",
        "SERVER         UPSTREAM   STATE    WEIGHT   RUNNING    /S   FAILED/S      P99",
        "10.0.0.1:9001  app        up            1         2  30.0          0  20.0 ms",
        "10.0.0.1:9002  app        DOWN          1         2     0          0  20.0 ms",
        "",
    ];
    for (line, expected) in lines.iter().zip(expected) {
        assert_eq!(line, expected, "{lines:#?}");
    }
    assert_eq!(lines[13], "?: help  q: quit  s: sort  /: filter  d: drain  u: use again  w: weight");
}

#[test]
fn every_tab_shows_its_rows() {
    for (key, texts) in [
        ("1", ["ROUTE", "/shop", "20.0 ms"]),
        ("2", ["connection refused", "10.0.0.1:9001", "UPSTREAM"]),
        ("3", ["1000 requests in the last 20 s", "192.0.2.7", "60.0%"]),
        ("4", ["GET /shop/slow", "12.5 s", "192.0.2.7"]),
        ("5", ["no [cache]", "75.0%", "1.50 kB"]),
        ("6", ["delay 2s", "5%", "1 min 30 s"]),
        ("7", ["front", "127.0.0.1:8080", "no"]),
    ] {
        let lines = drawn(&state(key), 160, 24);
        for text in texts {
            assert!(lines.iter().any(|line| line.contains(text)), "{key}: no {text:?} in {lines:#?}");
        }
    }
}

#[test]
fn no_size_is_too_small_and_none_is_exceeded() {
    for (width, height) in [(1, 1), (10, 3), (20, 8), (40, 12), (80, 24), (250, 70)] {
        for keys in ["1", "2", "4", "?", "2d", "2w", "/x"] {
            assert_eq!(drawn(&state(keys), width, height).len(), height);
        }
    }
}

#[test]
fn questions_help_and_a_lost_proxy_are_shown() {
    let last = |keys: &str| drawn(&state(keys), 120, 24).pop().unwrap_or_default();
    let question = last("2d");
    assert!(question.contains("Drain 10.0.0.1:9001 of upstream app?"), "{question}");
    assert!(question.contains("No other server of it gets requests!"), "{question}");
    assert!(last("2w7").contains("weight of 10.0.0.1:9001, 0 to 1000: 7"));
    assert!(last("1d").contains("choose a server first"));
    assert!(drawn(&state("?"), 80, 24).iter().any(|line| line.contains("drain a server, use it again")));
    let mut lost = state("1");
    lost.learn(Err("cannot connect to /run/admin.sock".to_owned()));
    lost.now += Duration::from_secs(61);
    let first = drawn(&lost, 120, 24).remove(0);
    assert!(
        first.contains("NO ANSWER: cannot connect to /run/admin.sock. These figures are 1 min"),
        "{first}"
    );
    let never = TopState::new("/run/admin.sock".to_owned(), String::new(), true);
    assert!(drawn(&never, 80, 24).iter().any(|line| line.contains("waiting for the proxy")));
}

#[test]
fn colours_are_used_only_where_they_are_wanted() {
    for has_colour in [true, false] {
        let mut state = state("2");
        state.has_colour = has_colour;
        assert_eq!(screen(&state, 80, 24).is_coloured(), has_colour);
    }
}
