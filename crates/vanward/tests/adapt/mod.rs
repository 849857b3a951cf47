//! `vanward adapt`: its output, and a comparison with the peers. A peer and Vanward with the translated file get
//! the same requests before one origin. Every difference must be in a list with its reason.

/// Requests and responses.
mod asked;
/// Requests for the branches of single samples.
mod branches;
/// Requests for samples with maps and variables.
mod mapped;
/// The origin behind both.
mod origin;
/// Proofs.
#[cfg(feature = "lab")]
mod proved;
/// `vanward capture`.
#[cfg(feature = "lab")]
mod captured;
/// Starts peers.
mod peers;
/// Differences that have a reason.
mod reasons;

use std::net::SocketAddr;
use std::path::Path;

use testkit::php_fpm::PhpFpm;

use crate::process::{Process, run, run_in};
use asked::{ask, asks};
use peers::{Peer, free_address, installed, site};
use reasons::Pair;

const HOSTS: [&str; 4] = ["app.example.com", "a.example.com", "x.b.example.com", "shop7.example.com"];

/// A front controller, another script, and files beside them.
const SCRIPTS: [(&str, &str); 5] = [
    (
        "index.php",
        "<?php echo $_SERVER['SCRIPT_NAME'], ' ', $_SERVER['REQUEST_URI'], ' ', getenv('APP_ENV');",
    ),
    ("admin/index.php", "<?php http_response_code(201); echo $_SERVER['SCRIPT_NAME'];"),
    ("a.php", "<?php echo $_SERVER['SCRIPT_NAME'], ' ', $_SERVER['QUERY_STRING'];"),
    ("style.css", "p { color: red }\n"),
    ("docs/index.html", "<p>docs\n"),
];

#[test]
fn nginx_and_vanward_with_its_adapted_file_answer_alike() {
    alike(Peer::Nginx);
}

#[test]
fn haproxy_and_vanward_with_its_adapted_file_answer_alike() {
    alike(Peer::Haproxy);
}

#[test]
fn caddy_and_vanward_with_its_adapted_file_answer_alike() {
    alike(Peer::Caddy);
}

#[test]
fn varnish_and_vanward_with_its_adapted_file_answer_alike() {
    alike(Peer::Varnish);
}

#[test]
fn squid_and_vanward_with_its_adapted_file_answer_alike() {
    alike(Peer::Squid);
}

#[test]
fn apache_and_vanward_with_its_adapted_file_answer_alike() {
    alike(Peer::Apache);
}

#[test]
#[ignore = "Debian has no Pound any more: for those who have built one"]
fn pound_and_vanward_with_its_adapted_file_answer_alike() {
    alike(Peer::Pound);
}

#[test]
#[ignore = "Debian has no Traefik: `cargo xtask adapt` installs it, and runs this"]
fn traefik_and_vanward_with_its_adapted_files_answer_alike() {
    alike(Peer::Traefik);
}

fn alike(peer: Peer) {
    let Some(program) = installed(peer.program()) else { return };
    let origins = [origin::origin(), origin::second()];
    let unexplained: Vec<String> = std::thread::scope(|scope| {
        let runs: Vec<_> = peer
            .samples()
            .iter()
            .map(|sample| scope.spawn(|| beside(peer, &program, sample, origins)))
            .collect();
        runs.into_iter().flat_map(|run| run.join().expect("a sample runs")).collect()
    });
    let shown = unexplained.iter().take(40).cloned().collect::<Vec<_>>().join("\n");
    assert!(unexplained.is_empty(), "{} differences without a reason:\n{shown}", unexplained.len());
}

/// Returns the differences of one sample that have no reason.
fn beside(peer: Peer, program: &Path, sample: &str, [origin, second]: [SocketAddr; 2]) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (mine, theirs) = (free_address(), free_address());
    site(folder.path());
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../adapt/samples/{}/{sample}", peer.word()));
    let text = std::fs::read_to_string(&path).expect("the sample is there");
    let php = if text.contains("@PHP_SOCKET@") {
        let Some(php) = PhpFpm::start_on_demand(&SCRIPTS) else { return Vec::new() };
        Some((php.socket().display().to_string(), php.root().display().to_string(), php))
    } else {
        None
    };
    let (socket, scripts) = php.as_ref().map_or(("", ""), |(socket, root, _)| (socket, root));
    // These name a server by address and port; Varnish gets its own address on the command line.
    let names_server = matches!(peer, Peer::Varnish | Peer::Squid);
    let place = |listen: SocketAddr| if names_server { origin } else { listen };
    let filled = |listen: SocketAddr| {
        text.replace("@LISTEN@", &listen.to_string())
            .replace("@IP@", &place(listen).ip().to_string())
            .replace("@PORT@", &place(listen).port().to_string())
            .replace("@SECOND_PORT@", &second.port().to_string())
            .replace("@ORIGIN_IP@", &origin.ip().to_string())
            .replace("@ORIGIN_PORT@", &origin.port().to_string())
            .replace("@ORIGIN@", &origin.to_string())
            .replace("@ORIGIN2@", &origin.to_string())
            .replace("@PHP_SOCKET@", socket)
            .replace("@PHP_ROOT@", scripts)
            .replace("@DIR@", &folder.path().display().to_string())
    };
    // Maps and lists.
    for file in std::fs::read_dir(path.with_file_name("files")).into_iter().flatten().flatten() {
        std::fs::copy(file.path(), folder.path().join(file.file_name())).expect("it is writable");
    }
    // The second file of Traefik.
    let dynamic = path.with_extension("dynamic.yml");
    if dynamic.is_file() {
        let dynamic = std::fs::read_to_string(dynamic).expect("the sample is there");
        let filled =
            dynamic.replace("@ORIGIN@", &origin.to_string()).replace("@ORIGIN2@", &origin.to_string());
        std::fs::write(folder.path().join("dynamic.yml"), filled).expect("it is writable");
    }
    let _peer = peer.start(program, folder.path(), &filled(theirs), theirs);
    std::fs::write(folder.path().join("mine.conf"), filled(mine)).expect("it is writable");
    run_in(folder.path(), &["adapt", peer.word(), "mine.conf", "-o", "vanward.toml"]).with_code(0);
    let made = std::fs::read_to_string(folder.path().join("vanward.toml")).expect("it was written");
    let made = made.replace("\"*:6081\"", &format!("\"{mine}\""));
    std::fs::write(folder.path().join("vanward.toml"), made).expect("it is writable");
    let mut vanward = Process::start_in(folder.path(), &["run", "--config", "vanward.toml"]);
    vanward.address();
    let mut unexplained = Vec::new();
    let of_sample = branches::of_sample(sample).into_iter().chain(mapped::of_sample(sample));
    for one in asks(&HOSTS).into_iter().chain(of_sample) {
        let pair = Pair { peer, ask: &one, theirs: ask(theirs, &one), mine: ask(mine, &one) };
        if pair.theirs != pair.mine && pair.reason().is_none() {
            let Pair { theirs, mine, .. } = &pair;
            let shown: String = format!("{one:?}").chars().take(200).collect();
            unexplained.push(format!("{sample}: {shown}\n    {theirs:?}\n    {mine:?}"));
        }
    }
    unexplained
}

#[test]
fn a_translation_is_reported_and_never_overwrites_a_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let text =
        "server {\n  listen 127.0.0.1:8080;\n  include more/*.conf;\n  location / { fastcgi_pass a; }\n}\n";
    std::fs::create_dir(folder.path().join("more")).expect("it is writable");
    std::fs::write(folder.path().join("more/a.conf"), "sendfile on;\n").expect("it is writable");
    std::fs::write(folder.path().join("n.conf"), text).expect("it is writable");
    let made = run_in(folder.path(), &["adapt", "nginx", "n.conf"]).with_code(0);
    assert!(made.output.contains("address = \"127.0.0.1:8080\"  # n.conf:2 listen\n"), "{}", made.output);
    assert!(made.errors.contains("n.conf:4: not taken over: fastcgi_pass a: "), "{}", made.errors);
    assert!(made.errors.contains("more/a.conf:1: needs nothing: sendfile on: "), "{}", made.errors);
    let summary = "n.conf: 6 directives: 3 taken over, 2 need nothing, 1 not taken over (listed above)\n";
    assert!(made.errors.ends_with(summary), "{}", made.errors);
    let checked = run_in(folder.path(), &["adapt", "nginx", "--check", "n.conf"]).with_code(1);
    assert_eq!((checked.output.as_str(), checked.errors), ("", made.errors));
    let write = ["adapt", "nginx", "n.conf", "-o", "v.toml"];
    run_in(folder.path(), &write).with_code(0);
    assert!(run_in(folder.path(), &write).with_code(1).errors.contains("--force overwrites it"));
    run_in(folder.path(), &["adapt", "nginx", "n.conf", "-o", "v.toml", "--force"]).with_code(0);
    let json = run_in(folder.path(), &["adapt", "nginx", "n.conf", "--json"]).with_code(0).output;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&json["directives"], &json["taken"], &json["not_taken"]), (&6.into(), &3.into(), &1.into()));
    assert_eq!(json["toml"], made.output);
}

#[test]
fn a_file_missing_for_several_routes_is_reported_once() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let text = "server {\n  listen 127.0.0.1:8080;\n  error_page 502 /50x.html;\n  location / { proxy_pass http://127.0.0.1:1; }\n  \
                location /a/ { proxy_pass http://127.0.0.1:1; }\n  location = /50x.html { root /nowhere; }\n}\n";
    std::fs::write(folder.path().join("n.conf"), text).expect("it is writable");
    let said = run_in(folder.path(), &["adapt", "nginx", "n.conf"]).with_code(0).errors;
    let missing: Vec<&str> = said.lines().filter(|line| line.contains("/nowhere/50x.html")).collect();
    let [missing] = missing[..] else { panic!("{said}") };
    assert!(missing.starts_with("in the result: ") && missing.contains(" (3 places: also at "), "{missing}");
}

#[test]
fn wrong_syntax_has_its_place() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("n.conf"), "server {\n  listen 80\n}\n").expect("it is writable");
    let ended = run_in(folder.path(), &["adapt", "nginx", "n.conf"]).with_code(78);
    assert!(
        ended.errors.starts_with("n.conf:2:3: the directive \"listen\" does not end; expected a ;"),
        "{}",
        ended.errors
    );
    assert!(run(&["adapt", "nginx", "/nowhere"]).with_code(1).errors.contains("it cannot be read"));
    run(&["adapt", "lighttpd", "n.conf"]).with_code(2);
}
