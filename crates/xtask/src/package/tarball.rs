//! The tarball: the program and its files, laid out as below /usr/local; and the Homebrew formula that downloads it.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::payload::From::File;
use super::payload::{self, From, PackageFolder};
use crate::scratch::Scratch;
use crate::step;
use crate::workspace::{Workspace, output_of};

/// Files besides the common ones.
const OWN: [(From<'_>, &str); 7] = [
    (File("contrib/systemd/vanward.service"), "lib/systemd/system/vanward.service"),
    (File("contrib/sysusers.d/vanward.conf"), "lib/sysusers.d/vanward.conf"),
    (File("contrib/debian/logrotate"), "share/doc/vanward/examples/logrotate"),
    (File("contrib/debian/vanward.toml"), "share/doc/vanward/examples/vanward.toml"),
    (File("CHANGELOG.md"), "share/doc/vanward/CHANGELOG.md"),
    (File("LICENSE-APACHE"), "share/doc/vanward/LICENSE-APACHE"),
    (File("LICENSE-MIT"), "share/doc/vanward/LICENSE-MIT"),
];

/// Builds the tarball `out`, in which everything is below the folder `name`.
pub(super) fn build(
    workspace: &Workspace,
    payload: &PackageFolder,
    name: &str,
    out: &Path,
) -> Result<(), String> {
    let folder = Scratch::new("tarball")?;
    let tree = folder.path().join(name);
    payload.lay_out(workspace, &tree, "share/zsh/site-functions")?;
    payload::place_all(&workspace.root, &OWN, &tree)?;
    let mut tar = Command::new("tar");
    tar.args(["--create", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu"]);
    tar.args(["--mode=u=rwX,go=rX", "--use-compress-program=gzip -9n"]);
    tar.arg(format!("--mtime=@{}", payload.time)).arg("--file").arg(out);
    step::run(tar.arg("--directory").arg(folder.path()).arg(name))
}

const FORMULA: &str = "contrib/homebrew/vanward.rb";

/// Machines of the formula: words of the template, and target.
const MACHINES: [(&str, &str); 2] =
    [("amd64", "x86_64-unknown-linux-gnu"), ("arm64", "aarch64-unknown-linux-gnu")];

/// Writes the formula next to the existing tarballs, with the digest of each.
pub(super) fn write_formula(
    workspace: &Workspace,
    version: &str,
    out: &Path,
    url: &str,
) -> Result<(), String> {
    let template =
        fs::read_to_string(workspace.root.join(FORMULA)).map_err(|error| format!("{FORMULA}: {error}"))?;
    let mut digests = Vec::new();
    for (machine, target) in MACHINES {
        let tarball = out.join(format!("vanward-{version}-{target}.tar.gz"));
        if tarball.is_file() {
            digests.push((machine, digest(&tarball)?));
        }
    }
    let file = out.join("vanward.rb");
    fs::write(&file, formula(&template, version, url, &digests))
        .map_err(|error| format!("{}: {error}", file.display()))
}

/// Fails unless the tarball has each file and folder that the formula installs.
pub(super) fn fits_formula(workspace: &Workspace, tarball: &Path) -> Result<(), String> {
    let template =
        fs::read_to_string(workspace.root.join(FORMULA)).map_err(|error| format!("{FORMULA}: {error}"))?;
    let listed = output_of(Command::new("tar").args(["--list", "--file"]).arg(tarball))?;
    let paths: Vec<&str> = listed.lines().filter_map(|path| Some(path.split_once('/')?.1)).collect();
    let installed = installed(&template);
    if installed.is_empty() {
        return Err(format!("{FORMULA} installs nothing"));
    }
    let is_missing = |path: &&&str| {
        let is_it =
            |known: &&str| *known == path.trim_end_matches('*') || known.trim_end_matches('/') == **path;
        !paths.iter().any(is_it)
    };
    match installed.iter().find(is_missing) {
        Some(path) => Err(format!("{FORMULA} installs {path}, which the tarball does not have")),
        None => Ok(()),
    }
}

/// Lists the files that a formula takes from the tarball: `bin/vanward`, `share/man/man1/*`.
fn installed(template: &str) -> Vec<&str> {
    let lines = template.lines().filter(|line| line.contains(".install "));
    lines.filter_map(|line| line.split('"').nth(1)).collect()
}

pub(super) fn digest(file: &Path) -> Result<String, String> {
    let said = output_of(Command::new("sha256sum").arg("--").arg(file))?;
    Ok(said.split_whitespace().next().unwrap_or_default().to_owned())
}

/// Fills the template, and removes the blocks of machines without a tarball.
fn formula(template: &str, version: &str, url: &str, digests: &[(&str, String)]) -> String {
    let mut text = template.replace("${version}", version).replace("${url}", url.trim_end_matches('/'));
    for (machine, _) in MACHINES {
        let place = format!("${{sha256_{machine}}}");
        match digests.iter().find(|(of, _)| *of == machine) {
            Some((_, digest)) => text = text.replace(&place, digest),
            None => text = without_block(&text, &place),
        }
    }
    text
}

/// Removes the block from `  on_… do` to `  end` that contains a word.
fn without_block(text: &str, word: &str) -> String {
    let Some(at) = text.find(word) else { return text.to_owned() };
    let begin = text[..at].rfind("\n\n  on_").map_or(0, |at| at + 1);
    let end = text[at..].find("\n  end\n").map_or(text.len(), |end| at + end + "\n  end\n".len());
    [&text[..begin], &text[end..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_formula_has_the_machines_that_there_are_tarballs_for() {
        let template = "class V\n  on_intel do\n    url \"${url}/v-${version}\"\n    sha256 \"${sha256_amd64}\"\n  end\n\
                        \n  on_arm do\n    sha256 \"${sha256_arm64}\"\n  end\n\n  def install\n  end\nend\n";
        let both = [("amd64", "a1".to_owned()), ("arm64", "b2".to_owned())];
        assert_eq!(
            formula(template, "1.2.3", "https://a.example/dl/", &both),
            "class V\n  on_intel do\n    url \"https://a.example/dl/v-1.2.3\"\n    sha256 \"a1\"\n  end\n\
             \n  on_arm do\n    sha256 \"b2\"\n  end\n\n  def install\n  end\nend\n"
        );
        let one = formula(template, "1.2.3", "u", &both[..1]);
        assert!(one.contains("on_intel") && !one.contains("on_arm") && one.contains("def install"), "{one}");
    }

    #[test]
    fn the_formula_has_version_names_and_digests_of_a_release() {
        let template = include_str!("../../../../contrib/homebrew/vanward.rb");
        let digests = MACHINES.map(|(machine, target)| (machine, format!("digest of {target}")));
        let formula = formula(template, "1.2.3", "https://a.example", &digests);
        assert!(formula.contains("  version \"1.2.3\"\n") && !formula.contains("${"), "{formula}");
        for (_, target) in MACHINES {
            let lines = format!(
                "    url \"https://a.example/vanward-1.2.3-{target}.tar.gz\"\n    sha256 \"digest of {target}\"\n"
            );
            assert!(formula.contains(&lines), "{formula}");
        }
        let installed = installed(template);
        assert!(
            installed.contains(&"bin/vanward") && installed.contains(&"share/man/man1/*"),
            "{installed:?}"
        );
    }
}
