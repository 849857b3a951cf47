//! The peers: how to start each with a configuration, and how to recognize its own responses.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};

use super::asked::{Ask, Got, ask};
use crate::process::Patience;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Peer {
    Nginx,
    Haproxy,
    Caddy,
    Varnish,
    Squid,
    Pound,
    Traefik,
    Apache,
}

impl Peer {
    /// The name in `vanward adapt`, which is also the program's.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::Caddy => "caddy",
            Self::Varnish => "varnish",
            Self::Squid => "squid",
            Self::Pound => "pound",
            Self::Traefik => "traefik",
            Self::Apache => "apache",
        }
    }

    pub(crate) fn program(self) -> &'static str {
        match self {
            Self::Varnish => "varnishd",
            Self::Apache => "apache2",
            other => other.word(),
        }
    }

    /// Samples that run without certificates and other servers.
    pub(crate) fn samples(self) -> &'static [&'static str] {
        match self {
            Self::Nginx => &[
                "01-reverse-proxy.conf",
                "03-load-balancing.conf",
                "04-spa-api.conf",
                "05-static-site.conf",
                "06-websocket.conf",
                "07-cache.conf",
                "08-limits-auth.conf",
                "10-names-regex.conf",
                "11-api-gateway.conf",
                "12-redirects.conf",
                "13-conditions.conf",
                "14-files-else-server.conf",
                "15-errors-elsewhere.conf",
                "16-maintenance.conf",
                "17-blue-green.conf",
                "18-bad-bots.conf",
                "19-cors.conf",
                "20-mobile.conf",
                "21-hosts.conf",
                "22-set-upstream.conf",
                "23-cache-bypass.conf",
                "24-log-errors.conf",
                "25-limits-allowed.conf",
                "26-redirect-map.conf",
                "27-content-of-if.conf",
                "28-missing-files.conf",
                "29-named-files.conf",
            ],
            Self::Haproxy => &[
                "01-reverse-proxy.cfg",
                "03-hosts-paths.cfg",
                "04-rate-limit.cfg",
                "05-access.cfg",
                "06-rewrites.cfg",
                "07-sessions-compression.cfg",
                "09-gateway.cfg",
                "10-tenants.cfg",
                "11-combinations.cfg",
                "12-scanners.cfg",
                "13-networks.cfg",
                "14-parameters.cfg",
                "15-order.cfg",
                "16-host-map.cfg",
                "17-blue-green.cfg",
                "18-block-lists.cfg",
                "19-redirect-maps.cfg",
                "20-tenant-maps.cfg",
                "21-variables.cfg",
            ],
            Self::Caddy => &[
                "01-reverse-proxy.Caddyfile",
                "03-static-site.Caddyfile",
                "04-spa-api.Caddyfile",
                "05-matchers.Caddyfile",
                "06-hosts.Caddyfile",
                "07-auth.Caddyfile",
                "08-rewrites.Caddyfile",
                "09-gateway.Caddyfile",
                "10-expressions.Caddyfile",
                "11-sets.Caddyfile",
                "12-handles.Caddyfile",
                "13-guards.Caddyfile",
                "14-host-ports.Caddyfile",
                "15-flags.Caddyfile",
                "16-redirect-map.Caddyfile",
                "17-tenants.Caddyfile",
                "18-php.Caddyfile",
            ],
            Self::Varnish => &[
                "01-site.vcl",
                "02-directors.vcl",
                "03-rules.vcl",
                "04-default.vcl",
                "05-pass.vcl",
                "06-devices.vcl",
                "07-access.vcl",
                "08-cache.vcl",
                "09-devices-apart.vcl",
                "10-keys.vcl",
                "11-restarts.vcl",
                "12-stored-restarts.vcl",
            ],
            Self::Squid => {
                &["01-accelerator.conf", "02-sites.conf", "03-several-servers.conf", "04-rules.conf"]
            }
            Self::Apache => &["01-sites.conf"],
            Self::Pound => &["01-sites.cfg", "03-hosts-paths.cfg", "04-fields.cfg"],
            Self::Traefik => {
                &["01-whoami.yml", "03-hosts.yml", "04-guards.yml", "05-rules.yml", "06-paths.yml"]
            }
        }
    }

    /// Whether the peer itself wrote the response.
    pub(crate) fn is_own(self, got: &Got) -> bool {
        match self {
            Self::Nginx => got.body.contains("<center>") || got.body.is_empty(),
            Self::Haproxy => got.body.contains("<html><body><h1>") || got.body.is_empty(),
            Self::Caddy => got.body.is_empty(),
            Self::Apache => {
                got.body.contains("<address>") || got.body.contains("<title>") || got.body.is_empty()
            }
            Self::Squid => got.body.contains("squid") || got.body.is_empty(),
            Self::Pound => got.body.contains("<h1>") || got.body.is_empty(),
            // The body is the status's name.
            Self::Traefik => got.body.len() < 40 && !got.body.contains('/') || got.body.is_empty(),
            Self::Varnish => got.body.contains("Varnish cache server") || got.body.is_empty(),
        }
    }

    pub(crate) fn start(self, program: &Path, folder: &Path, text: &str, address: SocketAddr) -> Running {
        let file = folder.join("peer.conf");
        let mut command = Command::new(program);
        let mut memory = None;
        command.current_dir(folder);
        match self {
            Self::Nginx => {
                write(&file, &of_nginx(text, folder));
                command.arg("-p").arg(folder).arg("-c").arg(&file).args(["-e", "stderr"]);
            }
            Self::Haproxy => {
                // The test decides on user and group.
                let of_the_service = ["chroot", "user ", "group", "daemon", "log /dev/log", "stats socket"];
                let lines = text.lines().filter(|line| {
                    line.starts_with("userlist")
                        || line.contains("password")
                        || !of_the_service.iter().any(|word| line.trim_start().starts_with(word))
                });
                write(&file, &(lines.collect::<Vec<_>>().join("\n") + "\n"));
                command.arg("-db").arg("-q").arg("-f").arg(&file);
            }
            Self::Apache => {
                write(&file, &of_apache(text, folder));
                command.arg("-X").arg("-d").arg(folder).arg("-f").arg(&file);
            }
            Self::Squid => {
                let quiet = "pid_filename none\ncache_log /dev/null\naccess_log none\npinger_enable off\nshutdown_lifetime 0 seconds\n";
                write(&file, &format!("{quiet}{text}"));
                // Processes with the same name share memory, and only the first of them starts.
                let name: String = address.to_string().chars().filter(char::is_ascii_digit).collect();
                let name = format!("adapt{name}");
                command.arg("-N").arg("-f").arg(&file).arg("-n").arg(&name);
                memory = Some(format!("{name}-"));
            }
            Self::Pound => {
                // The test decides on user, group and log.
                let of_the_service = ["user ", "group ", "daemon", "control", "loglevel"];
                let lines = text.lines().filter(|line| {
                    let line = line.trim_start().to_ascii_lowercase();
                    !of_the_service.iter().any(|word| line.starts_with(word))
                });
                write(&file, &format!("Daemon 0\n{}\n", lines.collect::<Vec<_>>().join("\n")));
                command.arg("-f").arg(&file).arg("-p").arg(folder.join("pound.pid"));
            }
            Self::Traefik => {
                let file = folder.join("peer.yml");
                write(&file, text);
                command.arg(format!("--configFile={}", file.display()));
            }
            Self::Varnish => {
                write(&file, text);
                command
                    .args(["-F", "-j", "none", "-T", "none", "-s", "malloc,50M", "-a"])
                    .arg(address.to_string());
                command.arg("-f").arg(&file).arg("-n").arg(folder.join("varnish"));
            }
            Self::Caddy => {
                write(&file, text);
                command.args(["run", "--adapter", "caddyfile", "--config"]).arg(&file);
                for variable in ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"] {
                    command.env(variable, folder);
                }
            }
        }
        // These have verbose logs.
        let told = if matches!(self, Self::Caddy | Self::Varnish | Self::Squid) {
            Stdio::null()
        } else {
            Stdio::inherit()
        };
        let mut child = command.stdout(Stdio::null()).stderr(told).spawn().expect("the peer starts");
        self.wait(&mut child, address);
        Running { child, memory }
    }

    fn wait(self, child: &mut Child, address: SocketAddr) {
        let patience = Patience::new();
        while TcpStream::connect(address).is_err() {
            let ended = child.try_wait().expect("a child of ours");
            assert!(ended.is_none(), "{} ended: {ended:?}", self.word());
            patience.wait_a_little("the peer does not listen");
        }
        if self == Self::Traefik {
            // The peer listens before it has read its routes.
            let first =
                Ask { method: "GET", host: "app.example.com", target: "/", fields: String::new(), body: "" };
            while ask(address, &first).status == 404 {
                patience.wait_a_little("the peer has no routes");
            }
        }
    }
}

/// Adapts a configuration of nginx to write only into a folder, and to stay in the foreground.
fn of_nginx(text: &str, folder: &Path) -> String {
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("{kind}_temp_path {}/{kind};", folder.display()))
        .collect();
    let text = text.replacen("http {", &format!("http {{ access_log off; {temporary}"), 1);
    format!("daemon off; master_process off; pid nginx.pid; error_log stderr crit;\n{text}")
}

/// Adapts a configuration of Apache to write only into a folder, and to find its modules.
fn of_apache(text: &str, folder: &Path) -> String {
    const MODULES: [&str; 16] = [
        "mpm_event",
        "authz_core",
        "authz_host",
        "authz_user",
        "authn_core",
        "authn_file",
        "auth_basic",
        "alias",
        "headers",
        "proxy",
        "proxy_http",
        "proxy_balancer",
        "lbmethod_byrequests",
        "slotmem_shm",
        "socache_shmcb",
        "proxy_wstunnel",
    ];
    let modules: String = MODULES
        .iter()
        .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
        .collect();
    let of_the_service = ["ServerRoot", "LoadModule", "CustomLog"];
    let lines =
        text.lines().filter(|line| !of_the_service.iter().any(|word| line.trim_start().starts_with(word)));
    let folder = folder.display();
    let own = format!(
        "PidFile {folder}/apache.pid\nErrorLog /dev/null\nDefaultRuntimeDir {folder}\nServerName localhost\n{modules}"
    );
    own + &lines.collect::<Vec<_>>().join("\n") + "\n"
}

fn write(file: &Path, text: &str) {
    std::fs::write(file, text).expect("it is writable");
}

/// A running peer; killed when dropped.
pub(crate) struct Running {
    child: Child,
    /// Prefix of its shared memory's names, which outlives the process.
    memory: Option<String>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let Some(memory) = &self.memory else { return };
        for file in std::fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
            if file.file_name().to_string_lossy().starts_with(memory.as_str()) {
                let _ = std::fs::remove_file(file.path());
            }
        }
    }
}

/// Finds a program. In CI it must be installed.
pub(crate) fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    let found = places.map(|place| place.join(program)).find(|file| file.is_file());
    assert!(found.is_some() || std::env::var_os("CI").is_none(), "{program} is missing, and CI is set");
    found
}

/// Returns an address with a free port. Each is another loopback address, whose port no client can use meanwhile.
pub(crate) fn free_address() -> SocketAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let host = Ipv4Addr::new(127, 77, NEXT.fetch_add(1, Ordering::Relaxed), 1);
    TcpListener::bind((host, 0)).and_then(|listener| listener.local_addr()).expect("a port is free")
}

pub(crate) fn site(folder: &Path) {
    for (name, text) in [
        ("www/index.html", "<p>index</p>\n"),
        ("www/new.html", "<p>new</p>\n"),
        ("www/404.html", "<p>nothing</p>\n"),
        ("www/assets/app.js", "let a = 1;\n"),
        ("files/a.txt", "a\n"),
        ("mime.types", "types { text/html html; application/javascript js; text/plain txt; }\n"),
        ("users", "staff:$apr1$abcdefgh$EG9uAbGbnMM.Yx7ANiMdB.\n"),
        ("staff.users", "alice:$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA\n"),
        ("caddy.users", "alice:$2y$04$IEJjY5w7BxcDd5Jx/mhcHO8MMuqxzXRjyF9GupYGsf4xR6T66xbZG\n"),
        ("agents.lst", "# agents that are refused\nsqlmap\nnikto\nmasscan\n"),
        ("blocked.lst", "127.0.0.0/16\n203.0.113.0/24\n"),
        ("logs/none", ""),
    ] {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().expect("it has a folder")).expect("it is writable");
        write(&path, text);
    }
    // Workers of nginx may run as another user.
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
}
