//! Reloads and upgrades under load: clients without retries, over HTTP/1.1 and HTTP/2, requests of each kind, with open
//! tunnels. No request is lost, and memory does not grow.

/// Requests of each kind that asks a second place.
mod kinds;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;

use load::{Arrival, LoadPlan, RunControl, RunOutcome};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use kinds::Kinds;

use crate::process::{self, Patience, Process, connect, get, read_head, run_in};

/// Requests per second of each load: enough that some are always under way, with idle connections in between.
const RATE: f64 = 400.0;
/// Requests of each load that a test waits for between two changes.
const REQUESTS_BETWEEN: u64 = 50;

/// A proxy operated as in production, with everything around it.
pub(crate) struct Scene {
    folder: TempDir,
    first: Process,
    address: SocketAddr,
    origin: origin::RunningOrigin,
    echo: SocketAddr,
}

impl Scene {
    pub(crate) fn start(workers: usize) -> Self {
        let origin = origin::start(origin::OriginOptions::default()).expect("the origin starts");
        let echo = echo();
        let folder = tempfile::tempdir().expect("a temporary folder");
        write(folder.path(), "127.0.0.1:0", workers, origin.addresses()[0], echo, "");
        let mut first = Process::start_in(folder.path(), &["run", "--pid-file", "pid"]);
        let address = first.address();
        Self { folder, first, address, origin, echo }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn write(&self, workers: usize, more: &str) {
        write(self.path(), "127.0.0.1:0", workers, self.origin.addresses()[0], self.echo, more);
    }

    fn process(&self) -> u32 {
        let patience = Patience::new();
        loop {
            let text = std::fs::read_to_string(self.path().join("pid")).unwrap_or_default();
            if let Ok(process) = text.trim().parse() {
                return process;
            }
            patience.wait_a_little("there is no file with the number of the process");
        }
    }

    fn signal(&self, signal: Signal) {
        let process = Pid::from_raw(self.process() as i32).expect("a process has a number");
        kill_process(process, signal).expect("it runs");
    }

    /// Upgrades, and returns once another process serves.
    pub(crate) fn upgrade(&self) {
        let before = self.process();
        self.signal(Signal::USR2);
        let patience = Patience::new();
        while self.process() == before {
            patience.wait_a_little("no other process takes over");
        }
    }

    pub(crate) fn reload(&self) {
        run_in(self.path(), &["reload"]).with_code(0);
    }

    fn load(&self, change: impl FnOnce(&mut LoadPlan)) -> load::RunningLoad {
        let mut plan = LoadPlan::new(format!("http://{}/tiny", self.address));
        plan.arrival = Arrival::Constant { requests_per_second: RATE };
        plan.duration_seconds = Some(3600.0);
        change(&mut plan);
        load::start(&plan).expect("it can be reached")
    }

    fn tunnel(&self) -> TcpStream {
        let mut stream = connect(self.address);
        let request =
            b"GET /echo-tunnel HTTP/1.1\r\nHost: test\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
        stream.write_all(request).expect("it reads");
        let head = read_head(&mut stream);
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        stream
    }

    /// Ends the serving process, and waits for it and the first one.
    pub(crate) fn end(self) {
        self.signal(Signal::TERM);
        let patience = Patience::new();
        while self.path().join("pid").exists() {
            patience.wait_a_little("the last process does not end");
        }
        self.first.ended().with_code(0);
    }
}

fn write(folder: &Path, listen: &str, workers: usize, origin: SocketAddr, echo: SocketAddr, more: &str) {
    let text = format!(
        "workers = {workers}\nadmin = \"{}\"\n[[listen]]\naddress = \"{listen}\"\n\
         [[route]]\npath = \"/echo-tunnel\"\nupstream = \"echo\"\n[[route]]\nupstream = \"app\"\n\
         [upstream.echo]\nservers = [\"http://{echo}\"]\n[upstream.app]\nservers = [\"http://{origin}\"]\n{more}",
        folder.join("admin").display()
    );
    // Atomically, as an editor does.
    std::fs::write(folder.join("next"), text).expect("it is writable");
    std::fs::rename(folder.join("next"), folder.join("vanward.toml")).expect("it is writable");
}

fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it listens");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                read_head(&mut stream);
                let response =
                    b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
                let mut bytes = [0; 512];
                let mut sent = stream.write_all(response);
                while let (Ok(()), Ok(count @ 1..)) = (sent, stream.read(&mut bytes)) {
                    sent = stream.write_all(&bytes[..count]);
                }
            });
        }
    });
    address
}

fn is_alive(tunnel: &mut TcpStream) {
    tunnel.write_all(b"still there").expect("the tunnel takes it");
    let mut bytes = [0; 11];
    tunnel.read_exact(&mut bytes).expect("the tunnel gives it back");
    assert_eq!(&bytes, b"still there");
}

fn goes_on(loads: &[RunControl]) {
    let done = |load: &RunControl| load.progress().requests;
    let before: Vec<u64> = loads.iter().map(done).collect();
    let patience = Patience::new();
    while loads.iter().zip(&before).any(|(load, before)| done(load) < before + REQUESTS_BETWEEN) {
        patience.wait_a_little("the load does not go on");
    }
}

fn resident_kib(process: u32) -> u64 {
    // Exact, unlike the number in /proc/PID/status.
    let maps = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")).expect("it runs");
    let line = maps.lines().find_map(|line| line.strip_prefix("Rss:")).expect("it has memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn is_within(process: u32, limit_kib: u64) {
    let patience = Patience::new();
    while resident_kib(process) > limit_kib {
        patience.wait_a_little(&format!("{} KiB are more than {limit_kib}", resident_kib(process)));
    }
}

fn nothing_failed(name: &str, load: load::RunningLoad) -> RunOutcome {
    load.control().stop();
    let outcome = load.wait().expect("it was reached");
    assert_eq!(outcome.errors.total(), 0, "{name}: {:?} {:?}", outcome.errors, outcome.statuses);
    assert!(outcome.requests > 0, "{name}");
    outcome
}

#[allow(clippy::print_stderr, reason = "figures, for who runs it to see them")]
fn under_load(reloads: usize, upgrades: usize, growth_kib: u64, more: &str) {
    let (scene, kinds) = (Scene::start(2), Kinds::start());
    let more = &format!("{more}{}", kinds.tables(scene.origin.addresses()[0]));
    scene.write(2, more);
    scene.reload();
    let mut tunnels: Vec<_> = (0..8).map(|_| scene.tunnel()).collect();
    let mut loads = vec![
        ("HTTP/1.1", scene.load(|plan| plan.connections = 64)),
        ("HTTP/2", scene.load(|plan| (plan.connections, plan.streams, plan.http2) = (16, 4, true))),
    ];
    loads.extend(kinds.loads(&scene));
    let controls: Vec<RunControl> = loads.iter().map(|(_, load)| load.control()).collect();
    goes_on(&controls);
    let files =
        ["", "[[route]]\npath = \"/other\"\nupstream = \"app\"\n", "[timeouts]\nclient_body = \"20s\"\n"];
    let reload = |index: usize| {
        scene.write(2, &format!("{}{more}", files[index % files.len()]));
        scene.reload();
        goes_on(&controls);
    };
    // Memory for the first reloads is kept.
    let warm = reloads / 5;
    (0..warm).for_each(reload);
    let before = resident_kib(scene.process());
    (warm..reloads).for_each(reload);
    is_within(scene.process(), before + growth_kib);
    let after = resident_kib(scene.process());
    let mut of_processes = Vec::new();
    for index in 0..upgrades {
        // As many workers as sockets, fewer, more.
        scene.write([2, 1, 3][index % 3], more);
        scene.upgrade();
        goes_on(&controls);
        tunnels.iter_mut().for_each(is_alive);
        of_processes.push(resident_kib(scene.process()));
    }
    let requests = loads.into_iter().map(|(name, load)| (name, nothing_failed(name, load).requests));
    let requests: Vec<(&str, u64)> = requests.collect();
    assert!(requests.iter().all(|(_, count)| *count >= 100), "{requests:?}");
    eprintln!(
        "{reloads} reloads, {upgrades} upgrades: {requests:?} requests, none failed; {before} KiB, {after} KiB after the \
         reloads, {of_processes:?} KiB after each upgrade"
    );
    tunnels.iter_mut().for_each(is_alive);
    drop(tunnels);
    scene.end();
}

#[test]
fn reloads_and_upgrades_lose_nothing() {
    // The allocator grows in steps of 2 MiB at random times. Shedding is off, because a busy machine would cause
    // it, which is not tested here.
    under_load(10, 3, 4096, "[shed]\nconcurrency = \"off\"\n");
}

#[test]
#[ignore = "takes minutes: the figures of a release"]
fn a_hundred_reloads_and_five_upgrades_lose_nothing() {
    under_load(100, 5, 2048, "");
}

#[test]
fn a_successor_that_cannot_serve_changes_nothing() {
    let scene = Scene::start(1);
    let before = scene.process();
    scene.write(1, "mistake = 1\n");
    scene.signal(Signal::USR2);
    scene.first.warns(
        "not upgraded, nothing has changed: the new process ended before it was ready: exit status: 78",
    );
    scene.write(1, "[[listen]]\naddress = \"192.0.2.1:1\"\n");
    scene.signal(Signal::USR2);
    scene.first.warns("ended before it was ready: exit status: 1");
    assert!(get(scene.address, "/tiny").starts_with("HTTP/1.1 200 "));
    assert_eq!(scene.process(), before);
    scene.write(1, "");
    scene.upgrade();
    assert!(get(scene.address, "/tiny").starts_with("HTTP/1.1 200 "));
    scene.end();
}

/// Version 0.2 had words where flags are now.
#[test]
fn old_forms_of_commands_work_and_name_the_new_one() {
    let scene = Scene::start(1);
    for (arguments, hint) in [
        (&["add", "http://127.0.0.1:1", "--upstream", "app"][..], "`--server http://127.0.0.1:1`"),
        (&["drain", "127.0.0.1:1"], "`--server 127.0.0.1:1`"),
        (&["weigh", "127.0.0.1:1", "0", "--upstream", "app"], "`--server 127.0.0.1:1 --weight 0`"),
        (&["remove", "127.0.0.1:1"], "`--server 127.0.0.1:1`"),
        (&["shape", "set", "route", "/", "--delay", "1ms"], "`--route /`"),
        (&["shape", "set", "listener", "--rate", "1GB/s"], "`--listener`"),
        (&["shape", "clear", "route", "/"], "`--route /`"),
        (&["faults", "remove", "of the file"], "`--fault 'of the file'`"),
    ] {
        let ended = run_in(scene.path(), arguments);
        assert!(ended.errors.contains(&format!("hint: write {hint}; ")), "{arguments:?}: {}", ended.errors);
        let is_fault = arguments[0] == "faults";
        assert_eq!(ended.status.code(), Some(i32::from(is_fault)), "{arguments:?}: {}", ended.errors);
    }
    let shown = run_in(scene.path(), &["shape", "clear", "--listener"]).with_code(0).errors;
    assert!(shown.contains("1 place returned"), "{shown}");
    let several = run_in(scene.path(), &["shape", "clear", "--upstream"]).with_code(1).errors;
    assert!(several.contains("name one with --upstream NAME: there are \"echo\", \"app\""), "{several}");
    run_in(scene.path(), &["faults", "add", "503", "--route", "/", "--first", "1"]).with_code(0);
    assert!(get(scene.address, "/tiny").starts_with("HTTP/1.1 503 "));
    run_in(scene.path(), &["faults", "remove", "--fault", "503"]).with_code(0);
    scene.end();
}

#[test]
fn what_operators_changed_outlives_reloads_and_upgrades() {
    let scene = Scene::start(1);
    let server = scene.origin.addresses()[0].to_string();
    let run = |arguments: &[&str]| run_in(scene.path(), arguments);
    run(&["add", "--server", "http://127.0.0.1:1", "--upstream", "app", "--weight", "9"]).with_code(0);
    run(&["drain", "--server", "127.0.0.1:1", "--wait"]).with_code(0);
    run(&["weigh", "--server", &server, "--weight", "7"]).with_code(0);
    let refused = run(&["remove", "--server", &scene.echo.to_string()]).with_code(1);
    assert!(refused.errors.contains("is the only server of echo"), "{}", refused.errors);
    let expected = [("up", 7, None), ("draining", 9, Some("added"))];
    let check = |when: &str| {
        let status: serde_json::Value =
            serde_json::from_str(&run(&["status", "--json"]).with_code(0).output).expect("it is JSON");
        let app = &status["upstreams"][1]["servers"];
        for (index, (state, weight, change)) in expected.iter().enumerate() {
            let server = &app[index];
            assert_eq!(
                (&server["state"], &server["weight"]),
                (&(*state).into(), &(*weight).into()),
                "{when}: {app}"
            );
            if let Some(change) = change {
                assert_eq!(server["changes"][0], *change, "{when}");
            }
        }
        let table = run(&["status"]).with_code(0).output;
        assert!(table.contains("draining") && table.contains("not in the file"), "{when}: {table}");
        // The server is drained and does not listen.
        for _ in 0..20 {
            assert!(get(scene.address, "/tiny").starts_with("HTTP/1.1 200 "), "{when}");
        }
    };
    check("at once");
    scene.reload();
    check("after a reload");
    scene.upgrade();
    check("after an upgrade");
    run(&["restore", "--server", "127.0.0.1:1"]).with_code(0);
    run(&["remove", "--server", "127.0.0.1:1"]).with_code(0);
    assert!(!run(&["status"]).with_code(0).output.contains("127.0.0.1:1 "));
    scene.end();
}

/// Each kind of switch survives a reload and an upgrade, after which its page is gone.
#[test]
fn maintenance_outlives_reloads_and_upgrades() {
    let scene = Scene::start(1);
    let run = |arguments: &[&str]| run_in(scene.path(), &[&["maintenance"], arguments].concat());
    std::fs::write(scene.path().join("page.html"), "<p>soon</p>").expect("it can be written");
    let on = ["on", "--route", "/", "--page", "page.html", "--retry-after", "10m", "--allow", "192.0.2.0/24"];
    let said = run(&on).with_code(0).errors;
    assert!(said.contains("route / is under maintenance"), "{said}");
    let check = |when: &str, body: &str| {
        let got = get(scene.address, "/tiny");
        let is_said = got.starts_with("HTTP/1.1 503 ") && got.contains("\r\nRetry-After: 600\r\n");
        assert!(is_said && got.ends_with(body), "{when}: {got}");
        let listed = run(&["list"]).with_code(0).output;
        assert!(listed.contains("503, retry after 10m"), "{when}: {listed}");
        assert!(listed.contains("for all but 192.0.2.0/24; by command"), "{when}: {listed}");
        let status = run_in(scene.path(), &["status"]).with_code(0).output;
        assert!(status.contains("\nmaintenance; ") && status.contains(&listed), "{when}: {status}");
    };
    check("at once", "<p>soon</p>");
    scene.reload();
    check("after a reload", "<p>soon</p>");
    scene.upgrade();
    check("after an upgrade", "<p>soon</p>");
    std::fs::remove_file(scene.path().join("page.html")).expect("it is there");
    scene.upgrade();
    // The previous process may accept a last connection.
    let patience = Patience::new();
    while (0..20).any(|_| get(scene.address, "/tiny").ends_with("<p>soon</p>")) {
        patience.wait_a_little("the process before goes on to answer");
    }
    check("after an upgrade without the page", "Down for maintenance; try again later.\n");
    let json = run(&["list", "--json"]).with_code(0).output;
    let told: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!((&told[0]["route"], &told[0]["is_on"]), (&"/".into(), &true.into()), "{json}");
    let said = run(&["off", "--all"]).with_code(0).errors;
    assert!(said.contains("route / is served again"), "{said}");
    let said = run(&["off", "--all"]).with_code(0).errors;
    assert!(said.contains("nothing changed") && !said.contains("served again"), "{said}");
    assert!(get(scene.address, "/tiny").starts_with("HTTP/1.1 200 "));
    assert_eq!(run(&[]).with_code(0).output, "no route is under maintenance\n");
    for (arguments, told) in [
        (&["on", "--route", "shop"][..], "no route is named \"shop\"; there are /"),
        (&["on", "--all", "--page", "/nowhere/a.html"], "/nowhere/a.html: it can't be read"),
        (&["on", "--all", "--retry-after", "soon"], "retry_after: \"soon\" is not a number"),
        (&["on", "--all", "--allow", "10.0.0.1/8"], "allow: "),
    ] {
        let refused = run(arguments).with_code(1);
        assert!(refused.errors.contains(told), "{arguments:?}: {}", refused.errors);
    }
    run(&["on"]).with_code(2);
    scene.end();
}

/// Faults added by operators keep their counts and remaining time, and removed ones stay removed.
#[test]
fn faults_outlive_an_upgrade() {
    let scene = Scene::start(2);
    scene.write(2, "[[fault]]\nname = \"of the file\"\ninject = \"501\"\nmethods = \"GET\"\n");
    scene.reload();
    let run = |arguments: &[&str]| {
        let patience = Patience::new();
        loop {
            let ended = run_in(scene.path(), arguments);
            if !ended.errors.contains("another process is taking over: try again") {
                return ended.with_code(0);
            }
            patience.wait_a_little("the upgrade does not end");
        }
    };
    run(&["faults", "remove", "--fault", "of the file"]);
    let faults = "[[fault]]\nname = \"first\"\ninject = \"503\"\nfirst = 3\nexpires = \"1h\"\nshow = true\n\
                  [[fault]]\nname = \"refuse\"\ninject = \"connection refuse\"\n";
    std::fs::write(scene.path().join("faults.toml"), faults).expect("it is writable");
    let statuses = |tunnel: &mut TcpStream, count: usize| -> Vec<String> {
        let ask = |_| {
            tunnel.write_all(b"GET /tiny HTTP/1.1\r\nHost: test\r\n\r\n").expect("it reads");
            let head = read_head(tunnel);
            let length = head.split_once("ontent-Length: ").expect("it has one").1;
            let length = length.split_once('\r').expect("a line").0.parse().expect("a number");
            tunnel.read_exact(&mut vec![0; length]).expect("it is whole");
            let told =
                head.split_once("anward-Fault: ").map_or("", |(_, told)| told.lines().next().unwrap_or(""));
            format!("{} {told}", &head[9..12])
        };
        (0..count).map(ask).collect()
    };
    let refused =
        || TcpStream::connect(scene.address).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
    let mut client = connect(scene.address);
    // The kernel keeps a connection until data arrives on it.
    assert_eq!(statuses(&mut client, 1), ["200 "]);
    run(&["faults", "add", "--file", "faults.toml"]);
    assert_eq!(statuses(&mut client, 2), ["503 first; seed=1; number=0", "503 first; seed=1; number=1"]);
    assert!((0..8).all(|_| refused()));
    scene.upgrade();
    assert!((0..8).all(|_| refused()), "by the process that has taken over");
    let told = run(&["faults"]).output;
    assert!(told.contains("expires in 3") && !told.contains("of the file"), "{told}");
    run(&["faults", "remove", "--fault", "refuse"]);
    drop(client);
    let mut client = connect(scene.address);
    assert_eq!(statuses(&mut client, 3), ["503 first; seed=1; number=2", "200 ", "200 "]);
    // As many workers as sockets, fewer, more: each socket is served.
    for workers in [1, 3] {
        scene.write(workers, "");
        run(&["faults", "add", "connection refuse"]);
        scene.upgrade();
        assert!((0..8).all(|_| refused()), "{workers} workers");
        run(&["faults", "clear"]);
        for _ in 0..16 {
            assert!(get(scene.address, "/tiny").starts_with("HTTP/1.1 200 "), "{workers} workers");
        }
    }
    drop(client);
    scene.end();
}

#[test]
fn what_clients_hold_outlives_an_upgrade() {
    let scene = Scene::start(1);
    let server = scene.origin.addresses()[0];
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let secured = free.expect("a port is free");
    let more = format!(
        "[[listen]]\naddress = \"{secured}\"\ntls = {{ self_signed = true }}\n\
         [[route]]\npath = \"/cookie\"\nupstream = \"cookie\"\n[[route]]\npath = \"/header\"\nupstream = \"header\"\n\
         [[route]]\npath = \"/split\"\nsplit = {{ cookie = 1 }}\nsticky = {{ by = \"cookie\" }}\n\
         [upstream.cookie]\nservers = [\"http://{server}\"]\nsticky = {{ by = \"cookie\", name = \"stays\" }}\n\
         [upstream.header]\nservers = [\"http://{server}\"]\nsticky = {{ by = \"header:X-User\" }}\n"
    );
    scene.write(1, &more);
    scene.reload();
    let ask = |path: &str, field: &str| {
        let mut stream = connect(scene.address);
        let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{field}\r\n");
        stream.write_all(request.as_bytes()).expect("it reads");
        read_head(&mut stream)
    };
    let sessions = || {
        let status: serde_json::Value =
            serde_json::from_str(&run_in(scene.path(), &["status", "--json"]).with_code(0).output)
                .expect("it is JSON");
        let upstreams = status["upstreams"].as_array().expect("there are some").clone();
        upstreams.iter().find(|upstream| upstream["name"] == "header").expect("it is there")["sessions"]
            .clone()
    };
    let cookies_of = |path: &str| {
        let head = ask(path, "");
        let values = head.split("Set-Cookie: ").skip(1).filter_map(|rest| rest.split(';').next());
        format!("Cookie: {}\r\n", values.collect::<Vec<_>>().join("; "))
    };
    let (cookie, split) = (cookies_of("/cookie/tiny"), cookies_of("/split/tiny"));
    assert!(split.contains("vanward_split=") && split.contains("stays="), "{split}");
    ask("/header/tiny", "X-User: one\r\n");
    ask("/header/tiny", "X-User: other\r\n");
    let load = scene.load(|plan| {
        plan.urls = vec![format!("https://{secured}/tiny")];
        (plan.keepalive, plan.tls.verify, plan.tls.resume) = (false, false, true);
        (plan.connections, plan.arrival) = (1, Arrival::Constant { requests_per_second: 50.0 });
    });
    let controls = [load.control()];
    for _ in 0..2 {
        goes_on(&controls);
        scene.upgrade();
        assert_eq!(sessions(), 2, "before any request");
        for (path, cookie) in [("/cookie/tiny", &cookie), ("/split/tiny", &split)] {
            let head = ask(path, cookie);
            assert!(!head.contains("Set-Cookie"), "it is known: {head}");
        }
    }
    goes_on(&controls);
    let tls = nothing_failed("HTTPS", load).tls.expect("it was spoken");
    assert_eq!(tls.full, 1, "all but the first are resumed");
    scene.end();
}

#[test]
fn mistakes_are_reported_to_the_initiator_of_a_reload() {
    let scene = Scene::start(1);
    scene.write(1, "mistake = 1\n");
    let ended = run_in(scene.path(), &["reload"]).with_code(78);
    let place = "vanward.toml:14:1: unknown key \"mistake\" in [upstream.app]";
    assert!(ended.errors.starts_with(place), "{}", ended.errors);
    assert!(ended.errors.ends_with("vanward: the configuration has mistakes, nothing has changed\n"));
    scene.signal(Signal::HUP);
    scene.first.warns("not reloaded, nothing has changed: vanward.toml:14:1: unknown key");
    scene.write(2, "");
    let ended = run_in(scene.path(), &["reload"]).with_code(0);
    assert!(
        ended.errors.contains("workers: 1 are running; the change to 2 applies after an upgrade"),
        "{}",
        ended.errors
    );
    scene.end();
}

/// Reloads by command and by signal, and checks the command's message and exit code, and the proxy's message for each.
fn reloaded_in_both_ways(scene: &Scene, code: i32, told: &str, said: &str) {
    let before = scene.first.said(said);
    let ended = run_in(scene.path(), &["reload"]).with_code(code);
    assert!(ended.errors.contains(told), "{told}: {}", ended.errors);
    scene.first.warns_again(said, before + 1);
    // The same text is written once a second: more requests in between add nothing.
    let patience = Patience::new();
    while scene.first.said(said) < before + 2 {
        scene.signal(Signal::HUP);
        patience.wait_a_little("a reload by signal does not say it");
    }
}

/// Problems of the machine, not of the file.
#[test]
fn reloads_report_to_their_initiator_and_in_messages() {
    let scene = Scene::start(1);
    let mut parameters = rcgen::CertificateParams::new(vec!["test".to_owned()]).expect("a name");
    parameters.not_before = rcgen::date_time_ymd(2020, 1, 1);
    parameters.not_after = rcgen::date_time_ymd(2021, 1, 1);
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate = parameters.self_signed(&key).expect("it can be signed");
    std::fs::write(scene.path().join("old.pem"), certificate.pem()).expect("it is writable");
    std::fs::write(scene.path().join("old.key"), key.serialize_pem()).expect("it is writable");
    for (more, code, told, said) in [
        (
            "[[listen]]\naddress = \"127.0.0.1:0\"\ntls = { cert = \"old.pem\", key = \"old.key\" }\n",
            0,
            "warning: vanward.toml:16:16: cert: old.pem: its certificate has expired",
            "[warn] vanward.toml:16:16: cert: old.pem: its certificate has expired",
        ),
        (
            "[log]\ntarget = \"/nowhere/access.log\"\n",
            1,
            "cannot open the access log /nowhere/access.log: No such file or directory (os error 2); its directory has to exist",
            "[error] not reloaded, nothing has changed: cannot open the access log /nowhere/access.log",
        ),
        (
            "[upstream.named]\nservers = [\"http://app.invalid\"]\n[[route]]\nhost = \"named\"\nupstream = \"named\"\n",
            0,
            "cannot resolve app.invalid: there is no such name",
            "[warn] cannot resolve app.invalid: there is no such name",
        ),
    ] {
        scene.write(1, more);
        reloaded_in_both_ways(&scene, code, told, said);
    }
    let text = std::fs::read_to_string(scene.path().join("vanward.toml")).expect("it is there");
    let elsewhere = text.replacen("admin = \"", "admin = \"/nowhere/", 1);
    assert_ne!(text, elsewhere);
    std::fs::write(scene.path().join("vanward.toml"), elsewhere).expect("it is writable");
    let admin = scene.path().join("admin");
    let ended = run_in(scene.path(), &["reload", "--socket", admin.to_str().expect("text")]).with_code(1);
    assert!(ended.errors.contains("/nowhere/"), "{}", ended.errors);
    scene.first.warns("[error] not reloaded, nothing has changed: cannot listen on unix:/nowhere/");
    scene.end();
}

#[test]
fn mistakes_in_rates_and_delays_have_a_remedy() {
    let scene = Scene::start(1);
    scene.write(1, "[profile.far]\nlatency = \"1ms\"\n");
    scene.reload();
    let run = |arguments: &[&str]| {
        run_in(scene.path(), &[&["shape", "set"], arguments, &["--socket", "admin"]].concat())
    };
    for (arguments, said) in [
        (
            &["--listener", "--rate", "1mb/s"][..],
            "rate: unknown unit \"mb/s\"; did you mean \"MB/s\"? Expected a rate",
        ),
        (
            &["--listener", "--rate", "5000"],
            "rate: \"5000\" has no unit; did you mean \"5000B/s\"? Expected a rate",
        ),
        (&["--listener", "--upload-rate", "5000"], "upload_rate: \"5000\" has no unit"),
        (&["--listener", "--rate", "0B/s"], "rate: a rate of 0B/s lets nothing pass; expected a rate"),
        (&["--route", "/", "--delay", "5"], "delay: 5 has no unit; expected a delay"),
        (
            &["--route", "/", "--latency", "5ms"],
            "latency: routes have no such setting; it is for listeners and upstreams",
        ),
        (&["--upstream", "app", "--loss", "1%"], "loss: "),
        (
            &["--upstream", "ap", "--latency", "5ms"],
            "no upstream is named \"ap\"; there are \"echo\", \"app\"",
        ),
        (&["--listener", "--profile", "fra"], "profile: no link is named \"fra\"; there are far, dial-up, "),
        (
            &["--listener", "--rate", "1MB/s", "--expires", "soon"],
            "expires: \"soon\" is not a number; expected a duration",
        ),
    ] {
        let ended = run(arguments).with_code(1);
        assert!(ended.errors.contains(said), "{arguments:?}: {}", ended.errors);
    }
    assert!(run_in(scene.path(), &["shape"]).with_code(0).output.matches("not shaped").count() >= 4);
    let said = run(&["--route", "/", "--rate", "40kbit/s", "--delay", "1.5s", "--expires", "1h"])
        .with_code(0)
        .errors;
    assert!(said.contains("route \"/\": rate 5KB/s, delay 1500ms; changed, expires in 3"), "{said}");
    run(&["--listener", "--profile", "far"]).with_code(0);
    assert!(run_in(scene.path(), &["shape"]).with_code(0).output.contains("latency 1ms"));
    scene.end();
}

#[test]
fn the_log_moves_at_a_reload_and_is_opened_again_on_a_signal() {
    let scene = Scene::start(1);
    let log = |name: &str, format: &str| {
        let file = scene.path().join(name);
        format!("[log]\ntarget = \"{}\"\nformat = \"{format}\"\n", file.display())
    };
    let text = |name: &str| std::fs::read_to_string(scene.path().join(name)).unwrap_or_default();
    let awaits = |name: &str, what: &str| {
        let patience = Patience::new();
        while !text(name).contains(what) {
            patience.wait_a_little(&format!("{name} has no {what}: {:?}", text(name)));
        }
    };
    scene.write(1, &log("a.log", "combined"));
    scene.reload();
    get(scene.address, "/tiny?1");
    scene.write(1, &log("b.log", "json"));
    scene.reload();
    awaits("a.log", "\"GET /tiny?1 HTTP/1.1\"");
    get(scene.address, "/tiny?2");
    awaits("b.log", "\"/tiny?2\"");
    std::fs::rename(scene.path().join("b.log"), scene.path().join("c.log")).expect("it is there");
    scene.signal(Signal::USR1);
    let patience = Patience::new();
    while !scene.path().join("b.log").exists() {
        patience.wait_a_little("the log is not opened again");
    }
    get(scene.address, "/tiny?3");
    awaits("b.log", "\"/tiny?3\"");
    assert!(!text("c.log").contains("/tiny?3") && !text("a.log").contains("/tiny?2"));
    // The previous process still logs its last requests.
    let tunnel = scene.tunnel();
    scene.upgrade();
    scene.first.warns("has taken over: this one ends when its last client leaves");
    std::fs::rename(scene.path().join("b.log"), scene.path().join("d.log")).expect("it is there");
    scene.first.signal(Signal::USR1);
    let patience = Patience::new();
    while !scene.path().join("b.log").exists() {
        patience.wait_a_little("the log is not opened again by the process that is on its way out");
    }
    drop(tunnel);
    awaits("b.log", "/echo-tunnel");
    scene.end();
}

#[test]
fn a_missing_proxy_is_reported_with_what_to_check() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ended = run_in(folder.path(), &["status"]).with_code(2);
    assert!(ended.errors.contains("vanward.toml") && ended.errors.contains("--socket"), "{}", ended.errors);
    let ended = run_in(folder.path(), &["reload", "--socket", "nowhere"]).with_code(1);
    assert!(ended.errors.contains("is the proxy running"), "{}", ended.errors);
    std::fs::write(folder.path().join("vanward.toml"), "admin = [\n").expect("it is writable");
    let ended = run_in(folder.path(), &["reload"]).with_code(78);
    assert!(ended.errors.starts_with("vanward.toml:"), "{}", ended.errors);
}

/// Stopping the service also ends the process that is taking over.
#[test]
fn an_end_during_an_upgrade_is_the_end() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path();
    let (program, is_started, may_go_on) = (path.join("vanward"), path.join("started"), path.join("go"));
    let built = Path::new(env!("CARGO_BIN_EXE_vanward"));
    std::os::unix::fs::symlink(built, &program).expect("it is writable");
    let loopback = SocketAddr::from(([127, 0, 0, 1], 1));
    write(path, "127.0.0.1:0", 1, loopback, loopback, "");
    let mut first = Process::of(std::process::Command::new(&program).arg("run").current_dir(path));
    first.address();
    // The next process starts slowly.
    let script = format!(
        "#!/bin/sh\n: > {}\nwhile [ ! -e {} ]; do sleep 0.05; done\nexec {} \"$@\"\n",
        is_started.display(),
        may_go_on.display(),
        built.display()
    );
    std::fs::remove_file(&program).expect("it is writable");
    std::fs::write(&program, script).expect("it is writable");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, executable).expect("it is writable");
    first.signal(Signal::USR2);
    let patience = Patience::new();
    while !is_started.exists() {
        patience.wait_a_little("no other process is started");
    }
    first.signal(Signal::TERM);
    let patience = Patience::new();
    while first.is_running() {
        patience.wait_a_little("it does not end");
    }
    std::fs::write(&may_go_on, "").expect("it is writable");
    let patience = Patience::new();
    while !process::all_in(path).is_empty() {
        patience.wait_a_little("the other process goes on");
    }
}

/// A Unix socket belongs to the old process until the new one serves.
#[test]
fn a_successor_that_cannot_serve_leaves_the_files_of_sockets() {
    let scene = Scene::start(1);
    let socket = scene.path().join("front");
    let listen = format!("[[listen]]\naddress = \"unix:{}\"\n", socket.display());
    scene.write(1, &listen);
    scene.reload();
    let log = scene.path().join("missing").join("a.log");
    scene.write(1, &format!("{listen}[log]\ntarget = \"{}\"\n", log.display()));
    scene.signal(Signal::USR2);
    scene.first.warns("not upgraded, nothing has changed: the new process ended before it was ready");
    std::os::unix::net::UnixStream::connect(&socket).expect("it listens still");
    scene.write(1, &listen);
    scene.reload();
    // A socket is passed on even without its file.
    std::fs::remove_file(scene.path().join("admin")).expect("it is there");
    scene.upgrade();
    std::os::unix::net::UnixStream::connect(&socket).expect("it listens still");
    scene.end();
    assert!(!socket.exists());
}

#[test]
fn sockets_of_every_kind_are_handed_over() {
    let scene = Scene::start(1);
    let socket = scene.path().join("front");
    let taken = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let metrics = taken.expect("a port is free");
    let more = format!("[[listen]]\naddress = \"unix:{}\"\n", socket.display());
    scene.write(1, &more);
    let text = std::fs::read_to_string(scene.path().join("vanward.toml")).expect("it is there");
    let text = format!("metrics = \"{metrics}\"\n{text}");
    std::fs::write(scene.path().join("vanward.toml"), text).expect("it is writable");
    scene.reload();
    let answers = || {
        let mut stream = std::os::unix::net::UnixStream::connect(&socket).expect("it listens");
        let request = b"GET /tiny HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
        stream.write_all(request).expect("it reads");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("it answers");
        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
        assert!(get(metrics, "/metrics").starts_with("HTTP/1.1 200 "));
    };
    answers();
    for _ in 0..2 {
        scene.upgrade();
        answers();
        run_in(scene.path(), &["status"]).with_code(0);
    }
    let admin = scene.path().join("admin");
    let folder = scene.path().to_owned();
    assert!(admin.exists());
    scene.signal(Signal::TERM);
    let patience = Patience::new();
    while ["admin", "front", "pid"].iter().any(|file| folder.join(file).exists()) {
        patience.wait_a_little("the files of the sockets stay");
    }
}
