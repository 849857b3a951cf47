//! Hints of messages, and absolute paths of missing files.

use std::path::Path;

use config::{examine_file, parse};

/// The minimum of every file, in one line each.
const LISTEN: &str = "listen = [{ address = \"127.0.0.1:8080\" }]";
const ROUTE: &str = "route = [{ upstream = \"app\" }]";
const UPSTREAM: &str = "upstream.app.servers = [\"http://127.0.0.1:9000\"]";

/// The mistakes of a file, a line each.
fn said(text: &str) -> Vec<String> {
    let mistakes = parse(text, "f").err().unwrap_or_default();
    mistakes.iter().map(ToString::to_string).collect()
}

/// `lines` after what every file needs.
fn with(lines: &str) -> String {
    format!("{LISTEN}\n{ROUTE}\n{UPSTREAM}\n{lines}")
}

#[test]
fn hints_lead_to_the_right_option() {
    let route = |option: &str| format!("{LISTEN}\n{UPSTREAM}\n[[route]]\nupstream = \"app\"\n{option}\n");
    for (text, expected) in [
        (
            with("[acme]\nemail = \"a@b.example\""),
            "\"email\" in [acme]; here it is `contact` of [acme]: [\"admin@example.com\"]; expected",
        ),
        (
            route("balance = \"round-robin\""),
            "\"balance\" in [[route]]; it is an option of [upstream.NAME]; expected",
        ),
        (route("servers = []"), "\"servers\" in [[route]]; it is an option of [upstream.NAME]; expected"),
        (
            route("http2 = true"),
            "\"http2\" in [[route]]; it is an option of [limits] and [[listen]]; expected",
        ),
        // A letter too few is a slip, even if another table has an option of this name.
        (route("timeout = \"3s\""), "did you mean \"timeouts\"?"),
        (
            route("rate_limit = { rate = \"5/min\" }"),
            "rate: \"5/min\" has an unknown unit of time; did you mean \"5/m\"?",
        ),
        (
            route("rate_limit = { rate = \"5/2 hours\" }"),
            "has an unknown unit of time; did you mean \"5/2 h\"?",
        ),
        (route("rate_limit = { rate = \"100/second\" }"), "did you mean \"100/s\"?"),
        (route("rate_limit = { rate = \"5/w\" }"), "unknown unit \"w\"; expected"),
    ] {
        let mistakes = said(&text);
        assert!(mistakes.iter().any(|mistake| mistake.contains(expected)), "{expected}: {mistakes:?}");
    }
}

#[test]
fn a_missing_configuration_has_its_absolute_path() {
    let reading = examine_file(Path::new("nowhere/absent.toml"));
    let here = std::env::current_dir().expect("there is one");
    let [mistake] = &reading.mistakes[..] else { panic!("{:?}", reading.mistakes) };
    assert_eq!(mistake.file, "nowhere/absent.toml");
    let expected = format!("{}: the file can't be read: ", here.join("nowhere/absent.toml").display());
    assert!(mistake.message.starts_with(&expected), "{}", mistake.message);
}

#[test]
fn an_address_needs_quotes() {
    for address in ["127.0.0.1:80", ":80", "*:80", "localhost:80", "[::]:80"] {
        let text = format!("{ROUTE}\n{UPSTREAM}\n[[listen]]\naddress = {address}");
        let expected = format!("f:4:11: {address} is not a value; expected text in quotes: \"{address}\"");
        assert_eq!(said(&text), [expected]);
    }
}
