//! `satisfy any`: clients of some networks need no password, and no answer of an authentication server.

use super::scope::BlockScope;
use super::servers::RouteEntry;
use super::syntax::Directive;
use super::truth::{Binding, NginxCondition};
use super::{NginxAdapter, from};
use crate::RemarkKind;
use crate::draft::StatementOrigin;
use crate::rules::literal;
use crate::values as written;

/// Options of a route by which a client proves who it is.
const PROOFS: [&str; 2] = ["auth", "forward_auth"];

impl<'s> NginxAdapter<'s> {
    /// Applies `satisfy any` to a route whose networks and proofs are known: its networks become a condition of a route
    /// without proofs.
    pub(super) fn satisfied_by_any(&mut self, scope: &BlockScope<'s>, entry: &mut RouteEntry) {
        let Some(satisfy) = scope.one("satisfy") else { return };
        let proofs: Vec<&str> =
            PROOFS.iter().copied().filter(|proof| entry.options.get(proof).is_some()).collect();
        let Some(first) = proofs.first().filter(|_| satisfy.word(0) == "any") else {
            let why = "all that protects a route has to admit a client, and here there is nothing else than networks";
            let why = if satisfy.word(0) == "any" { why } else { "it is the default" };
            return self.note(satisfy, RemarkKind::NeedsNothing, why, "");
        };
        entry.options.cite(first, StatementOrigin::Directive(satisfy.number));
        if proofs.len() > 1 {
            entry.options.set("require", "any", from(satisfy));
        }
        let rules = scope.all_of(["allow", "deny"]);
        if rules.is_empty() {
            return;
        }
        entry.options.without("allow");
        entry.options.without("deny");
        let Some(admitted) = admitted(&rules) else { return };
        rules.iter().for_each(|rule| {
            entry.options.cite(first, StatementOrigin::Directive(rule.number));
        });
        entry.admitted = Some(admitted);
    }
}

/// The condition under which rules admit a client: the first that holds decides. `None` if a rule names no network, because
/// no client may be admitted by mistake.
fn admitted(rules: &[&Directive]) -> Option<NginxCondition> {
    let mut condition = NginxCondition::Known(true);
    for rule in rules.iter().rev() {
        let network = rule.word(0);
        let is_it = match network {
            "all" => NginxCondition::Known(true),
            network if written::is_network(network) => {
                NginxCondition::Text(format!("client.address in {}", literal(network)), Binding::Comparison)
            }
            _ => return None,
        };
        condition = is_it.choose(NginxCondition::Known(rule.name == "allow"), condition);
    }
    Some(condition)
}

impl RouteEntry {
    /// The route, and one before it for clients whose networks need no proof.
    pub(super) fn with_admitted(mut self) -> Vec<Self> {
        let mut admitted = match self.admitted.take() {
            None | Some(NginxCondition::Known(false)) => return vec![self],
            Some(NginxCondition::Known(true)) => {
                self.without_proofs();
                return vec![self];
            }
            Some(condition) => {
                let own = self.when.iter().map(|(own, _)| NginxCondition::Text(own.clone(), Binding::Choice));
                let when = NginxCondition::all(own.chain([condition]).collect()).written();
                let origins = self.when.as_ref().map(|(_, origins)| origins.clone()).unwrap_or_default();
                Self { when: Some((when, origins)), ..self.clone() }
            }
        };
        admitted.without_proofs();
        vec![admitted, self]
    }

    fn without_proofs(&mut self) {
        for option in PROOFS.into_iter().chain(["require"]) {
            if let Some((_, origins)) = self.options.option(option) {
                self.from.extend(origins);
                self.options.without(option);
            }
        }
    }
}
