//! Printed configurations: the text as it was written, with the changes in force, as one file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use config::{
    Config, FaultRule, Maintenance, Reading, Server, Settings, Surroundings, bandwidth, delay, examine_in,
    faults, loss, parse,
};
use proptest::prelude::*;

const FILE: &str = r#"# The site.
workers = 2 # enough

[[listen]]
address = "127.0.0.1:80" # for clients
profile = "lte"
rate = "1MB/s"
[[listen]] # another one
address = "127.0.0.1:81"
latency = "5ms"

[route_defaults]
rate = "5KB/s"
delay = "1s"

# First.
[[route]]
name = "a"
host = "a.example"
upstream = "app"
[route.request_headers]
set = { X-A = "1" } # of the route
[[route]]
name = "b"
upstream = "other"
delay = "2s"

[upstream.app]
# Both.
servers = [
    "http://127.0.0.1:9000", # old
    { url = "http://127.0.0.1:9001", weight = 3 }, # new
]
[upstream.other]
servers = ["http://127.0.0.1:9002"]
rate = "2MB/s"

[[fault]]
name = "one" # of the file
inject = "503"
[[fault]]
inject = "delay 1s"
"#;

/// A similar configuration with inline tables.
const INLINE: &str = r#"
listen = [{ address = "127.0.0.1:80", profile = "3g" }, { address = "127.0.0.1:81" }]
route = [{ name = "a", host = "a.example", upstream = "app" }, { name = "b", upstream = "other", rate = "1KB/s" }]
fault = [{ inject = "503", name = "one" }, { inject = "delay 1s" }]
upstream.app.servers = ["http://127.0.0.1:9000", { url = "http://127.0.0.1:9001", weight = 3 }]
upstream.other = { servers = ["http://127.0.0.1:9002"], latency = "1s" }
"#;

/// A change while a proxy runs.
#[derive(Debug, Clone)]
enum Change {
    Weight(usize, u32),
    Add(usize, u16),
    Remove(usize),
    Rate(usize, Option<&'static str>),
    Delay(usize, Option<&'static str>),
    ListenerRate(usize, Option<&'static str>),
    ListenerLink(usize, Option<&'static str>),
    UpstreamLink(usize, Option<&'static str>),
    Maintenance(usize, bool),
    Fault(&'static str),
    NoFault(usize),
    Admin(&'static str),
    Workers(Option<usize>),
}

fn change() -> impl Strategy<Value = Change> {
    let rate = || prop::sample::select(vec![None, Some("7KB/s"), Some("10Mbit/s per client")]);
    let delay = || prop::sample::select(vec![None, Some("3s"), Some("50ms±10ms normal")]);
    prop_oneof![
        (0..2_usize, 0..5_u32).prop_map(|(place, weight)| Change::Weight(place, weight)),
        (0..2_usize, 1..4_u16).prop_map(|(place, port)| Change::Add(place, port)),
        (0..2_usize).prop_map(Change::Remove),
        (0..2_usize, rate()).prop_map(|(place, rate)| Change::Rate(place, rate)),
        (0..2_usize, delay()).prop_map(|(place, delay)| Change::Delay(place, delay)),
        (0..2_usize, rate()).prop_map(|(place, rate)| Change::ListenerRate(place, rate)),
        (0..2_usize, delay()).prop_map(|(place, delay)| Change::ListenerLink(place, delay)),
        (0..2_usize, delay()).prop_map(|(place, delay)| Change::UpstreamLink(place, delay)),
        (0..2_usize, any::<bool>()).prop_map(|(place, is_on)| Change::Maintenance(place, is_on)),
        prop::sample::select(vec![
            "name = \"x\"\ninject = \"429\"\n",
            "inject = \"cut 10KB\"\nroute = \"a\"\n"
        ])
        .prop_map(Change::Fault),
        (0..2_usize).prop_map(Change::NoFault),
        prop::sample::select(vec!["/run/a.sock", "/run/b.sock"]).prop_map(Change::Admin),
        prop::sample::select(vec![None, Some(4)]).prop_map(Change::Workers),
    ]
}

impl Change {
    fn over(&self, settings: &mut Settings) {
        let rates =
            |rate: &Option<&str>| rate.map(|rate| bandwidth(rate).expect("is a rate")).into_iter().collect();
        let late = |text: &Option<&str>| text.map(|text| delay(text).expect("is a delay"));
        match self {
            Self::Weight(place, weight) => settings.upstreams[*place].servers[0].weight = *weight,
            Self::Add(place, port) => {
                let server: Server = format!("http://127.0.0.1:{port}").parse().expect("is a URL");
                settings.upstreams[*place].servers.push(server);
            }
            Self::Remove(place) => {
                if settings.upstreams[*place].servers.len() > 1 {
                    settings.upstreams[*place].servers.remove(0);
                }
            }
            Self::Rate(place, rate) => settings.routes[*place].shaping.bandwidths.down = rates(rate),
            Self::Delay(place, text) => settings.routes[*place].shaping.delay = late(text),
            Self::ListenerRate(place, rate) => settings.listeners[*place].bandwidths.down = rates(rate),
            Self::ListenerLink(place, text) => {
                settings.listeners[*place].link.latency = late(text);
                settings.listeners[*place].link.loss = text.map(|_| loss("1% 300ms").expect("is loss"));
            }
            Self::UpstreamLink(place, text) => settings.upstreams[*place].link.latency = late(text),
            Self::Maintenance(place, is_on) => {
                let maintenance = Maintenance { is_on: *is_on, ..Maintenance::default() };
                settings.routes[*place].policies.options.maintenance = Some(maintenance);
            }
            Self::Fault(text) => {
                let mut rules: Vec<FaultRule> =
                    faults(&format!("[[fault]]\n{text}"), "f", settings).expect("is valid");
                settings.faults.rules.retain(|rule| rules.iter().all(|new| new.name != rule.name));
                settings.faults.rules.append(&mut rules);
            }
            Self::NoFault(place) => {
                if *place < settings.faults.rules.len() {
                    settings.faults.rules.remove(*place);
                }
            }
            Self::Admin(socket) => settings.admin = Some(socket.into()),
            Self::Workers(workers) => settings.workers = workers.and_then(std::num::NonZero::new),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever has changed, what is printed means what is in force.
    #[test]
    fn changes_are_printed(changes in prop::collection::vec(change(), 0..6), is_inline in any::<bool>()) {
        let text = if is_inline { INLINE } else { FILE };
        let config = parse(text, "f").expect("is valid");
        let Ok(changed) = config.edit(|settings| changes.iter().for_each(|change| change.over(settings))) else {
            return Ok(());
        };
        let printed = changed.printed(&changed);
        let again = parse(&printed, "printed");
        prop_assert!(again.as_ref() == Ok(&changed), "{changes:?}\n{printed}\n{again:?}");
        if !is_inline {
            for comment in ["# The site.", "# for clients", "# another one", "# First.", "# of the route", "# Both."] {
                prop_assert!(printed.contains(comment), "{comment}\n{printed}");
            }
        }
    }
}

#[test]
fn what_has_changed_is_marked_and_the_rest_stays() {
    let config = parse(FILE, "f").expect("is valid");
    let changed = config.edit(|settings| settings.upstreams[1].servers[0].weight = 7).expect("is valid");
    let was = "servers = [\"http://127.0.0.1:9002\"]";
    let is = "servers = [{ url = \"http://127.0.0.1:9002\", weight = 7 }] # changed since it was read";
    assert_eq!(changed.printed(&changed).replace(is, was), FILE, "{}", changed.printed(&changed));
    let back = changed.edit(|settings| settings.upstreams[1].servers[0].weight = 1).expect("is valid");
    assert_eq!(back.printed(&back), FILE);
    let lighter = config.edit(|settings| settings.upstreams[0].servers[0].weight = 0).expect("is valid");
    let is = "{ url = \"http://127.0.0.1:9000\", weight = 0 }, # old";
    let printed = lighter.printed(&lighter).replace(is, "\"http://127.0.0.1:9000\", # old");
    assert_eq!(printed.replace("] # changed since it was read", "]"), FILE);
    let none = config.edit(|settings| settings.routes[0].shaping.delay = None).expect("is valid");
    let printed = none.printed(&none);
    assert!(
        printed.contains("upstream = \"app\"\ndelay = \"off\" # changed since it was read\n"),
        "{printed}"
    );
    assert_eq!(parse(&printed, "printed"), Ok(none));
    // Settings that a program made have no text.
    assert_eq!(Config::new(config.into_settings()).map(|config| config.printed(&config)).as_deref(), Ok(""));
}

/// Files that only a test has.
struct Files<'t>(BTreeMap<&'static str, &'t str>);

impl Surroundings for Files<'_> {
    fn file(&self, path: &Path) -> Result<Vec<u8>, String> {
        let text = self.0.get(path.to_str().unwrap_or_default());
        text.map(|text| text.as_bytes().to_vec()).ok_or_else(|| "there is none".to_owned())
    }

    fn matches(&self, pattern: &str) -> Result<Vec<PathBuf>, String> {
        let start = pattern.split('*').next().unwrap_or_default();
        let is_meant = |path: &&&str| path.starts_with(start) && path.ends_with(".toml");
        Ok(self.0.keys().filter(is_meant).map(PathBuf::from).collect())
    }

    fn identity(&self, path: &Path) -> PathBuf {
        path.to_owned()
    }

    fn named_file(&self, path: &Path, _: u64) -> Result<Vec<u8>, String> {
        self.file(path)
    }

    fn variable(&self, _: &str) -> Option<Vec<u8>> {
        None
    }

    fn secret(&self, path: &Path) -> Result<(Vec<u8>, bool), String> {
        Ok((self.file(path)?, false))
    }
}

#[test]
fn included_files_are_printed_as_one() {
    let files = Files(BTreeMap::from([
        (
            "conf.d/a.toml",
            "# Of a.\nmetrics = \"127.0.0.1:9\" # inside\n# A route.\n[[route]]\nhost = \"a.example\"\nupstream = \"a\"\n[route.request_headers]\nset = { Authorization = \"Bearer ${file:token}\" }\n[upstream.a]\nservers = [\"http://127.0.0.1:1\"]\n# The end of a.\n",
        ),
        (
            "conf.d/b.toml",
            "route = [{ host = \"b.example\", upstream = \"b\" }]\nupstream.b.servers = [\"http://127.0.0.1:2\"]\ninclude = \"more.toml\"\n",
        ),
        (
            "conf.d/more.toml",
            "[[listen]]\naddress = \"127.0.0.1:82\" # the last\n[limits]\nconnections = 7\n",
        ),
        ("conf.d/token", "t0ken"),
        ("/etc/token", "t0ken"),
    ]));
    let text = "# The first file.\nworkers = 1\ninclude = \"conf.d/*.toml\"\n[[listen]]\naddress = \"127.0.0.1:80\"\n[[route]]\nupstream = \"c\"\n[upstream.c]\nservers = [\"http://127.0.0.1:3\"]\n";
    let reading = examine_in(text, "vanward.toml", &files);
    let (config, printed) = (parts(&reading), reading.printed().expect("is valid"));
    for comment in [
        "# The first file.",
        "# conf.d/a.toml",
        "# Of a.",
        "# inside",
        "# A route.",
        "# The end of a.",
        "# conf.d/b.toml",
        "# the last",
    ] {
        assert!(printed.contains(comment), "{comment}\n{printed}");
    }
    assert!(!printed.contains("t0ken") && !printed.contains("include"), "{printed}");
    // The secret is named by its whole path.
    let token = std::path::absolute("conf.d/token").expect("is a path").display().to_string();
    assert!(printed.contains(&format!("${{file:{token}}}")), "{printed}");
    let again = parts(&examine_in(&printed.replace(&token, "/etc/token"), "printed", &files));
    assert_eq!(again, config, "{printed}");
    let changed =
        config.edit(|settings| settings.routes[1].shaping.delay = delay("1s").ok()).expect("is valid");
    let printed = changed.printed(&changed).replace(&token, "/etc/token");
    assert_eq!(parts(&examine_in(&printed, "printed", &files)), changed, "{printed}");
}

/// Options in front of all tables, each for any file.
const TOP: [&str; 8] = [
    "workers = 3 # w",
    "# m\nmetrics = \"127.0.0.1:9\"",
    "listen = [{ address = \"127.0.0.1:81\", name = \"x\" }]",
    "route = [{ path = \"/1\", upstream = \"a\" }, { path = \"/2\", respond = { status = 200 } }]",
    "fault = [{ inject = \"502\" }]",
    "upstream.b.servers = [\"http://b:1\"]",
    "upstream = { c = { servers = [\"http://c:1\"] } }",
    "limits = { connections = 5 }",
];

/// Tables, each for any file.
const TABLES: [&str; 10] = [
    "[[listen]] # l\naddress = \"127.0.0.1:82\"\n[listen.tls]\nself_signed = true\n",
    "# r\n[[route]]\npath = \"/3\"\nupstream = \"a\"\n[route.request_headers]\nset = { A = \"1\" }\n",
    "[[route]]\npath = \"/4\"\nupstream = \"a\"\n\n[route.rewrite]\npath = \"/\"\n",
    "[upstream.d] # d\nservers = [\n  \"http://d:1\", # one\n]\n[upstream.d.check]\ntype = \"http\"\n",
    "[upstream]\n[upstream.e]\nservers = [\"http://e:1\"]\n",
    "[[fault]]\ninject = \"503\"\n",
    "[timeouts]\ndrain = \"3s\"\n",
    "[headers.h]\nset = { B = \"2\" }\n",
    "[profile.p]\nrate = \"1MB/s\"\n",
    "[shed.concurrency]\nmin = 7\n",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// However options are spread over files, the printed file means the same.
    #[test]
    fn files_are_joined(
        top in prop::collection::vec(0..4_usize, TOP.len()),
        tables in prop::collection::vec(0..4_usize, TABLES.len()),
    ) {
        // The last number leaves an option out.
        let file = |number: usize| {
            let of = |all: &[&str], chosen: &[usize]| -> String {
                let chosen = all.iter().zip(chosen).filter(|(_, chosen)| **chosen == number);
                chosen.map(|(text, _)| format!("{text}\n")).collect()
            };
            of(&TOP, &top) + &of(&TABLES, &tables)
        };
        let first = format!("include = \"f/*.toml\"\n{}[[listen]]\naddress = \"127.0.0.1:80\"\n[[route]]\nupstream = \"a\"\n[upstream.a]\nservers = [\"http://a:1\"]\n", file(0));
        let (one, two) = (file(1), file(2));
        let files = Files(BTreeMap::from([("f/1.toml", &*one), ("f/2.toml", &*two)]));
        let reading = examine_in(&first, "vanward.toml", &files);
        let Some(config) = reading.config else { return Ok(()) };
        let printed = config.text(&config);
        let again = parse(&printed, "printed");
        prop_assert!(again.as_ref() == Ok(&config), "{first}\n---\n{one}\n---\n{two}\n=====\n{printed}\n{again:?}");
    }
}

fn parts(reading: &Reading) -> Config {
    reading.config.clone().unwrap_or_else(|| panic!("{:#?}", reading.mistakes))
}
