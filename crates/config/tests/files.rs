//! A configuration of several files, with environment variables and secrets: what it means, and mistakes in their places.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use config::{Config, Machine, Reading, Surroundings, examine_in};

/// Files, variables and secrets of a test.
#[derive(Default)]
struct Here {
    files: BTreeMap<&'static str, String>,
    variables: BTreeMap<&'static str, &'static [u8]>,
    secrets: BTreeMap<&'static str, (&'static [u8], bool)>,
    read: RefCell<Vec<PathBuf>>,
}

impl Surroundings for Here {
    fn file(&self, path: &Path) -> Result<Vec<u8>, String> {
        self.read.borrow_mut().push(path.to_owned());
        let text = self.files.get(path.to_str().unwrap()).ok_or("the file can't be read: gone")?;
        Ok(text.clone().into_bytes())
    }

    fn matches(&self, pattern: &str) -> Result<Vec<PathBuf>, String> {
        let pattern = glob::Pattern::new(pattern).map_err(|error| error.to_string())?;
        let options = glob::MatchOptions { require_literal_separator: true, ..Default::default() };
        let matches = |name: &&&str| pattern.matches_with(name, options);
        Ok(self.files.keys().filter(matches).map(PathBuf::from).collect())
    }

    fn identity(&self, path: &Path) -> PathBuf {
        path.components().filter(|part| part.as_os_str() != ".").collect()
    }

    fn variable(&self, name: &str) -> Option<Vec<u8>> {
        self.variables.get(name).map(|value| value.to_vec())
    }

    fn secret(&self, path: &Path) -> Result<(Vec<u8>, bool), String> {
        let (bytes, is_public) = self.secrets.get(path.to_str().unwrap()).ok_or("it can't be read: gone")?;
        Ok((bytes.to_vec(), *is_public))
    }

    fn named_file(&self, path: &Path, bytes_max: u64) -> Result<Vec<u8>, String> {
        Machine.named_file(path, bytes_max)
    }
}

impl Here {
    fn with<const N: usize>(files: [(&'static str, &str); N]) -> Self {
        let files = files.into_iter().map(|(name, text)| (name, text.to_owned())).collect();
        Self { files, ..Self::default() }
    }

    fn examine(&self, text: &str) -> Reading {
        examine_in(text, "etc/v.toml", self)
    }

    fn config(&self, text: &str) -> Config {
        let reading = self.examine(text);
        assert!(reading.warnings.is_empty(), "{:?}", reading.warnings);
        reading.into_result().unwrap_or_else(|mistakes| panic!("{mistakes:#?}\n{text}"))
    }

    fn mistakes(&self, text: &str) -> Vec<String> {
        let reading = self.examine(text);
        assert_eq!(reading.config.is_some(), reading.mistakes.is_empty());
        // Files that are on no machine have absolute paths in messages.
        let folder = format!("{}/", std::env::current_dir().expect("there is one").display());
        reading.mistakes.iter().map(|mistake| mistake.to_string().replace(&folder, "")).collect()
    }
}

const LISTEN: &str = "[[listen]]\naddress = \"127.0.0.1:8080\"\n";
const SITE: &str = "[[route]]\nhost = \"a.example\"\nupstream = \"a\"\n[upstream.a]\nservers = [\"http://127.0.0.1:9000\"]\n";

#[test]
fn files_are_joined_in_the_order_of_their_inclusion() {
    let other = SITE.replace("a.example", "b.example").replace("\"a\"", "\"b\"").replace(".a]", ".b]");
    let here = Here::with([
        ("etc/conf.d/20-b.toml", &other),
        ("etc/conf.d/10-a.toml", SITE),
        ("etc/conf.d/notes.txt", "no toml at all"),
        ("etc/more.toml", "[limits]\nbody_bytes = \"1MB\"\n[[listen]]\naddress = \"127.0.0.1:8081\"\n"),
        ("etc/nested.toml", "include = \"deep/*.toml\"\n"),
        ("etc/deep/x.toml", "[[route]]\nrespond = { status = 204 }\n"),
    ]);
    let text = format!(
        "include = [\"conf.d/*.toml\", \"more.toml\", \"nested.toml\", \"conf.d/10-a.toml\"]\n{LISTEN}"
    );
    let reading = here.examine(&text);
    assert_eq!(
        reading.sources,
        [
            "etc/v.toml",
            "etc/conf.d/10-a.toml",
            "etc/conf.d/20-b.toml",
            "etc/more.toml",
            "etc/nested.toml",
            "etc/deep/x.toml"
        ]
    );
    let config = reading.config.unwrap_or_else(|| panic!("{:?}", reading.mistakes));
    assert_eq!(config.listeners.len(), 2);
    let routes: Vec<&str> = config.routes.iter().map(|route| route.name.as_str()).collect();
    assert_eq!(routes, ["a.example/", "b.example/", "/"]);
    assert_eq!(config.limits.body_bytes, Some(1_000_000));
    // Each once.
    let mut read = here.read.borrow().clone();
    read.dedup();
    assert_eq!(read.len(), 5);
    // All in one file is the same configuration.
    let one = [LISTEN, SITE, &other, &here.files["etc/more.toml"], &here.files["etc/deep/x.toml"]].concat();
    assert_eq!(Here::default().config(&one), config);
}

#[test]
fn logs_of_several_files_are_joined_unless_one_is_a_single_table() {
    let here = Here::with([
        ("etc/many.toml", "[[log]]\ntarget = \"/a/b\"\n"),
        ("etc/one.toml", "[log]\ntarget = \"/a/c\"\n"),
    ]);
    let with =
        |file: &str, log: &str| format!("include = \"{file}\"\n{LISTEN}{SITE}{log}\ntarget = \"stdout\"\n");
    assert_eq!(here.config(&with("many.toml", "[[log]]")).access_logs.len(), 2);
    for (file, log) in [("many.toml", "[log]"), ("one.toml", "[[log]]"), ("one.toml", "[log]")] {
        let mistakes = here.mistakes(&with(file, log));
        assert!(mistakes.len() == 1 && mistakes[0].contains("log appears twice"), "{mistakes:?}");
    }
}

#[test]
fn one_pattern_may_be_text_and_match_nothing() {
    let here = Here::with([("/srv/a.toml", SITE)]);
    let all = format!("include = \"none/*.toml\"\n{LISTEN}{SITE}");
    assert_eq!(here.config(&all), here.config(&format!("{LISTEN}{SITE}")));
    let absolute = format!("include = \"/srv/[ab].toml\"\n{LISTEN}");
    assert_eq!(here.config(&absolute), here.config(&all));
}

#[test]
fn mistakes_are_in_the_file_that_has_them() {
    let broken = "[[route]]\nhots = \"a\"\nupstream = \"ap\"\n";
    let twice = format!("workers = 2\n{SITE}");
    let here = Here::with([
        ("etc/a.toml", SITE),
        ("etc/broken.toml", broken),
        ("etc/twice.toml", &twice),
        ("etc/syntax.toml", "[[route]]\n# \u{e9}\nhost = \n"),
        ("etc/circle.toml", "include = \"./circle.toml\"\n"),
        ("etc/to.toml", "include = \"fro.toml\"\n"),
        ("etc/fro.toml", "include = [\"t*.toml\"]\n"),
        ("etc/number.toml", "include = [1]\n[[route]]\nrespond = { status = 204 }\n"),
        ("etc/listen.toml", "[listen]\naddress = \"127.0.0.1:1\"\n[[route]]\nrespond = { status = 204 }\n"),
    ]);
    let cases: [(&str, &[&str]); 9] = [
        ("\"gone.toml\"", &["etc/v.toml:1:11: include: etc/gone.toml: the file can't be read: gone"]),
        (
            "\"[.toml\"",
            &[
                "etc/v.toml:1:11: include: [.toml: Pattern syntax error near position 4: invalid range pattern; expected a path such as \"conf.d/*.toml\"",
            ],
        ),
        (
            "[\"a.toml\", \"broken.toml\"]",
            &[
                "etc/broken.toml:2:1: unknown key \"hots\" in [[route]]; did you mean \"host\"?",
                "etc/broken.toml:3:12: upstream: no upstream is named \"ap\"; did you mean \"a\"? Expected a",
            ],
        ),
        (
            "[\"a.toml\", \"twice.toml\"]\nworkers = 1",
            &[
                "etc/twice.toml:1:1: workers appears twice: also at etc/v.toml:2; expected it in one of the files",
                "etc/twice.toml:2:1: [[route]]: host \"a.example\" with path \"/\" appears twice; expected a host, path or condition other than the one in etc/a.toml:1",
                "etc/twice.toml:5:11: [upstream.a] appears twice: also at etc/a.toml:4; expected it in one of the files",
            ],
        ),
        ("\"syntax.toml\"", &["etc/syntax.toml:3:8: a value is missing after ="]),
        (
            "\"circle.toml\"",
            &[
                "etc/circle.toml:1:11: include: etc/./circle.toml includes itself: etc/circle.toml -> etc/./circle.toml; expected files in a directory of their own",
            ],
        ),
        (
            "\"to.toml\"",
            &[
                "etc/fro.toml:1:12: include: etc/to.toml includes itself: etc/to.toml -> etc/fro.toml -> etc/to.toml; expected files in a directory of their own",
            ],
        ),
        (
            "\"number.toml\"",
            &["etc/number.toml:1:12: include: this is an integer; expected a path such as \"conf.d/*.toml\""],
        ),
        (
            "\"listen.toml\"",
            &["etc/listen.toml:1:1: [listen] is in single brackets; expected [[listen]] in double brackets"],
        ),
    ];
    for (include, expected) in cases {
        let mistakes = here.mistakes(&format!("include = {include}\n{LISTEN}"));
        let shown = |mistake: &String| {
            let cut = mistake.split(" Expected name, values").next().unwrap_or_default();
            cut.to_owned()
        };
        let mistakes: Vec<String> = mistakes.iter().map(shown).collect();
        assert_eq!(mistakes, expected, "{include}");
    }
}

#[test]
fn nesting_has_an_end() {
    let mut here = Here::default();
    for depth in 0..20 {
        let name: &'static str = format!("etc/{depth}.toml").leak();
        here.files.insert(name, format!("include = \"{}.toml\"\n", depth + 1));
    }
    let mistakes = here.mistakes(&format!("include = \"0.toml\"\n{LISTEN}"));
    assert_eq!(mistakes, ["etc/7.toml:1:11: include: etc/8.toml: files are nested more than 8 deep"]);
}

fn route(config: &Config) -> (&str, Option<String>) {
    let edits = config.routes[0].policies.request_headers.edits();
    let value = edits.filter_map(|edit| match edit {
        route::HeaderEdit::Set(_, value) => Some(value.to_owned()),
        _ => None,
    });
    (config.routes[0].name.as_str(), value.last())
}

#[test]
fn variables_and_secrets_are_put_in() {
    let here = Here {
        variables: [
            ("PORT", &b"9000"[..]),
            ("HOST", b"a.example"),
            ("N", b"3"),
            ("ON", b"true"),
            ("EMPTY", b""),
            ("dark", b"side"),
            ("PRICE", b"5$host"),
        ]
        .into(),
        secrets: [("etc/token", (&b"s3$cret\n"[..], false)), ("/run/secrets/two", (b"two\r\n", false))]
            .into(),
        ..Here::default()
    };
    let file = |header: &str| {
        format!(
            "workers = \"${{N}}\"\n{LISTEN}http2 = \"${{ON}}\"\n[[route]]\nname = \"${{HOST}}\"\nupstream = \"a\"\n\
             request_headers = {{ set = {{ X-A = {header:?} }} }}\n\
             [upstream.a]\nservers = [\"http://127.0.0.1:${{PORT}}\"]\n"
        )
    };
    for (header, value) in [
        ("Bearer ${file:token}", "Bearer s3$$cret"),
        ("${file:/run/secrets/two}-${HOST}", "two-a.example"),
        ("${MISSING:-none} ${EMPTY:-of it}${EMPTY}", "none of it"),
        ("${env:dark}${env:light:-}", "side"),
        // Variables of requests and other dollar signs stay unchanged.
        (
            "$host ${host} $header.X-Y ${client_address} $$x",
            "$host ${host} $header.X-Y ${client_address} $$x",
        ),
        ("$${HOST}", "$${HOST}"),
        ("$$${HOST}", "$$a.example"),
        ("$$$${HOST}", "$$$${HOST}"),
        ("${PRICE} $host", "5$$host $host"),
    ] {
        let config = here.config(&file(header));
        assert_eq!(route(&config), ("a.example", Some(value.to_owned())), "{header}");
        assert_eq!(config.workers.map(std::num::NonZero::get), Some(3));
        // What is printed has the variables, and the whole paths of secrets.
        let folder = std::path::absolute("etc").expect("is a path").display().to_string();
        assert_eq!(config.text(&config).replace(&format!("{folder}/"), ""), file(header));
    }
}

#[test]
fn a_text_without_variables_of_requests_can_have_dollar_signs_too() {
    let here = Here { variables: [("A", &b"x"[..])].into(), ..Here::default() };
    for (name, value) in [
        ("$${A}", "${A}"),
        ("$$${A}", "$x"),
        ("$$$${A}", "$${A}"),
        ("$a ${a} $$", "$a ${a} $$"),
        ("${A}$${A}${A}", "x${A}x"),
    ] {
        let text = format!("{LISTEN}{}", SITE.replace("host = \"a.example\"", &format!("name = {name:?}")));
        let config = here.config(&text);
        assert_eq!(config.routes[0].name, value, "{name}");
        assert_eq!(config.text(&config), text);
    }
}

#[test]
fn what_cannot_be_put_in_is_a_mistake_in_its_place() {
    let here = Here {
        variables: [("BINARY", &b"\xff"[..]), ("PORT", b"70000"), ("WORD", b"many")].into(),
        secrets: [("etc/binary", (&b"\xff"[..], false))].into(),
        ..Here::default()
    };
    for (text, expected) in [
        (
            "name = \"a ${ABSENT} b\"",
            "etc/v.toml:4:11: ABSENT is not set; expected this environment variable, or a default: ${ABSENT:-default}",
        ),
        ("name = \"${BINARY}\"", "etc/v.toml:4:9: BINARY of the environment is not UTF-8; expected text"),
        (
            "name = \"${file:absent}\"",
            "etc/v.toml:4:9: etc/absent: it can't be read: gone; expected a file with the text that belongs here",
        ),
        (
            "name = \"${file:binary}\"",
            "etc/v.toml:4:9: etc/binary: it is not UTF-8 text; expected a file with the text that belongs here",
        ),
        (
            "name = \"${ABSENT\"",
            "etc/v.toml:4:9: ${ABSENT can't be read; expected ${NAME}, ${NAME:-default}, ${env:name} or ${file:PATH}, or $${ for the text ${",
        ),
        (
            "name = \"${Ab}${env:}${file:}\"",
            "etc/v.toml:4:9: ${Ab} can't be read; expected ${NAME}, ${NAME:-default}, ${env:name} or ${file:PATH}, or $${ for the text ${",
        ),
        (
            "limits = { body_bytes = \"${WORD}\" }",
            "etc/v.toml:4:25: body_bytes: \"many\" is not a number; expected a size in bytes such as 512, 64k, 256MB or 64KiB",
        ),
        (
            "weight = \"${WORD}\"",
            "etc/v.toml:4:10: weight: this is a string; expected a whole number, 1 to 1000",
        ),
        (
            "methods = [\"GET\", \"${ABSENT}\"]",
            "etc/v.toml:4:20: ABSENT is not set; expected this environment variable, or a default: ${ABSENT:-default}",
        ),
    ] {
        let file = format!("{LISTEN}{}", SITE.replace("host = \"a.example\"", text));
        assert_eq!(here.mistakes(&file), [expected], "{text}");
    }
    let address = LISTEN.replace("8080", "${PORT}") + SITE;
    assert_eq!(
        here.mistakes(&address)[0],
        "etc/v.toml:2:11: address: \"127.0.0.1:70000\" is not an address with a port; expected an IP address with a port such as 127.0.0.1:8080 or [::1]:8080, *:8080 or :8080, or unix:/run/vanward.sock"
    );
}

#[test]
fn a_secret_that_everybody_may_read_is_a_warning() {
    let here = Here { secrets: [("etc/token", (&b"x"[..], true))].into(), ..Here::default() };
    let file = format!("{LISTEN}{}", SITE.replace("host = \"a.example\"", "name = \"${file:token}\""));
    let reading = here.examine(&file);
    assert!(reading.config.is_some());
    let warnings: Vec<String> = reading.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "etc/v.toml:4:8: etc/token: every user of this machine may read it; expected a file that only its owner may read: chmod o-r"
        ]
    );
}

#[test]
fn files_of_the_machine_are_read() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir(path("conf.d")).unwrap();
    std::fs::create_dir(path("conf.d/directory.toml")).unwrap();
    std::fs::write(path("conf.d/b.toml"), SITE.replace("a.example", "${file:name}")).unwrap();
    std::fs::write(path("conf.d/.hidden.toml"), "this is half of").unwrap();
    std::fs::write(path("conf.d/name"), "b.example\n").unwrap();
    let mode = |mode| std::fs::set_permissions(path("conf.d/name"), PermissionsExt::from_mode(mode)).unwrap();
    mode(0o640);
    std::fs::write(path("v.toml"), format!("include = \"conf.d/*.toml\"\n{LISTEN}")).unwrap();
    let reading = config::examine_file(&path("v.toml"));
    let config = reading.config.unwrap_or_else(|| panic!("{:?}", reading.mistakes));
    assert_eq!((config.routes[0].name.as_str(), reading.sources.len()), ("b.example/", 2));
    assert_eq!(reading.warnings, []);
    mode(0o644);
    let warning = &config::examine_file(&path("v.toml")).warnings[0];
    assert_eq!((warning.file.as_str(), warning.line), (path("conf.d/b.toml").to_str().unwrap(), 2));
}

#[test]
fn what_is_printed_has_no_secrets_and_means_the_same() {
    let here = Here {
        variables: [("API_TOKEN", &b"t0ps3cret"[..]), ("HOST", b"a.example"), ("DB_PASSWORD", b"p$host")]
            .into(),
        secrets: [("/run/key", (&b"fr0mfile\n"[..], false)), ("/run/longer", (b"fr0mfile.and.more", false))]
            .into(),
        ..Here::default()
    };
    let fields = |fields: &str| {
        format!(
            "{LISTEN}{}",
            SITE.replace(
                "host = \"a.example\"",
                &format!("host = \"${{HOST}}\"\nrequest_headers = {{ set = {{ {fields} }} }}")
            )
        )
    };
    let set = |reading: &Reading| {
        let printed = reading.printed().expect("it is valid");
        let line = printed.lines().find(|line| line.starts_with("request_headers")).unwrap_or_default();
        let line = line.strip_prefix("request_headers = { set = { ").expect(line);
        (line.strip_suffix(" } }").expect(line).to_owned(), printed)
    };
    // What may be shown is the same afterwards.
    for (written, shown) in [
        ("X-A = \"${API_TOKEN}\"", "X-A = \"${API_TOKEN}\""),
        (
            "X-A = \"a t0ps3cret b\", X-B = \"${API_TOKEN}\"",
            "X-A = \"a ${API_TOKEN} b\", X-B = \"${API_TOKEN}\"",
        ),
        ("Authorization = \"Bearer ${file:/run/key}\"", "Authorization = \"Bearer ${file:/run/key}\""),
        ("X-A = \"${file:/run/longer}${file:/run/key}\"", "X-A = \"${file:/run/longer}${file:/run/key}\""),
        ("X-A = \"${DB_PASSWORD} $host\"", "X-A = \"${DB_PASSWORD} $host\""),
        ("Cookie = \"$header.Cookie\"", "Cookie = \"$header.Cookie\""),
        ("X-A = \"${HOST} $${HOST}\"", "X-A = \"${HOST} $${HOST}\""),
        ("X-A = \"$$${API_TOKEN}\"", "X-A = \"$$${API_TOKEN}\""),
    ] {
        let reading = here.examine(&fields(written));
        let (line, printed) = set(&reading);
        assert_eq!(line, shown, "{printed}");
        assert!(!printed.contains("t0ps3cret") && !printed.contains("fr0mfile"), "{printed}");
        assert_eq!(here.config(&printed), reading.config.expect("it is valid"), "{printed}");
    }
    for (written, shown) in [
        ("Authorization = \"Basic dXNlcjpwYXNz\"", "Authorization = \"***\""),
        ("cookie = \"session=1\"", "cookie = \"***\""),
        ("X-Api-Key = \"abc\"", "X-Api-Key = \"***\""),
        ("Authorization = \"Bearer ${ABSENT:-abc}\"", "Authorization = \"***\""),
        ("X-Keep = \"abc\"", "X-Keep = \"abc\""),
    ] {
        let reading = here.examine(&fields(written));
        let (line, printed) = set(&reading);
        assert_eq!(line, shown, "{printed}");
        assert!(here.mistakes(&printed).is_empty(), "{printed}");
    }
    assert_eq!(here.examine("a").printed(), None);
    assert!(!format!("{:?}", here.examine(&fields("X-A = \"${API_TOKEN}\"")).sources).contains("t0ps3cret"));
}
