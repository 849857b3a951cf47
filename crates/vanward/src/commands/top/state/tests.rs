//! Tests of what keys do, by what is typed.

use std::time::Duration;

use super::super::sample::fresh;
use super::*;

fn state() -> State {
    let mut state = State::new("/run/admin.sock".to_owned(), String::new(), false);
    state.learn(Ok(fresh(1000, Instant::now())));
    state
}

/// Presses keys: each character, or a word in angle brackets. Returns what followed on the last one.
fn press(state: &mut State, keys: &str) -> Course {
    let mut course = Course::Stay;
    let mut rest = keys;
    while let Some(char) = rest.chars().next() {
        let (word, after) = match rest.strip_prefix('<').and_then(|named| named.split_once('>')) {
            Some((word, after)) => (word, after),
            None => rest.split_at(char.len_utf8()),
        };
        rest = after;
        let code = match word {
            "enter" => KeyCode::Enter,
            "esc" => KeyCode::Esc,
            "down" => KeyCode::Down,
            "end" => KeyCode::End,
            "tab" => KeyCode::Tab,
            "back" => KeyCode::Backspace,
            _ => KeyCode::Char(char),
        };
        course = state.press(KeyEvent::new(code, KeyModifiers::NONE));
    }
    course
}

fn server(port: u16, others_up: usize) -> Server {
    Server {
        upstream: "app".to_owned(),
        url: format!("http://10.0.0.1:{port}"),
        label: format!("10.0.0.1:{port}"),
        others_up,
    }
}

#[test]
fn keys_send_orders_and_what_hurts_is_asked_first() {
    for (keys, question, sent) in [
        ("2d", true, Course::Stay),
        ("2dn", false, Course::Stay),
        ("2d<enter>", false, Course::Stay),
        ("2dy", false, Course::Send(Order::Drain(server(9001, 0)))),
        ("2<down>dy", false, Course::Send(Order::Drain(server(9002, 1)))),
        ("2<end>uy", false, Course::Stay),
        ("2<end>u", false, Course::Send(Order::Restore(server(9002, 1)))),
        ("2w5<enter>", false, Course::Send(Order::Weigh(server(9001, 0), 5))),
        ("2w55<back><enter>", false, Course::Send(Order::Weigh(server(9001, 0), 5))),
        ("2w0<enter>", true, Course::Stay),
        ("2w1001<enter>", false, Course::Stay),
        ("2wx<enter>", false, Course::Stay),
        ("2w5<esc>", false, Course::Stay),
        ("1d", false, Course::Stay),
        ("phttps://a/q*<enter>", false, Course::Send(Order::Purge("https://a/q*".to_owned()))),
        ("pall<enter>", true, Course::Stay),
        ("pall<enter>y", false, Course::Send(Order::PurgeAll)),
        ("p<enter>", false, Course::Stay),
        ("6xy", false, Course::Send(Order::RemoveFault("slow".to_owned()))),
        ("1x", false, Course::Stay),
        ("cy", false, Course::Send(Order::ClearFaults)),
        ("?q", false, Course::Stay),
        ("q", false, Course::Quit),
        ("/q", false, Course::Stay),
    ] {
        let mut state = state();
        assert_eq!(press(&mut state, keys), sent, "{keys}");
        assert_eq!(matches!(state.mode, Mode::Confirm(_)), question, "{keys}");
    }
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    let mut asked = state();
    press(&mut asked, "2d");
    assert_eq!(asked.press(interrupt), Course::Quit);
}

#[test]
fn rows_are_filtered_and_sorted_and_the_cursor_stays_on_its_row() {
    let names = |state: &State| -> Vec<String> {
        state.sheet().expect("it is known").rows.iter().map(|row| row.cells[0].text.clone()).collect()
    };
    let mut state = state();
    assert_eq!(names(&state), ["/shop", "/"]);
    press(&mut state, "s");
    assert_eq!((names(&state), state.sort), (vec!["/".to_owned(), "/shop".to_owned()], Some(0)));
    press(&mut state, "ss");
    assert_eq!(names(&state), ["/", "/shop"], "the highest rate first");
    press(&mut state, "<down>");
    press(&mut state, "sssssss");
    assert_eq!(state.sort, None, "after the last column, unsorted");
    press(&mut state, "/sho<enter>");
    assert_eq!(names(&state), ["/shop"]);
    press(&mut state, "2<down>");
    assert!(names(&state).is_empty(), "no server has such a name");
    assert_eq!(press(&mut state, "d"), Course::Stay);
    press(&mut state, "<esc>");
    press(&mut state, "<end>");
    let sheet = state.sheet().expect("it is known");
    assert_eq!(state.row(&sheet).map(|(index, _)| index), Some(1));
    // Another order of the rows: the cursor is on the same server.
    state.fresh.as_mut().expect("it is known").status.upstreams[0].servers.reverse();
    let sheet = state.sheet().expect("it is known");
    assert_eq!(state.row(&sheet).map(|(index, row)| (index, row.cells[2].text.as_str())), Some((0, "DOWN")));
}

#[test]
fn a_lost_proxy_takes_no_orders_and_the_rate_begins_anew() {
    let (mut state, start) = (state(), Instant::now());
    state.learn(Ok(fresh(1500, start + Duration::from_secs(1))));
    state.learn(Ok(fresh(1700, start + Duration::from_secs(3))));
    assert_eq!(state.rate_now, Some(100.0));
    state.learn(Err("connection refused".to_owned()));
    press(&mut state, "2");
    assert_eq!(press(&mut state, "dy"), Course::Stay);
    assert!(matches!(&state.notice, Notice::Failed(why) if why.contains("nothing was sent")));
    assert!(state.sheet().is_some(), "what was known stays");
    state.learn(Ok(fresh(10, start + Duration::from_secs(9))));
    assert_eq!((state.rate_now, &state.lost), (None, &None));
}
