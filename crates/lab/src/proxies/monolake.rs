//! Driver of monolake: a thread per worker, with io_uring if the kernel has it.

use std::fmt::Write as _;
use std::path::Path;

use report::results::{File, ProxyRole};

use super::{Driver, Installed, Launch, Service, text, version_behind};
use crate::error::Error;

pub const DRIVER: Driver = Driver {
    name: "monolake",
    role: ProxyRole::Peer,
    program: Some(("monolake", "--version")),
    remedy: "build it from its source with Rust's nightly, https://github.com/cloudwego/monolake",
    version: |build| version_behind(build, "monolake "),
    configure,
};

fn configure(installed: &Installed, service: &Service, folder: &Path) -> Result<Launch, Error> {
    service.keeps_alive_unlogged(DRIVER.name)?;
    service.passes_on_only(DRIVER.name)?;
    service.is_http1_or_tls(DRIVER.name)?;
    let mut configuration = format!(
        "[runtime]\nworker_threads = {}\nentries = 4096\n\n[servers.lab]\nname = \"lab\"\nproxy_type = \"http\"\n\
         listener = {{ type = \"socket\", value = \"{}\" }}\n",
        service.workers, service.listen
    );
    if let Some(tls) = &service.tls {
        let (chain, key) = (text(&tls.certificate), text(&tls.key));
        let _ =
            writeln!(configuration, "tls = {{ chain = \"{chain}\", key = \"{key}\", stack = \"rustls\" }}");
    }
    // monolake replaces the path of every request by the endpoint's path, and keeps the query. So each path is a route.
    let target = service.target.as_deref();
    let target = target.ok_or(Error::Unsupported { name: DRIVER.name, what: "a list of URLs" })?;
    let path = target.split('?').next().unwrap_or(target);
    let origins: Vec<String> = service
        .origins
        .iter()
        .map(|origin| format!("{{ endpoint = {{ type = \"uri\", value = \"http://{origin}{path}\" }} }}"))
        .collect();
    let _ = write!(
        configuration,
        "\n[[servers.lab.routes]]\npath = \"{path}\"\nupstreams = [{}]\n",
        origins.join(", ")
    );
    let file = File { name: "monolake.toml".to_owned(), text: configuration };
    // By default it logs two lines for each request.
    let command = ["env", "RUST_LOG=error", &text(&installed.program), "-c", &text(&folder.join(&file.name))];
    let command = command.map(str::to_owned).to_vec();
    Ok(Launch { command, files: vec![file], ..Launch::default() })
}
