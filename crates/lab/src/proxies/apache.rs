//! Driver of Apache httpd, with its event MPM and only the modules that a proxy needs.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use report::results::{ClientVersion, ProxyRole};

use super::{Driver, Installed, Launch, Service, text, version_behind};
use crate::error::Error;

pub const DRIVER: Driver = Driver {
    name: "apache",
    role: ProxyRole::Peer,
    program: Some(("apache2", "-v")),
    remedy: "apt-get install apache2",
    version: |build| version_behind(build, "Apache/"),
    configure,
};

const MODULE_FOLDERS: [&str; 3] =
    ["/usr/lib/apache2/modules", "/usr/lib64/httpd/modules", "/usr/libexec/apache2"];
const MODULES: [&str; 7] = [
    "mpm_event",
    "authz_core",
    "slotmem_shm",
    "proxy",
    "proxy_http",
    "proxy_balancer",
    "lbmethod_byrequests",
];
/// Threads per process: a request that waits for an origin occupies a thread.
const THREADS_PER_PROCESS: usize = 512;

fn configure(installed: &Installed, service: &Service, folder: &Path) -> Result<Launch, Error> {
    service.passes_on_only(DRIVER.name)?;
    let modules = MODULE_FOLDERS.into_iter().map(PathBuf::from).find(|folder| folder.is_dir());
    let modules =
        modules.ok_or(Error::Unsupported { name: DRIVER.name, what: "modules in an unknown folder" })?;
    Ok(Launch::with(
        (installed, folder),
        ("httpd.conf", configuration(service, folder, &modules)),
        &["-D", "FOREGROUND", "-f", "{file}"],
    ))
}

fn configuration(service: &Service, folder: &Path, modules: &Path) -> String {
    let folder = text(folder);
    let mut out = format!(
        "ServerName lab\nServerRoot \"{folder}\"\nDefaultRuntimeDir \"{folder}\"\nPidFile \"{folder}/httpd.pid\"\n\
         ErrorLog /dev/stderr\nLogLevel error\nListen {}\nListenBacklog 4096\n",
        service.listen
    );
    let tls = service.tls.as_ref().map(|_| ["ssl", "socache_shmcb"]);
    let http2 = (service.version == ClientVersion::Http2).then_some("http2");
    for module in MODULES.into_iter().chain(tls.into_iter().flatten()).chain(http2) {
        let _ = writeln!(out, "LoadModule {module}_module {}/mod_{module}.so", modules.display());
    }
    // Apache refuses to run its workers as root.
    if rustix::process::geteuid().is_root() {
        out.push_str("User nobody\nGroup #65534\n");
    }
    let (processes, threads) = (service.workers.get(), THREADS_PER_PROCESS);
    let all = processes * threads;
    let _ = write!(
        out,
        "ServerLimit {processes}\nStartServers {processes}\nThreadLimit {threads}\nThreadsPerChild {threads}\n\
         MaxRequestWorkers {all}\nMinSpareThreads {all}\nMaxSpareThreads {all}\nAsyncRequestWorkerFactor 4\n\
         KeepAlive {}\nKeepAliveTimeout 75\nMaxKeepAliveRequests 0\n",
        if service.keep_alive { "On" } else { "Off" },
    );
    if service.access_log {
        let _ = write!(
            out,
            "LogFormat \"%h %l %u %t \\\"%r\\\" %>s %b\" common\nCustomLog \"{folder}/access.log\" common\n"
        );
    }
    if let Some(tls) = &service.tls {
        let _ = write!(
            out,
            "SSLEngine On\nSSLProtocol TLSv1.3\nSSLCertificateFile \"{}\"\nSSLCertificateKeyFile \"{}\"\n",
            text(&tls.certificate),
            text(&tls.key)
        );
    }
    if service.version == ClientVersion::Http2 {
        out.push_str("Protocols h2 h2c http/1.1\n");
    }
    out.push_str("ProxyRequests Off\nProxyAddHeaders Off\nProxyVia Off\n<Proxy \"balancer://origins\">\n");
    let pooled = if service.keep_alive { "" } else { " disablereuse=on" };
    for origin in &service.origins {
        let _ = writeln!(out, "    BalancerMember \"http://{origin}\"{pooled}");
    }
    out.push_str("</Proxy>\nProxyPass \"/\" \"balancer://origins/\"\n");
    out
}
