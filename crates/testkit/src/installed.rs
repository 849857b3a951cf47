//! Look-up of installed programs.

use std::path::PathBuf;

/// Returns the path of a program; `None` if it is missing and need not be installed.
///
/// # Panics
/// If it is missing in CI.
pub fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    let found = places.map(|place| place.join(program)).find(|file| file.is_file());
    assert!(
        found.is_some() || std::env::var_os("CI").is_none(),
        "{program} is not installed, and CI is set: install it, e.g. apt-get install {program}"
    );
    found
}
