//! Headless Chromium, as a browser that runs scripts.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// A browser that shows one page; killed when dropped.
pub(crate) struct Chromium {
    child: Child,
    _profile: TempDir,
}

impl Chromium {
    /// Opens a page. `resolver` maps hosts and ports to the test's: `MAP *:80 127.0.0.1:8080`.
    pub(crate) fn open(program: &Path, resolver: &str, url: &str) -> Self {
        let profile = tempfile::tempdir().expect("a temporary directory");
        let child = Command::new(program)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .args(["--no-first-run", "--no-proxy-server", "--disable-background-networking"])
            // Accepts self-signed certificates, and does not upgrade http:// to https://.
            .args(["--ignore-certificate-errors", "--disable-features=HttpsUpgrades,HttpsFirstBalancedMode"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(format!("--host-resolver-rules={resolver}"))
            .arg("--remote-debugging-port=0")
            .arg(url)
            // It leaves its socket there.
            .env("TMPDIR", profile.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromium starts");
        Self { child, _profile: profile }
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // Its other processes end with this one.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
