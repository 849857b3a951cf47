//! The text of a file with the same meaning as the flags of `vanward proxy`.

use std::fmt::Write;
use std::path::Path;

use config::{ListenAddress, LogTarget};
use toml_text::literal as quoted;

use super::{ProxyArgs, ProxyLogFormat};

/// The name of the only upstream.
const UPSTREAM: &str = "default";

/// Lines of a file.
#[derive(Default)]
struct FileText(String);

impl FileText {
    fn header(&mut self, header: &str) {
        self.line(&format!("\n{header}"));
    }

    fn set(&mut self, option: &str, value: impl std::fmt::Display) {
        self.line(&format!("{option} = {value}"));
    }

    fn line(&mut self, line: &str) {
        // Writing into a String does not fail.
        let _ = writeln!(self.0, "{line}");
    }
}

/// The text of a file for the flags.
///
/// # Errors
/// Why there can be no HTTP/3.
pub(super) fn text(arguments: &ProxyArgs) -> Result<String, &'static str> {
    let mut text = FileText::default();
    text.line("# From the flags of vanward proxy.");
    if let Some(workers) = arguments.workers {
        text.set("workers", workers);
    }
    if let Some(admin) = arguments.operation.admin() {
        text.set("admin", path(&admin));
    }
    listeners(arguments, &mut text)?;
    route(arguments, &mut text);
    if !arguments.to.is_empty() {
        let servers = arguments.to.iter().map(|server| quoted(&server.to_string()));
        text.header(&format!("[upstream.{UPSTREAM}]"));
        text.set("servers", list(servers));
    }
    if let Some(bytes) = arguments.cache {
        text.header("[cache]");
        text.set("memory", bytes);
    }
    if arguments.no_shed {
        text.header("[shed]");
        text.set("concurrency", quoted("off"));
    }
    arguments.automatic.write(&mut |option, value| match option {
        "" => text.header(value),
        option => text.set(option, value),
    });
    faults(arguments, &mut text);
    log(arguments, &mut text);
    let messages = arguments.operation.messages.words();
    if !messages.is_empty() {
        text.header("[messages]");
        messages.into_iter().for_each(|(option, word)| text.set(option, quoted(word)));
    }
    Ok(text.0)
}

fn listeners(arguments: &ProxyArgs, text: &mut FileText) -> Result<(), &'static str> {
    let may_have_http3 = !arguments.no_http3 && (arguments.http3 || arguments.self_signed);
    let mut some_have = false;
    for address in &arguments.from {
        text.header("[[listen]]");
        text.set("address", quoted(&address.to_string()));
        if let Some(profile) = arguments.profile {
            text.set("profile", quoted(profile.name));
        }
        let tls = tls(arguments, address);
        let has_http3 = may_have_http3 && tls.is_some() && address.port().is_some();
        if tls.is_none() && arguments.automatic.redirects(address) {
            text.set("redirect_to_https", true);
        }
        if let Some(tls) = tls {
            text.set("tls", tls);
        }
        if has_http3 {
            text.set("http3", true);
        }
        some_have |= has_http3;
    }
    match (may_have_http3 && arguments.http3 && !some_have, arguments.self_signed || arguments.cert.is_some())
    {
        (false, _) => Ok(()),
        (true, true) => Err("--http3 needs an address with a port: QUIC is spoken over UDP"),
        (true, false) => Err(
            "--http3 needs a certificate: QUIC is always encrypted; add --cert and --key, --domain, or --self-signed",
        ),
    }
}

/// The option `tls`; `None` for HTTP.
fn tls(arguments: &ProxyArgs, address: &ListenAddress) -> Option<String> {
    if let Some(automatic) = arguments.automatic.tls(address) {
        return Some(automatic);
    }
    if arguments.automatic.redirects(address) {
        return None;
    }
    if arguments.self_signed {
        return Some("{ self_signed = true }".to_owned());
    }
    let (cert, key) = (arguments.cert.as_deref()?, arguments.key.as_deref()?);
    Some(format!("{{ cert = {}, key = {} }}", path(cert), path(key)))
}

fn route(arguments: &ProxyArgs, text: &mut FileText) {
    text.header("[[route]]");
    match &arguments.files {
        Some(root) => text.set("files", format_args!("{{ root = {} }}", path(root))),
        None => text.set("upstream", quoted(UPSTREAM)),
    }
    if let Some(auth) = &arguments.auth {
        text.set("auth", format_args!("{{ users = {} }}", path(&auth.file)));
    }
    if !arguments.cors.is_empty() {
        // Any method and any field but Authorization: what a page may do is up to the servers.
        let origins = list(arguments.cors.iter().map(|origin| quoted(&origin.to_string())));
        text.set("cors", format_args!("{{ origins = {origins}, methods = [\"*\"], headers = [\"*\"] }}"));
    }
    for (option, rates) in [("rate", &arguments.rate), ("upload_rate", &arguments.upload_rate)] {
        if !rates.is_empty() {
            text.set(option, list(rates.iter().map(|rate| quoted(&config::written_bandwidth(rate)))));
        }
    }
    if let Some(delay) = &arguments.delay {
        text.set("delay", quoted(&config::written_delay(delay)));
    }
    if arguments.cache.is_some() {
        text.set("cache", "{}");
    }
    if arguments.compress {
        text.set("compress", true);
    }
}

fn faults(arguments: &ProxyArgs, text: &mut FileText) {
    if arguments.fail.is_empty() {
        return;
    }
    text.header("[faults]");
    text.set("seed", arguments.seed);
    for (occasion, fault) in &arguments.fail {
        text.header("[[fault]]");
        text.set("inject", quoted(&config::written_fault(fault)));
        text.set("probability", quoted(&config::written_share(&occasion.probability)));
    }
}

fn log(arguments: &ProxyArgs, text: &mut FileText) {
    let Some(log) = &arguments.log else { return };
    let target = match log.as_os_str().as_encoded_bytes() {
        b"-" => LogTarget::Stdout,
        _ => LogTarget::File(log.clone()),
    };
    let format = match arguments.log_format {
        ProxyLogFormat::Extended => "extended",
        ProxyLogFormat::Combined => "combined",
        ProxyLogFormat::Json => "json",
    };
    text.header("[log]");
    text.set("target", quoted(&target.to_string()));
    text.set("format", quoted(format));
}

fn path(path: &Path) -> String {
    quoted(&path.display().to_string())
}

fn list(values: impl Iterator<Item = String>) -> String {
    format!("[{}]", values.collect::<Vec<_>>().join(", "))
}
