//! Hosts of Ingresses beside those of their rules: aliases, and redirects from and to `www.`.

use std::collections::BTreeSet;

use crate::ingress::{OwnIngress, host_option};

/// Hosts of rules, in lower case.
pub(crate) type RuleHosts = BTreeSet<String>;

pub(crate) fn of_rules(all: &[OwnIngress<'_>]) -> RuleHosts {
    all.iter().flat_map(OwnIngress::rule_hosts).collect()
}

impl OwnIngress<'_> {
    /// The hosts of its rules, in lower case.
    pub(crate) fn rule_hosts(&self) -> impl Iterator<Item = String> {
        let hosts = self.ingress.spec.rules.iter().filter_map(|rule| rule.host.as_deref());
        hosts.filter(|host| !host.is_empty()).map(str::to_ascii_lowercase)
    }

    /// The hosts of its rules, and its aliases that no rule has.
    pub(crate) fn hosts(&self, known: &RuleHosts) -> impl Iterator<Item = String> {
        self.rule_hosts().chain(self.aliases(known).0)
    }

    /// Returns why its annotations for hosts cannot be obeyed.
    pub(crate) fn host_faults(&self) -> Vec<String> {
        let others = &self.wanted.other_hosts;
        let mut hosts = self.ingress.spec.rules.iter().map(|rule| rule.host.as_deref().unwrap_or(""));
        let mut faults = Vec::new();
        if !others.aliases.is_empty() && hosts.clone().all(str::is_empty) {
            faults.push("annotation server-alias: it needs a rule with a host".to_owned());
        }
        if self.wanted.client_tls.is_some() && hosts.clone().any(str::is_empty) {
            faults.push("annotation auth-tls-secret: it needs a host in every rule".to_owned());
        }
        if others.redirects_www && hosts.any(|host| host.is_empty() || host.starts_with('*')) {
            faults
                .push("annotation from-to-www-redirect: it needs a host without * in every rule".to_owned());
        }
        faults
    }

    /// Returns the aliases that no rule has, and remarks on the others.
    pub(crate) fn aliases(&self, known: &RuleHosts) -> (Vec<String>, Vec<String>) {
        let aliases = self.wanted.other_hosts.aliases.iter().cloned();
        let (taken, free): (Vec<_>, Vec<_>) = aliases.partition(|alias| known.contains(alias));
        let remark = |alias| format!("annotation server-alias: a rule has {alias}, which takes precedence");
        (free, taken.into_iter().map(remark).collect())
    }

    /// Returns pairs of a host that redirects and its target, and remarks on hosts that rules have.
    pub(crate) fn www_redirects(&self, known: &RuleHosts) -> (Vec<(String, String)>, Vec<String>) {
        let hosts = self.rule_hosts().filter(|_| self.wanted.other_hosts.redirects_www);
        let pairs = hosts.map(|to| (other_www(&to), to)).collect::<BTreeSet<_>>();
        let (taken, free): (Vec<_>, Vec<_>) = pairs.into_iter().partition(|(from, _)| known.contains(from));
        let remark =
            |(from, _)| format!("annotation from-to-www-redirect: a rule has {from}, which takes precedence");
        (free, taken.into_iter().map(remark).collect())
    }
}

impl OwnIngress<'_> {
    /// Returns names beside those in `tls` that a certificate with these names is for: aliases, and hosts that redirect if
    /// they are in it.
    pub(crate) fn other_names(&self, in_certificate: &[String], known: &RuleHosts) -> Vec<String> {
        let is_named = |host: &str| {
            let parent = host.split_once('.').map(|(_, parent)| format!("*.{parent}"));
            in_certificate.iter().any(|name| name == host || parent.as_ref() == Some(name))
        };
        let redirects = self.www_redirects(known).0.into_iter().map(|(from, _)| from);
        self.aliases(known).0.into_iter().chain(redirects.filter(|host| is_named(host))).collect()
    }
}

/// Returns the host without `www.`, or with it.
fn other_www(host: &str) -> String {
    match host.strip_prefix("www.") {
        Some(bare) => bare.to_owned(),
        None => format!("www.{host}"),
    }
}

/// Returns the options `host` of a rule's host and its aliases, each with a suffix for names of routes.
pub(crate) fn options(
    host: Option<&str>,
    aliases: &[String],
) -> Result<Vec<(String, Option<String>)>, String> {
    let Some(host) = host else { return Ok(vec![(String::new(), None)]) };
    let own = [(String::new(), host)].into_iter();
    let all = own.chain(aliases.iter().map(|alias| (format!(" {alias}"), alias.as_str())));
    all.map(|(suffix, host)| Ok((suffix, Some(host_option(host)?)))).collect()
}
