//! Sets of header edits: what comes of them and of a route's own, and mistakes.

use config::{Config, examine, parse};
use proptest::prelude::*;
use route::HeaderEdit;

fn file(sets: &str, edits: &str) -> String {
    format!(
        "[[listen]]\naddress = \"127.0.0.1:8080\"\n{sets}\n[[route]]\nupstream = \"app\"\n{edits}\n\
         [upstream.app]\nservers = [\"http://127.0.0.1:9000\"]\n"
    )
}

fn config(text: &str) -> Config {
    parse(text, "f").unwrap_or_else(|mistakes| panic!("{mistakes:#?}\n{text}"))
}

/// The edits of responses, as they are listed.
fn edits(config: &Config) -> Vec<String> {
    let written = |edit: HeaderEdit<'_>| match edit {
        HeaderEdit::Set(name, value) => format!("{name}={value}"),
        HeaderEdit::Add(name, value) => format!("{name}+{value}"),
        HeaderEdit::Default(name, value) => format!("{name}?{value}"),
        HeaderEdit::Remove(name) => format!("-{name}"),
    };
    config.routes[0].policies.response_headers.edits().map(written).collect()
}

const SETS: &str = "[headers.a]\nset = { X-A = \"1\", X-B = \"1\" }\nadd = { X-C = \"1\" }\nremove = [\"X-D\"]\n\
                    [headers.b]\nset = { x-b = \"2\" }\ndefault = { X-A = \"2\" }\nremove = \"X-C\"\n";

#[test]
fn later_words_about_a_field_replace_earlier_ones() {
    for (written, expected) in [
        ("use = \"a\"", &["X-A=1", "X-B=1", "X-C+1", "-x-d"][..]),
        ("use = [\"a\", \"b\"]", &["x-b=2", "X-A?2", "-x-c", "-x-d"]),
        ("use = [\"b\", \"a\"]", &["X-A=1", "X-B=1", "X-C+1", "-x-d"]),
        (
            "use = \"a\", set = { X-D = \"own\" }, add = { x-a = \"own\" }",
            &["X-B=1", "X-D=own", "X-C+1", "x-a+own"],
        ),
        ("use = \"b\", remove = [\"X-A\", \"X-B\"]", &["-x-a", "-x-b", "-x-c"]),
        ("set = { X-A = \"1\" }, add = { X-A = \"2\" }", &["X-A=1", "X-A+2"]),
    ] {
        let config = config(&file(SETS, &format!("response_headers = {{ {written} }}")));
        let mut found = edits(&config);
        let (mut found_sorted, mut expected): (Vec<_>, Vec<_>) =
            (std::mem::take(&mut found), expected.iter().map(ToString::to_string).collect());
        found_sorted.sort();
        expected.sort();
        assert_eq!(found_sorted, expected, "{written}");
        assert_eq!(parse(&config.text(&config), "printed"), Ok(config));
    }
}

#[test]
fn the_set_for_security_is_built_in() {
    let config = config(&file(
        "",
        "response_headers = { use = \"security\", set = { X-Frame-Options = \"SAMEORIGIN\" } }",
    ));
    let edits = edits(&config);
    assert!(edits.contains(&"X-Frame-Options=SAMEORIGIN".to_owned()), "{edits:?}");
    assert!(edits.contains(&"X-Content-Type-Options?nosniff".to_owned()), "{edits:?}");
    assert!(edits.contains(&"-server".to_owned()), "{edits:?}");
}

#[test]
fn mistakes() {
    for (sets, written, expected) in [
        (
            "",
            "response_headers = { set = { X-A = \"1\" }, default = { x-a = \"2\" } }",
            "f:6:55: default: x-a is set, so it is never missing; expected one of set and default",
        ),
        (
            "",
            "response_headers = { use = \"securty\" }",
            "f:6:28: use: no set of headers is named \"securty\"; did you mean \"security\"? Expected security",
        ),
        (
            "",
            "request_headers = { use = \"security\" }",
            "f:6:27: use: \"security\" is for responses; expected it in response_headers",
        ),
        (
            "[headers.security]\nremove = \"A\"",
            "",
            "f:3:10: [headers.security] is built in; expected another name",
        ),
        (
            "[headers.a]\nset = { X-A = \"$status\" }",
            "request_headers = { use = \"a\" }",
            "f:4:16: set: $status is not known yet where this is used; expected a value, with variables such as $client_address",
        ),
        (
            "[headers.a]\nset = { Content-Length = \"1\" }",
            "",
            "f:4:9: set: Content-Length cannot be edited: bodies are framed by the proxy; expected the name of a header field such as X-Tenant",
        ),
        (
            "[headers.a]\nuse = \"b\"",
            "",
            "f:4:1: unknown key \"use\" in [headers.a]; expected set, add, default or remove",
        ),
    ] {
        let text = file(sets, written);
        let said: Vec<String> =
            parse(&text, "f").expect_err(written).iter().map(ToString::to_string).collect();
        assert_eq!(said, [expected], "{text}");
    }
    let unused = examine(&file("[headers.a]\nset = { X-A = \"$1 $status\" }", ""), "f");
    let said: Vec<String> = unused.warnings.iter().map(ToString::to_string).collect();
    assert_eq!((said, unused.mistakes), (vec!["f:3:10: no route uses the headers \"a\"".to_owned()], vec![]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever sets say and in whichever order they are used: what is printed means the same.
    #[test]
    fn what_is_printed_means_the_same(tables in prop::collection::vec((0..4usize, 0..4usize, 0..4usize, 0..4usize), 1..5), security in any::<bool>()) {
        const FIELDS: [&str; 4] = ["X-A", "x-a", "X-Frame-Options", "B"];
        let table = |(set, add, default, remove): &(usize, usize, usize, usize)| {
            let (set, add) = (FIELDS[*set], FIELDS[*add]);
            format!("set = {{ {set} = \"1\" }}\nadd = {{ {add} = \"2\" }}\ndefault = {{ {} = \"3\" }}\nremove = \"{}\"\n", FIELDS[*default], FIELDS[*remove])
        };
        let sets: String = tables.iter().enumerate().map(|(index, edits)| format!("[headers.n{index}]\n{}", table(edits))).collect();
        let uses: Vec<String> = (0..tables.len()).map(|index| format!("\"n{index}\"")).chain(security.then(|| "\"security\"".to_owned())).collect();
        let text = file(&sets, &format!("response_headers = {{ use = [{}] }}", uses.join(", ")));
        // A field that is set has no default.
        let Ok(config) = parse(&text, "f") else { return Ok(()) };
        let printed = config.text(&config);
        prop_assert!(parse(&printed, "printed") == Ok(config), "{text}\n{printed}");
    }
}
