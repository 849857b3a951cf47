//! Tests of keys and their effects.

use std::time::Duration;

use super::super::sample::fresh;
use super::*;

fn state() -> TopState {
    let mut state = TopState::new("/run/admin.sock".to_owned(), String::new(), false);
    state.learn(Ok(fresh(1000, Instant::now())));
    state
}

/// Presses keys: each character, or a word in angle brackets. Returns the effect of the last one.
fn press(state: &mut TopState, keys: &str) -> KeyEffect {
    let mut course = KeyEffect::Stay;
    let mut rest = keys;
    while let Some(char) = rest.chars().next() {
        let (word, after) = match rest.strip_prefix('<').and_then(|named| named.split_once('>')) {
            Some((word, after)) => (word, after),
            None => rest.split_at(char.len_utf8()),
        };
        rest = after;
        let key = match word {
            "enter" => KeyCommand::Enter,
            "esc" => KeyCommand::Esc,
            "down" => KeyCommand::Down,
            "end" => KeyCommand::End,
            "tab" => KeyCommand::Tab,
            "back" => KeyCommand::Backspace,
            _ => KeyCommand::Char(char),
        };
        course = state.press(key);
    }
    course
}

fn server(port: u16, others_up: usize) -> TopServer {
    TopServer {
        upstream: "app".to_owned(),
        url: format!("http://10.0.0.1:{port}"),
        label: format!("10.0.0.1:{port}"),
        others_up,
    }
}

#[test]
fn keys_send_orders_and_destructive_ones_ask_first() {
    for (keys, question, sent) in [
        ("2d", true, KeyEffect::Stay),
        ("2dn", false, KeyEffect::Stay),
        ("2d<enter>", false, KeyEffect::Stay),
        ("2dy", false, KeyEffect::Send(TopOrder::Drain(server(9001, 0)))),
        ("2<down>dy", false, KeyEffect::Send(TopOrder::Drain(server(9002, 1)))),
        ("2<end>uy", false, KeyEffect::Stay),
        ("2<end>u", false, KeyEffect::Send(TopOrder::Restore(server(9002, 1)))),
        ("2w5<enter>", false, KeyEffect::Send(TopOrder::Weigh(server(9001, 0), 5))),
        ("2w55<back><enter>", false, KeyEffect::Send(TopOrder::Weigh(server(9001, 0), 5))),
        ("2w0<enter>", true, KeyEffect::Stay),
        ("2w1001<enter>", false, KeyEffect::Stay),
        ("2wx<enter>", false, KeyEffect::Stay),
        ("2w5<esc>", false, KeyEffect::Stay),
        ("1d", false, KeyEffect::Stay),
        ("phttps://a/q*<enter>", false, KeyEffect::Send(TopOrder::Purge("https://a/q*".to_owned()))),
        ("pall<enter>", true, KeyEffect::Stay),
        ("pall<enter>y", false, KeyEffect::Send(TopOrder::PurgeAll)),
        ("p<enter>", false, KeyEffect::Stay),
        ("6xy", false, KeyEffect::Send(TopOrder::RemoveFault("slow".to_owned()))),
        ("1x", false, KeyEffect::Stay),
        ("cy", false, KeyEffect::Send(TopOrder::ClearFaults)),
        ("?q", false, KeyEffect::Stay),
        ("q", false, KeyEffect::Quit),
        ("/q", false, KeyEffect::Stay),
    ] {
        let mut state = state();
        assert_eq!(press(&mut state, keys), sent, "{keys}");
        assert_eq!(matches!(state.mode, KeyMode::Confirm(_)), question, "{keys}");
    }
    let interrupt = KeyCommand::Interrupt;
    let mut asked = state();
    press(&mut asked, "2d");
    assert_eq!(asked.press(interrupt), KeyEffect::Quit);
}

#[test]
fn rows_are_filtered_and_sorted_and_the_cursor_stays_on_its_row() {
    let names = |state: &TopState| -> Vec<String> {
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
    assert_eq!(press(&mut state, "d"), KeyEffect::Stay);
    press(&mut state, "<esc>");
    press(&mut state, "<end>");
    let sheet = state.sheet().expect("it is known");
    assert_eq!(state.row(&sheet).map(|(index, _)| index), Some(1));
    // After another order of the rows, the cursor is on the same server.
    state.fresh.as_mut().expect("it is known").status.upstreams[0].servers.reverse();
    let sheet = state.sheet().expect("it is known");
    assert_eq!(state.row(&sheet).map(|(index, row)| (index, row.cells[2].text.as_str())), Some((0, "DOWN")));
}

#[test]
fn a_lost_proxy_takes_no_orders_and_the_rate_starts_again() {
    let (mut state, start) = (state(), Instant::now());
    state.learn(Ok(fresh(1500, start + Duration::from_secs(1))));
    state.learn(Ok(fresh(1700, start + Duration::from_secs(3))));
    assert_eq!(state.rate_now, Some(100.0));
    state.learn(Err("connection refused".to_owned()));
    press(&mut state, "2");
    assert_eq!(press(&mut state, "dy"), KeyEffect::Stay);
    assert!(matches!(&state.notice, Notice::Failed(why) if why.contains("not sent")));
    assert!(state.sheet().is_some(), "what was known stays");
    state.learn(Ok(fresh(10, start + Duration::from_secs(9))));
    assert_eq!((state.rate_now, &state.lost), (None, &None));
}
