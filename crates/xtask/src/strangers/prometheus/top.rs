//! `vanward top` in a terminal of tmux, which sends keys and reads the screen.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::scene::ScrapedProxy;
use crate::step;
use crate::strangers::programs::TMUX;

/// A terminal with `vanward top`. Dropping it ends both.
pub(super) struct Top {
    tmux: PathBuf,
    socket: PathBuf,
}

impl Top {
    pub(super) fn start(proxy: &ScrapedProxy, folder: &Path) -> Result<Self, String> {
        let top = Self { tmux: TMUX.find()?, socket: folder.join("tmux") };
        let script = format!("'{}' top --socket '{}'", proxy.vanward.display(), proxy.admin.display());
        top.run(&["-f", "/dev/null", "new-session", "-d", "-x", "160", "-y", "50", &script])?;
        Ok(top)
    }

    /// Returns the screen after the key of a tab. It may still show another tab.
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
