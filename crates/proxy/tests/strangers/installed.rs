//! Which programs there are, and how long they may take.

use std::path::PathBuf;
use std::time::Duration;

/// Far beyond what anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Where a program is; `None` where it is missing and may be.
pub(crate) fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    let found = places.map(|place| place.join(program)).find(|file| file.is_file());
    assert!(
        found.is_some() || std::env::var_os("CI").is_none(),
        "{program} is not installed, and CI is set: install it, e.g. apt-get install {program}"
    );
    found
}
