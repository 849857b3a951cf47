//! The Debian package. Its scripts, its description and its other files are in `contrib/debian`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::payload::From::File;
use super::payload::{self, From, PackageFolder};
use crate::scratch::Scratch;
use crate::step;
use crate::workspace::{Workspace, output_of};

/// Files of this package besides the common ones.
const OWN: [(From<'_>, &str); 5] = [
    (File("contrib/debian/vanward.toml"), "etc/vanward/vanward.toml"),
    (File("contrib/debian/logrotate"), "etc/logrotate.d/vanward"),
    (File("contrib/systemd/vanward.service"), "lib/systemd/system/vanward.service"),
    (File("contrib/debian/copyright"), "usr/share/doc/vanward/copyright"),
    (File("CHANGELOG.md"), "usr/share/doc/vanward/changelog"),
];

const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Compression effort: time for size.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    Small,
    Fast,
}

pub(super) fn architecture(target: &str) -> Result<&'static str, String> {
    match target.split('-').next() {
        Some("x86_64") => Ok("amd64"),
        Some("aarch64") => Ok("arm64"),
        _ => Err(format!("the Debian architecture of {target} is unknown: add it to package/deb.rs")),
    }
}

pub(super) fn build(
    workspace: &Workspace,
    payload: &PackageFolder,
    version: &str,
    compression: Compression,
    out: &Path,
) -> Result<(), String> {
    let folder = Scratch::new("deb")?;
    let tree = folder.path();
    payload.lay_out(workspace, &tree.join("usr"), "share/zsh/vendor-completions")?;
    payload::place_all(&workspace.root, &OWN, tree)?;
    step::run(
        Command::new("gzip").args(["-9", "--no-name"]).arg(tree.join("usr/share/doc/vanward/changelog")),
    )?;
    write_control(workspace, payload, version, tree)?;
    // Readable by all users, regardless of this machine's umask.
    step::run(Command::new("chmod").args(["-R", "u=rwX,go=rX"]).arg(tree))?;
    let mut deb = Command::new("dpkg-deb");
    deb.args(["--root-owner-group", "--build"]);
    match compression {
        Compression::Small => deb.arg("-Zxz"),
        Compression::Fast => deb.args(["-Zgzip", "-z1"]),
    };
    deb.arg(tree).arg(out).env("SOURCE_DATE_EPOCH", &payload.time);
    output_of(&mut deb).map(drop)
}

/// Writes `DEBIAN`: the description, the scripts, the list of conffiles and the checksums.
fn write_control(
    workspace: &Workspace,
    payload: &PackageFolder,
    version: &str,
    tree: &Path,
) -> Result<(), String> {
    let from = workspace.root.join("contrib/debian");
    let failed = |error| format!("{}: {error}", tree.display());
    let read = |name: &str| {
        fs::read_to_string(from.join(name)).map_err(|error| format!("contrib/debian/{name}: {error}"))
    };
    let to = tree.join("DEBIAN");
    fs::create_dir(&to).map_err(failed)?;
    for script in SCRIPTS {
        fs::write(to.join(script), read(script)?).map_err(failed)?;
        fs::set_permissions(to.join(script), fs::Permissions::from_mode(0o755)).map_err(failed)?;
    }
    let mut kib = Command::new("du");
    kib.args(["--summarize", "--apparent-size", "--block-size=1024", "--exclude=DEBIAN"]).arg(tree);
    let kib = output_of(&mut kib)?;
    let control = read("control")?
        .replace("${version}", version)
        .replace("${architecture}", architecture(&payload.target)?)
        .replace("${size}", kib.split_whitespace().next().unwrap_or_default())
        .replace("${libraries}", &libraries(&payload.program())?);
    fs::write(to.join("control"), control).map_err(failed)?;
    let mut lists = Command::new("sh");
    lists.args(["-euc", LISTS]).current_dir(tree);
    output_of(&mut lists).map(drop)
}

/// Lists the files in /etc, whose changes an upgrade keeps, and each file's checksum.
const LISTS: &str = "
find etc -type f -printf '/%p\\n' | sort >DEBIAN/conffiles
find . -type f ! -path './DEBIAN/*' -printf '%P\\0' | sort --zero-terminated | xargs --null md5sum >DEBIAN/md5sums
";

/// Returns the packages of the libraries that the program needs, each followed by a comma; none for a static program.
fn libraries(program: &Path) -> Result<String, String> {
    let folder = Scratch::new("shlibdeps")?;
    let debian = folder.path().join("debian");
    let failed = |error| format!("{}: {error}", debian.display());
    fs::create_dir(&debian).map_err(failed)?;
    fs::write(debian.join("control"), "Source: vanward\n\nPackage: vanward\nArchitecture: any\n")
        .map_err(failed)?;
    let mut command = Command::new("dpkg-shlibdeps");
    command.args(["-O", "-e"]).arg(program).current_dir(folder.path());
    let said = output_of(&mut command)?;
    let packages = said.trim().strip_prefix("shlibs:Depends=").unwrap_or_default();
    Ok(if packages.is_empty() { String::new() } else { format!("{packages}, ") })
}
