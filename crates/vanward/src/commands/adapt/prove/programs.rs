//! Starts the old program and Vanward, and waits until they listen.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ::lab::group::ProcessGroup;
use prove::{OldProxy, Original, ProofOutcome, StatementPlace};

/// How long a program may take to listen.
const START_MAX: Duration = Duration::from_secs(60);
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);
/// How long a program may take to end.
const END_MAX: Duration = Duration::from_secs(60);
/// HAProxy's standard output.
const HAPROXY_LOG: &str = "haproxy.out";

/// Finds a program on PATH, or where Debian keeps those of administrators.
pub(super) fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(more).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// The version of the old program, such as `nginx/1.22.1`.
pub(super) fn version(peer: OldProxy, program: &Path) -> String {
    let arguments: &[&str] = match peer {
        OldProxy::Nginx | OldProxy::Haproxy | OldProxy::Apache => &["-v"],
        OldProxy::Caddy | OldProxy::Traefik => &["version"],
        OldProxy::Varnish => &["-V"],
    };
    let told = Command::new(program).args(arguments).output();
    let told = told.map(|told| [told.stdout, told.stderr].concat()).unwrap_or_default();
    let text = String::from_utf8_lossy(&told);
    let word = text.split_whitespace().find(|word| word.bytes().any(|byte| byte.is_ascii_digit()));
    match word {
        Some(word) if word.contains('/') => word.to_owned(),
        Some(word) => {
            let number = word.trim_start_matches(|letter: char| !letter.is_ascii_digit());
            format!("{}/{number}", peer.name())
        }
        None => peer.name().to_owned(),
    }
}

/// Addresses on loopback for both proxies, with the same ports. They stay taken until this is dropped.
pub(super) struct ProofDoors {
    pub(super) theirs: Vec<SocketAddr>,
    pub(super) ours: Vec<SocketAddr>,
    _taken: Vec<TcpListener>,
}

impl ProofDoors {
    pub(super) fn take(count: usize) -> std::io::Result<Self> {
        // Of their own, so that runs at the same time do not meet.
        let process = std::process::id();
        let [first, second] = [(process & 0x1f) as u8 + 192, (process >> 5 & 0x7f) as u8 + 1];
        let host = |last| Ipv4Addr::new(127, first, second, last);
        let mut doors = Self { theirs: Vec::new(), ours: Vec::new(), _taken: Vec::new() };
        let mut attempts = 0;
        while doors.theirs.len() < count {
            let theirs = TcpListener::bind((host(1), 0))?;
            let address = theirs.local_addr()?;
            match TcpListener::bind((host(2), address.port())) {
                Ok(ours) => {
                    doors.theirs.push(address);
                    doors.ours.push(ours.local_addr()?);
                    doors._taken.extend([theirs, ours]);
                }
                Err(error) if attempts > 100 => return Err(error),
                Err(_) => attempts += 1,
            }
        }
        Ok(doors)
    }
}

/// Why a program does not accept its configuration.
pub(super) enum CheckRefusal {
    /// A statement that it does not know.
    Unknown(StatementPlace),
    Other(String),
}

/// Messages about statements of other versions, and of missing modules.
const UNKNOWN: [&str; 7] = [
    "Invalid command",
    "unknown directive",
    "invalid parameter",
    "unknown keyword",
    "unknown option",
    "unrecognized directive",
    "unrecognized global option",
];
/// Variables with the folder for files of a program.
const HOMES: [&str; 3] = ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"];

/// The file of the rewritten configuration. Traefik goes by the extension.
pub(super) fn file_name(peer: OldProxy) -> &'static str {
    if peer == OldProxy::Traefik { "original.yml" } else { "original.conf" }
}

/// Has the old program check the rewritten configuration. Traefik does so when it runs: see [`loaded`].
pub(super) fn check(
    peer: OldProxy,
    program: &Path,
    folder: &Path,
    file: &Path,
    made: &Original,
) -> Result<(), CheckRefusal> {
    let mut command = Command::new(program);
    match peer {
        OldProxy::Nginx => command.arg("-t").arg("-p").arg(folder).arg("-c").arg(file),
        OldProxy::Haproxy => command.arg("-c").arg("-f").arg(file),
        OldProxy::Caddy => command.args(["validate", "--adapter", "caddyfile", "--config"]).arg(file),
        OldProxy::Varnish => command.arg("-C").arg("-f").arg(file).arg("-n").arg(folder.join("check")),
        OldProxy::Apache => command.arg("-t").arg("-d").arg(folder).arg("-f").arg(file),
        OldProxy::Traefik => {
            // Of the start before, with a statement that is left out now.
            let _ = std::fs::remove_file(folder.join(TRAEFIK_LOG));
            return Ok(());
        }
    };
    for variable in HOMES {
        command.env(variable, folder);
    }
    let told = command.current_dir(folder).output();
    let told = told
        .map_err(|error| CheckRefusal::Other(format!("{} cannot be started: {error}", program.display())))?;
    if told.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&[told.stderr, told.stdout].concat()).into_owned();
    let is_first = |line: &&str| {
        ["[emerg]", "[ALERT]", "Error:", " Line ", "Syntax error on line"]
            .iter()
            .any(|part| line.contains(part))
    };
    let mut message = text.lines().find(is_first).unwrap_or(text.trim()).to_owned();
    if peer == OldProxy::Apache {
        // The reason is on the next line.
        message = text.lines().skip_while(|line| !is_first(line)).take(2).collect::<Vec<_>>().join(" ");
    }
    let place = line_of(&message, file).and_then(|line| made.lines.get(line.checked_sub(1)?)?.clone());
    let is_unknown = UNKNOWN.iter().any(|said| message.contains(said));
    Err(match place {
        Some(place) if is_unknown => CheckRefusal::Unknown(place),
        Some(place) => CheckRefusal::Other(format!("{place}: {message}")),
        None => CheckRefusal::Other(message),
    })
}

/// The line in `… in FILE:LINE`.
fn line_of(message: &str, file: &Path) -> Option<usize> {
    let file = file.display();
    let found =
        message.split_once(&format!("{file}:")).or_else(|| message.split_once(&format!("'{file}' Line ")));
    // Apache writes `line NUMBER of FILE:`.
    let (_, behind) = match message.split_once("Syntax error on line ") {
        Some(found) => found,
        None => found?,
    };
    behind.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

/// Waits until Traefik has read its file, which it does after it listens. Its log names what it does not accept.
pub(super) async fn loaded(
    running: &mut RunningProgram,
    folder: &Path,
    made: &Original,
    is_ready: impl Fn() -> bool,
) -> Result<(), CheckRefusal> {
    let started = std::time::Instant::now();
    loop {
        let is_ready = is_ready();
        let log = std::fs::read_to_string(folder.join(TRAEFIK_LOG)).unwrap_or_default();
        if let Some(refusal) = log.lines().find_map(|line| refusal(line, made)) {
            return Err(refusal);
        }
        if is_ready {
            return Ok(());
        }
        if let Some(why) = running.ended() {
            return Err(refusal(&why, made).unwrap_or(CheckRefusal::Other(why)));
        }
        if started.elapsed() > START_MAX {
            let why = format!("it has not read its file in {} s", START_MAX.as_secs());
            return Err(CheckRefusal::Other(why));
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
}

/// The other log has its standard error.
const TRAEFIK_LOG: &str = "traefik.json";

/// The statement that a line of Traefik's log refuses, if it does.
pub(super) fn refusal(line: &str, made: &Original) -> Option<CheckRefusal> {
    let entry: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
    let error = entry["error"].as_str().unwrap_or(line);
    if let Some((_, node)) = error.split_once("field not found, node: ") {
        let node = node.split(|letter: char| letter == '"' || letter.is_whitespace()).next()?;
        let is_it = |place: &&prove::StatementPlace| {
            let path = place.text.split(' ').next().unwrap_or_default();
            path.rsplit('.').next().is_some_and(|name| name.eq_ignore_ascii_case(node))
        };
        return Some(match made.lines.iter().flatten().find(is_it) {
            Some(place) => CheckRefusal::Unknown(place.clone()),
            None => CheckRefusal::Other(error.to_owned()),
        });
    }
    // The redirect of an entry point is built again when the file has been read.
    let router = entry["routerName"].as_str().filter(|router| !router.ends_with("@internal"))?;
    let router = router.split('@').next().unwrap_or_default();
    let is_it = |place: &&prove::StatementPlace| {
        let name = place.text.strip_prefix("http.routers.");
        // Routers of an entry point with options have its name before theirs.
        name.is_some_and(|name| {
            router == name || router.strip_suffix(name).is_some_and(|rest| rest.ends_with('-'))
        })
    };
    let place = made.marks.iter().map(|mark| &mark.place).find(is_it);
    let place = place.map_or_else(|| format!("the router {router}"), ToString::to_string);
    Some(CheckRefusal::Other(format!("{place}: {error}")))
}

/// The command line of the old program. Varnish gets its address there.
pub(super) fn command(
    peer: OldProxy,
    program: &Path,
    folder: &Path,
    file: &Path,
    doors: &[SocketAddr],
) -> Vec<String> {
    let (folder, file) = (folder.display().to_string(), file.display().to_string());
    let program = program.display().to_string();
    match peer {
        OldProxy::Nginx => vec![program, "-p".to_owned(), folder, "-c".to_owned(), file],
        OldProxy::Haproxy => vec![program, "-db".to_owned(), "-f".to_owned(), file],
        OldProxy::Varnish => {
            let address = doors.first().map(ToString::to_string).unwrap_or_default();
            let place = format!("{folder}/varnish");
            let words = [
                "-F",
                "-j",
                "none",
                "-T",
                "none",
                "-s",
                "malloc,50M",
                "-a",
                &address,
                "-f",
                &file,
                "-n",
                &place,
            ];
            std::iter::once(program).chain(words.map(str::to_owned)).collect()
        }
        OldProxy::Traefik => vec![program, format!("--configFile={file}")],
        OldProxy::Apache => {
            let words = ["-DFOREGROUND", "-d", &folder, "-f", &file];
            std::iter::once(program).chain(words.map(str::to_owned)).collect()
        }
        OldProxy::Caddy => {
            let homes = HOMES.iter().map(|variable| format!("{variable}={folder}"));
            let words = [program.as_str(), "run", "--adapter", "caddyfile", "--config", &file];
            std::iter::once("env".to_owned()).chain(homes).chain(words.map(str::to_owned)).collect()
        }
    }
}

/// A running program; it ends when this is dropped.
pub(super) struct RunningProgram(ProcessGroup);

impl RunningProgram {
    /// Starts a program, and waits until it listens on all addresses.
    pub(super) async fn start(
        name: &str,
        command: Vec<String>,
        folder: &Path,
        addresses: &[SocketAddr],
    ) -> Result<Self, String> {
        let cores = ::lab::cores::allowed().map_err(|error| error.to_string())?;
        let group = ProcessGroup::start(name, &with_parent(command), &cores, folder);
        let mut running = Self(group.map_err(|error| error.to_string())?);
        let started = std::time::Instant::now();
        for address in addresses {
            while TcpStream::connect(address).is_err() {
                if let Some(error) = running.0.ended() {
                    return Err(error.to_string());
                }
                if started.elapsed() > START_MAX {
                    return Err(format!("{name} does not listen on {address}: {}", running.0.log_tail()));
                }
                tokio::time::sleep(BETWEEN_LOOKS).await;
            }
        }
        Ok(running)
    }

    /// Whether the program has ended, and why.
    pub(super) fn ended(&mut self) -> Option<String> {
        self.0.ended().map(|error| error.to_string())
    }

    /// Ends the program, so that its logs are complete.
    pub(super) async fn stop(self) {
        self.0.stop(END_MAX).await;
    }
}

/// The program ends with this process, even if that is killed.
fn with_parent(command: Vec<String>) -> Vec<String> {
    let Some(setpriv) = installed("setpriv") else { return command };
    let wrapped = [setpriv.display().to_string(), "--pdeathsig".to_owned(), "KILL".to_owned()];
    wrapped.into_iter().chain(command).collect()
}

/// Returns the numbers of requests in the access logs of the old program and of Vanward.
pub(super) fn logged(peer: OldProxy, folder: &Path) -> [BTreeSet<usize>; 2] {
    let theirs = if peer == OldProxy::Haproxy { HAPROXY_LOG } else { prove::THEIR_LOG };
    // Lines of JSON have all fields of the request.
    let field = format!("\"{}\":[\"", prove::MARK);
    [theirs, prove::OUR_LOG].map(|log| {
        let text = std::fs::read(folder.join(log)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        // Vanward escapes the space behind the number.
        let number = |line: &str| {
            let value = line.split_once(&field).map_or(line.trim_start_matches("proof "), |(_, value)| value);
            value.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
        };
        // HAProxy's level of a request.
        text.lines().filter(|line| !line.ends_with("|silent")).filter_map(number).collect()
    })
}

/// Returns which marks each request met, from the log of the old program or from its responses.
pub(super) fn reached(
    peer: OldProxy,
    folder: &Path,
    outcomes: &[ProofOutcome],
) -> BTreeMap<usize, Vec<usize>> {
    let log = match peer {
        OldProxy::Nginx | OldProxy::Apache => "reached.log",
        OldProxy::Haproxy => HAPROXY_LOG,
        OldProxy::Traefik => {
            let of_field = |(name, _): &(String, String)| {
                name.strip_prefix("x-vanward-reached-").and_then(|number| number.parse().ok())
            };
            let marks = outcomes.iter().map(|outcome| {
                let mut marks: Vec<usize> = outcome.answer.fields.iter().filter_map(of_field).collect();
                marks.sort_unstable();
                marks
            });
            return marks.enumerate().collect();
        }
        OldProxy::Caddy | OldProxy::Varnish => {
            let marks = outcomes.iter().map(|outcome| {
                let marks = outcome.answer.field("x-vanward-reached").unwrap_or_default();
                marks.split('.').filter_map(|mark| mark.strip_prefix('m')?.parse().ok()).collect()
            });
            return marks.enumerate().collect();
        }
    };
    let text = std::fs::read(folder.join(log)).unwrap_or_default();
    let mut all: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for line in String::from_utf8_lossy(&text).lines() {
        let Some((request, marks)) = line.split_once('|') else { continue };
        let request = request.trim_start_matches("proof ");
        let Some(number) = request.split(' ').next().and_then(|word| word.parse().ok()) else { continue };
        // HAProxy writes a - for a mark that is not set.
        let marks = marks.split([',', '.', '-']).filter_map(|mark| mark.parse::<usize>().ok());
        all.entry(number).or_default().extend(marks);
    }
    // A block with several logs has written its line several times.
    for marks in all.values_mut() {
        let mut seen = BTreeSet::new();
        marks.retain(|mark| seen.insert(*mark));
    }
    all
}
