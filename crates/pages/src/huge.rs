//! Detects whether the system uses huge pages for files in memory.
//!
//! The kernel cannot return a part of a huge page: it zeroes the part in place, even on its way to a client.

use std::fs;
use std::path::Path;

const SETTINGS: &str = "/sys/kernel/mm/transparent_hugepage";
const SETTING: &str = "shmem_enabled";

/// Returns the setting that enables huge pages for all sizes or for one, if there is one. `advise` does not count,
/// because this crate does not ask for huge pages.
pub(crate) fn setting() -> Option<String> {
    let of_sizes = fs::read_dir(SETTINGS).into_iter().flatten().flatten().map(|entry| entry.path());
    of_sizes
        .chain([Path::new(SETTINGS).to_path_buf()])
        .map(|folder| folder.join(SETTING))
        .find(|setting| fs::read_to_string(setting).is_ok_and(|text| is_on(&text)))
        .map(|setting| setting.display().to_string())
}

/// The active word of the setting is in brackets.
fn is_on(text: &str) -> bool {
    ["[always]", "[within_size]", "[force]"].iter().any(|word| text.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_pages_are_recognised() {
        for (text, expected) in [
            ("always within_size advise [never] deny force\n", false),
            ("always within_size [advise] never deny force\n", false),
            ("always within_size advise never [deny] force\n", false),
            ("[always] within_size advise never deny force\n", true),
            ("always [within_size] advise never deny force\n", true),
            ("always within_size advise never deny [force]\n", true),
            ("always [inherit] within_size advise never\n", false),
            ("", false),
        ] {
            assert_eq!(is_on(text), expected, "{text}");
        }
    }
}
