//! The examples of live lists of addresses. The action of fail2ban runs by its commands, the script for CrowdSec with a
//! local API of this check, and a file of countries is replaced.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use super::fleet::until;
use super::process::{Process, free_address};
use super::programs::PYTHON;
use super::{http, subject};
use crate::say;
use crate::workspace::Workspace;

const FOLDER: &str = "examples/ip-lists";
/// The address of all requests here.
const CLIENT: &str = "127.0.0.1";
const KEY: &str = "a-key-of-tests";

pub(super) fn check(workspace: &Workspace, vanward: &Path, folder: &Path) -> Result<(), String> {
    let (_origin, origin) = subject::origin(vanward, folder)?;
    let scene = ListScene {
        examples: workspace.root.join(FOLDER),
        vanward: vanward.to_owned(),
        folder: folder.to_owned(),
        origin,
    };
    scene.fail2ban()?;
    scene.crowdsec()?;
    scene.countries()
}

struct ListScene {
    examples: PathBuf,
    vanward: PathBuf,
    folder: PathBuf,
    origin: SocketAddr,
}

impl ListScene {
    fn example(&self, name: &str) -> Result<String, String> {
        let path = self.examples.join(name);
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn admin(&self) -> PathBuf {
        self.folder.join("admin.sock")
    }

    fn countries_file(&self) -> PathBuf {
        self.folder.join("countries.csv")
    }

    /// Checks an example and runs it at an address, with folders of this check.
    fn start(&self, name: &str, address: SocketAddr) -> Result<Process, String> {
        let text = self
            .example(name)?
            .replace("0.0.0.0:80", &address.to_string())
            .replace("127.0.0.1:9000", &self.origin.to_string())
            .replace("/run/vanward/admin.sock", &self.admin().display().to_string())
            .replace("/var/lib/vanward/countries.csv", &self.countries_file().display().to_string());
        let file = self.folder.join(name);
        fs::write(&file, text).map_err(|error| error.to_string())?;
        self.run(Command::new(&self.vanward).arg("check").arg(&file))?;
        let mut command = Command::new(&self.vanward);
        command.args(["run", "--config"]).arg(&file);
        Process::start(name, &mut command, &self.folder)?.listening_on(address)
    }

    /// Returns the output of a command that succeeds.
    fn run(&self, command: &mut Command) -> Result<String, String> {
        let output = command.output().map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(text);
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        Err(format!("{command:?} ended with {}:\n{text}{errors}", output.status))
    }

    fn map(&self, words: &[&str]) -> Result<String, String> {
        self.run(Command::new(&self.vanward).arg("map").args(words).arg("--socket").arg(self.admin()))
    }

    fn fail2ban(&self) -> Result<(), String> {
        let address = free_address()?;
        let _proxy = self.start("fail2ban.toml", address)?;
        let action = self.example("fail2ban-vanward.conf")?;
        let path = std::env::var("PATH").unwrap_or_default();
        let programs = self.vanward.parent().unwrap_or(Path::new("/")).display().to_string();
        let act = |name: &str, seconds: &str| {
            let command = setting(&action, name)?
                .replace("<map>", setting(&action, "map")?)
                .replace("<socket>", &self.admin().display().to_string())
                .replace("<ip>", CLIENT)
                .replace("<bantime>", seconds);
            self.run(Command::new("sh").args(["-c", &command]).env("PATH", format!("{programs}:{path}")))
        };
        expect(address, "/", 200)?;
        for (seconds, ends) in [("600", true), ("-1", false)] {
            act("actionban", seconds)?;
            expect(address, "/", 403)?;
            let shown = self.map(&["show", "banned"])?;
            if shown.contains("ends in ") != ends {
                return Err(format!("a ban for {seconds} s:\n{shown}"));
            }
            act("actionunban", seconds)?;
            expect(address, "/", 200)?;
        }
        say("fail2ban: its action bans an address for a time or for ever, and lets it in again");
        Ok(())
    }

    fn crowdsec(&self) -> Result<(), String> {
        let address = free_address()?;
        let proxy = self.start("crowdsec.toml", address)?;
        let api = LocalApi::start()?;
        let decision = |scope: &str, value: &str, kind: &str, duration: &str| json!({ "scope": scope, "value": value, "type": kind, "duration": duration, "origin": "cscli" });
        let client = decision("Ip", CLIENT, "ban", "3h59m49.264032632s");
        let network = decision("Range", "192.0.2.9/24", "ban", "1h0m0s");
        let captcha = decision("Ip", "198.51.100.1", "captcha", "1h0m0s");
        let ended = decision("Ip", "198.51.100.2", "ban", "-3m2s");
        self.map(&["set", "crowdsec", "203.0.113.9"])?;
        api.set_all(&[&client, &network, &captcha, &ended]);
        let mut script = Command::new(PYTHON.find()?);
        script.arg(self.examples.join("crowdsec.py")).env("CROWDSEC_KEY", KEY);
        script.env("CROWDSEC_URL", format!("http://{}", api.address)).env("VANWARD_ADMIN", self.admin());
        script.env("CROWDSEC_INTERVAL", "0.1");
        let script = Process::start("crowdsec", &mut script, &self.folder)?;
        let said = |what: &str| format!("{what}; the script said: {}", script.said());
        let gets = |what: &str, status: u16| {
            until(what, || Ok(status_of(address, "/")? == Some(status))).map_err(|why| said(&why))
        };
        gets("the decisions are in force", 403)?;
        let shown = self.map(&["show", "crowdsec"])?;
        let mut keys: Vec<&str> =
            shown.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
        keys.sort_unstable();
        if keys != ["127.0.0.1/32", "192.0.2.0/24"] || shown.matches("ends in ").count() != 2 {
            return Err(format!("after the first decisions, the map has:\n{shown}"));
        }
        api.tell(json!({ "new": null, "deleted": [client] }));
        gets("a deleted decision has ended", 200)?;
        let wide = decision("Range", "127.0.0.0/8", "ban", "30m");
        api.set_all(&[&wide]);
        api.tell(json!({ "new": [wide], "deleted": null }));
        gets("a new decision is in force", 403)?;
        drop(proxy);
        let _proxy = self.start("crowdsec.toml", address)?;
        gets("another process has the decisions", 403)?;
        say("CrowdSec: the script follows the local API, also after a restart of the proxy");
        Ok(())
    }

    fn countries(&self) -> Result<(), String> {
        let put = |text: &str| {
            let new = self.folder.join("countries.new");
            fs::write(&new, text).and_then(|()| fs::rename(&new, self.countries_file()))
        };
        put(&self.example("countries.csv")?).map_err(|error| error.to_string())?;
        let address = free_address()?;
        let proxy = self.start("countries.toml", address)?;
        expect(address, "/shop", 451)?;
        put("network,country\n127.0.0.0/8,AT\n").map_err(|error| error.to_string())?;
        // An open shop is a 404 here, because the server has no such page.
        until("the new file is in force", || Ok(status_of(address, "/shop")? == Some(404)))?;
        put("network,country\n127.0.0.0/8,AT\nnonsense,CH\n").map_err(|error| error.to_string())?;
        until("the mistake is reported", || Ok(proxy.said().contains("line 3")))?;
        expect(address, "/shop", 404)?;
        say("countries: a file that is replaced is in force, and one with a mistake changes nothing");
        Ok(())
    }
}

/// A setting of fail2ban's file.
fn setting<'a>(text: &'a str, name: &str) -> Result<&'a str, String> {
    let mut settings = text.lines().filter_map(|line| line.split_once(" = "));
    settings.find(|(known, _)| *known == name).map(|(_, value)| value).ok_or_else(|| format!("no {name}"))
}

/// The status of a response; `None` if the proxy has just ended.
fn status_of(address: SocketAddr, target: &str) -> Result<Option<u16>, String> {
    let response = http::get(address, "shop.example", target)?;
    Ok(response.split(' ').nth(1).and_then(|status| status.parse().ok()))
}

fn expect(address: SocketAddr, target: &str, status: u16) -> Result<(), String> {
    match status_of(address, target)? {
        Some(got) if got == status => Ok(()),
        got => Err(format!("{target} should get {status}, and gets {got:?}")),
    }
}

/// CrowdSec's local API: all decisions at the start, then changes.
struct LocalApi {
    address: SocketAddr,
    state: Arc<Mutex<ApiState>>,
}

struct ApiState {
    all: Value,
    /// Changes for the next question, if there are any.
    changes: Option<Value>,
}

impl LocalApi {
    fn start() -> Result<Self, String> {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let state = Arc::new(Mutex::new(ApiState { all: json!([]), changes: None }));
        let served = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that has left gets no answer.
                let _ = answer(stream, &served);
            }
        });
        Ok(Self { address, state })
    }

    fn set_all(&self, decisions: &[&Value]) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).all = json!(decisions);
    }

    fn tell(&self, changes: Value) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).changes = Some(changes);
    }
}

fn answer(mut stream: TcpStream, state: &Mutex<ApiState>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut first, mut is_known) = (String::new(), false);
    reader.read_line(&mut first)?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        is_known |= line.trim_end().eq_ignore_ascii_case(&format!("x-api-key: {KEY}"));
        if line.trim_end().is_empty() {
            break;
        }
    }
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    let (status, body) = match first.split(' ').nth(1) {
        Some(target) if is_known && target.starts_with("/v1/decisions/stream?startup=true") => {
            state.changes = None;
            (200, json!({ "new": state.all, "deleted": null }))
        }
        Some(target) if is_known && target.starts_with("/v1/decisions/stream?startup=false") => {
            (200, state.changes.take().unwrap_or_else(|| json!({ "new": null, "deleted": null })))
        }
        _ => (403, json!({ "message": "access forbidden" })),
    };
    drop(state);
    let body = body.to_string();
    let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    stream.write_all((head + &body).as_bytes())
}
