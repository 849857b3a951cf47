//! `vanward adapt`: translates the configuration of another proxy to `vanward.toml`.
//!
//! It reads files and their includes; the crate `adapt` translates them.

/// `--prove`: runs the old proxy beside Vanward.
#[cfg(feature = "lab")]
mod prove;

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use adapt::Adapted;
use clap::ValueEnum as _;
use mistake::repeated;

/// Longer files are rejected.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Translates the configuration of another proxy to vanward.toml.
///
/// The result is written to standard output. A comment at each option names the line that it came from. Standard
/// error lists every other directive: those that need nothing, those that work differently, and those that cannot be
/// taken over, with the reason and what to do. Included files are read, too, relative to the folder of the file. See
/// docs/adapt.md.
///
/// The exit code is 0; with --check, it is 1 if a directive cannot be taken over. It is 78 if the file has a syntax
/// error, or nothing that can be taken over.
///
/// With --prove, the other proxy and Vanward run side by side on loopback, and get the same generated requests, and
/// those of --capture. The report lists every difference, and what no request reached. The exit code is 0 if nothing differs and everything
/// was reached, 1 for differences, and 98 if something could not be reached or started. It supports nginx, haproxy,
/// caddy, varnish, traefik and apache, which must be installed. HTTP/3, client certificates, and servers of uwsgi, SCGI, gRPC and
/// memcached are not tested.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AdaptArgs {
    /// Proxy that the configuration is for.
    #[arg(value_name = "PROXY")]
    peer: OtherProxy,

    /// Configuration file of that proxy; `-` is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Only report how much can be taken over.
    #[arg(long, conflicts_with = "output")]
    check: bool,

    /// Print an object with remarks, counts and the result (`toml`) as JSON on standard output.
    #[arg(long)]
    json: bool,

    /// Write the result to this file.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Overwrite the file of --output.
    #[arg(long, requires = "output")]
    force: bool,

    /// Run the other proxy and Vanward side by side, and report every difference. Vanward has the translated
    /// configuration, or that of CANDIDATE.
    #[arg(long, value_name = "CANDIDATE", num_args = 0..=1, conflicts_with_all = ["check", "output"])]
    prove: Option<Option<PathBuf>>,

    /// Maximum number of generated requests of --prove.
    #[arg(long, value_name = "N", requires = "prove", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    requests: u32,

    /// Also send the requests of this file of `vanward capture` with --prove, before the generated ones.
    #[arg(long, value_name = "FILE", requires = "prove")]
    capture: Option<PathBuf>,

    /// Repeat the times between the requests of --capture, which takes as long as the captured traffic.
    #[arg(long, requires = "capture")]
    paced: bool,

    /// Seed of the generated requests of --prove.
    #[arg(long, value_name = "N", requires = "prove", default_value_t = 1)]
    seed: u64,

    /// Write the report of --prove to this file, as an HTML page.
    #[arg(long, value_name = "FILE", requires = "prove")]
    html: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  vanward adapt nginx /etc/nginx/nginx.conf > vanward.toml
  vanward adapt nginx /etc/nginx/nginx.conf -o vanward.toml
  vanward adapt nginx --check /etc/nginx/nginx.conf      how much can be taken over
  nginx -T | vanward adapt nginx -                       all that nginx reads, in one
  vanward adapt haproxy /etc/haproxy/haproxy.cfg -o vanward.toml
  vanward adapt caddy /etc/caddy/Caddyfile -o vanward.toml
  vanward adapt traefik /etc/traefik/traefik.yml         with the files of its providers.file
  vanward adapt apache /etc/apache2/apache2.conf -o vanward.toml
  vanward adapt nginx /etc/nginx/nginx.conf --prove      run both proxies, and compare their answers
  vanward adapt nginx /etc/nginx/nginx.conf --prove vanward.toml
  vanward adapt nginx nginx.conf --prove --capture monday.capture    with captured requests
  vanward adapt nginx nginx.conf --json | jq -r '.remarks[] | select(.kind == \"not taken over\").directive'";

/// A proxy whose configurations can be translated.
#[derive(Clone, Copy, clap::ValueEnum)]
enum OtherProxy {
    Nginx,
    Haproxy,
    Caddy,
    Varnish,
    Squid,
    Pound,
    Zproxy,
    Traefik,
    Apache,
}

pub(crate) fn run(arguments: &AdaptArgs) -> ExitCode {
    if let (Some(_), Some(missing)) = (&arguments.prove, super::features::LAB.missing()) {
        return super::fail(super::USAGE, format_args!("--prove: {missing}"));
    }
    let (name, text) = match read(&arguments.file) {
        Ok(read) => read,
        Err(why) => {
            return super::fail(failure(arguments), format_args!("{}: {why}", arguments.file.display()));
        }
    };
    let folder = arguments.file.parent().map(Path::to_owned).unwrap_or_default();
    let adapt = match arguments.peer {
        OtherProxy::Nginx => adapt::nginx,
        OtherProxy::Haproxy => adapt::haproxy,
        OtherProxy::Caddy => adapt::caddy,
        OtherProxy::Varnish => adapt::varnish,
        OtherProxy::Squid => adapt::squid,
        OtherProxy::Pound => adapt::pound,
        OtherProxy::Zproxy => adapt::zproxy,
        OtherProxy::Traefik => adapt::traefik,
        OtherProxy::Apache => adapt::apache,
    };
    let adapted = match adapt(&text, &name, &mut |pattern| included(&folder, pattern)) {
        Ok(adapted) => adapted,
        Err(mistake) => {
            let _ = write!(std::io::stderr(), "{mistake}\n{}", mistake.shown());
            return ExitCode::from(super::BAD_CONFIGURATION);
        }
    };
    if adapted.taken == 0 {
        let _ = std::io::stderr().write_all(remarks(&adapted, &name, arguments).as_bytes());
        let peer = arguments.peer.to_possible_value().map(|peer| peer.get_name().to_owned());
        let peer = peer.unwrap_or_default();
        let why = format!("{name}: nothing can be taken over; is it a configuration of {peer}?");
        return super::fail(super::BAD_CONFIGURATION, why);
    }
    #[cfg(feature = "lab")]
    if let Some(candidate) = &arguments.prove {
        return proved(arguments, candidate.as_deref(), (&name, &text), &adapted, &folder);
    }
    if let Some(output) = &arguments.output
        && let Err(why) = write_to(output, &adapted.toml, arguments.force, 0o666)
    {
        return super::fail(super::FAILED, format_args!("{}: {why}", output.display()));
    }
    let mut said = String::new();
    if arguments.json {
        said = format!("{:#}\n", json(&adapted, &name, arguments));
    } else {
        let _ = std::io::stderr().write_all(remarks(&adapted, &name, arguments).as_bytes());
        if !arguments.check && arguments.output.is_none() {
            said.clone_from(&adapted.toml);
        }
    }
    match std::io::stdout().lock().write_all(said.as_bytes()) {
        // A closed pipe means that the reader has seen enough.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            super::fail(super::FAILED, format_args!("cannot write to standard output: {error}"))
        }
        _ if arguments.check && adapted.refused() > 0 => ExitCode::from(super::FAILED),
        _ => ExitCode::SUCCESS,
    }
}

/// The exit code of a file that cannot be read. With `--prove`, 1 is that of a difference.
#[cfg(feature = "lab")]
fn failure(arguments: &AdaptArgs) -> u8 {
    if arguments.prove.is_some() { super::verdict::INVALID } else { super::FAILED }
}

#[cfg(not(feature = "lab"))]
fn failure(_: &AdaptArgs) -> u8 {
    super::FAILED
}

/// Proves the translation, or a candidate.
#[cfg(feature = "lab")]
fn proved(
    arguments: &AdaptArgs,
    candidate_file: Option<&Path>,
    (name, text): (&str, &str),
    adapted: &Adapted,
    folder: &Path,
) -> ExitCode {
    let peer = match arguments.peer {
        OtherProxy::Nginx => ::prove::OldProxy::Nginx,
        OtherProxy::Haproxy => ::prove::OldProxy::Haproxy,
        OtherProxy::Caddy => ::prove::OldProxy::Caddy,
        OtherProxy::Varnish => ::prove::OldProxy::Varnish,
        OtherProxy::Traefik => ::prove::OldProxy::Traefik,
        OtherProxy::Apache => ::prove::OldProxy::Apache,
        _ => {
            let why = "--prove is for nginx, haproxy, caddy, varnish, traefik and apache";
            return super::fail(super::USAGE, why);
        }
    };
    let candidate = match candidate_file.map(|path| (path, read_file(path))) {
        None => adapted.toml.clone(),
        Some((_, Ok(text))) => text,
        Some((path, Err(why))) => {
            return super::fail(super::verdict::INVALID, format_args!("{}: {why}", path.display()));
        }
    };
    let capture = match arguments.capture.as_deref().map(|path| (path, capture_of(path))) {
        None => None,
        Some((_, Ok(capture))) => Some(capture),
        Some((path, Err(why))) => {
            return super::fail(super::verdict::INVALID, format_args!("{}: {why}", path.display()));
        }
    };
    if arguments.requests == 0 && capture.is_none() {
        return super::fail(super::USAGE, "--requests 0 leaves nothing to send; name a --capture");
    }
    let asked = prove::ToProve {
        peer,
        name,
        text,
        candidate: &candidate,
        candidate_file,
        adapted,
        requests: arguments.requests as usize,
        seed: arguments.seed,
        capture: capture.as_ref(),
        is_paced: arguments.paced,
        json: arguments.json,
        html: arguments.html.as_deref(),
    };
    prove::run(&asked, &mut |pattern| included(folder, pattern))
}

/// Reads a file of `vanward capture`.
#[cfg(feature = "lab")]
fn capture_of(path: &Path) -> Result<::capture::Capture, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("it cannot be read: {error}"))?;
    ::capture::read(&text).map_err(|error| error.to_string())
}

fn remarks(adapted: &Adapted, name: &str, arguments: &AdaptArgs) -> String {
    let mut text = String::new();
    // What the user has to do comes last, where it is read.
    let mut told = adapt::repeated(&adapted.remarks);
    told.sort_by_key(|remark| remark.first.kind);
    for remark in told {
        let _ = writeln!(text, "{remark}");
    }
    for mistake in mistakes(adapted, arguments) {
        let _ = writeln!(text, "in the result: {mistake}");
    }
    let _ = writeln!(text, "{}", summary(adapted, name));
    text
}

/// Lists the mistakes that `vanward check` would find in the result, most often missing files.
fn mistakes(adapted: &Adapted, arguments: &AdaptArgs) -> Vec<String> {
    if arguments.check {
        return Vec::new();
    }
    let name = arguments.output.as_ref().map_or("vanward.toml".to_owned(), |path| path.display().to_string());
    let mistakes = config::examine(&adapted.toml, &name).mistakes;
    // A missing page is missing for each route, but is reported once.
    repeated(&mistakes).iter().map(ToString::to_string).collect()
}

fn summary(adapted: &Adapted, name: &str) -> String {
    let Adapted { directives, taken, needless, .. } = adapted;
    let listed = match adapted.refused() {
        0 => "none is left".to_owned(),
        count => format!("{count} not taken over (listed above)"),
    };
    format!("{name}: {directives} directives: {taken} taken over, {needless} need nothing, {listed}")
}

fn json(adapted: &Adapted, name: &str, arguments: &AdaptArgs) -> serde_json::Value {
    let remarks = adapted.remarks.iter().map(|remark| {
        serde_json::json!({
            "file": remark.file, "line": remark.line, "directive": remark.directive,
            "kind": remark.kind.word(), "why": remark.why, "instead": remark.instead,
        })
    });
    let mut object = serde_json::json!({
        "file": name, "directives": adapted.directives, "taken": adapted.taken, "needs_nothing": adapted.needless,
        "not_taken": adapted.refused(), "remarks": remarks.collect::<Vec<_>>(), "mistakes": mistakes(adapted, arguments),
    });
    if !arguments.check && arguments.output.is_none() {
        object["toml"] = adapted.toml.clone().into();
    }
    object
}

fn read(path: &Path) -> Result<(String, String), String> {
    if path == Path::new("-") {
        return Ok(("standard input".to_owned(), all_of(std::io::stdin().lock())?));
    }
    Ok((path.display().to_string(), read_file(path)?))
}

fn read_file(path: &Path) -> Result<String, String> {
    let file = std::fs::File::open(path).map_err(|error| format!("it cannot be read: {error}"))?;
    all_of(file)
}

fn all_of(reader: impl Read) -> Result<String, String> {
    let mut bytes = Vec::new();
    let read = reader.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("it cannot be read: {error}"))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err("it is longer than 16 MiB".to_owned());
    }
    // Comments may be in any encoding.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads the files of an `include`, sorted by name.
fn included(folder: &Path, pattern: &str) -> Result<Vec<(String, String)>, String> {
    let whole = folder.join(pattern);
    if whole.starts_with("/**") {
        return Err("the folder is the whole file system".to_owned());
    }
    let has_wildcard = pattern.contains(['*', '?', '[']);
    let paths: Vec<PathBuf> = if has_wildcard {
        let found = glob::glob(&whole.to_string_lossy()).map_err(|error| error.to_string())?;
        found.filter_map(Result::ok).filter(|path| path.is_file()).collect()
    } else {
        vec![whole]
    };
    let read = |path: PathBuf| read_file(&path).map(|text| (path.display().to_string(), text));
    paths.into_iter().map(read).collect()
}

/// Writes a file with this mode, if it does not exist. `force` overwrites it.
pub(super) fn write_to(path: &Path, text: &str, force: bool, mode: u32) -> Result<(), String> {
    let mut file = create(path, force, mode)?;
    file.write_all(text.as_bytes()).map_err(|error| format!("it cannot be written: {error}"))
}

/// Creates a file. One that exists is only overwritten with `force`.
pub(super) fn create(path: &Path, force: bool, mode: u32) -> Result<std::fs::File, String> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).mode(mode);
    if force {
        options.create(true).truncate(true)
    } else {
        options.create_new(true)
    };
    options.open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => "it exists; --force overwrites it".to_owned(),
        _ => format!("it cannot be written: {error}"),
    })
}
