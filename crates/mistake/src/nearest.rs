//! Finds the valid name that is nearest to a misspelt one.

/// Longer names are not compared, because the cost is the product of both lengths.
const LONGEST: usize = 64;

/// The nearest of `names`, if it is similar enough.
pub fn nearest<'n>(written: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    if written.len() > LONGEST {
        return None;
    }
    let folded = written.to_lowercase().replace('-', "_");
    // A third of the characters may differ: `adress` is near `address`, but `port` is not near `path`.
    let allowed = (folded.chars().count() / 3).max(1);
    let distance = |name: &str| strsim::damerau_levenshtein(&folded, &name.to_lowercase().replace('-', "_"));
    let near = names.into_iter().filter(|name| name.len() <= LONGEST).map(|name| (distance(name), name));
    near.filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_and_far() {
        let names = ["address", "host", "path", "keep_alive", "round-robin"];
        for (written, found) in [
            ("adress", Some("address")),
            ("Address", Some("address")),
            ("keep-alive", Some("keep_alive")),
            ("keepalive", Some("keep_alive")),
            ("hsot", Some("host")),
            ("round_robin", Some("round-robin")),
            ("port", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(written, names), found, "{written}");
        }
        assert_eq!(nearest(&"a".repeat(100_000), names), None);
    }
}
