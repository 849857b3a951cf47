//! Names the commit that made a case dearer, by halving the commits since it had its old cost.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::cases::CostCase;
use super::figures::FILE;
use super::{built, measure};
use crate::say;
use crate::workspace::Workspace;

/// A copy of the repository at any commit. Dropping it removes the copy.
struct CostTree<'w> {
    root: &'w Path,
    tree: PathBuf,
    target: PathBuf,
}

impl<'w> CostTree<'w> {
    fn new(root: &'w Path, target: &Path) -> Result<Self, String> {
        let tree = target.join("cost/tree");
        let made = Self { root, tree, target: target.join("cost") };
        let place = made.tree.display().to_string();
        git(root, &["worktree", "add", "--force", "--detach", &place])?;
        Ok(made)
    }

    /// The program of a commit, which is built once.
    fn program(&self, commit: &str) -> Result<PathBuf, String> {
        let kept = self.target.join("programs").join(commit);
        if !kept.exists() {
            git(&self.tree, &["checkout", "--quiet", "--detach", commit])?;
            let program = built(&self.tree, &self.target)?;
            let failed = |error: std::io::Error| format!("{}: {error}", kept.display());
            fs::create_dir_all(self.target.join("programs")).map_err(failed)?;
            fs::copy(program, &kept).map_err(failed)?;
        }
        Ok(kept)
    }

    fn measure(&self, commit: &str, case: &CostCase) -> Result<f64, String> {
        let program = self.program(commit)?;
        let cost = measure::measure(&program, case)?.instructions;
        let subject = git(self.root, &["log", "-1", "--format=%h %s", commit])?;
        say(format_args!("{cost:.0} instructions: {}", subject.trim()));
        Ok(cost)
    }
}

impl Drop for CostTree<'_> {
    fn drop(&mut self) {
        let place = self.tree.display().to_string();
        drop(git(self.root, &["worktree", "remove", "--force", &place]));
    }
}

pub(super) fn run(workspace: &Workspace, case: &CostCase, good: Option<&str>) -> Result<(), String> {
    let root = &workspace.root;
    let good = match good {
        Some(good) => git(root, &["rev-parse", "--verify", &format!("{good}^{{commit}}")])?,
        None => git(root, &["log", "-1", "--format=%H", "--", FILE])?,
    };
    let good = good.trim();
    if good.is_empty() {
        return Err(format!("{FILE} is in no commit: name the commit before with --good"));
    }
    let listed = git(root, &["rev-list", "--reverse", "--first-parent", &format!("{good}..HEAD")])?;
    let commits: Vec<&str> = listed.lines().collect();
    let Some(newest) = commits.last() else {
        return Err("there is no commit since then".to_owned());
    };
    let tree = CostTree::new(root, &workspace.target_directory()?)?;
    let (before, now) = (tree.measure(good, case)?, tree.measure(newest, case)?);
    if now <= before * (1.0 + case.tolerated_percent / 100.0) {
        say(format_args!("{} is not dearer: {before:.0} before, {now:.0} now", case.name));
        return Ok(());
    }
    let middle = (before + now) / 2.0;
    let found = first(commits.len(), |index| Ok(tree.measure(commits[index], case)? > middle))?;
    let commit = git(root, &["log", "-1", "--format=%h %an %as %s", commits[found]])?;
    say(format_args!("\n{} is dearer since {}", case.name, commit.trim()));
    Ok(())
}

/// The first of so many for which `is_dearer` holds, as it does for the last one.
fn first(count: usize, mut is_dearer: impl FnMut(usize) -> Result<bool, String>) -> Result<usize, String> {
    let (mut cheap, mut dear) = (0, count.saturating_sub(1));
    while cheap < dear {
        let middle = cheap.midpoint(dear);
        if is_dearer(middle)? {
            dear = middle;
        } else {
            cheap = middle + 1;
        }
    }
    Ok(dear)
}

fn git(folder: &Path, words: &[&str]) -> Result<String, String> {
    let output = Command::new("git").args(words).current_dir(folder).output();
    let output = output.map_err(|error| format!("git {words:?}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("git {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_dearer_commit_is_found_in_few_steps() {
        for count in 1..40 {
            for wanted in 0..count {
                let mut looks = 0;
                let found = first(count, |index| {
                    looks += 1;
                    Ok(index >= wanted)
                });
                assert_eq!(found, Ok(wanted), "of {count}");
                assert!(looks <= 6, "{looks} for {count}");
            }
        }
    }
}
