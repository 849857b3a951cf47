//! The lab over several machines: three hosts in network namespaces, each with its own sshd, on a separate switch. It
//! requires ip and sshd, which CI must have, root, and a kernel that supports namespaces, bridges and veth pairs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use report::Results;
use report::results::MeasurementOutcome;
use rustix::process::{Pid, Signal, kill_process};

use crate::process::{Patience, Process};

/// Exit code of invalid figures, which a busy machine may cause; not tested here.
const INVALID_RUN: i32 = 98;
const FAILED: i32 = 1;
/// Measures something however slow the machine is.
const COUNTED: &str = "requests = 40";

/// Hosts on a switch. Dropping it removes everything.
struct Network {
    folder: tempfile::TempDir,
    /// Distinguishes this network's names from those of a concurrent test.
    mark: String,
    daemons: Vec<Child>,
}

const HOSTS: [&str; 3] = ["client", "proxy", "origin"];

impl Network {
    /// Returns `None`, with a message, if the machine cannot run the test.
    fn make(number: u8) -> Option<Self> {
        if let Some(missing) =
            ["ip", "sshd", "ssh", "ssh-keygen"].into_iter().find(|name| find(name).is_none())
        {
            assert!(
                std::env::var_os("CI").is_none(),
                "CI needs {missing}: install openssh-server and iproute2"
            );
            skip(missing);
            return None;
        }
        if !rustix::process::geteuid().is_root() || !can_be_made(number) {
            skip("root, and the right to make network namespaces with bridges and veth pairs");
            return None;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mark = format!("{}{number}", std::process::id() % 100_000);
        let mut network = Self { folder, mark, daemons: Vec::new() };
        network.connect(number);
        for host in HOSTS {
            network.serve(host);
        }
        network.configure_ssh(number);
        Some(network)
    }

    fn namespace(&self, host: &str) -> String {
        format!("vw-{host}-{}", self.mark)
    }

    /// The switch's end of a host's cable.
    fn port(&self, host: &str) -> String {
        format!("vw{}{}", &host[..1], self.mark)
    }

    fn switch(&self) -> String {
        format!("vwb{}", self.mark)
    }

    /// The first three numbers of the addresses. Another process that runs these tests has others.
    fn network(number: u8) -> String {
        format!("10.{}.{number}", 200 + std::process::id() % 50)
    }

    fn address(number: u8, host: &str) -> String {
        let at = HOSTS.iter().position(|name| *name == host).expect("one of the hosts");
        format!("{}.{}", Self::network(number), at + 2)
    }

    fn connect(&self, number: u8) {
        let switch = self.switch();
        ip(&format!("link add {switch} type bridge"));
        ip(&format!("addr add {}.1/24 dev {switch}", Self::network(number)));
        ip(&format!("link set {switch} up"));
        for host in HOSTS {
            let (space, port) = (self.namespace(host), self.port(host));
            ip(&format!("netns add {space}"));
            ip(&format!("link add {port} type veth peer name eth0 netns {space}"));
            ip(&format!("link set {port} master {switch} up"));
            ip(&format!("-n {space} addr add {}/24 dev eth0", Self::address(number, host)));
            ip(&format!("-n {space} link set eth0 up"));
            ip(&format!("-n {space} link set lo up"));
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A host's folder for temporary files, which must be empty at the end.
    fn temporary(&self, host: &str) -> PathBuf {
        self.path(&format!("tmp-{host}"))
    }

    fn serve(&mut self, host: &str) {
        let (key, authorized) = (self.path("key"), self.path("authorized_keys"));
        if !key.exists() {
            let made =
                Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status();
            assert!(made.expect("ssh-keygen runs").success());
            fs::copy(self.path("key.pub"), &authorized).expect("a public key");
        }
        fs::create_dir(self.temporary(host)).expect("a folder");
        fs::create_dir_all("/run/sshd").expect("where sshd goes without its rights");
        let configuration = format!(
            "Port 22\nHostKey {key}\nAuthorizedKeysFile {authorized}\nPidFile none\nStrictModes no\nUsePAM no\n\
             PasswordAuthentication no\nPermitRootLogin yes\nSetEnv TMPDIR={tmp}\n",
            key = key.display(),
            authorized = authorized.display(),
            tmp = self.temporary(host).display(),
        );
        let path = self.path(&format!("sshd-{host}"));
        fs::write(&path, configuration).expect("a file");
        let sshd = find("sshd").expect("it was found before");
        let daemon = Command::new("ip")
            .args(["netns", "exec", &self.namespace(host)])
            .arg(sshd)
            .args(["-D", "-e", "-f"])
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(self.path(&format!("sshd-{host}.log"))).expect("a file"))
            .spawn();
        self.daemons.push(daemon.expect("ip runs"));
        let log = self.path(&format!("sshd-{host}.log"));
        let patience = Patience::new();
        while !fs::read_to_string(&log).unwrap_or_default().contains("Server listening") {
            patience.wait_a_little("sshd does not listen");
        }
    }

    fn configure_ssh(&self, number: u8) {
        let mut text = String::new();
        for host in HOSTS {
            text += &format!("Host {host}\n  HostName {}\n", Self::address(number, host));
        }
        text += &format!(
            "Host *\n  User root\n  IdentityFile {}\n  IdentitiesOnly yes\n  StrictHostKeyChecking no\n  \
             UserKnownHostsFile /dev/null\n  LogLevel ERROR\n",
            self.path("key").display()
        );
        fs::write(self.path("ssh.conf"), text).expect("a file");
    }

    /// A plan whose parts run on the hosts, with these clients; `end` applies to each measurement.
    fn plan(&self, clients: &str, end: &str) -> String {
        let options = format!("options = [\"-F\", \"{}\"]", self.path("ssh.conf").display());
        format!(
            "title = \"Apart\"\nproxies = [\"direct\", \"vanward\"]\nrepeats = 1\nduration = \"10m\"\n\
             [machine.client]\nssh = {clients}\n{options}\n[machine.proxy]\nssh = \"proxy\"\n{options}\n\
             [machine.origin]\nssh = \"origin\"\n{options}\n\
             [[case]]\nname = \"{{scheme}}\"\nscheme = [\"http\", \"https\"]\npayload = \"tiny\"\nconnections = 4\n{end}\n"
        )
    }

    fn run(&self, plan: &str) -> Process {
        fs::write(self.path("plan.toml"), plan).expect("a plan");
        Process::start_in(self.folder.path(), &["lab", "run", "plan.toml", "--out", "out"])
    }

    fn results(&self) -> Results {
        let text = fs::read_to_string(self.path("out/results.json")).expect("results");
        Results::from_json(&text).expect("it reads what it wrote")
    }

    /// Lists the programs on a host except its sshd and that one's sessions.
    fn programs(&self, host: &str) -> Vec<String> {
        let listed =
            Command::new("ip").args(["netns", "pids", &self.namespace(host)]).output().expect("ip runs");
        let ids = String::from_utf8(listed.stdout).expect("numbers");
        let command = |id: &str| {
            let words = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&words).replace('\0', " ")
        };
        ids.lines().map(command).filter(|command| command.contains("vanward")).collect()
    }

    /// Waits until the lab has left no process and no file on a host.
    fn is_left_clean(&self, host: &str) {
        let patience = Patience::new();
        let files = || fs::read_dir(self.temporary(host)).expect("it is there").count();
        while !self.programs(host).is_empty() || files() > 0 {
            patience.wait_a_little(&format!("{host} has {} files, {:?}", files(), self.programs(host)));
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in HOSTS {
            // All remaining processes belong to this test.
            let listed = Command::new("ip").args(["netns", "pids", &self.namespace(host)]).output();
            let ids =
                listed.map(|listed| String::from_utf8_lossy(&listed.stdout).into_owned()).unwrap_or_default();
            for id in ids.lines().filter_map(|id| Pid::from_raw(id.parse().ok()?)) {
                let _ = kill_process(id, Signal::KILL);
            }
            try_ip(&format!("link del {}", self.port(host)));
            try_ip(&format!("netns del {}", self.namespace(host)));
        }
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        try_ip(&format!("link del {}", self.switch()));
    }
}

#[allow(clippy::print_stderr, reason = "whoever runs the tests has to know that this one did nothing")]
fn skip(missing: &str) {
    eprintln!("skipped: the lab over several machines needs {missing}");
}

/// Whether the kernel can create hosts and their connections.
fn can_be_made(number: u8) -> bool {
    let name = format!("vwt{}{number}", std::process::id() % 100_000);
    let steps = [
        format!("netns add {name}"),
        format!("link add {name} type bridge"),
        format!("link add {name}p type veth peer name eth0 netns {name}"),
    ];
    let can = steps.iter().all(|step| try_ip(step));
    for step in [format!("link del {name}p"), format!("link del {name}"), format!("netns del {name}")] {
        try_ip(&step);
    }
    can
}

fn try_ip(arguments: &str) -> bool {
    let ended = Command::new("ip").args(arguments.split(' ')).stderr(Stdio::null()).status();
    ended.is_ok_and(|status| status.success())
}

fn ip(arguments: &str) {
    let ended = Command::new("ip").args(arguments.split(' ')).output().expect("ip runs");
    assert!(ended.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&ended.stderr));
}

fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let beyond = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(beyond).map(|folder| folder.join(name)).find(|path| Path::exists(path))
}

#[test]
fn parts_on_machines_of_their_own_are_measured_together_and_leave_nothing_behind() {
    let Some(network) = Network::make(1) else { return };
    let ended = network.run(&network.plan("\"client\"", COUNTED)).ended();
    assert!(matches!(ended.status.code(), Some(0 | INVALID_RUN)), "{ended:?}");
    let results = network.results();
    assert_eq!((results.runs.len(), results.machines.len(), results.incomplete.as_deref()), (3, 3, None));
    for run in &results.runs {
        let figures = run.outcome.figures().unwrap_or_else(|| panic!("{run:?}"));
        assert!(figures.requests > 0 && figures.error_count() == 0, "{run:?}");
        assert_eq!(figures.usage.is_some(), run.proxy == "vanward", "{run:?}");
        assert!(figures.origins_cpu_seconds.is_some() && figures.network.is_some(), "{run:?}");
        assert!(run.command.contains(&format!("//{}.", Network::network(1))), "{run:?}");
    }
    assert!(
        results.machines.iter().all(|place| place.address.starts_with(&Network::network(1))),
        "{results:?}"
    );
    HOSTS.iter().for_each(|host| network.is_left_clean(host));
}

#[test]
fn several_clients_make_one_load() {
    let Some(network) = Network::make(2) else { return };
    // One of the clients is the origins' machine: a machine has one agent for all purposes.
    let plan = network.plan("[\"client\", \"origin\"]", COUNTED).replace("[\"http\", \"https\"]", "\"http\"");
    let ended = network.run(&plan.replace("\"direct\", ", "")).ended();
    assert!(matches!(ended.status.code(), Some(0 | INVALID_RUN)), "{ended:?}");
    let results = network.results();
    let [run] = &results.runs[..] else { panic!("{results:?}") };
    let figures = run.outcome.figures().unwrap_or_else(|| panic!("{run:?}"));
    assert_eq!(figures.latency.count(), figures.requests, "{run:?}");
    assert_eq!(run.command.matches("-c 2 ").count(), 2, "{}", run.command);
    assert_eq!(results.machines.len(), 3);
    HOSTS.iter().for_each(|host| network.is_left_clean(host));
}

#[test]
fn a_broken_connection_keeps_what_was_measured_and_leaves_nothing_behind() {
    let Some(network) = Network::make(3) else { return };
    let plan = network.plan("\"client\"", "").replace("repeats = 1\n", "repeats = 1\nwarm_up = \"1ms\"\n");
    let lab = network.run(&plan);
    let patience = Patience::new();
    // Its agent, and its generator under load.
    while network.programs("client").iter().filter(|command| command.contains(" load ")).count() == 0 {
        patience.wait_a_little("no load runs");
    }
    // The cable is unplugged: neither end is notified.
    ip(&format!("link set {} down", network.port("client")));
    let ended = lab.ended().with_code(FAILED);
    assert!(ended.errors.contains("the connection to the agent on client was lost"), "{}", ended.errors);
    let results = network.results();
    assert!(results.incomplete.is_some_and(|said| said.contains("of 3 measurements")));
    assert!(results.runs.iter().all(|run| !matches!(run.outcome, MeasurementOutcome::Measured(_))));
    HOSTS.iter().for_each(|host| network.is_left_clean(host));
}

#[test]
fn a_machine_that_cannot_be_reached_is_named_with_what_ssh_says() {
    let Some(network) = Network::make(4) else { return };
    let ended = network.run(&network.plan("\"nobody.invalid\"", COUNTED)).ended().with_code(FAILED);
    assert!(
        ended.errors.contains("nobody.invalid was lost") && ended.errors.contains("resolve"),
        "{}",
        ended.errors
    );
    HOSTS.iter().for_each(|host| network.is_left_clean(host));
}
