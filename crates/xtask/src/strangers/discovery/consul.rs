//! Servers from Consul's catalog, over mutual TLS and with a token. Checked are shares by weights, failing checks, a
//! revoked token, and an agent that is killed and returns with an empty catalog.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::super::process::{Process, free_address};
use super::super::subject::PairFiles;
use super::scene::{DiscoveryProxy, DiscoveryServers};
use crate::say;

/// The agent's configuration; the test uses its port without TLS.
const CONFIG: &str = "\
bind_addr = \"127.0.0.1\"
ports { http = HTTP https = SECURE dns = -1 grpc = -1 grpc_tls = -1 serf_lan = SERF serf_wan = -1 server = RPC }
acl { enabled = true default_policy = \"deny\" tokens { initial_management = \"MANAGEMENT\" agent = \"MANAGEMENT\" } }
tls { https { ca_file = \"PAIR\" cert_file = \"PAIR\" key_file = \"KEY\" verify_incoming = true } }
";
const CONFIGURATION: &str = "\
workers = 1
[[listen]]
address = \"127.0.0.1:0\"
[[route]]
upstream = \"app\"
[upstream.app]
servers = [\"http+consul://web?tag=v2\"]
slow_start = \"0s\"
[consul]
address = \"https://SECURE\"
token_file = \"FOLDER/consul.token\"
ca = \"PAIR\"
cert = \"PAIR\"
key = \"KEY\"
";
/// Tokens with all permissions, and with permission to read services.
const MANAGEMENT: &str = "5c1bd5e4-0c4b-4b8e-9d5a-2f6b8f1f0a01";
const READER: &str = "5c1bd5e4-0c4b-4b8e-9d5a-2f6b8f1f0a02";
const LIMIT: Duration = Duration::from_secs(60);

pub(super) fn check(vanward: &Path, program: &Path, folder: &Path) -> Result<(), String> {
    let servers = DiscoveryServers::start(vanward, folder)?;
    let agent = ConsulProcess::new(program, folder)?;
    let process = agent.start("consul")?;
    agent.grant()?;
    let [one, two, three] = servers.ports;
    for (port, weight) in [(one, 1), (two, 3), (three, 1)] {
        agent.register(port, weight)?;
    }
    agent.put(&format!("/v1/agent/check/fail/service:web-{three}"), "")?;
    let token = folder.join("consul.token");
    let write = |text: &str| fs::write(&token, text).map_err(|error| format!("{}: {error}", token.display()));
    write(READER)?;
    let proxy = DiscoveryProxy::new(agent.proxy(vanward)?)?;

    let counts = proxy.ask(40)?;
    if counts != [10, 30, 0] {
        let said = proxy.said();
        return Err(format!(
            "of 40 requests {counts:?} reached servers with the weights 1, 3 and one that fails:\n{said}"
        ));
    }
    say(
        "Consul: the weights 1 and 3 are shares of 10 and 30 of 40 requests, an instance that fails gets none",
    );
    let began = Instant::now();
    agent.put(&format!("/v1/agent/check/fail/service:web-{two}"), "")?;
    agent.put(&format!("/v1/agent/check/pass/service:web-{three}"), "")?;
    proxy.until("checks that fail and pass", |counts| counts == [2, 0, 2])?;
    say(format_args!(
        "Consul: another instance is healthy, {} ms later it is asked",
        began.elapsed().as_millis()
    ));

    agent.put(&format!("/v1/agent/service/deregister/web-{one}"), "")?;
    proxy.until("an instance that is gone", |counts| counts == [0, 0, 4])?;
    write("5c1bd5e4-0c4b-4b8e-9d5a-2f6b8f1f0a03")?;
    agent.register(one, 1)?;
    proxy.until_said("status 403: \"ACL not found\"; its last servers stay")?;
    proxy.until("a token that Consul does not know", |counts| counts == [0, 0, 4])?;
    write(READER)?;
    proxy.until("a token that it knows again", |counts| counts == [2, 0, 2])?;
    say("Consul: while it refuses the token the servers stay");

    drop(process);
    proxy.until_said("Consul cannot be queried: ")?;
    proxy.until("an agent that is gone", |counts| counts == [2, 0, 2])?;
    let _restarted = agent.start("consul-again")?;
    agent.grant()?;
    agent.register(two, 1)?;
    proxy.until("an agent that is back, with another catalog", |counts| counts == [0, 4, 0])?;
    let said = proxy.said();
    let count = |what: &str| said.matches(what).count();
    if (count("Consul cannot be queried: "), count("answers again")) != (1, 1) {
        return Err(format!("one message must report that Consul is gone, and one that it is back:\n{said}"));
    }
    say("Consul: killed, the servers stay; back with another catalog, that counts");
    Ok(())
}

struct ConsulProcess<'a> {
    program: &'a Path,
    folder: &'a Path,
    pair: PairFiles,
    http: SocketAddr,
    secure: SocketAddr,
}

impl<'a> ConsulProcess<'a> {
    fn new(program: &'a Path, folder: &'a Path) -> Result<Self, String> {
        let pair = PairFiles::of_no_authority(folder)?;
        Ok(Self { program, folder, pair, http: free_address()?, secure: free_address()? })
    }

    fn written(&self, text: &str) -> String {
        let path = |path: &Path| path.display().to_string();
        text.replace("PAIR", &path(&self.pair.cert))
            .replace("KEY", &path(&self.pair.key))
            .replace("FOLDER", &path(self.folder))
            .replace("MANAGEMENT", MANAGEMENT)
    }

    /// Starts a Consul server with its catalog in memory.
    fn start(&self, name: &str) -> Result<Process, String> {
        let file = self.folder.join("consul.hcl");
        let ports = [
            ("HTTP", self.http),
            ("SECURE", self.secure),
            ("SERF", free_address()?),
            ("RPC", free_address()?),
        ];
        let config = ports
            .into_iter()
            .fold(CONFIG.to_owned(), |text, (word, address)| text.replace(word, &address.port().to_string()));
        fs::write(&file, self.written(&config)).map_err(|error| format!("{}: {error}", file.display()))?;
        let mut command = Command::new(self.program);
        command.args(["agent", "-dev", "-log-level", "warn", "-config-file"]).arg(file);
        Process::start(name, &mut command, self.folder)?.listening_on(self.secure)
    }

    /// Creates the token for reading services, once Consul has elected a leader.
    fn grant(&self) -> Result<(), String> {
        let policy = r#"{"Name":"read","Rules":"service_prefix \"\" { policy = \"read\" } node_prefix \"\" { policy = \"read\" }"}"#;
        let began = Instant::now();
        while let Err(why) = self.put("/v1/acl/policy", policy) {
            if began.elapsed() > LIMIT {
                return Err(why);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        self.put("/v1/acl/token", &format!(r#"{{"SecretID":"{READER}","Policies":[{{"Name":"read"}}]}}"#))
    }

    fn register(&self, port: u16, weight: u16) -> Result<(), String> {
        let check = r#"{"TTL":"1h","Status":"passing"}"#;
        let instance = format!(
            r#"{{"ID":"web-{port}","Name":"web","Tags":["v2"],"Address":"127.0.0.1","Port":{port},"Weights":{{"Passing":{weight},"Warning":1}},"Check":{check}}}"#
        );
        self.put("/v1/agent/service/register", &instance)
    }

    fn put(&self, path: &str, body: &str) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("Consul does not answer: {error}");
        let mut stream = TcpStream::connect(self.http).map_err(failed)?;
        stream.set_read_timeout(Some(LIMIT)).map_err(failed)?;
        let (length, host) = (body.len(), self.http);
        write!(
            stream,
            "PUT {path} HTTP/1.1\r\nHost: {host}\r\nX-Consul-Token: {MANAGEMENT}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
        .map_err(failed)?;
        let mut text = String::new();
        stream.read_to_string(&mut text).map_err(failed)?;
        if text.starts_with("HTTP/1.1 200") { Ok(()) } else { Err(format!("{path}: Consul answers {text}")) }
    }

    fn proxy(&self, vanward: &Path) -> Result<Process, String> {
        let file = self.folder.join("catalog.toml");
        let text = self.written(&CONFIGURATION.replace("SECURE", &self.secure.to_string()));
        fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
        let mut command = Command::new(vanward);
        Process::start("catalog", command.args(["run", "--config"]).arg(file), self.folder)
    }
}
