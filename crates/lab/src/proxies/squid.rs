//! Driver of Squid as an accelerator with a memory cache, in one process.

use std::fmt::Write as _;
use std::path::Path;

use report::results::ProxyRole;

use super::{Driver, Installed, Launch, Service, text, version_behind};
use crate::error::Error;
use crate::plan::Features;

pub const DRIVER: Driver = Driver {
    name: "squid",
    role: ProxyRole::Peer,
    program: Some(("squid", "-v")),
    remedy: "apt-get install squid",
    version: |build| version_behind(build, "Version "),
    configure,
};

fn configure(installed: &Installed, service: &Service, folder: &Path) -> Result<Launch, Error> {
    service.is_plain(DRIVER.name)?;
    service.is_http1(DRIVER.name)?;
    service.keeps_alive_unlogged(DRIVER.name)?;
    let passing = Service { features: Features { cache_bytes: None, ..service.features }, ..service.clone() };
    passing.passes_on_only(DRIVER.name)?;
    if service.workers.get() > 1 {
        return Err(Error::Unsupported { name: DRIVER.name, what: "several workers" });
    }
    let cache = match service.features.cache_bytes {
        Some(bytes) => format!("cache_mem {} KB\nmaximum_object_size_in_memory 1 MB\n", bytes / 1024),
        None => "cache deny all\n".to_owned(),
    };
    let mut configuration = format!("http_port {} accel defaultsite=localhost vhost\n", service.listen);
    for (index, origin) in service.origins.iter().enumerate() {
        let (ip, port) = (origin.ip(), origin.port());
        let _ = writeln!(
            configuration,
            "cache_peer {ip} parent {port} 0 no-query no-digest originserver round-robin name=origin{}",
            index + 1
        );
    }
    let _ = write!(
        configuration,
        "http_access allow all\naccess_log none\ncache_log {}\npid_filename none\n{cache}memory_cache_shared off\n\
         shutdown_lifetime 0 seconds\nvisible_hostname lab\nmax_filedescriptors 8192\ncoredump_dir {}\n",
        text(&folder.join("cache.log")),
        text(folder),
    );
    Ok(Launch::with((installed, folder), ("squid.conf", configuration), &["-N", "-f", "{file}"]))
}
