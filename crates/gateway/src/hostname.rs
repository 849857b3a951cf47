//! Hosts of listeners and routes: exact names, and `*.example.com` for every name below it.

/// Intersects a listener's host with a route's hosts. `None` stands for every host.
pub(crate) fn intersection(listener: Option<&str>, hosts: &[String]) -> Vec<Option<String>> {
    if hosts.is_empty() {
        return vec![listener.map(str::to_ascii_lowercase)];
    }
    let mut both: Vec<Option<String>> = Vec::new();
    for host in hosts {
        let host = host.to_ascii_lowercase();
        let narrower = match listener.map(str::to_ascii_lowercase) {
            None => Some(host),
            Some(listener) if covers(&listener, &host) => Some(host),
            Some(listener) if covers(&host, &listener) => Some(listener),
            Some(_) => None,
        };
        if let Some(narrower) = narrower
            && !both.contains(&Some(narrower.clone()))
        {
            both.push(Some(narrower));
        }
    }
    both
}

/// Whether `wide` includes every name in `narrow`. Both are in lower case.
pub(crate) fn covers(wide: &str, narrow: &str) -> bool {
    match wide.strip_prefix('*') {
        None => wide == narrow,
        Some(below) => {
            let narrow = narrow.strip_prefix('*').unwrap_or(narrow);
            narrow.ends_with(below) && (narrow.len() > below.len() || narrow == below)
        }
    }
}

/// Whether a text is a DNS name and no address.
pub(crate) fn is_name(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_number = |label: &str| label.bytes().all(|byte| byte.is_ascii_digit());
    text.len() <= 253 && text.split('.').all(is_label) && !text.rsplit('.').next().is_none_or(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_below_a_wildcard_are_covered_however_deep() {
        for (wide, narrow, expected) in [
            ("a.example", "a.example", true),
            ("a.example", "b.example", false),
            ("*.example", "a.example", true),
            ("*.example", "a.b.example", true),
            ("*.example", "example", false),
            ("*.example", "anexample", false),
            ("*.example", "*.example", true),
            ("*.example", "*.a.example", true),
            ("*.a.example", "*.example", false),
            ("a.example", "*.example", false),
        ] {
            assert_eq!(covers(wide, narrow), expected, "{wide} {narrow}");
        }
    }

    #[test]
    fn the_narrower_one_of_listener_and_route_counts() {
        for (listener, hosts, expected) in [
            (None, vec![], vec![None]),
            (Some("a.example"), vec![], vec![Some("a.example")]),
            (None, vec!["A.example", "*.b"], vec![Some("a.example"), Some("*.b")]),
            (Some("*.example"), vec!["a.example", "b.other"], vec![Some("a.example")]),
            (Some("a.example"), vec!["*.example", "a.example"], vec![Some("a.example")]),
            (Some("*.example"), vec!["*.a.example", "*.com"], vec![Some("*.a.example")]),
            (Some("a.example"), vec!["b.example"], vec![]),
        ] {
            let hosts: Vec<String> = hosts.into_iter().map(str::to_owned).collect();
            let expected: Vec<Option<String>> =
                expected.into_iter().map(|host| host.map(str::to_owned)).collect();
            assert_eq!(intersection(listener, &hosts), expected, "{listener:?} {hosts:?}");
        }
    }

    #[test]
    fn names_of_hosts_are_no_addresses_and_no_patterns() {
        for (text, expected) in [
            ("a.example", true),
            ("localhost", true),
            ("A-1.example", true),
            ("", false),
            ("*.example", false),
            ("a..example", false),
            ("-a.example", false),
            ("a.example.", false),
            ("10.0.0.1", false),
            ("::1", false),
            ("a_b.example", false),
        ] {
            assert_eq!(is_name(text), expected, "{text}");
        }
    }
}
