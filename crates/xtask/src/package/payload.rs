//! The common content of all packages in one folder: the program, and the files that it generates.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::libraries;
use crate::scratch::Scratch;
use crate::step;
use crate::workspace::{Workspace, output_of};

/// Shells with a folder for completions, and the file names there. Users of others run `vanward completions`.
const SHELLS: [(&str, &str); 3] = [("bash", "vanward"), ("zsh", "_vanward"), ("fish", "vanward.fish")];

/// Files from the workspace in every package, and their places below /usr or /usr/local.
const FILES: [(From<'_>, &str); 7] = [
    (From::File("contrib/welcome/index.html"), "share/vanward/welcome/index.html"),
    (From::File("README.md"), "share/doc/vanward/README.md"),
    // In the same layout as in the workspace, so that links work.
    (From::All("docs", ".md"), "share/doc/vanward/docs"),
    (From::All("docs", ".svg"), "share/doc/vanward/docs"),
    (From::All("examples", ".toml"), "share/doc/vanward/examples"),
    (From::File("examples/README.md"), "share/doc/vanward/examples/README.md"),
    (From::All("contrib/systemd/examples", ".socket"), "share/doc/vanward/examples"),
];

/// Generated files in every package. Completions of zsh are missing, because systems use different folders.
const MADE: [(From<'_>, &str); 5] = [
    (From::File("vanward"), "bin/vanward"),
    (From::All("man", ".gz"), "share/man/man1"),
    (From::File("completions/vanward"), "share/bash-completion/completions/vanward"),
    (From::File("completions/vanward.fish"), "share/fish/vendor_completions.d/vanward.fish"),
    (From::File("sbom.cdx.json"), "share/doc/vanward/sbom.cdx.json"),
];

/// The folder with the packaged files: `vanward`, `man`, `completions` and `sbom.cdx.json`. Dropping it removes it.
pub(super) struct PackageFolder {
    folder: Scratch,
    /// The target triple.
    pub(super) target: String,
    /// Time of the last commit, in seconds since 1970, and of every file in a package, so that two builds are equal.
    pub(super) time: String,
}

impl PackageFolder {
    /// Collects the files in a folder. The program itself writes man pages and completions; a program for another
    /// machine runs under an emulator.
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

    /// Copies the files of every package to `prefix`, later /usr or /usr/local; `zsh` is zsh's completions folder
    /// there.
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
                "the program needs system libraries: link it with RUSTFLAGS='-C target-feature=+crt-static' and \
                 --target, as this command does without --program; readelf says:\n{needed}"
            ));
        }
        Ok(())
    }
}

/// The architecture of a target, if it is not this machine's.
fn other_machine(target: &str) -> Option<&str> {
    target.split('-').next().filter(|machine| *machine != std::env::consts::ARCH)
}

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

/// A source of copied files: a single file, or all files in a folder with this suffix.
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

/// Copies a file, readable by all users and with its execute permission, regardless of this machine's umask.
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
