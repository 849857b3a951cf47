//! Writes `crates/vanward/functions.ld`, the order of functions in the program.
//!
//! The kernel maps a program 64 KiB at a time where it runs. The functions of a start are 8% of the program; scattered, they
//! made half of it resident. Callgrind tells which functions a start calls, and which ones requests call. The linker puts
//! them first, in this order.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::say;
use crate::scratch::Scratch;
use crate::step;
use crate::strangers::process::Process;
use crate::workspace::Workspace;

/// Flags of `cargo xtask functions`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A built program in place of target/dist/vanward. The names of functions depend on the profile
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
}

const FILE: &str = "crates/vanward/functions.ld";
const HEAD: &str = "\
/* Functions that a start calls, the cold ones and constructors, those that requests call, and all others.
   `cargo xtask functions` writes this file. */
SECTIONS {
  .text : {
";
const COLD: &str = "    *(.text.startup .text.startup.* .text.unlikely .text.unlikely.*)\n";
const TAIL: &str = "    *(.text .text.*)
  }
}
INSERT AFTER .init;
";

/// Listener of all measured configurations. It takes any free port.
const SMALLEST: &str = "[[listen]]\naddress = \"127.0.0.1:0\"\n";
/// The further configuration of a program that gets requests.
const MORE: &str = "\
[[listen]]
address = \"127.0.0.1:0\"
tls = { self_signed = true }
http3 = true
[cache]
memory = \"16MB\"
[[route]]
path = \"/varnish\"
cache = {}
upstream = \"origin\"
[[route]]
path = \"/chunked\"
compress = {}
upstream = \"origin\"
[[route]]
path = \"/echo\"
rate_limit = { rate = \"10000/s\", key = \"client\" }
request_headers = { set = { X-Name = \"value\" } }
upstream = \"origin\"
[[route]]
path = \"/respond\"
respond = { status = 200, body = \"hello\" }
";
const PATHS: [&str; 6] =
    ["/tiny", "/large", "/varnish/gen/4?as=3", "/chunked/20000?cache=0", "/echo", "/respond"];
const END_LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn run(arguments: &Args) -> Result<(), String> {
    let workspace = Workspace::find()?;
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => {
            let mut build = Command::new("cargo");
            build.args(["build", "--profile", "dist", "-p", "vanward"]).current_dir(&workspace.root);
            step::run(&mut build)?;
            workspace.target_directory()?.join("dist/vanward")
        }
    };
    let program = fs::canonicalize(&program).map_err(|error| format!("{}: {error}", program.display()))?;
    let start = patterns(&called(&program, false)?);
    let requests = &patterns(&called(&program, true)?) - &start;
    let lines = |patterns: &BTreeSet<String>| {
        patterns.iter().map(|pattern| format!("    *(.text.{pattern})\n")).collect::<String>()
    };
    let text = format!("{HEAD}{}{COLD}{}{TAIL}", lines(&start), lines(&requests));
    say(format_args!(
        "{FILE}: {} functions called at start, {} called by requests",
        start.len(),
        requests.len()
    ));
    fs::write(workspace.root.join(FILE), text).map_err(|error| format!("{FILE}: {error}"))
}

fn patterns(names: &HashSet<String>) -> BTreeSet<String> {
    names.iter().filter_map(|name| pattern(name)).collect()
}

/// The functions that a program calls, as the linker knows them.
fn called(program: &Path, has_requests: bool) -> Result<HashSet<String>, String> {
    let scratch = Scratch::new("functions")?;
    let folder = scratch.path();
    let mut origin = Command::new(program);
    origin.args(["origin", "--listen", "127.0.0.1:0"]);
    let mut origin = Process::start("origin", &mut origin, folder)?;
    let server = *origin.addresses()?.first().ok_or("the origin listens nowhere")?;
    let more = if has_requests { MORE } else { "" };
    let text = format!(
        "workers = 1\n{SMALLEST}{more}[[route]]\nupstream = \"origin\"\n[upstream.origin]\nservers = [\"http://{server}\"]\n"
    );
    let (file, socket, counts) = (folder.join("vanward.toml"), folder.join("admin"), folder.join("counts"));
    fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    let mut run = Command::new("valgrind");
    run.args(["--tool=callgrind", "--demangle=no"]).arg(format!("--callgrind-out-file={}", counts.display()));
    run.arg(program).args(["run", "--config"]).arg(&file).arg("--admin").arg(&socket);
    let mut proxy = Process::start("proxy", &mut run, folder)?;
    let addresses = proxy.addresses().or_else(|_| proxy.addresses())?;
    if let [plain, tls] = addresses[..] {
        for path in PATHS {
            for (scheme, address, flags) in [
                ("http", plain, &[][..]),
                ("https", tls, &["-k"]),
                ("https", tls, &["-k", "--h2"]),
                ("https", tls, &["-k", "--h3"]),
            ] {
                let mut load = Command::new(program);
                load.args(["load", "-c", "2", "-n", "20", "-H", "Accept-Encoding: gzip"]).args(flags);
                // What became of the requests does not matter here.
                drop(load.arg(format!("{scheme}://{address}{path}")).output());
            }
        }
        for words in [&["status"][..], &["reload"]] {
            let mut command = Command::new(program);
            let done = command.args(words).arg("--socket").arg(&socket).output();
            if !done.is_ok_and(|output| output.status.success()) {
                return Err(format!("`{}` failed", step::shown(&command)));
            }
        }
    }
    std::thread::sleep(Duration::from_secs(3));
    proxy.signal("-TERM")?;
    proxy.finish(END_LIMIT)?;
    let counts = fs::read_to_string(&counts).map_err(|error| format!("{}: {error}", counts.display()))?;
    Ok(of_object(&counts, &program.display().to_string()))
}

/// The functions of an object that have a cost of their own in a profile. Names are written once, with a number that stands
/// for them afterwards.
fn of_object(profile: &str, object: &str) -> HashSet<String> {
    let (mut objects, mut functions) = (HashMap::new(), HashMap::new());
    let (mut is_object, mut found) = (false, HashSet::new());
    for line in profile.lines() {
        let Some((key, value)) = line.split_once('=') else { continue };
        let (number, name) = value.split_once(' ').unwrap_or((value, ""));
        let names = match key {
            "ob" | "cob" => &mut objects,
            "fn" | "cfn" => &mut functions,
            _ => continue,
        };
        if !name.is_empty() {
            names.insert(number, name);
        }
        let name = names.get(number).copied().unwrap_or_default();
        match key {
            "ob" => is_object = name == object,
            "fn" if is_object => drop(found.insert(name.to_owned())),
            _ => {}
        }
    }
    found
}

/// The pattern of the linker for a function, without hashes, which differ between builds. `None` for what has no name.
fn pattern(name: &str) -> Option<String> {
    // A recursive call.
    let name = name.split('\'').next().unwrap_or(name);
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_.$".contains(&byte);
    if name.starts_with("0x") || !name.bytes().all(is_name) {
        return None;
    }
    if let Some((path, _)) = name.strip_prefix("_ZN").and_then(|_| name.rsplit_once("17h")) {
        return Some(format!("{path}17h*"));
    }
    let Some(path) = name.strip_prefix("_R") else { return Some(name.to_owned()) };
    // The mangling of the standard library: `Cs`, the hash of a crate, `_`. The optimizer numbers copies: `.31`.
    let (path, number) = path.rsplit_once('.').unwrap_or((path, ""));
    let mut parts = path.split("Cs");
    let mut pattern = format!("_R{}", parts.next().unwrap_or_default());
    for part in parts {
        match part.split_once('_').filter(|(hash, _)| hash.bytes().all(|byte| byte.is_ascii_alphanumeric())) {
            Some((_, rest)) => {
                let _ = write!(pattern, "Cs*_{rest}");
            }
            None => {
                let _ = write!(pattern, "Cs{part}");
            }
        }
    }
    if !number.is_empty() {
        pattern += ".*";
    }
    Some(pattern)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_no_hashes() {
        for (name, expected) in [
            ("_ZN5proxy4path17h0123456789abcdefE", Some("_ZN5proxy4path17h*")),
            ("_ZN5proxy4path17h0123456789abcdefE.llvm.12", Some("_ZN5proxy4path17h*")),
            ("_RNvNtCslNYArtu3iFV_5alloc3fmt6format", Some("_RNvNtCs*_5alloc3fmt6format")),
            ("_RNvNtCslNYArtu3iFV_5alloc3fmt6format.31", Some("_RNvNtCs*_5alloc3fmt6format.*")),
            ("mi_free'2", Some("mi_free")),
            ("mi_page.constprop.0", Some("mi_page.constprop.0")),
            ("0x00000000006d4840", None),
            ("(below main)", None),
        ] {
            assert_eq!(pattern(name).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn a_profile_names_things_once() {
        let profile = "ob=(1) /bin/a\nfn=(1) one\n1 2\ncob=(2) /lib/c\ncfn=(2) two\ncalls=1 0\n1 2\n\nfn=(3) three\n1 2\n\n\
                       ob=(2)\nfn=(2)\n1 2\n\nob=(1)\nfn=(1)\n";
        assert_eq!(of_object(profile, "/bin/a"), HashSet::from(["one".to_owned(), "three".to_owned()]));
    }
}
