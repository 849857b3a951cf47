//! Two instances that share sessions through a Redis on a Unix socket. A session stays with its server at both
//! instances, also after it had to move, after a restart of an instance, and after a failure of Redis. Repeated
//! with Valkey, if installed. On a busy machine Redis may respond too late; then the instance uses the server that
//! it knows, or another one, once.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use super::super::process::{Process, free_address};
use super::super::programs::{REDIS, VALKEY};
use super::{LIMIT, until};
use crate::say;

const SESSIONS: usize = 20;

pub(super) fn check(vanward: &Path, folder: &Path) -> Result<(), String> {
    share(vanward, folder, ("Redis", &REDIS.find()?))?;
    match VALKEY.find() {
        Ok(valkey) => share(vanward, folder, ("Valkey", &valkey)),
        Err(_) => {
            say(format_args!("sessions: not tested with Valkey, which is not installed"));
            Ok(())
        }
    }
}

fn share(vanward: &Path, folder: &Path, (name, engine): (&str, &Path)) -> Result<(), String> {
    let folder = folder.join(format!("sessions-{name}"));
    fs::create_dir(&folder).map_err(|error| error.to_string())?;
    let mut scene = SessionScene::start(vanward, engine, &folder)?;
    scene.follow()?;
    scene.move_on()?;
    scene.begin_anew()?;
    scene.lose_the_engine()?;
    say(format_args!(
        "{SESSIONS} sessions over {name} on a Unix socket: each stays with its server at both instances, when it had \
         to move, when an instance restarts, and when {name} was gone and is back empty"
    ));
    Ok(())
}

struct SessionScene<'a> {
    vanward: &'a Path,
    engine: &'a Path,
    folder: &'a Path,
    config: PathBuf,
    redis: Option<Process>,
    servers: [SessionServer; 2],
    instances: Vec<SessionInstance>,
    started: usize,
}

struct SessionInstance {
    address: SocketAddr,
    metrics: SocketAddr,
    process: Process,
}

/// A session: the cookie from its server, and that server.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CookieSession {
    cookie: String,
    server: usize,
}

impl<'a> SessionScene<'a> {
    fn start(vanward: &'a Path, engine: &'a Path, folder: &'a Path) -> Result<Self, String> {
        let count = Arc::new(AtomicUsize::new(0));
        let servers = [SessionServer::start(0, &count)?, SessionServer::start(1, &count)?];
        let (config, secret) = (folder.join("sessions.toml"), folder.join("secret"));
        fs::write(&secret, "0123456789abcdef0123456789abcdef").map_err(|error| error.to_string())?;
        let text = format!(
            "workers = 1\nmetrics = \"${{METRICS}}\"\n[redis]\nurl = \"redis+unix:{}\"\ninstance = \"${{INSTANCE}}\"\nsecret_file = {secret:?}\n\
             [[listen]]\naddress = \"127.0.0.1:0\"\n[[route]]\nupstream = \"app\"\n\
             [upstream.app]\nservers = [\"http://{}\", \"http://{}\"]\n\
             sticky = {{ by = \"origin-cookie:id\", shared = true }}\n\
             eject = {{ failures_in_a_row = 1, base = \"1s\", longest = \"1s\" }}\n",
            folder.join("socket").display(),
            servers[0].address,
            servers[1].address
        );
        fs::write(&config, text).map_err(|error| error.to_string())?;
        let instances = Vec::new();
        let mut scene = Self { vanward, engine, folder, config, redis: None, servers, instances, started: 0 };
        scene.start_engine()?;
        for index in 0..2 {
            let instance = scene.instance(index)?;
            scene.instances.push(instance);
        }
        Ok(scene)
    }

    fn start_engine(&mut self) -> Result<(), String> {
        let socket = self.folder.join("socket");
        let _ = fs::remove_file(&socket);
        let mut command = Command::new(self.engine);
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]).arg(&socket);
        self.redis = Some(self.process("engine", &mut command)?);
        until("the socket is there", || Ok(socket.exists()))
    }

    fn process(&mut self, name: &str, command: &mut Command) -> Result<Process, String> {
        self.started += 1;
        Process::start(&format!("{name}-{}", self.started), command, self.folder)
    }

    fn instance(&mut self, index: usize) -> Result<SessionInstance, String> {
        let (mut command, metrics) = (Command::new(self.vanward), free_address()?);
        command.args(["run", "--config"]).arg(&self.config).env("METRICS", metrics.to_string());
        command.env("INSTANCE", format!("edge-{index}"));
        let mut process = self.process(&format!("edge-{index}"), &mut command)?;
        let address = process.addresses()?.first().copied().ok_or("an instance listens nowhere")?;
        until("the instance has reached Redis", || Ok(process.said().contains("is in use by")))?;
        Ok(SessionInstance { address, metrics, process })
    }

    /// Sends a request without a cookie: a server starts a session.
    fn begin(&self, instance: usize) -> Result<CookieSession, String> {
        ask(self.instances[instance].address, None)
    }

    fn server_of(&self, instance: usize, session: &CookieSession) -> Result<usize, String> {
        Ok(ask(self.instances[instance].address, Some(&session.cookie))?.server)
    }

    /// Starts sessions at the first instance, and returns once it has written them to the engine. A session that starts
    /// before the channel to the engine is open is written at its next use.
    fn begin_all(&self) -> Result<Vec<CookieSession>, String> {
        let begin_one = |_| {
            let before = self.told(0)?;
            let session = self.begin(0)?;
            until(&format!("the engine knows {session:?}"), || {
                self.server_of(0, &session)?;
                Ok(self.told(0)? > before)
            })?;
            Ok(session)
        };
        (0..SESSIONS).map(begin_one).collect()
    }

    fn told(&self, instance: usize) -> Result<usize, String> {
        let metrics = self.instances[instance].metrics;
        let text =
            exchange(metrics, "GET /metrics HTTP/1.1\r\nHost: metrics\r\nConnection: close\r\n\r\n")?.1;
        let line = text.lines().find_map(|line| line.strip_prefix("vanward_redis_sessions_told_total "));
        line.and_then(|count| count.parse().ok()).ok_or_else(|| format!("no sessions are counted: {text}"))
    }

    /// Checks that each session has its server at both instances: most at once, because few look-ups are late.
    fn stay(&self, what: &str, sessions: &[CookieSession]) -> Result<(), String> {
        let mut late = 0;
        for session in sessions {
            for instance in [1, 0] {
                let is_right = || Ok(self.server_of(instance, session)? == session.server);
                if !is_right()? {
                    late += 1;
                    until(&format!("{what}: instance {instance} follows {session:?}"), is_right)?;
                }
            }
        }
        if late > sessions.len() / 2 {
            return Err(format!("{what}: {late} of {} sessions were not followed at once", sessions.len()));
        }
        Ok(())
    }

    fn follow(&self) -> Result<(), String> {
        let sessions = self.begin_all()?;
        let on_first = sessions.iter().filter(|session| session.server == 0).count();
        if on_first == 0 || on_first == SESSIONS {
            return Err(format!("{on_first} of {SESSIONS} sessions are with the first server"));
        }
        self.stay("both are up", &sessions)
    }

    /// A session that moved at one instance has moved at the other one, even after its old server is back.
    fn move_on(&mut self) -> Result<(), String> {
        let sessions = self.begin_all()?;
        self.stay("before a server is gone", &sessions)?;
        self.servers[0].stop();
        for session in &sessions {
            let server = self.server_of(0, session)?;
            if server != 1 {
                return Err(format!("{session:?} gets a response from a stopped server"));
            }
        }
        self.servers[0].go_on()?;
        let moved: Vec<CookieSession> =
            sessions.into_iter().map(|session| CookieSession { server: 1, ..session }).collect();
        let first = moved.first().ok_or("there are no sessions")?;
        until("the other instance knows that sessions have moved", || Ok(self.server_of(1, first)? == 1))?;
        until("the first server is asked again", || Ok(self.begin(1)?.server == 0))?;
        self.stay("a server was gone", &moved)
    }

    /// A restarted instance knows the sessions of the others.
    fn begin_anew(&mut self) -> Result<(), String> {
        let sessions = self.begin_all()?;
        self.instances.pop();
        let anew = self.instance(1)?;
        self.instances.push(anew);
        self.stay("an instance has begun anew", &sessions)
    }

    /// Without the engine, each instance continues alone; an engine that returns empty gets the sessions again.
    fn lose_the_engine(&mut self) -> Result<(), String> {
        let before = self.begin_all()?;
        self.stay("before the engine is gone", &before)?;
        self.redis = None;
        self.until_told("cannot be reached")?;
        self.stay("the engine is gone", &before)?;
        let meanwhile = (0..SESSIONS).map(|_| self.begin(0)).collect::<Result<Vec<_>, _>>()?;
        for session in &meanwhile {
            let server = self.server_of(0, session)?;
            if server != session.server {
                return Err(format!("the engine is gone: server {server} is asked for {session:?}"));
            }
        }
        self.start_engine()?;
        self.until_told("is back after")?;
        for session in meanwhile.iter().chain(&before) {
            // A request at an instance that knows the session writes it again.
            let told = self.told(0)?;
            until("the engine is told of what it has lost", || {
                self.server_of(0, session)?;
                Ok(self.told(0)? > told)
            })?;
        }
        self.stay("the engine is back", &meanwhile)?;
        self.stay("the engine is back", &before)
    }

    fn until_told(&self, what: &str) -> Result<(), String> {
        until(&format!("both instances have said {what:?}"), || {
            Ok(self.instances.iter().all(|instance| instance.process.said().contains(what)))
        })
    }
}

/// A server of the upstream, which starts a session for requests without one.
struct SessionServer {
    number: usize,
    address: SocketAddr,
    count: Arc<AtomicUsize>,
    is_stopped: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl SessionServer {
    fn start(number: usize, count: &Arc<AtomicUsize>) -> Result<Self, String> {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let (count, is_stopped) = (Arc::clone(count), Arc::default());
        let mut server = Self { number, address, count, is_stopped, accepting: None };
        server.accept(listener);
        Ok(server)
    }

    fn accept(&mut self, listener: TcpListener) {
        self.is_stopped = Arc::default();
        let (number, count) = (self.number, Arc::clone(&self.count));
        let is_stopped = Arc::clone(&self.is_stopped);
        self.accepting = Some(std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if is_stopped.load(Ordering::SeqCst) {
                    return;
                }
                let (count, is_stopped) = (Arc::clone(&count), Arc::clone(&is_stopped));
                std::thread::spawn(move || serve(number, stream, &count, &is_stopped));
            }
        }));
    }

    /// Refuses connections from now on, and no longer responds on existing ones.
    fn stop(&mut self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        // Wakes the accepting thread, which then closes the socket.
        let _ = TcpStream::connect(self.address);
        let _ = self.accepting.take().map(JoinHandle::join);
    }

    fn go_on(&mut self) -> Result<(), String> {
        self.accept(TcpListener::bind(self.address).map_err(|error| error.to_string())?);
        Ok(())
    }
}

fn serve(number: usize, stream: TcpStream, count: &AtomicUsize, is_stopped: &AtomicBool) {
    let mut stream = BufReader::new(stream);
    loop {
        let Some(head) = head(&mut stream) else { return };
        if is_stopped.load(Ordering::SeqCst) {
            return;
        }
        let begun = || format!("Set-Cookie: id={}\r\n", count.fetch_add(1, Ordering::SeqCst));
        let cookie = if head.contains("id=") { String::new() } else { begun() };
        let response = format!("HTTP/1.1 200 OK\r\n{cookie}Content-Length: 1\r\n\r\n{number}");
        if stream.get_mut().write_all(response.as_bytes()).is_err() {
            return;
        }
    }
}

/// Reads a head unchanged; `None` at the end.
fn head(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    Some(head)
}

/// Sends a request with a session's cookie or without. Returns the session of the response, and its server.
fn ask(address: SocketAddr, cookie: Option<&str>) -> Result<CookieSession, String> {
    let line = cookie.map(|cookie| format!("Cookie: {cookie}\r\n")).unwrap_or_default();
    let request = format!("GET / HTTP/1.1\r\nHost: site.example\r\nConnection: close\r\n{line}\r\n");
    let (head, body) = exchange(address, &request)?;
    let set = head.lines().find_map(|line| line.strip_prefix("Set-Cookie: "));
    match (set.or(cookie), body.parse()) {
        (Some(cookie), Ok(server)) => Ok(CookieSession { cookie: cookie.to_owned(), server }),
        _ => Err(format!("an instance answers {head}{body}")),
    }
}

fn exchange(address: SocketAddr, request: &str) -> Result<(String, String), String> {
    let failed = |error: std::io::Error| format!("{address} does not answer: {error}");
    let stream = TcpStream::connect(address).map_err(failed)?;
    stream.set_read_timeout(Some(LIMIT)).map_err(failed)?;
    let mut stream = BufReader::new(stream);
    stream.get_mut().write_all(request.as_bytes()).map_err(failed)?;
    let head = head(&mut stream).ok_or("an instance sends no response")?;
    let mut body = String::new();
    stream.read_to_string(&mut body).map_err(failed)?;
    Ok((head, body))
}
