//! What all packages have, in one folder: the program and what it writes of itself.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::libraries;
use crate::scratch::Scratch;
use crate::step;
use crate::workspace::{Workspace, output_of};

/// Shells with a folder for completions, and the names of the files there. For others there is `vanward completions`.
const SHELLS: [(&str, &str); 3] = [("bash", "vanward"), ("zsh", "_vanward"), ("fish", "vanward.fish")];

/// What every package has of the workspace, and its place below /usr or /usr/local.
const FILES: [(From<'_>, &str); 7] = [
    (From::File("contrib/welcome/index.html"), "share/vanward/welcome/index.html"),
    (From::File("README.md"), "share/doc/vanward/README.md"),
    // Beside each other as in the workspace, so that links lead there.
    (From::All("docs", ".md"), "share/doc/vanward/docs"),
    (From::All("docs", ".svg"), "share/doc/vanward/docs"),
    (From::All("examples", ".toml"), "share/doc/vanward/examples"),
    (From::File("examples/README.md"), "share/doc/vanward/examples/README.md"),
    (From::All("contrib/systemd/examples", ".socket"), "share/doc/vanward/examples"),
];

/// The same of what is made for packages, but for the completions of zsh: systems differ in their folder.
const MADE: [(From<'_>, &str); 5] = [
    (From::File("vanward"), "bin/vanward"),
    (From::All("man", ".gz"), "share/man/man1"),
    (From::File("completions/vanward"), "share/bash-completion/completions/vanward"),
    (From::File("completions/vanward.fish"), "share/fish/vendor_completions.d/vanward.fish"),
    (From::File("sbom.cdx.json"), "share/doc/vanward/sbom.cdx.json"),
];

/// The folder with what is packaged: `vanward`, `man`, `completions` and `sbom.cdx.json`. Dropping it removes it.
pub(super) struct Payload {
    folder: Scratch,
    /// For these machines.
    pub(super) target: String,
    /// Time of the last commit, in seconds since 1970: that of every file in a package, so that two builds are equal.
    pub(super) time: String,
}

impl Payload {
    /// Puts it all into a folder. The program writes man pages and completions itself; that of another machine under an emulator.
    pub(super) fn stage(workspace: &Workspace, program: &Path, target: &str) -> Result<Self, String> {
        let folder = Scratch::new("payload")?;
        let place = folder.path();
        let failed = |error| format!("{}: {error}", place.display());
        let stripped = place.join("vanward");
        let other = other_machine(target);
        let strip = other.map_or_else(|| "strip".to_owned(), |machine| format!("{machine}-linux-gnu-strip"));
        let vanward = || match other {
            Some(machine) => {
                let mut emulated = Command::new(format!("qemu-{machine}-static"));
                emulated.arg(&stripped);
                emulated
            }
            None => Command::new(&stripped),
        };
        step::run(Command::new(strip).arg("-o").arg(&stripped).arg(program))?;
        let man = place.join("man");
        step::run(vanward().args(["man", "--out"]).arg(&man).stderr(Stdio::null()))?;
        step::run(Command::new("gzip").args(["-9", "--no-name", "--recursive"]).arg(&man))?;
        fs::create_dir(place.join("completions")).map_err(failed)?;
        for (shell, file) in SHELLS {
            let text = output_of(vanward().args(["completions", shell]))?;
            fs::write(place.join("completions").join(file), text).map_err(failed)?;
        }
        fs::write(place.join("sbom.cdx.json"), libraries::listed(workspace, target)?).map_err(failed)?;
        Ok(Self { folder, target: target.to_owned(), time: time_of_last_commit(workspace)? })
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Copies what every package has to a folder that is /usr or /usr/local where the package is installed; `zsh` is the folder of
    /// completions there.
    pub(super) fn lay_out(&self, workspace: &Workspace, prefix: &Path, zsh: &str) -> Result<(), String> {
        place_all(&workspace.root, &FILES, prefix)?;
        place_all(self.folder(), &MADE, prefix)?;
        copy(&self.folder().join("completions/_vanward"), &prefix.join(zsh).join("_vanward"))
    }

    pub(super) fn program(&self) -> PathBuf {
        self.folder().join("vanward")
    }

    /// Fails if the program needs a library of the system.
    pub(super) fn is_static(&self) -> Result<(), String> {
        let needed = output_of(Command::new("readelf").arg("--dynamic").arg(self.program()))?;
        if needed.contains("(NEEDED)") {
            return Err(format!(
                "the program needs libraries of the system: link it with RUSTFLAGS='-C target-feature=+crt-static' and \
                 --target, as this command does without --program; readelf says:\n{needed}"
            ));
        }
        Ok(())
    }
}

/// The machine of a target, if it is not this one.
fn other_machine(target: &str) -> Option<&str> {
    target.split('-').next().filter(|machine| *machine != std::env::consts::ARCH)
}

/// Version of the programs of the workspace.
pub(super) fn version(workspace: &Workspace) -> Result<String, String> {
    let packages = workspace.packages("Cargo.toml")?;
    let vanward = packages.iter().find(|package| package["name"] == "vanward");
    let version = vanward.and_then(|package| package["version"].as_str());
    version.map(str::to_owned).ok_or_else(|| "the workspace has no package vanward".to_owned())
}

/// In seconds since 1970.
pub(super) fn time_of_last_commit(workspace: &Workspace) -> Result<String, String> {
    let mut git = Command::new("git");
    git.args(["log", "-1", "--format=%ct"]).current_dir(&workspace.root);
    output_of(&mut git).map(|time| time.trim().to_owned())
}

/// What is copied into a package: a file, or all files of a folder whose names end in so.
pub(super) enum From<'w> {
    File(&'w str),
    All(&'w str, &'w str),
}

/// Copies files of `root` to places below `tree`.
pub(super) fn place_all(root: &Path, files: &[(From<'_>, &str)], tree: &Path) -> Result<(), String> {
    for (from, to) in files {
        match from {
            From::File(from) => copy(&root.join(from), &tree.join(to))?,
            From::All(folder, end) => {
                let folder = root.join(folder);
                let failed = |error| format!("{}: {error}", folder.display());
                for entry in fs::read_dir(&folder).map_err(failed)? {
                    let path = entry.map_err(failed)?.path();
                    let name = path.file_name().unwrap_or_default().to_string_lossy();
                    if name.ends_with(end) && path.is_file() {
                        copy(&path, &tree.join(to).join(&*name))?;
                    }
                }
            }
        }
    }
    Ok(())
}

/// Copies a file, readable for all and with the right to be run kept, whatever the umask of this machine.
pub(super) fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |error| format!("{} to {}: {error}", from.display(), to.display());
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    fs::copy(from, to).map_err(failed)?;
    let is_program = fs::metadata(from).map_err(failed)?.permissions().mode() & 0o100 != 0;
    let mode = if is_program { 0o755 } else { 0o644 };
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).map_err(failed)
}
