//! The configurations on the pages and in `examples` are right, and every option is in one of them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

/// Where examples have files of the reader's. Here these are in a folder of the test.
const FOLDERS: [&str; 3] = ["/etc/vanward/", "/srv/", "/var/lib/vanward/"];
/// Files that are read with a configuration, and what they have in this test. Certificates are read by the proxy.
const FILES: [(&str, &str); 6] = [
    ("countries", "network,country\n192.0.2.0/24,FR\n"),
    ("user", "alice:$2y$10$1InYqTPQDLYlfgQMAQu2i.U.K0yNd0Fq5bJtSM0EfSnqe8hfi3kX6\n"),
    ("keys", r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#),
    ("tokens", "0123456789abcdef0123456789abcdef\n"),
    ("secret", "0123456789abcdef0123456789abcdef\n"),
    ("trace", "12ms\n"),
];
/// Pages whose blocks are plans of the lab.
const PAGES_OF_PLANS: [&str; 4] = ["compare.md", "lab.md", "load.md", "resilience.md"];
/// Parts of a configuration that need other parts: a table, the words that need it, and its completion.
const TABLES: [(&str, &str, &str); 3] = [
    ("listen", "", "[[listen]]\naddress = \"127.0.0.1:8443\"\ntls = { self_signed = true }\nhttp3 = true"),
    ("cache", "cache = {}", "[cache]\nmemory = \"64MiB\""),
    ("redis", "shared = ", "[redis]\nurl = \"redis://127.0.0.1\"\nsecret_file = \"/etc/vanward/secret\""),
];
/// The environment variable of the pages.
const VARIABLE: &str = "${ADDRESS}";
/// Warnings that examples may have.
const WARNED: &str = "verify = false";

/// A configuration, or a part of one, and where it is.
struct Example {
    place: String,
    text: String,
    table: Table,
}

impl Example {
    fn new(place: String, text: String) -> Self {
        let table = text.parse().unwrap_or_else(|error| panic!("{place}: {error}"));
        Self { place, text, table }
    }

    /// The whole of which it is a part: with a listener, a route, and upstreams for the names that it has.
    fn completed(&self) -> String {
        let mut text = self.text.clone();
        let is_missing =
            |name: &str, words: &str| !self.table.contains_key(name) && self.text.contains(words);
        for (_, _, table) in TABLES.iter().filter(|(name, words, _)| is_missing(name, words)) {
            text += &format!("\n{table}\n");
        }
        let mut names = BTreeSet::new();
        upstreams(&Value::Table(self.table.clone()), &mut names);
        let is_layer_4 = |listener: &Value| listener.get("tcp").is_some();
        let listeners = self.table.get("listen").and_then(Value::as_array);
        let needs_route = !listeners.is_some_and(|listeners| listeners.iter().all(is_layer_4));
        let known = self.table.get("upstream").and_then(Value::as_table);
        if needs_route && !self.table.contains_key("route") {
            let speaks_http = |(name, upstream): (&String, &Value)| {
                (!format!("{:?}", upstream["servers"]).contains("tcp://")).then(|| name.clone())
            };
            let used = known
                .and_then(|known| known.iter().find_map(speaks_http))
                .unwrap_or_else(|| "app".to_owned());
            text += &format!("\n[[route]]\nupstream = \"{used}\"\n");
            text += if self.table.contains_key("cache") { "cache = {}\n" } else { "" };
            names.insert(used);
        }
        for name in names.iter().filter(|name| !known.is_some_and(|known| known.contains_key(*name))) {
            text += &format!("\n[upstream.\"{name}\"]\nservers = [\"http://127.0.0.1:9000\"]\n");
        }
        text
    }
}

/// The configurations on all pages and in `examples`.
fn examples() -> Vec<Example> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let files = |folder: &str, end: &str| -> Vec<PathBuf> {
        let paths = std::fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path());
        paths.filter(|path| path.extension().is_some_and(|of| of == end)).collect()
    };
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    let mut examples = Vec::new();
    for path in files("docs", "md").iter().filter(|path| !PAGES_OF_PLANS.contains(&name(path).as_str())) {
        let page = read(path);
        for (at, begin) in page.match_indices("```toml\n") {
            let place = format!("{}, block in line {}", name(path), page[..at].lines().count() + 1);
            let text = page[at + begin.len()..].split("```").next().unwrap_or_default();
            examples.push(Example::new(place, text.to_owned()));
        }
    }
    for path in files("examples", "toml") {
        examples.push(Example::new(name(&path), read(&path)));
    }
    examples
}

/// Collects the names of upstreams that a value refers to.
fn upstreams(value: &Value, names: &mut BTreeSet<String>) {
    let Value::Table(table) = value else {
        value.as_array().into_iter().flatten().for_each(|value| upstreams(value, names));
        return;
    };
    for (key, value) in table {
        match (key.as_str(), value) {
            // A value names upstreams that the example has.
            ("upstream", Value::String(name)) if name.starts_with("${") => {}
            ("upstream" | "tcp", Value::String(name)) => _ = names.insert(name.clone()),
            ("split" | "tcp", Value::Table(shares)) => names.extend(shares.keys().cloned()),
            _ => upstreams(value, names),
        }
    }
}

/// Creates a file in the folder for each path in the text. Its name decides the content.
fn lay_out(text: &str, folder: &Path) -> String {
    let mut here = text.replace(VARIABLE, "10.0.0.1");
    for place in FOLDERS {
        here = here.replace(place, &format!("{}/", folder.display()));
    }
    for path in here.split('"').map(Path::new).filter(|path| path.starts_with(folder)) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_folder = |before: &str| text.contains(&format!("{before} = \"/srv/{name}"));
        if path.extension().is_none() && (is_folder("root") || is_folder("/protected/\"")) {
            std::fs::create_dir_all(path).unwrap();
        } else {
            let known = FILES.iter().find(|(part, _)| name.contains(part));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, known.map_or("a page", |(_, content)| content)).unwrap();
        }
    }
    here
}

#[test]
fn those_of_the_pages_are_right() {
    let examples = examples();
    assert!(examples.len() > 80, "only {} were found", examples.len());
    let mut wrong = Vec::new();
    for example in &examples {
        let folder = tempfile::tempdir().unwrap();
        let reading = config::examine(&lay_out(&example.completed(), folder.path()), &example.place);
        let warnings = reading.warnings.iter().filter(|warning| !warning.message.starts_with(WARNED));
        let problems = reading.mistakes.iter().chain(warnings);
        wrong.extend(problems.map(|problem| format!("{problem}\n{}", problem.shown())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_option_is_in_one() {
    let mut written = BTreeSet::new();
    for Example { table, .. } in examples() {
        collect(&Value::Table(table), &mut Vec::new(), &mut written);
    }
    let options = options();
    assert!(options.len() > 450, "only {} options were found", options.len());
    let has_none = |option: &&Vec<String>| !written.iter().any(|path| is_same(path, option));
    let missing: Vec<_> = options.iter().filter(has_none).map(|path| path.join(".")).collect();
    assert!(
        missing.is_empty(),
        "add an example to a page, such as docs/recipes.md, for {}",
        missing.join(", ")
    );
}

/// The paths of all options, from the reference.
fn options() -> Vec<Vec<String>> {
    let mut options = Vec::new();
    let mut table = Vec::new();
    for line in config::reference().lines() {
        if let Some(heading) = line.strip_prefix("### ") {
            let name = heading.trim_matches(['`', '[', ']']);
            table =
                if name == "Top level" { Vec::new() } else { name.split('.').map(str::to_owned).collect() };
        } else if let Some(name) = line.strip_prefix("| `").and_then(|row| row.split('`').next()) {
            options.push(table.iter().cloned().chain(name.split('.').map(str::to_owned)).collect());
        }
    }
    options
}

/// Collects the paths of all keys of a value.
fn collect(value: &Value, path: &mut Vec<String>, paths: &mut BTreeSet<Vec<String>>) {
    match value {
        Value::Table(table) => {
            for (key, value) in table {
                path.push(key.clone());
                paths.insert(path.clone());
                collect(value, path, paths);
                path.pop();
            }
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, path, paths)),
        _ => {}
    }
}

/// Whether a path is that of an option, in which `NAME` is any name.
fn is_same(path: &[String], option: &[String]) -> bool {
    path.len() == option.len() && path.iter().zip(option).all(|(key, name)| name == "NAME" || key == name)
}
