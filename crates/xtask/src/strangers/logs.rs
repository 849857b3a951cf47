//! The access log with other programs: rsyslog receives it over a local socket, UDP, TCP and TLS, and GoAccess
//! reads its files. One proxy writes all logs at once.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::process::{Process, free_address};
use super::programs::{self, CURL, GOACCESS, RSYSLOGD, run};
use super::subject::{self, PairFiles};
use crate::say;
use crate::scratch::Scratch;
use crate::workspace::Workspace;

const REQUESTS: usize = 50;
/// Existing targets, and one that gets 404.
const PATHS: [&str; 3] = ["/tiny?page=2", "/tiny?q=%22%C3%A9", "/nothing"];
const USER_AGENT: &str = "a \"quoted\" agent \\ with é";
/// The name of rsyslog's input by transport.
const INPUTS: [&str; 4] = ["imuxsock", "udp", "tcp", "tls"];
/// The logs in files, for GoAccess.
const FILES: [&str; 3] = ["combined", "virtual hosts", "json"];
const VIRTUAL_HOSTS: &str =
    r#"$host $client - $user [$time.common] "$request" $status $body_bytes_sent "$referer" "$user_agent""#;
const JSON: &str = r#"{"at":$time,"ip":$client,"method":$method,"path":$target,"status":"$status","bytes":"$bytes_sent","agent":$user_agent,"took":"$duration_s"}"#;
/// The JSON format in GoAccess's syntax.
const JSON_READ: &str = r#"{"at":"%dT%t.%^","ip":"%h","method":"%m","path":"%U","status":"%s","bytes":"%b","agent":"%u","took":"%T"}"#;
const LIMIT: Duration = Duration::from_secs(60);
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

pub(super) fn check(workspace: &Workspace, scratch: &Scratch) -> Result<(), String> {
    let folder = scratch.path();
    let vanward = programs::build_vanward(workspace)?;
    let pair = PairFiles::of_no_authority(folder)?;
    let receiver = Receiver::start(&pair, folder)?;
    let (_origin, server) = subject::origin(&vanward, folder)?;
    let (proxy, address) = proxy(&vanward, server, &receiver, &pair, folder)?;
    requests(address, folder)?;
    received(&receiver.got)?;
    FILES.iter().try_for_each(|name| written(&folder.join(name)))?;
    drop(proxy);
    counted("combined", "COMBINED", folder)?;
    counted("virtual hosts", "VCOMBINED", folder)?;
    counted("json", JSON_READ, folder)
}

/// A rsyslogd that writes each message as parsed.
struct Receiver {
    socket: PathBuf,
    udp: SocketAddr,
    tcp: SocketAddr,
    tls: SocketAddr,
    got: PathBuf,
    _process: Process,
}

impl Receiver {
    fn start(PairFiles { cert, key }: &PairFiles, folder: &Path) -> Result<Self, String> {
        let [udp, tcp, tls] = [free_address()?, free_address()?, free_address()?];
        let (socket, got, file) =
            (folder.join("log.socket"), folder.join("got"), folder.join("rsyslog.conf"));
        let text = format!(
            "global(workDirectory={folder:?} defaultNetstreamDriverCAFile={cert:?} defaultNetstreamDriverCertFile={cert:?}\n\
             \x20 defaultNetstreamDriverKeyFile={key:?})\n\
             module(load=\"imuxsock\" SysSock.Use=\"off\")\nmodule(load=\"imudp\")\nmodule(load=\"imtcp\")\n\
             template(name=\"got\" type=\"string\" string=\"%inputname% %pri% %app-name% %msgid% %msg%\\n\")\n\
             input(type=\"imuxsock\" Socket={socket:?} ruleset=\"keep\" useSpecialParser=\"off\" parseHostname=\"on\")\n\
             input(type=\"imudp\" address=\"127.0.0.1\" port=\"{}\" ruleset=\"keep\" name=\"udp\")\n\
             input(type=\"imtcp\" address=\"127.0.0.1\" port=\"{}\" ruleset=\"keep\" name=\"tcp\")\n\
             input(type=\"imtcp\" address=\"127.0.0.1\" port=\"{}\" ruleset=\"keep\" name=\"tls\"\n\
             \x20 streamDriver.Name=\"ossl\" streamDriver.Mode=\"1\" streamDriver.AuthMode=\"anon\")\n\
             ruleset(name=\"keep\") {{ action(type=\"omfile\" file={got:?} template=\"got\") }}\n",
            udp.port(),
            tcp.port(),
            tls.port()
        );
        subject::write(&file, &text)?;
        let mut command = Command::new(RSYSLOGD.find()?);
        command.arg("-n").arg("-f").arg(&file).arg("-i").arg(folder.join("rsyslog.pid"));
        let process = Process::start("rsyslog", &mut command, folder)?.listening_on(tls)?;
        Ok(Self { socket, udp, tcp, tls, got, _process: process })
    }
}

fn proxy(
    vanward: &Path,
    server: SocketAddr,
    receiver: &Receiver,
    pair: &PairFiles,
    folder: &Path,
) -> Result<(Process, SocketAddr), String> {
    let file = folder.join("logging.toml");
    let socket = receiver.socket.display();
    let targets = [
        format!("syslog:{socket}"),
        format!("syslog:udp://{}", receiver.udp),
        format!("syslog:tcp://{}", receiver.tcp),
        format!("syslog:tls://localhost:{}", receiver.tls.port()),
    ];
    let mut text = format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\n[[route]]\nupstream = \"app\"\n[upstream.app]\nservers = [\"http://{server}\"]\n"
    );
    for target in &targets {
        let ca = if target.contains("tls:") { format!(", ca = {:?}", pair.cert) } else { String::new() };
        text += &format!(
            "[[log]]\ntarget = {target:?}\nformat = '$status \"$request\" \"$user_agent\"'\nsyslog = {{ app_name = \"edge\"{ca} }}\n"
        );
    }
    for (name, format) in FILES.into_iter().zip(["combined", VIRTUAL_HOSTS, JSON]) {
        text += &format!("[[log]]\ntarget = {:?}\nformat = '{format}'\n", folder.join(name));
    }
    subject::write(&file, &text)?;
    let mut command = Command::new(vanward);
    command.arg("run").arg("--config").arg(&file);
    let mut process = Process::start("logging", &mut command, folder)?;
    let address = process.addresses()?.first().copied().ok_or("the proxy listens nowhere")?;
    Ok((process, address))
}

fn requests(address: SocketAddr, folder: &Path) -> Result<(), String> {
    let mut curl = Command::new(CURL.find()?);
    curl.args(["--silent", "--max-time", "60", "--user-agent", USER_AGENT]);
    for path in PATHS.iter().cycle().take(REQUESTS) {
        curl.arg("--output").arg("/dev/null").arg(format!("http://{address}{path}"));
    }
    run("curl", &mut curl, folder, LIMIT)
}

/// Waits until rsyslog has each message of each input, and checks how it parsed them.
fn received(got: &Path) -> Result<(), String> {
    let expected = r#" 134 edge access 404 "GET /nothing HTTP/1.1" "a \"quoted\" agent \\ with \xc3\xa9""#;
    let of = |said: &str, input: &str| {
        said.lines().filter(|line| line.starts_with(&format!("{input} 134 edge access "))).count()
    };
    let said = until(got, |said| INPUTS.iter().all(|input| of(said, input) == REQUESTS))?;
    let missing = INPUTS.iter().find(|input| !said.lines().any(|line| line == format!("{input}{expected}")));
    if let Some(input) = missing {
        return Err(format!("rsyslog has parsed other values over {input}:\n{said}"));
    }
    say(format_args!("rsyslog: {REQUESTS} messages over each of {}", INPUTS.join(", ")));
    Ok(())
}

fn written(log: &Path) -> Result<(), String> {
    until(log, |said| said.lines().count() == REQUESTS).map(drop)
}

fn until(file: &Path, is_there: impl Fn(&str) -> bool) -> Result<String, String> {
    let began = Instant::now();
    loop {
        let said = fs::read_to_string(file).unwrap_or_default();
        if is_there(&said) {
            return Ok(said);
        }
        if began.elapsed() > LIMIT {
            return Err(format!("{} does not have all {REQUESTS} requests:\n{said}", file.display()));
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
}

/// Runs GoAccess on a file, and checks that it parses every line.
fn counted(name: &str, format: &str, folder: &Path) -> Result<(), String> {
    let (log, report) = (folder.join(name), folder.join("report.json"));
    let mut goaccess = Command::new(GOACCESS.find()?);
    goaccess.arg(&log).args(["--no-global-config", "--log-format", format]);
    goaccess
        .args(["--date-format", date_format(format), "--time-format", "%H:%M:%S", "--output"])
        .arg(&report);
    run("goaccess", &mut goaccess, folder, LIMIT)?;
    let text = fs::read_to_string(&report).map_err(|error| format!("{}: {error}", report.display()))?;
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| format!("its report: {error}"))?;
    let general = &value["general"];
    let found = ["total_requests", "valid_requests", "failed_requests", "unique_not_found"]
        .map(|key| general[key].as_u64());
    if found != [Some(REQUESTS as u64), Some(REQUESTS as u64), Some(0), Some(1)] {
        let lines = fs::read_to_string(&log).unwrap_or_default();
        return Err(format!("GoAccess has read {name} as {general:#}:\n{lines}"));
    }
    say(format_args!("GoAccess: {REQUESTS} lines of {name}, each understood"));
    Ok(())
}

fn date_format(format: &str) -> &'static str {
    if format.starts_with('{') { "%Y-%m-%d" } else { "%d/%b/%Y" }
}
