//! A configuration of several files with variables and secrets: a start, reloads and an upgrade read all of them.

use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use crate::process::{Patience, Process, get, run_in};

fn write(folder: &Path, file: &str, text: &str) {
    std::fs::write(folder.join("next"), text).expect("it is writable");
    std::fs::rename(folder.join("next"), folder.join(file)).expect("it is writable");
}

#[test]
fn every_way_to_read_the_configuration_reads_all_of_its_files() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path();
    std::fs::create_dir(path.join("conf.d")).expect("it is writable");
    write(
        path,
        "vanward.toml",
        "include = \"conf.d/*.toml\"\nworkers = 1\n[[listen]]\naddress = \"127.0.0.1:${PORT:-0}\"\n",
    );
    write(path, "conf.d/00-admin.toml", &format!("admin = \"{}\"\n", path.join("admin").display()));
    let site = "[[route]]\nrespond = { status = 200, body = \"${WORD} ${file:../secret}\" }\n";
    write(path, "conf.d/10-site.toml", site);
    let secret = |text: &str| {
        write(path, "secret", text);
        let owner = PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(path.join("secret"), owner).expect("it is there");
    };
    secret("one\n");
    // A check needs the variables, too, but a command for the running proxy does not.
    let unset = run_in(path, &["check"]).with_code(78);
    assert!(unset.errors.starts_with("conf.d/10-site.toml:2:35: WORD is not set; "), "{}", unset.errors);

    let mut command = Command::new(env!("CARGO_BIN_EXE_vanward"));
    let command = command.args(["run", "--pid-file", "pid"]).env("WORD", "first").current_dir(path);
    let mut proxy = Process::of(command);
    let address = proxy.address();
    assert!(get(address, "/").ends_with("\r\n\r\nfirst one"));

    secret("two\n");
    write(
        path,
        "conf.d/20-more.toml",
        "[[route]]\npath = \"/more\"\nrespond = { status = 200, body = \"more\" }\n",
    );
    run_in(path, &["reload"]).with_code(0);
    assert!(get(address, "/").ends_with("\r\n\r\nfirst two"));
    assert!(get(address, "/more").ends_with("\r\n\r\nmore"));

    write(path, "conf.d/20-more.toml", "[[route]]\npath = \"/more\"\nrespond = { status = 99 }\n");
    let ended = run_in(path, &["reload"]).with_code(78);
    assert!(ended.errors.starts_with("conf.d/20-more.toml:3:22: status: 99 "), "{}", ended.errors);
    proxy.signal(Signal::HUP);
    proxy.warns("not reloaded, nothing has changed: conf.d/20-more.toml:3:22: status: 99 ");

    write(
        path,
        "conf.d/20-more.toml",
        "[[route]]\npath = \"/more\"\nrespond = { status = 200, body = \"signal\" }\n",
    );
    proxy.signal(Signal::HUP);
    let patience = Patience::new();
    while !get(address, "/more").ends_with("\r\n\r\nsignal") {
        patience.wait_a_little("SIGHUP reads no included file");
    }

    secret("three");
    upgraded(path, &proxy, || get(address, "/").ends_with("\r\n\r\nfirst three"));
    proxy.ended().with_code(0);
}

/// Upgrades, waits until the new process `answers`, and ends it. Both processes accept connections for a moment:
/// the first one stops once the other has reported that it serves.
fn upgraded(path: &Path, proxy: &Process, answers: impl Fn() -> bool) {
    let patience = Patience::new();
    let process = || std::fs::read_to_string(path.join("pid")).unwrap_or_default().trim().to_owned();
    let before = process();
    proxy.signal(Signal::USR2);
    while process() == before || process().is_empty() {
        patience.wait_a_little("no other process takes over");
    }
    while !answers() {
        patience.wait_a_little("the other process does not answer by its own configuration");
    }
    let next = Pid::from_raw(process().parse().expect("a number")).expect("a process has a number");
    kill_process(next, Signal::TERM).expect("it runs");
    while path.join("pid").exists() {
        patience.wait_a_little("the last process does not end");
    }
}

/// A server that is `down` in the file returns by command, and the status shows that.
#[test]
fn servers_that_are_out_in_the_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path();
    let text = format!(
        "admin = \"{}\"\nworkers = 1\n[[listen]]\naddress = \"127.0.0.1:0\"\n[[route]]\nupstream = \"app\"\n\
         [upstream.app]\nservers = [\"http://127.0.0.1:1\", {{ url = \"http://127.0.0.1:2\", weight = 0 }}, \
         {{ url = \"http://127.0.0.1:3\", down = true }}]\n",
        path.join("admin").display()
    );
    write(path, "vanward.toml", &text);
    let mut proxy = Process::start_in(path, &["run"]);
    proxy.address();
    let servers = || {
        let status = run_in(path, &["status", "--json"]).with_code(0).output;
        let status: serde_json::Value = serde_json::from_str(&status).expect("it is JSON");
        let servers = status["upstreams"][0]["servers"].as_array().expect("a list").clone();
        let told =
            |server: &serde_json::Value| format!("{} {}", server["state"], server["weight"]).replace('"', "");
        (servers.iter().map(told).collect::<Vec<_>>(), servers[2]["reason"].clone())
    };
    assert_eq!(
        servers(),
        (["up 1", "draining 0", "down 1"].map(str::to_owned).into(), "down in the file".into())
    );
    let refused = run_in(path, &["restore", "--server", "127.0.0.1:2"]).with_code(1);
    assert!(refused.errors.contains("has weight 0: set another weight with vanward weigh"), "{refused:?}");
    run_in(path, &["weigh", "--server", "127.0.0.1:2", "--weight", "5"]).with_code(0);
    run_in(path, &["restore", "--server", "127.0.0.1:3"]).with_code(0);
    assert_eq!(servers().0, ["up 1", "up 5", "up 1"]);
    // As all operators' changes, it survives a reload.
    run_in(path, &["reload"]).with_code(0);
    assert_eq!(servers().0, ["up 1", "up 5", "up 1"]);
    run_in(path, &["weigh", "--server", "127.0.0.1:1", "--weight", "0"]).with_code(0);
    run_in(path, &["drain", "--server", "127.0.0.1:3"]).with_code(0);
    assert_eq!(servers().0, ["draining 0", "up 5", "draining 1"]);
    proxy.signal(Signal::TERM);
    proxy.ended().with_code(0);
}
