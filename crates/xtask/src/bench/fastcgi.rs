//! Measures the CPU time per request of proxies before php-fpm: Vanward, nginx and Caddy, in alternating rounds. The time is
//! that of the proxy's process alone; php-fpm and the load generator are not counted.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::say;
use crate::scratch::Scratch;
use crate::step;
use crate::strangers::process::{Process, free_address};
use crate::strangers::programs::{CADDY, NGINX, php_fpm};

/// Rounds of each proxy with each script. The median counts.
const ROUNDS: usize = 5;
/// Connections of clients, and processes of php-fpm for each proxy: a kept connection occupies one.
const CONNECTIONS: usize = 8;
/// Clock ticks per second of /proc/PID/stat (USER_HZ), the same on all machines.
const TICKS_PER_SECOND: f64 = 100.0;

const END_LIMIT: Duration = Duration::from_secs(10);

/// A script, and what it sends.
const SCRIPTS: [(&str, &str, &str); 2] = [
    ("tiny.php", "<?php echo 'ok';", "2 bytes"),
    ("long.php", "<?php echo str_repeat('x', 100000);", "100 kB"),
];

/// Measures with this program and the installed peers, and prints a table.
pub(super) fn run(program: &Path, seconds: u32) -> Result<(), String> {
    let folder = Scratch::new("fastcgi")?;
    let bench = FastcgiBench::new(program, folder.path(), seconds)?;
    for (script, ..) in SCRIPTS {
        // Connections are made, and PHP compiles the script.
        bench.rounds(script, 1)?;
    }
    say(format_args!(
        "\nOne worker each, {CONNECTIONS} connections, {ROUNDS} alternating rounds of {seconds} s. Vanward and nginx keep \
         connections to php-fpm; Caddy makes one for each request.\n\n\
         | output | proxy | CPU per request: median (lowest to highest) | ratio to nginx | requests per second |\n\
         |---|---|---|---|---|"
    ));
    for (script, _, output) in SCRIPTS {
        let figures = bench.rounds(script, ROUNDS)?;
        let nginx = figures.iter().find(|(name, _)| *name == "nginx").map(|(_, rounds)| median(rounds).us);
        for (name, rounds) in &figures {
            let middle = median(rounds);
            let us = |round: Option<&Round>| round.map_or(0.0, |round| round.us);
            say(format_args!(
                "| {output} | {name} | {:.1} µs ({:.1} to {:.1}) | {:.2} | {:.0} |",
                middle.us,
                us(rounds.first()),
                us(rounds.last()),
                middle.us / nginx.unwrap_or(f64::NAN),
                middle.per_second,
            ));
        }
    }
    Ok(())
}

/// The figures of a proxy in one round.
#[derive(Clone, Copy)]
struct Round {
    /// CPU time per request, in microseconds.
    us: f64,
    per_second: f64,
}

/// The round in the middle of sorted ones.
fn median(rounds: &[Round]) -> Round {
    rounds.get(rounds.len() / 2).copied().unwrap_or(Round { us: f64::NAN, per_second: f64::NAN })
}

struct Measured {
    name: &'static str,
    process: Process,
    address: SocketAddr,
}

struct FastcgiBench {
    program: PathBuf,
    seconds: u32,
    proxies: Vec<Measured>,
    _applications: Applications,
}

impl FastcgiBench {
    fn new(program: &Path, folder: &Path, seconds: u32) -> Result<Self, String> {
        let root = folder.join("public");
        fs::create_dir_all(&root).map_err(|error| format!("{}: {error}", root.display()))?;
        SCRIPTS.iter().try_for_each(|(name, text, _)| put(&root.join(name), text))?;
        let applications = applications(folder)?;
        let mut proxies = Vec::new();
        let mut add = |name, command: &mut Command, address: SocketAddr| {
            let process = Process::start(name, command, folder)?.listening_on(address)?;
            proxies.push(Measured { name, process, address });
            Ok::<(), String>(())
        };
        let config = |name: &str, text: String| {
            let file = folder.join(name);
            put(&file, &text).map(|()| file)
        };
        let address = free_address()?;
        let file = config("vanward.toml", of_vanward(folder, &root, address))?;
        add("vanward", Command::new(program).args(["run", "--config"]).arg(file), address)?;
        let address = free_address()?;
        let file = config("nginx.conf", of_nginx(folder, &root, address))?;
        add("nginx", Command::new(NGINX.find()?).args(["-e", "stderr", "-c"]).arg(file), address)?;
        let address = free_address()?;
        let file = config("Caddyfile", of_caddy(folder, &root, address))?;
        let mut caddy = Command::new(CADDY.find()?);
        caddy.args(["run", "--adapter", "caddyfile", "--config"]).arg(file).env("GOMAXPROCS", "1");
        for variable in ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"] {
            caddy.env(variable, folder);
        }
        add("caddy", &mut caddy, address)?;
        Ok(Self { program: program.to_owned(), seconds, proxies, _applications: applications })
    }

    /// Measures each proxy in turn, and returns the rounds of each by their CPU time.
    fn rounds(&self, script: &str, rounds: usize) -> Result<Vec<(&'static str, Vec<Round>)>, String> {
        let mut figures: Vec<_> = self.proxies.iter().map(|proxy| (proxy.name, Vec::new())).collect();
        for round in 0..rounds {
            for place in 0..self.proxies.len() {
                // Each round begins with another proxy.
                let place = (place + round) % self.proxies.len();
                figures[place].1.push(self.measure(&self.proxies[place], script)?);
            }
        }
        figures.iter_mut().for_each(|(_, rounds)| rounds.sort_by(|one, other| one.us.total_cmp(&other.us)));
        Ok(figures)
    }

    fn measure(&self, proxy: &Measured, script: &str) -> Result<Round, String> {
        let before = cpu_seconds(proxy.process.id())?;
        let mut command = Command::new(&self.program);
        command.args(["load", "--json", "-c", &CONNECTIONS.to_string(), "-d", &format!("{}s", self.seconds)]);
        let output = command.arg(format!("http://{}/{script}", proxy.address)).output();
        let output = output.map_err(|error| format!("`{}`: {error}", step::shown(&command)))?;
        let cpu_seconds = cpu_seconds(proxy.process.id())? - before;
        if !output.status.success() {
            return Err(format!("{}: {}", proxy.name, String::from_utf8_lossy(&output.stderr)));
        }
        let told: serde_json::Value =
            serde_json::from_slice(&output.stdout).map_err(|error| format!("vanward load: {error}"))?;
        let requests = told["requests"].as_f64().filter(|requests| *requests > 0.0);
        let requests = requests.ok_or_else(|| format!("vanward load counts no requests: {told}"))?;
        Ok(Round { us: cpu_seconds * 1e6 / requests, per_second: requests / f64::from(self.seconds) })
    }
}

/// CPU time of a process with all its threads, also ended ones (proc(5): utime and stime).
fn cpu_seconds(process: u32) -> Result<f64, String> {
    let path = format!("/proc/{process}/stat");
    let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    // The name before may have spaces and parentheses.
    let fields = text.rsplit_once(") ").map(|(_, rest)| rest.split(' ').collect::<Vec<_>>());
    let ticks = |place: usize| fields.as_ref()?.get(place)?.parse::<f64>().ok();
    let sum = ticks(11).zip(ticks(12)).map(|(user, system)| user + system);
    sum.map(|ticks| ticks / TICKS_PER_SECOND).ok_or_else(|| format!("{path} has no times: {text}"))
}

/// Starts php-fpm with the same pool for each proxy.
fn applications(folder: &Path) -> Result<Applications, String> {
    let pool = |name: &str| {
        let socket = socket(folder, name);
        format!("[{name}]\nuser = root\nlisten = {socket}\npm = static\npm.max_children = {CONNECTIONS}\n")
    };
    let pools: String = ["vanward", "nginx", "caddy"].map(pool).concat();
    let log = folder.join("php-fpm-errors.log");
    let text = format!("[global]\nerror_log = {}\ndaemonize = no\n{pools}", log.display());
    let file = folder.join("php-fpm.conf");
    put(&file, &text)?;
    let mut command = Command::new(php_fpm()?);
    command.args(["-n", "-R", "-F", "-y"]).arg(&file);
    let process = Process::start("php-fpm", &mut command, folder)?;
    Ok(Applications(Some(process.listening_at(&folder.join("caddy.sock"))?)))
}

/// php-fpm with its processes.
struct Applications(Option<Process>);

impl Drop for Applications {
    fn drop(&mut self) {
        // Not a kill: php-fpm has to end its processes first.
        if let Some(process) = self.0.take() {
            drop(process.signal("-TERM"));
            drop(process.finish(END_LIMIT));
        }
    }
}

fn socket(folder: &Path, name: &str) -> String {
    folder.join(format!("{name}.sock")).display().to_string()
}

fn of_vanward(folder: &Path, root: &Path, address: SocketAddr) -> String {
    let (socket, root) = (socket(folder, "vanward"), root.display());
    format!(
        "workers = 1\n[[listen]]\naddress = \"{address}\"\n[[route]]\nupstream = \"php\"\n[upstream.php]\n\
         servers = [\"fcgi+unix:{socket}\"]\nfastcgi = {{ root = \"{root}\" }}\n"
    )
}

/// The parameters are those that Debian's `fastcgi_params` lists.
fn of_nginx(folder: &Path, root: &Path, address: SocketAddr) -> String {
    let (socket, root, folder) = (socket(folder, "nginx"), root.display(), folder.display());
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {folder}/{kind};\n"))
        .concat();
    let params: String = [
        ("SCRIPT_FILENAME", "$document_root$fastcgi_script_name"),
        ("QUERY_STRING", "$query_string"),
        ("REQUEST_METHOD", "$request_method"),
        ("CONTENT_TYPE", "$content_type"),
        ("CONTENT_LENGTH", "$content_length"),
        ("SCRIPT_NAME", "$fastcgi_script_name"),
        ("REQUEST_URI", "$request_uri"),
        ("DOCUMENT_URI", "$document_uri"),
        ("DOCUMENT_ROOT", "$document_root"),
        ("SERVER_PROTOCOL", "$server_protocol"),
        ("REQUEST_SCHEME", "$scheme"),
        ("HTTPS", "$https if_not_empty"),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("SERVER_SOFTWARE", "nginx/$nginx_version"),
        ("REMOTE_ADDR", "$remote_addr"),
        ("REMOTE_PORT", "$remote_port"),
        ("SERVER_ADDR", "$server_addr"),
        ("SERVER_PORT", "$server_port"),
        ("SERVER_NAME", "$server_name"),
        ("REDIRECT_STATUS", "200"),
    ]
    .map(|(name, value)| format!("fastcgi_param {name} {value};\n"))
    .concat();
    format!(
        "daemon off; master_process off; pid {folder}/nginx.pid; error_log stderr crit;\n\
         events {{ worker_connections 1024; }}\nhttp {{\naccess_log off; keepalive_requests 1000000000;\n{temporary}\
         open_file_cache max=1000;\nupstream php {{ server unix:{socket}; keepalive {CONNECTIONS}; \
         keepalive_requests 1000000000; }}\nserver {{\nlisten {address};\nroot {root};\nlocation ~ \\.php$ {{\n\
         try_files $fastcgi_script_name =404;\nfastcgi_pass php;\nfastcgi_keep_conn on;\n{params}}}\n}}\n}}\n"
    )
}

fn of_caddy(folder: &Path, root: &Path, address: SocketAddr) -> String {
    let (socket, root) = (socket(folder, "caddy"), root.display());
    format!(
        "{{\n\tadmin off\n\tauto_https off\n\tlog {{\n\t\toutput discard\n\t}}\n}}\n\
         http://{address} {{\n\troot * {root}\n\tphp_fastcgi unix/{socket}\n}}\n"
    )
}

fn put(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
