//! The choice of requests for faults: matching, seed, first requests, and faults that a client asks for.

use std::fs;
use std::time::Instant;

use testkit::scene::{BOTH, BodylessRequest, Scene, Spoken, get};
use testkit::wait::PATIENCE;

const ROUTES: &str = "[[route]]\nname = \"a\"\npath = \"/a\"\nrespond = { status = 200 }\n\
                      [[route]]\nname = \"b\"\nrespond = { status = 200 }\n";

/// Returns the statuses of these requests, sent in order on one connection.
fn statuses(scene: &Scene, spoken: Spoken, requests: &[BodylessRequest<'_>]) -> Vec<u16> {
    let mut client = scene.client(spoken);
    requests.iter().map(|request| client.asks_for(request).status).collect()
}

#[test]
fn what_matches() {
    let requests = [
        get("/a/x?debug=1"),
        get("/b"),
        BodylessRequest { method: "POST", fields: "content-length: 0", ..get("/b") },
        BodylessRequest { fields: "x-debug: yes", ..get("/b") },
        BodylessRequest { host: "other", ..get("/b") },
    ];
    for (conditions, expected) in [
        ("", [503, 503, 503, 503, 503]),
        ("route = \"a\"", [503, 200, 200, 200, 200]),
        ("path = \"/b\"", [200, 503, 503, 503, 503]),
        ("methods = [\"POST\"]", [200, 200, 503, 200, 200]),
        ("headers = { X-Debug = \"yes\" }", [200, 200, 200, 503, 200]),
        ("query = { debug = true }", [503, 200, 200, 200, 200]),
        ("host = \"other\"", [200, 200, 200, 200, 503]),
        (
            "when = 'request.method == \"POST\" || \"yes\" in request.headers[\"x-debug\"]'",
            [200, 200, 503, 503, 200],
        ),
        ("clients = [\"10.0.0.0/8\"]", [200; 5]),
        ("clients = [\"127.0.0.1/32\"]", [503; 5]),
        ("probability = \"0%\"", [200; 5]),
        ("client_share = \"0%\"", [200; 5]),
        ("from = \"1h\"", [200; 5]),
        ("until = \"1h\"\nrepeat = \"2h\"", [503; 5]),
        ("expires = \"0s\"", [200; 5]),
        ("first = 2", [503, 503, 200, 200, 200]),
    ] {
        for spoken in BOTH {
            let scene = Scene::new(&format!("{ROUTES}[[fault]]\ninject = \"503\"\n{conditions}\n"));
            assert_eq!(statuses(&scene, spoken, &requests), expected, "{conditions} {spoken:?}");
        }
    }
}

#[test]
fn the_first_requests_of_each_key_fail() {
    let fault = "[[fault]]\ninject = \"503\"\nfirst = 1\nkey = \"header:x-key\"\n";
    let scene = Scene::new(&format!("{ROUTES}{fault}"));
    let request = |key| BodylessRequest { fields: key, ..get("/") };
    let requests = ["x-key: a", "x-key: b", "x-key: a", "x-key: c", "x-key: b"].map(request);
    assert_eq!(statuses(&scene, Spoken::Http1, &requests), [503, 503, 200, 503, 200]);
}

#[test]
fn the_first_fault_that_happens_is_the_only_one() {
    let faults = "[[fault]]\ninject = \"501\"\npath = \"/a\"\n[[fault]]\ninject = \"502\"\nfirst = 1\n\
                  [[fault]]\ninject = \"503\"\nmethods = \"GET\"\n";
    let scene = Scene::new(&format!("{ROUTES}{faults}"));
    assert_eq!(statuses(&scene, Spoken::Http1, &[get("/a"), get("/"), get("/")]), [501, 502, 503]);
}

/// Equal seeds and requests give equal faults, and equal logs; another seed gives others.
#[test]
fn a_seed_decides() {
    let faults = "[[fault]]\nname = \"some\"\ninject = \"503\"\nprobability = \"30%\"\n\
                  [[fault]]\ninject = \"429\"\nprobability = \"12.5%\"\n";
    let run = |seed: u64| {
        let log = "[log]\ntarget = \"{dir}/log\"\nformat = \"json\"\n";
        let scene = Scene::new(&format!("{ROUTES}[faults]\nseed = {seed}\n{faults}{log}"));
        let got = statuses(&scene, Spoken::Http1, &[get("/"); 200]);
        let lines = logged(&scene, got.len());
        let fields = ["\"status\":", "\"fault\":", "\"fault_seed\":", "\"fault_number\":"];
        let told = |line: &str| fields.map(|field| value_of(line, field).map(str::to_owned));
        (got, lines.lines().map(told).collect::<Vec<_>>())
    };
    let (got, lines) = run(7);
    assert_eq!(run(7), (got.clone(), lines.clone()));
    assert_ne!(run(8).0, got);
    let failed = got.iter().filter(|status| **status == 503).count();
    assert!((30..90).contains(&failed), "{failed} of 200");
    let first = got.iter().position(|status| *status == 503).expect("some are");
    let told =
        [Some("503"), Some("\"some\""), Some("7"), Some(&*first.to_string())].map(|it| it.map(str::to_owned));
    assert_eq!((lines.len(), &lines[first]), (200, &told));
    let passed = got.iter().position(|status| *status == 200).expect("some do");
    assert_eq!(lines[passed][1], None);
}

/// Returns the log, once it has this number of lines.
fn logged(scene: &Scene, lines: usize) -> String {
    let began = Instant::now();
    loop {
        let text = fs::read_to_string(scene.file("log")).unwrap_or_default();
        if text.ends_with('\n') && text.lines().count() == lines {
            return text;
        }
        assert!(began.elapsed() < PATIENCE, "{text}");
        std::thread::yield_now();
    }
}

/// Returns the value after a name, up to the next one.
fn value_of<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let rest = line.split_once(name)?.1;
    rest.split([',', '}']).next()
}

#[test]
fn a_request_may_ask_for_a_fault_where_that_is_allowed() {
    let asks = |fault| BodylessRequest { fields: fault, ..get("/") };
    let requests = [
        asks("x-fault: 503"),
        asks("X-Fault: 0%:503"),
        asks("x-fault: 100%:429"),
        asks("x-fault: what"),
        get("/"),
    ];
    for (clients, expected) in [("127.0.0.0/8", [503, 200, 429, 400, 200]), ("10.0.0.0/8", [200; 5])] {
        let faults = format!("[faults]\nheader = \"X-Fault\"\nheader_clients = [\"{clients}\"]\n");
        let scene = Scene::new(&format!("{ROUTES}{faults}"));
        let requests = requests.map(|asked| (asked.fields.to_lowercase(), asked));
        let got: Vec<u16> = requests
            .iter()
            .map(|(fields, asked)| scene.answer(Spoken::Http2, &BodylessRequest { fields, ..*asked }).status)
            .collect();
        assert_eq!(got, expected, "{clients}");
    }
    // From other clients the field is ignored.
    assert_eq!(statuses(&Scene::new(ROUTES), Spoken::Http1, &requests), [200; 5]);
}
