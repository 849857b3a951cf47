//! `vanward top` in a terminal of tmux, which is typed to and read.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::scene::Proxy;
use crate::step;
use crate::strangers::programs::TMUX;

/// A terminal with `vanward top`. Dropping it ends both.
pub(super) struct Top {
    tmux: PathBuf,
    socket: PathBuf,
}

impl Top {
    pub(super) fn start(proxy: &Proxy, folder: &Path) -> Result<Self, String> {
        let top = Self { tmux: TMUX.find()?, socket: folder.join("tmux") };
        let script = format!("'{}' top --socket '{}'", proxy.vanward.display(), proxy.admin.display());
        top.run(&["-f", "/dev/null", "new-session", "-d", "-x", "160", "-y", "50", &script])?;
        Ok(top)
    }

    /// What the screen shows now of the tab with this key. It may still be another tab.
    pub(super) fn tab(&self, key: &str) -> Result<String, String> {
        self.run(&["send-keys", key])?;
        self.run(&["capture-pane", "-p"])
    }

    fn run(&self, words: &[&str]) -> Result<String, String> {
        let mut command = Command::new(&self.tmux);
        command.arg("-S").arg(&self.socket).args(words);
        let output = command.output().map_err(|error| format!("{}: {error}", step::shown(&command)))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(format!("{}: {}", step::shown(&command), String::from_utf8_lossy(&output.stderr)))
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        drop(self.run(&["kill-server"]));
    }
}
