//! Annotations for other hosts than those of rules, and for the host that servers get.

use super::Annotations;
use crate::hostname::is_name;

/// Hosts beside those of the rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OtherHosts {
    /// In lower case.
    pub(crate) aliases: Vec<String>,
    /// Whether the host with `www.` redirects to that without, or the reverse.
    pub(crate) redirects_www: bool,
}

impl Annotations<'_> {
    pub(super) fn other_hosts(&mut self) -> OtherHosts {
        let aliases = self.value("server-alias", |value| {
            let words = value.split(',').map(|word| word.trim().to_ascii_lowercase());
            let aliases: Vec<String> = words.filter(|word| !word.is_empty()).collect();
            let is_host = |host: &String| is_name(host.strip_prefix("*.").unwrap_or(host));
            match !aliases.is_empty() && aliases.iter().all(is_host) {
                true => Ok(aliases),
                false => Err("hosts such as a.example or *.example with commas, no expressions"),
            }
        });
        let redirects_www = self.is_on("from-to-www-redirect");
        OtherHosts { aliases: aliases.unwrap_or_default(), redirects_www }
    }

    /// Returns the host that servers get, in which `$service_name` and `$namespace` are replaced by path.
    pub(super) fn upstream_host(&mut self) -> Option<String> {
        const EXPECTED: &str =
            "a host, with or without a port, and no variables but $service_name and $namespace";
        self.value("upstream-vhost", |host| {
            let sample = with_names(host, "s", "n");
            let name = match sample.split_once(':') {
                Some((name, port)) if port.parse::<u16>().is_ok_and(|port| port > 0) => name,
                Some(_) => return Err(EXPECTED),
                None => &sample,
            };
            if is_name(name) { Ok(host.to_owned()) } else { Err(EXPECTED) }
        })
    }
}

/// Replaces the variables of `upstream-vhost`.
pub(crate) fn with_names(host: &str, service: &str, namespace: &str) -> String {
    let host = host.replace("${service_name}", service).replace("$service_name", service);
    host.replace("${namespace}", namespace).replace("$namespace", namespace)
}
