//! The page about the file says what the declarations say.
//!
//! `UPDATE=1 cargo test -p config --test all reference` regenerates the page's tables.

use std::path::PathBuf;

const BEGIN: &str = "<!-- options: from the declarations in crates/config/src/tables -->\n";
const END: &str = "<!-- end of options -->\n";

fn page() -> (PathBuf, String) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let page = std::fs::read_to_string(&path).unwrap();
    (path, page)
}

#[test]
fn the_page_has_every_option_as_declared() {
    let (path, page) = page();
    let (before, rest) = page.split_once(BEGIN).expect("the page has a beginning of options");
    let (_, after) = rest.split_once(END).expect("the page has an end of options");
    let expected = format!("{before}{BEGIN}\n{}\n{END}{after}", config::reference());
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &expected).unwrap();
    } else {
        assert!(
            page == expected,
            "the page is out of date: UPDATE=1 cargo test -p config --test all reference"
        );
    }
}

#[test]
fn the_mistakes_of_the_page_are_what_is_said() {
    let (_, page) = page();
    let (_, page) = page.split_once("## Mistakes and warnings").expect("it has this section");
    let text = page.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let file = "[[listen]]\nadress = \"127.0.0.1:8080\"\n\n[[route]]\nupstream = \"ap\"\n\n[upstream.app]\n\
                servers = [\"http://127.0.0.1:9000\"]\n\n[timeouts]\n\ndrain = 30\n";
    let mistakes = config::parse(file, "vanward.toml").unwrap_err();
    let said: String = mistakes.iter().map(|mistake| format!("{mistake}\n{}", mistake.shown())).collect();
    assert_eq!(said, text);
}

#[test]
fn the_schema_has_every_option_of_the_page() {
    let schema = config::schema();
    let listen = &schema["properties"]["listen"]["items"];
    assert_eq!(listen["required"], serde_json::json!(["address"]));
    let upstream = &schema["properties"]["upstream"]["additionalProperties"]["properties"];
    assert_eq!(upstream["check"]["anyOf"][1]["properties"]["type"]["enum"][0], "http");
    assert_eq!(upstream["dns"]["enum"], serde_json::json!(["all", "one"]));
    let whole = schema.to_string();
    let rows = config::reference();
    let options = rows.lines().filter_map(|row| row.strip_prefix("| `")?.split('`').next());
    let missing: Vec<&str> = options
        .filter_map(|option| option.rsplit('.').next())
        .filter(|name| !whole.contains(&format!("{name:?}:")))
        .collect();
    assert_eq!(missing, [""; 0]);
}

/// Editors show the names that an expression can use where it is written, and the type that it has.
#[test]
fn the_schema_knows_the_names_of_expressions() {
    let schema = config::schema();
    let names = |option: &serde_json::Value| -> Vec<String> {
        let names = option["x-vanward-expression"]["names"].as_array().unwrap_or_else(|| panic!("{option}"));
        names.iter().map(|name| format!("{}: {}", name["name"], name["type"]).replace('"', "")).collect()
    };
    let route = &schema["properties"]["route"]["items"]["properties"];
    let access_log = &route["access_log"]["anyOf"][1]["anyOf"][1]["properties"]["when"];
    let key = &schema["properties"]["map"]["additionalProperties"]["properties"]["key"];
    for (option, of, known, unknown) in [
        (&route["when"], Some("boolean"), "request.method: text", "client.user: text"),
        (
            &route["mirror"]["anyOf"][1]["properties"]["when"],
            Some("boolean"),
            "client.user: text",
            "response.status: integer",
        ),
        (access_log, Some("boolean"), "response.time: duration", "nothing"),
        (key, None, "client.user: text", "nothing"),
        (
            &schema["properties"]["values"]["additionalProperties"],
            None,
            "response.status: integer",
            "nothing",
        ),
    ] {
        let names = names(option);
        assert!(names.iter().any(|name| name == known), "{option}");
        assert!(!names.iter().any(|name| name == unknown), "{option}");
        assert_eq!(option["x-vanward-expression"]["type"].as_str(), of, "{option}");
        assert_eq!(option["type"], "string", "{option}");
        let example = option["examples"][0].as_str().expect("it has one");
        let text = format!(
            "[map.x]\nkey = '{example}'\n[[listen]]\naddress = \"127.0.0.1:1\"\n[[route]]\nrespond = {{ status = 200 }}\n"
        );
        let text = if of.is_some() { text.replace("[map.x]", "[values]") } else { text };
        assert!(config::parse(&text, "f").is_ok(), "{example}");
        let description = option["description"].as_str().expect("it has one");
        assert!(description.contains(known.split(':').next().unwrap_or_default()), "{description}");
        assert!(description.contains("conditions.md"), "{description}");
    }
    assert!(names(&route["when"]).contains(&"request.headers[\\NAME\\]: text".to_owned()));
}
