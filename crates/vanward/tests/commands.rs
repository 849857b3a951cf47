//! The commands that every build has, from a user's point of view: help, mistakes, exit codes, and a proxy from
//! start to end. The crate `proxy` tests HTTP.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::{PATIENCE, Patience, Process, connect, get, read_head, run, run_in};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n";
/// A placeholder in tests that need no server.
const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[test]
fn the_version_names_the_commit() {
    let said = run(&["--version"]).with_code(0).output;
    let version = said.trim_end().strip_prefix("vanward ").expect("it begins with the name");
    let (number, commit) = version.split_once(' ').unwrap_or((version, ""));
    assert_eq!(number, env!("CARGO_PKG_VERSION"));
    // Sources outside of git have no commit.
    let in_git = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().any(|folder| folder.join(".git").exists());
    let digits = commit.trim_start_matches('(').trim_end_matches(')');
    let is_commit = digits.len() >= 10 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert_eq!(is_commit, in_git, "{said}");
}

#[test]
fn a_build_says_which_feature_it_lacks() {
    let asked: [(&[&str], &str, bool); 9] = [
        (&["fleet", "--json"], "fleet", cfg!(feature = "fleet")),
        (&["help", "fleet"], "fleet", cfg!(feature = "fleet")),
        (&["run", "--config", "etcd://127.0.0.1:1/edge"], "fleet", cfg!(feature = "fleet")),
        (&["run", "--config", "kubernetes://localhost:1"], "kubernetes", cfg!(feature = "kubernetes")),
        (&["load", "--help"], "lab", cfg!(feature = "lab")),
        (&["demo"], "lab", cfg!(feature = "lab")),
        (&["capture", "nginx", "/nowhere"], "lab", cfg!(feature = "lab")),
        (&["adapt", "nginx", "/nowhere", "--prove"], "lab", cfg!(feature = "lab")),
        (&["adapt", "nginx", "-", "--prove", "v.toml", "--html", "a.html"], "lab", cfg!(feature = "lab")),
    ];
    for (arguments, feature, _) in asked.iter().filter(|(_, _, is_built)| !is_built) {
        let said = run(arguments).with_code(2);
        let expected = format!("; build with `--features {feature}`");
        assert!(said.errors.contains("this build has no ") && said.errors.contains(&expected), "{said:?}");
    }
}

#[test]
fn redis_is_refused_by_a_build_without_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = "[[listen]]\naddress = \"127.0.0.1:0\"\n[[route]]\nrespond = { status = 204 }\n\
                [redis]\nurl = \"redis://127.0.0.1:1\"\n";
    std::fs::write(folder.path().join("vanward.toml"), text).expect("it is written");
    let said = run_in(folder.path(), &["check"]);
    if cfg!(feature = "fleet") {
        said.with_code(0);
    } else {
        let expected =
            "vanward.toml:5:1: redis: this build has no etcd and Redis; build with `--features fleet`";
        let said = said.with_code(78);
        assert!(said.errors.contains(expected), "{}", said.errors);
        let said = run_in(folder.path(), &["run"]).with_code(78);
        assert!(said.errors.contains(expected), "{}", said.errors);
    }
}

#[cfg(feature = "fleet")]
#[test]
fn mistakes_in_the_use_of_fleet_end_with_two() {
    const PLACE: [&str; 2] = ["--config", "etcd+http://127.0.0.1:1/edge"];
    for (arguments, expected) in [
        (&["--config", "etcd://a"][..], "it has no prefix"),
        (&["versions", "--config", "http://a/b"], "this is no URL of etcd"),
        (&["rollback"], "name the fleet"),
        (&["canary", "--time", "soon", PLACE[0], PLACE[1]], "--time"),
        (&["canary", "--errors", "101", PLACE[0], PLACE[1]], "from 0 to 100"),
    ] {
        let said = run(&[&["fleet"], arguments].concat()).with_code(2);
        assert!(said.errors.contains(expected), "{arguments:?}: {}", said.errors);
    }
}

#[test]
fn the_help_of_every_command_has_examples() {
    let overview = run(&["--help"]).with_code(0).output;
    assert!(overview.contains("\nExamples:\n  vanward "), "{overview}");
    let list = overview.split("Commands:\n").nth(1).and_then(|rest| rest.split("\n\n").next());
    let commands: Vec<&str> = list
        .expect("it lists the commands")
        .lines()
        // More indentation continues the command above.
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|command| !matches!(*command, "" | "help"))
        .collect();
    assert!(["proxy", "run", "check"].iter().all(|command| commands.contains(command)), "{commands:?}");
    for command in commands {
        let help = run(&["help", command]).with_code(0).output;
        assert!(help.contains(&format!("\nExamples:\n  vanward {command}")), "{help}");
        assert_eq!(help, run(&[command, "--help"]).with_code(0).output);
    }
}

#[test]
fn wrong_usage_exits_with_2() {
    let cases: &[(&[&str], &str)] = &[
        (&[], "Usage: vanward <COMMAND>"),
        (&["prosy"], "'proxy'"),
        (&["help", "prosy"], "'proxy'"),
        #[cfg(feature = "fleet")]
        (&["help", "fleet", "rolback"], "'rollback'"),
        (&["completions", "tcsh"], "bash, elvish, fish"),
        (&["proxy", "--from", "127.0.0.1:0"], "--to <URL>"),
        (&["proxy", "--form", "127.0.0.1:0"], "'--from'"),
        (&["proxy", "--from", "here", "--to", "http://127.0.0.1:1"], "here"),
        (&["proxy", "--from", "127.0.0.1:0", "--to", "ftp://127.0.0.1:1"], "ftp://127.0.0.1:1"),
        (&["proxy", "--from", "127.0.0.1:0", "--to", "http://a", "--workers", "0"], "--workers"),
        (&["proxy", "--from", "127.0.0.1:0", "--files", "/nowhere"], "No such file or directory"),
        (&["proxy", "--from", "127.0.0.1:0", "--files", "/usr", "--auth", "/dev/null"], "it has no users"),
        (&["proxy", "--from", "127.0.0.1:0", "--files", "/usr", "--cors", "a.example"], "it is no origin"),
        (&["proxy", "--from", "127.0.0.1:0", "--files", "/dev/null"], "it is not a directory"),
        (&["proxy", "--from", "127.0.0.1:0", "--files", "/usr", "--to", "http://a"], "'--files <DIR>'"),
        (&["check", "--route", "GET"], "--route"),
        (&["check", "--header", "A: b"], "--route"),
        (&["check", "--print", "--route", "GET", "/"], "--route"),
        (&["run", "--config"], "--config"),
        (&["shape", "set", "--route"], "--rate"),
        (&["shape", "set", "--rate", "1MB/s"], "--route"),
        #[cfg(feature = "lab")]
        (&["lab", "run", "--repeats", "0"], "invalid value '0' for '--repeats <N>': it must be 1 or more"),
        (&["chaos", "--listen", "here"], "it is not an IP address with a port, such as 127.0.0.1:8080"),
        (&["chaos", "--seed", "x"], "it is not a whole number"),
        (&["check", "--route", "GET", "/", "--client", "here"], "it is not an IP address"),
        (&["weigh", "--server", "http://a", "--weight", "much"], "it is not a whole number"),
        (&["weigh", "--server", "http://a"], "--weight <N>"),
        (&["drain"], "--server <SERVER>"),
        (&["faults", "remove"], "--fault <NAME>"),
        (&["faults", "add", "10%", "503"], "with a colon behind the %; did you mean \"10%:503\"?"),
        (&["faults", "add", "2s"], "did you mean \"delay 2s\"?"),
        (&["faults", "add", "503", "--first", "0"], "it must be 1 or more"),
        (&["shape", "clear", "--route", "/", "--listener"], "cannot be used with"),
    ];
    for (arguments, expected) in cases {
        let ended = run(arguments).with_code(2);
        assert!(ended.errors.contains(expected), "{arguments:?}: {}", ended.errors);
        assert_eq!(ended.output, "", "{arguments:?}");
    }
}

#[test]
fn shells_complete_commands_and_man_shows_their_help() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let place = |name: &str| folder.path().join(name).to_str().expect("the path is text").to_owned();
    let script = place("vanward.bash");
    std::fs::write(&script, run(&["completions", "bash"]).with_code(0).output).expect("it can be written");
    const COMPLETE: &str = r#"source "$0"; COMP_WORDS=(vanward che); COMP_CWORD=1; _vanward vanward che vanward; echo "${COMPREPLY[*]}""#;
    let completed = Command::new("bash").args(["-c", COMPLETE, &script]).output().expect("bash runs");
    assert_eq!(String::from_utf8_lossy(&completed.stdout), "check\n", "{completed:?}");
    for shell in ["zsh", "fish", "elvish"] {
        let script = run(&["completions", shell]).with_code(0).output;
        assert!(["certificates", "pid-file", "upstream"].iter().all(|word| script.contains(word)), "{shell}");
        #[cfg(feature = "fleet")]
        assert!(script.contains("canary"), "{shell}");
    }

    run(&["man", "--out", &place("man")]).with_code(0);
    for (page, expected) in [
        ("vanward.1", "vanward\\-check(1)"),
        ("vanward-run.1", "\nExamples:"),
        #[cfg(feature = "fleet")]
        ("vanward-fleet-canary.1", "\\-\\-errors"),
    ] {
        let text = std::fs::read_to_string(folder.path().join("man").join(page)).expect("the page is there");
        assert!(text.contains(expected), "{text}");
    }
    let ended = run(&["man", "--out", &place("man/vanward.1/pages")]).with_code(1);
    assert!(
        ended.errors.contains("; --out must name a folder that this user can write to or create"),
        "{}",
        ended.errors
    );
}

/// A folder with the smallest `vanward.toml`: one listener, one server for all.
fn folder_with(listen: SocketAddr, server: SocketAddr, more: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let text = format!(
        "{more}[[listen]]\naddress = \"{listen}\"\n[[route]]\nupstream = \"app\"\n\
         [upstream.app]\nservers = [\"http://{server}\"]\n"
    );
    std::fs::write(folder.path().join("vanward.toml"), text).expect("it is writable");
    folder
}

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

#[test]
fn check_says_what_a_good_file_means() {
    let folder = folder_with(any_port(), NOBODY, "");
    let valid = "vanward.toml: valid: 1 listener, 1 route, 1 upstream, 1 server\n";
    for arguments in [&["check"][..], &["check", "vanward.toml"]] {
        let ended = run_in(folder.path(), arguments).with_code(0);
        assert_eq!((ended.output.as_str(), ended.errors.as_str()), (valid, ""));
    }
    assert_eq!(run_in(folder.path(), &["check", "--json"]).with_code(0).output, "[]\n");
    let whole = run_in(folder.path(), &["check", "--print"]).with_code(0).output;
    std::fs::write(folder.path().join("whole.toml"), &whole).expect("it is writable");
    assert_eq!(run_in(folder.path(), &["check", "--print", "whole.toml"]).with_code(0).output, whole);
}

#[test]
fn check_says_which_route_a_request_takes() {
    let folder = folder_with(any_port(), NOBODY, "");
    let route = |url| run_in(folder.path(), &["check", "vanward.toml", "--route", "GET", url]);
    let taken = "   1. /: taken\n\nThe route is /: upstream app, round-robin over 1 server.\n";
    let ended = route("http://a.example/x").with_code(0);
    assert!(ended.output.ends_with(taken), "{}", ended.output);
    assert!(route("a.example").with_code(2).errors.contains("has no host"));
    let ended = run_in(folder.path(), &["check", "--json", "--route", "GET", "/"]).with_code(0);
    let found: serde_json::Value = serde_json::from_str(&ended.output).expect("it is JSON");
    assert_eq!(found["route"], "/");

    let text = std::fs::read_to_string(folder.path().join("vanward.toml")).expect("it is there");
    let elsewhere = text.replace("[[route]]", "[[route]]\nhost = \"b.example\"");
    std::fs::write(folder.path().join("vanward.toml"), elsewhere).expect("it is writable");
    assert!(route("http://a.example/x").with_code(1).output.ends_with("No route matches: 404.\n"));
}

#[test]
fn check_and_run_say_where_a_bad_file_is_wrong() {
    let folder = folder_with(any_port(), NOBODY, "workres = 2\n");
    let place = "vanward.toml:1:1: unknown key \"workres\"";
    for arguments in [&["check"][..], &["run"], &["run", "--config", "vanward.toml"]] {
        let ended = run_in(folder.path(), arguments).with_code(78);
        assert!(ended.errors.starts_with(place), "{arguments:?}: {}", ended.errors);
        assert!(
            ended.errors.contains("did you mean \"workers\"? Expected"),
            "{arguments:?}: {}",
            ended.errors
        );
        let excerpt = "\n    1 | workres = 2\n      | ^^^^^^^\n";
        assert!(ended.errors.ends_with(excerpt), "{arguments:?}: {}", ended.errors);
        assert_eq!(ended.output, "", "{arguments:?}");
    }
    let ended = run_in(folder.path(), &["check", "--json"]).with_code(78);
    let found: serde_json::Value = serde_json::from_str(&ended.output).expect("it is JSON");
    let first = &found[0];
    assert_eq!(
        (&first["severity"], &first["file"], &first["line"], &first["column"], &first["nearest"]),
        (&"mistake".into(), &"vanward.toml".into(), &1.into(), &1.into(), &"workers".into())
    );
    assert_eq!(found.as_array().map(Vec::len), Some(1), "{found}");
}

#[test]
fn a_missing_file_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for arguments in [&["check", "no.toml"][..], &["run", "--config", "no.toml"]] {
        let ended = run_in(folder.path(), arguments).with_code(78);
        // Relative paths begin at the folder of the process, so the absolute one is named.
        let absolute = folder.path().join("no.toml");
        let expected = format!("no.toml:1:1: {}: the file can't be read: ", absolute.display());
        assert!(ended.errors.starts_with(&expected), "{}", ended.errors);
    }
    let ended = run_in(folder.path(), &["check", "--json", "no.toml"]).with_code(78);
    assert!(ended.output.contains("the file can't be read"), "{}", ended.output);
}

#[test]
fn run_without_a_file_shows_one_that_works() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let said = run_in(folder.path(), &["run"]).with_code(78).errors;
    assert!(said.starts_with("vanward.toml:1:1: ") && said.contains("the file can't be read: "), "{said}");
    for remedy in ["--config FILE", "vanward check", "vanward proxy --from"] {
        assert!(said.contains(remedy), "{remedy} is missing in: {said}");
    }
    let example: String = said
        .lines()
        .skip_while(|line| !line.trim_start().starts_with("[[listen]]"))
        .map(|line| format!("{}\n", line.trim_start()))
        .collect();
    std::fs::write(folder.path().join("vanward.toml"), &example).expect("it is writable");
    run_in(folder.path(), &["check"]).with_code(0);
}

#[test]
fn a_port_that_is_taken_is_named_with_the_remedy() {
    let taken = TcpListener::bind(any_port()).expect("a port on loopback is free");
    let address = taken.local_addr().expect("it listens");
    let folder = folder_with(address, NOBODY, "");
    let text = address.to_string();
    let from_flags: &[&str] = &["proxy", "--from", &text, "--to", "http://127.0.0.1:1"];
    for arguments in [from_flags, &["run"]] {
        let said = run_in(folder.path(), arguments).with_code(1).errors;
        assert!(said.contains(&format!(" [error] cannot listen on {address}: ")), "{said}");
        assert!(said.contains("stop it or choose another port"), "{said}");
    }
}

/// A `vanward` whose standard error goes to a full disk.
fn unheard(arguments: &[&str]) -> Process {
    let script = "exec \"$0\" \"$@\" 2>/dev/full";
    Process::of(Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_vanward")]).args(arguments))
}

#[test]
fn a_full_disk_for_messages_ends_nothing() {
    let taken = TcpListener::bind(any_port()).expect("a port on loopback is free");
    let address = taken.local_addr().expect("it listens").to_string();
    unheard(&["proxy", "--from", &address, "--to", "http://127.0.0.1:1"]).ended().with_code(1);

    let folder = tempfile::tempdir().expect("a temporary folder");
    let admin = folder.path().join("admin");
    let socket = admin.to_str().expect("it is plain");
    let mut proxy =
        unheard(&["proxy", "--from", "127.0.0.1:0", "--to", "http://127.0.0.1:1", "--admin", socket]);
    let patience = Patience::new();
    while UnixStream::connect(&admin).is_err() {
        assert!(proxy.is_running(), "{:?}", proxy.ended());
        patience.wait_a_little("it does not serve its admin API");
    }
    proxy.signal(Signal::TERM);
    proxy.ended().with_code(0);
}

/// A configuration file has absolute paths; a flag is relative to the working directory.
#[test]
fn flags_may_name_files_of_the_working_directory() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let flags = ["--from", "127.0.0.1:0", "--to", "http://127.0.0.1:1", "--admin", "admin", "--log", "log"];
    let mut proxy = Process::start_in(folder.path(), &[&["proxy"], &flags[..]].concat());
    let status = get(proxy.address(), "/");
    assert!(status.starts_with("HTTP/1.1 502 "), "{status}");
    assert!(UnixStream::connect(folder.path().join("admin")).is_ok());
    proxy.signal(Signal::TERM);
    proxy.ended().with_code(0);
    let log = std::fs::read_to_string(folder.path().join("log")).expect("the log is there");
    assert_eq!(log.lines().count(), 1, "{log}");
}

/// A proxy from a file, between clients and a server of the test. Its drain takes an hour at most.
struct Scene {
    server: TcpListener,
    proxy: Process,
    address: SocketAddr,
    _folder: TempDir,
}

impl Scene {
    fn new() -> Self {
        let server = TcpListener::bind(any_port()).expect("a port on loopback is free");
        let behind = server.local_addr().expect("it listens");
        let folder = folder_with(any_port(), behind, "[timeouts]\ndrain = \"1h\"\n");
        let mut proxy = Process::start_in(folder.path(), &["run"]);
        let address = proxy.address();
        Self { server, proxy, address, _folder: folder }
    }

    /// Opens a client whose request has reached the server.
    fn under_way(&self) -> (TcpStream, TcpStream) {
        let mut client = connect(self.address);
        client.write_all(REQUEST).expect("the proxy reads");
        let (mut server, _) = self.server.accept().expect("the proxy connects");
        server.set_read_timeout(Some(PATIENCE)).expect("it is a socket");
        assert!(read_head(&mut server).starts_with("GET / HTTP/1.1\r\n"));
        (client, server)
    }

    fn until_connections_are_refused(&self) {
        let patience = Patience::new();
        while TcpStream::connect(self.address).is_ok() {
            patience.wait_a_little("connections are still accepted");
        }
    }
}

fn answered(client: &mut TcpStream) -> String {
    let head = read_head(client);
    let mut body = [0; 2];
    client.read_exact(&mut body).expect("the body arrives");
    assert_eq!(&body, b"ok");
    head
}

fn is_closed(mut client: TcpStream) {
    let mut rest = Vec::new();
    // A clean close or a reset both inform the client.
    let _ = client.read_to_end(&mut rest);
    assert_eq!(rest, b"");
}

#[test]
fn a_proxy_with_nothing_to_do_ends_when_asked() {
    for signal in [Signal::TERM, Signal::INT] {
        let scene = Scene::new();
        let (mut idle, mut server) = scene.under_way();
        server.write_all(RESPONSE).expect("the proxy reads");
        assert!(!answered(&mut idle).contains("Connection: close"));
        scene.proxy.signal(signal);
        let ended = scene.proxy.ended().with_code(0);
        assert!(ended.errors.contains("draining"), "{}", ended.errors);
        is_closed(idle);
    }
}

/// A proxy with an admin socket, and with a cache unless `cache` is `None`.
fn proxy_with_admin(cache: Option<&str>) -> (Process, TempDir) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (route, store) = cache.map_or(("", ""), |store| ("cache = {}\n", store));
    let text = format!(
        "admin = \"{}/admin\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n[[route]]\nupstream = \"app\"\n{route}\
         [upstream.app]\nservers = [\"http://{NOBODY}\"]\n{store}",
        folder.path().display()
    );
    std::fs::write(folder.path().join("vanward.toml"), text).expect("it is writable");
    let mut proxy = Process::start_in(folder.path(), &["run"]);
    proxy.address();
    (proxy, folder)
}

#[test]
fn what_is_stored_is_purged_by_a_command() {
    let (proxy, folder) = proxy_with_admin(Some("[cache]\nmemory = \"1MiB\"\n"));
    let purge = |arguments: &[&str]| run_in(folder.path(), &[&["cache", "purge"], arguments].concat());
    // A typing mistake is no success.
    let mistaken = ["http://test/a*", "test/b", "--tag", "nwes*", "--host", "test"];
    let said = purge(&mistaken).with_code(1);
    assert!(said.errors.contains("purged: nothing"), "{said:?}");
    assert!(said.errors.contains("pattern http://test/a*: nothing"), "{said:?}");
    assert!(said.errors.contains("`*` is not a pattern in a tag"), "{said:?}");
    purge(&[&mistaken[..], &["--allow-none"]].concat()).with_code(0);
    assert!(purge(&["--all", "--soft"]).with_code(0).errors.contains("made stale: nothing"));
    let json = purge(&["--prefix", "http://test/img/", "--json"]).with_code(1).output;
    let expected = r#"{"named":1,"responses":0,"met":[{"what":"prefixhttp://test/img/","responses":0}],"is_more_on_disk":false}"#;
    assert_eq!(json.split_whitespace().collect::<String>(), expected);
    assert!(purge(&[]).with_code(2).errors.contains("--tag <TAG>"));
    assert!(purge(&["ftp://test/"]).with_code(1).errors.contains("unsupported scheme"));
    proxy.signal(Signal::TERM);
    proxy.ended().with_code(0);
    let (proxy, folder) = proxy_with_admin(None);
    let said = run_in(folder.path(), &["cache", "purge", "--all"]).with_code(1);
    assert!(said.errors.contains("the configuration has no [cache]"), "{said:?}");
    proxy.signal(Signal::TERM);
    proxy.ended().with_code(0);
}

#[test]
fn rates_and_delays_are_changed_by_a_command() {
    let (proxy, folder) = proxy_with_admin(None);
    let shape = |arguments: &[&str]| run_in(folder.path(), &[&["shape"], arguments].concat());
    let set =
        shape(&["set", "route", "--rate", "5KB/s", "--delay", "2s±100ms", "--expires", "1h"]).with_code(0);
    assert!(set.errors.contains("route \"/\": rate 5KB/s, delay 2s±100ms; changed, expires in 3"), "{set:?}");
    assert!(shape(&["set", "upstream", "app", "--latency", "20ms"]).with_code(0).errors.contains("app"));
    let told = "route / rate 5KB/s, delay 2s±100ms changed, expires in 3";
    for said in [shape(&[]), run_in(folder.path(), &["status"])] {
        let words: Vec<&str> = said.output.split_whitespace().collect();
        assert!(words.join(" ").contains(told), "{said:?}");
    }
    assert!(shape(&["--json"]).with_code(0).output.contains("\"latency\": \"20ms\""));
    let refused = shape(&["set", "route", "/x", "--rate", "1MB/s"]).with_code(1);
    assert!(refused.errors.contains("no route is named \"/x\"; there is \"/\""), "{refused:?}");
    let cleared = shape(&["clear", "route", "/"]).with_code(0);
    assert!(cleared.errors.contains("1 place returned to the settings of the file"), "{cleared:?}");
    let cleared = run_in(folder.path(), &["faults", "clear"]).with_code(0);
    assert!(cleared.errors.contains("0 faults are removed"), "{cleared:?}");
    assert!(cleared.errors.contains("1 place returned"), "{cleared:?}");
    proxy.signal(Signal::TERM);
    proxy.ended().with_code(0);
}

#[test]
fn a_fault_that_an_earlier_one_hides_is_warned_of() {
    let (proxy, folder) = proxy_with_admin(None);
    let add = |arguments: &[&str]| {
        run_in(folder.path(), &[&["faults", "add"], arguments].concat()).with_code(0).errors
    };
    assert!(!add(&["50%:503"]).contains("warning"));
    assert!(!add(&["delay 1ms", "--path", "/a"]).contains("warning"));
    let said = add(&["cut 1KB", "--path", "/a"]);
    let warning =
        "\"cut 1KB\" has no effect, because the earlier fault \"delay 1ms\" affects every matching request";
    assert!(said.contains(warning), "{said}");
    proxy.signal(Signal::TERM);
    proxy.ended().with_code(0);
}

#[test]
fn a_request_under_way_is_finished_before_the_end() {
    let mut scene = Scene::new();
    let (mut client, mut server) = scene.under_way();
    scene.proxy.signal(Signal::TERM);
    scene.until_connections_are_refused();
    assert!(scene.proxy.is_running());
    server.write_all(RESPONSE).expect("the proxy reads");
    let head = answered(&mut client);
    assert!(head.contains("\r\nConnection: close\r\n"), "{head}");
    is_closed(client);
    scene.proxy.ended().with_code(0);
}

#[test]
fn a_second_signal_does_not_wait_for_what_is_under_way() {
    for second in [Signal::TERM, Signal::INT] {
        let scene = Scene::new();
        let (client, _server) = scene.under_way();
        scene.proxy.signal(Signal::TERM);
        scene.proxy.warns("draining");
        scene.until_connections_are_refused();
        scene.proxy.signal(second);
        scene.proxy.ended().with_code(0);
        is_closed(client);
    }
}

#[test]
fn chaos_serves_its_api_until_it_is_told_to_end() {
    let mut chaos = Process::start(&["chaos", "--listen", "127.0.0.1:0"]);
    let address = chaos.address();
    let ended = run(&["chaos", "--listen", &address.to_string()]).with_code(1);
    assert!(ended.errors.contains("another process listens there"), "{}", ended.errors);
    let mut client = connect(address);
    client.write_all(b"GET /proxies HTTP/1.1\r\nHost: test\r\n\r\n").expect("it listens");
    let mut response = String::new();
    client.read_to_string(&mut response).expect("it answers and closes");
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n") && response.ends_with("\r\n\r\n{}"), "{response}");
    chaos.signal(Signal::TERM);
    assert_eq!(chaos.ended().status.code(), Some(0));
}

#[test]
fn chaos_begins_with_the_proxies_of_a_file_or_says_where_it_is_wrong() {
    let folder = tempfile::tempdir().expect("there is room");
    let file = folder.path().join("chaos.json");
    let write = |key: &str| {
        let proxy = format!(r#"{{"name": "a", "listen": "127.0.0.1:0", "{key}": "127.0.0.1:1"}}"#);
        std::fs::write(&file, format!("[\n  {proxy}\n]\n")).expect("there is room");
    };
    let arguments = ["chaos", "--listen", "127.0.0.1:0", "--config", file.to_str().expect("is text")];
    write("upsteam");
    let ended = run(&arguments).with_code(78);
    assert!(ended.errors.contains("chaos.json:2:42: unknown key \"upsteam\""), "{}", ended.errors);
    assert!(ended.errors.contains("^^^^^^^^^"), "{}", ended.errors);
    write("upstream");
    let mut chaos = Process::start(&arguments);
    let mut client = connect(chaos.address());
    client.write_all(b"GET /proxies/a HTTP/1.1\r\nHost: test\r\n\r\n").expect("it listens");
    let mut response = String::new();
    client.read_to_string(&mut response).expect("it answers and closes");
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    chaos.signal(Signal::TERM);
    assert_eq!(chaos.ended().status.code(), Some(0));
}

/// Standard error of a running proxy, line by line, as supervisors collect it.
#[test]
fn messages_of_a_running_proxy_have_time_and_level_and_can_be_json() {
    let folder = folder_with(any_port(), NOBODY, "[messages]\nformat = \"json\"\n");
    let from_flags: &[&str] = &["run", "--message-format", "text"];
    for (arguments, is_json) in [(from_flags, false), (&["run"], true)] {
        let process = Process::start_in(folder.path(), arguments);
        process.warns("listening on 127.0.0.1:");
        process.signal(Signal::TERM);
        let ended = process.ended().with_code(0);
        assert!(ended.errors.contains("draining"), "{}", ended.errors);
        for line in ended.errors.lines() {
            let level = if line.contains("running as root") { "warn" } else { "info" };
            if is_json {
                let line: serde_json::Value = serde_json::from_str(line).expect("it is JSON");
                let members: Vec<&str> =
                    line.as_object().expect("it is an object").keys().map(String::as_str).collect();
                assert_eq!(members, ["level", "message", "time"], "{line}");
                assert_eq!((&line["level"], line["time"].as_str().map(str::len)), (&level.into(), Some(24)));
            } else {
                assert_eq!((line.as_bytes()[10], &line[23..32]), (b'T', &*format!("Z [{level}] ")), "{line}");
            }
        }
    }
    let arguments = &["run", "--message-level", "error"];
    let process = Process::start_in(folder.path(), arguments);
    process.signal(Signal::TERM);
    assert_eq!(process.ended().with_code(0).errors, "");
}
