//! Maps: their entries, what expressions make of them, and mistakes.

use config::{Config, parse};
use expression::Value;

/// A configuration with this text before its route, whose condition is `when`.
fn file(maps: &str, when: &str) -> String {
    format!(
        "{maps}\n[[listen]]\naddress = \"127.0.0.1:80\"\n[[route]]\nrespond = {{ status = 200 }}\nwhen = '{when}'\n"
    )
}

fn said(maps: &str, when: &str) -> Vec<String> {
    let mistakes = parse(&file(maps, when), "f").err().unwrap_or_default();
    mistakes.iter().map(|mistake| mistake.to_string().replacen("f:", "", 1)).collect()
}

fn read(maps: &str, when: &str) -> Config {
    parse(&file(maps, when), "f").unwrap_or_else(|mistakes| panic!("{maps} {when}: {mistakes:?}"))
}

#[test]
fn maps_are_names_in_conditions() {
    for (maps, when) in [
        ("[map.tenant]\nkey = 'request.host'\nentries = { a = \"b\" }", "map.tenant == \"b\""),
        (
            "[map.tenant]\nkey = 'request.host'\ndefault = \"x\"\nentries = { a = \"b\" }",
            "map.tenant.size() > 1",
        ),
        ("[map.tenant]\nkind = \"suffix\"\nentries = { a = \"b\" }", "map.tenant[request.host] == \"b\""),
        (
            "[map.limit]\nkey = 'request.path'\nkind = \"prefix\"\nentries = { \"/\" = 10 }",
            "(map.limit ?? 0) > 5",
        ),
        ("[map.flag]\nkey = 'request.host'\nentries = { a = true }", "map.flag"),
        ("[map.flag]\nkey = 'request.host'\ndefault = true\nentries = { a = false }", "!map.flag"),
        (
            "[map.wait]\nkey = 'request.host'\ntype = \"duration\"\nentries = { a = \"5s\" }",
            "(map.wait ?? duration(\"1s\")) > duration(\"2s\")",
        ),
        ("[map.banned]\nkey = 'client.address'\nkind = \"network\"\nentries = []", "!map.banned"),
        ("[map.banned]\nkind = \"network\"\nentries = [\"10.0.0.0/8\"]", "client.address in map.banned"),
        (
            "[map.bots]\nkey = 'request.headers[\"user-agent\"]'\nkind = \"regex\"\nentries = [\"(?i)bot\"]",
            "map.bots",
        ),
    ] {
        read(maps, when);
    }
}

#[test]
fn entries_come_from_the_table_and_from_files() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("entries");
    std::fs::write(&path, "network,country\n192.0.2.0/24,FR\n").expect("it is writable");
    let maps = format!(
        "[map.country]\nkey = 'client.address'\nkind = \"network\"\nentries = {{ \"10.0.0.0/8\" = \"XX\" }}\nfile = {path:?}\n\
         format = \"csv\"\nkey_column = \"network\"\nvalue_column = 2\n"
    );
    let config = read(&maps, "map.country == \"FR\"");
    let map = &config.maps[0];
    let look = |address: &str| map.table.peek(Value::Address(address.parse().expect("an address")), 0);
    assert_eq!(look("192.0.2.1"), Some(Value::Text(b"FR")));
    assert_eq!(look("10.1.1.1"), Some(Value::Text(b"XX")));
    assert_eq!(look("11.1.1.1"), None);
    std::fs::write(&path, "country,network\nDE,192.0.2.0/24\n").expect("it is writable");
    // The second column has no country now.
    assert!(map.read_again().is_ok());
    std::fs::write(&path, "x\n").expect("it is writable");
    assert!(
        map.read_again().is_err_and(|why| why.contains("the first line has no column named \"network\""))
    );
    let said = said(&maps, "true");
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].starts_with("5:8: file: ") && said[0].contains("no column named \"network\""),
        "{said:?}"
    );
}

#[test]
fn mistakes_have_their_place() {
    for (maps, when, expected) in [
        (
            "[map.a-b]\nentries = []",
            "true",
            "1:6: \"a-b\" can't name a map, because expressions write map.NAME; expected letters, digits and '_', with a letter first",
        ),
        (
            "[map.a]\nkey = 'client.address'\nentries = []",
            "map.a",
            "2:7: key: a map of kind \"exact\" looks up a text; this is an address; expected kind = \"network\"",
        ),
        (
            "[map.a]\nkind = \"network\"\nkey = 'request.host'\nentries = []",
            "map.a",
            "3:7: key: a map of kind \"network\" looks up an address; this is a text; expected an address such as 'client.address'",
        ),
        (
            "[map.a]\nkey = 'request.size ?? 0'\nentries = []",
            "map.a",
            "2:7: key: a map of kind \"exact\" looks up a text; this is an integer; expected a text such as 'string(request.size ?? 0)'",
        ),
        (
            "[map.a]\nkey = 'jwt.claims.sub'\nentries = []",
            "map.a",
            "8:9: when: map.a is known only once the client is authenticated, because it asks for jwt.claims; this expression \
             is evaluated once a request has arrived; expected it in request_headers, response_headers, mirror, cache, split, \
             compress, access_log, concurrency, or a rate_limit by user; for claims of routes, the option claim",
        ),
        (
            "[map.a]\nkind = \"network\"\nentries = [\"10.0.0.1/8\"]",
            "true",
            "3:12: entries: 10.0.0.1/8 has bits beyond its prefix; write 10.0.0.0/8",
        ),
        (
            "[map.a]\nentries = { a = 1, b = \"x\" }",
            "true",
            "2:20: entries: the value \"x\" is not an integer such as 10",
        ),
        (
            "[map.a]\nentries = []\ndefault = \"x\"",
            "true",
            "3:11: default: the keys of a set have no values; expected a map without default",
        ),
        (
            "[map.a]\nkind = \"suffix\"\nentries = { A = \"x\", a = \"y\" }",
            "true",
            "3:11: entries: the key a appears twice, with different values",
        ),
        (
            "[map.a]\nkey_column = 2",
            "true",
            "1:6: a column is named, but the file is not CSV; expected format = \"csv\"",
        ),
        (
            "[map.tenant]\nkey = 'request.host'\nentries = { a = \"b\" }",
            "map.tenat == \"b\"",
            "the name map.tenat does not exist; did you mean \"map.tenant\"? Expected a condition such as 'request.method == \"GET\"'",
        ),
        (
            "[map.tenant]\nkey = 'request.host'\nentries = { a = \"b\" }",
            "map.tenant",
            "a condition is true or false; this is a text",
        ),
    ] {
        let said = said(maps, when);
        assert_eq!(said.len(), 1, "{maps}: {said:?}");
        let is_right = if expected.starts_with(|first: char| first.is_ascii_digit()) {
            said[0] == expected
        } else {
            said[0].contains(expected)
        };
        assert!(is_right, "{maps}: {said:?}");
    }
}

#[test]
fn a_fault_that_is_added_later_knows_the_maps() {
    let config =
        read("[map.testers]\nkey = 'client.address'\nkind = \"network\"\nentries = [\"10.0.0.0/8\"]", "true");
    let fault = |when: &str| format!("[[fault]]\ninject = \"503\"\nwhen = '{when}'\n");
    assert_eq!(config::faults(&fault("map.testers"), "f", &config).expect("it is valid").len(), 1);
    assert!(config::faults(&fault("map.tester"), "f", &config).is_err());
}
