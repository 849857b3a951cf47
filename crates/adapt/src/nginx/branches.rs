//! The rewrite phase: `set`, `if`, `return` and `break`, in their order.

use std::rc::Rc;

use super::conditions::{ASKS_FOR_FILES, TestedCondition, origins};
use super::expressions::EXPRESSION_BYTES_MAX;
use super::groups::{self, GroupPiece};
use super::scope::BlockScope;
use super::servers::RouteEntry;
use super::syntax::Directive;
use super::truth::NginxCondition;
use super::values::split_name;
use super::variables::{ResolvedVariable, SetVariables, TextPart, ValueTest, VariableValue};
use super::{NginxAdapter, fallbacks, fastcgi, from, links, referers};
use crate::RemarkKind;
use crate::draft::StatementOrigin;
use crate::{rules, values};

/// The most targets of one `return`: each is a route.
const TARGETS_MAX: usize = 32;
/// The most results of a variable that `if` blocks set.
const RESULTS_MAX: usize = 64;

/// Requests that get something else than the block's content.
pub(super) struct RewriteBranch<'s> {
    /// The `if`, or the block itself for a `return` outside of one.
    pub(super) block: &'s Directive,
    /// None if all requests do.
    pub(super) when: Option<(String, Vec<StatementOrigin>)>,
    pub(super) sets: Rc<SetVariables>,
    /// The `return` or `rewrite` that answers; without it, other directives of the `if` apply.
    pub(super) answer: Option<&'s Directive>,
    /// The target, where one of several.
    pub(super) url: Option<String>,
    /// The expression that groups in the target are of, matched against the path.
    pub(super) pattern: Option<String>,
}

impl RewriteBranch<'_> {
    /// Gives a redirect the expression that its groups are of.
    pub(super) fn give_pattern(&self, entry: &mut RouteEntry) {
        if let Some(pattern) = self.pattern.as_deref().filter(|_| entry.options.get("redirect").is_some()) {
            entry.options.extend("redirect", ("pattern", pattern.into()), Vec::new());
        }
    }
}

/// The result of the rewrite phase of a block.
pub(super) struct Branches<'s> {
    /// In the order of precedence: answers, then blocks with other directives, the last one first.
    pub(super) all: Vec<RewriteBranch<'s>>,
    /// Variables at the end.
    pub(super) sets: Rc<SetVariables>,
    /// Whether no request is left for the block's content.
    pub(super) is_final: bool,
    /// An `if` that refuses requests, and has no translation: none that reaches it may pass.
    pub(super) closed: Option<&'s Directive>,
}

impl<'s> Branches<'s> {
    /// No branch.
    pub(super) fn none(scope: &BlockScope<'s>) -> Self {
        Self { all: Vec::new(), sets: scope.shared_sets(), is_final: false, closed: None }
    }
}

/// The state while directives are read.
struct RewritePhase<'s> {
    sets: Rc<SetVariables>,
    /// The requests that no `break` has taken.
    alive: TestedCondition,
    answers: Vec<RewriteBranch<'s>>,
    contents: Vec<RewriteBranch<'s>>,
    is_final: bool,
    closed: Option<&'s Directive>,
}

impl<'s> NginxAdapter<'s> {
    /// Reads the directives of a server or a location that run in the rewrite phase, for requests with a given condition.
    pub(super) fn branches(
        &mut self,
        block: &'s Directive,
        scope: &BlockScope<'s>,
        given: TestedCondition,
    ) -> Branches<'s> {
        let mut phase = RewritePhase {
            sets: scope.shared_sets(),
            alive: given,
            answers: Vec::new(),
            contents: Vec::new(),
            is_final: false,
            closed: None,
        };
        let is_server = block.name == "server";
        referers::set(scope, &mut phase.sets);
        links::set(scope, &self.declarations, &mut phase.sets);
        for directive in scope.own() {
            if phase.is_final
                || phase.closed.is_some()
                || phase.alive.condition == NginxCondition::Known(false)
            {
                if directive.name == "if" {
                    self.unreachable(directive, "requests do not reach it");
                }
                continue;
            }
            match directive.name.as_str() {
                "set" => self.assign(directive, None, &mut phase),
                "break" => phase.alive.condition = NginxCondition::Known(false),
                "if" if fastcgi::is_for_missing_files(directive) && scope.here("fastcgi_pass").is_some() => {}
                "if" if !is_server && fallbacks::if_missing(directive).is_some() => {}
                "if" => self.conditional(directive, scope, is_server, &mut phase),
                "rewrite" if is_server => {
                    let alive = phase.alive.clone();
                    self.add_answer(directive, directive, &alive, &mut phase);
                }
                "rewrite" if is_redirect(directive) && is_beside_content(scope) => {
                    self.moved_by_path(directive, &mut phase);
                }
                "return" => {
                    // An `if` that holds gives the response its fields.
                    let contents = std::mem::take(&mut phase.contents).into_iter().rev();
                    phase
                        .answers
                        .extend(contents.map(|branch| RewriteBranch { answer: Some(directive), ..branch }));
                    let alive = phase.alive.clone();
                    self.add_answer(block, directive, &alive, &mut phase);
                    phase.is_final = true;
                }
                _ => {}
            }
        }
        let RewritePhase { sets, mut answers, contents, mut is_final, closed, .. } = phase;
        for content in contents.into_iter().rev() {
            // One for all requests hides those before it.
            if !is_final {
                is_final = content.when.is_none();
                answers.push(content);
            }
        }
        Branches { all: answers, sets, is_final, closed }
    }

    /// Reads an `if`.
    fn conditional(
        &mut self,
        block: &'s Directive,
        scope: &BlockScope<'s>,
        is_server: bool,
        phase: &mut RewritePhase<'s>,
    ) {
        let groups = BlockGroups::new(block);
        let tested = self.tested(&block.words, &phase.sets).and_then(|tested| {
            let joined = phase.alive.and(tested);
            if joined.condition.written().len() > EXPRESSION_BYTES_MAX {
                return Err(format!("the expression would be longer than {EXPRESSION_BYTES_MAX} bytes"));
            }
            groups.as_ref().map(|_| joined).map_err(Clone::clone)
        });
        let tested = match tested {
            Ok(tested) => tested,
            Err(why) => return self.untested(block, &why, scope, phase),
        };
        if tested.is_decoded {
            let why = "the path is compared with its escapes decoded";
            self.note(block, RemarkKind::Differs, why, "");
        }
        match tested.condition {
            NginxCondition::Known(false) => return self.unreachable(block, "its condition never holds"),
            NginxCondition::Known(true) => {
                self.note(block, RemarkKind::NeedsNothing, "its condition always holds", "");
            }
            _ => {}
        }
        let groups = groups.unwrap_or_default();
        self.take_groups(&groups, block, &tested, phase);
        let mut has_content = false;
        for inner in block.inner() {
            if inner.name == "rewrite" {
                // It has groups of its own.
                phase.forget_groups();
            }
            match inner.name.as_str() {
                "set" => self.assign(inner, Some((block, &tested)), phase),
                "break" => {
                    self.cite_break(inner);
                    let used = [tested.used.clone(), vec![block.number]].concat();
                    let condition = tested.condition.clone().negated();
                    phase.alive = phase.alive.and(TestedCondition { condition, used, ..tested.clone() });
                    break;
                }
                "return" => {
                    let added = phase.answers.len();
                    self.add_answer(block, inner, &tested, phase);
                    for answer in &mut phase.answers[added..] {
                        answer.pattern.clone_from(&groups.of_path);
                    }
                    phase.is_final |= tested.condition == NginxCondition::Known(true);
                    has_content = false;
                    break;
                }
                "rewrite" if is_server || is_redirect(inner) => self.add_answer(block, inner, &tested, phase),
                _ => has_content = true,
            }
        }
        if has_content {
            let branch = phase.branch(block, None, &tested);
            phase.contents.push(branch);
        }
        phase.forget_groups();
    }

    /// Reads a `rewrite` of a location that redirects the requests whose path matches.
    fn moved_by_path(&mut self, rewrite: &'s Directive, phase: &mut RewritePhase<'s>) {
        let words = ["($uri".to_owned(), "~".to_owned(), format!("{})", rewrite.word(0))];
        let made = self.tested(&words, &phase.sets).and_then(|tested| {
            let pattern = match from_root(rewrite.word(0), rewrite.word(1)) {
                Some(pattern) => values::expression(&pattern, false)?,
                None => values::expression(rewrite.word(0), false)?,
            };
            Ok((phase.alive.and(tested), pattern))
        });
        match made {
            Ok((tested, pattern)) => {
                let mut branch = phase.branch(rewrite, Some(rewrite), &tested);
                branch.pattern = Some(pattern);
                phase.answers.push(branch);
            }
            Err(why) => {
                self.note(rewrite, RemarkKind::Refused, &why, "write a [[route]] with `redirect` by hand");
            }
        }
    }

    /// Gives the groups of an `if` their values: numbers within the block, names for all that follows.
    fn take_groups(
        &mut self,
        groups: &BlockGroups,
        block: &'s Directive,
        tested: &TestedCondition,
        phase: &mut RewritePhase<'s>,
    ) {
        for piece in &groups.pieces {
            Rc::make_mut(&mut phase.sets).insert(piece.number.to_string(), Ok(piece.resolved()));
            if let Some(name) = &piece.name {
                self.assign_value(name, Ok((*piece.resolved()).clone()), Some((block, tested)), phase);
            }
        }
    }

    fn cite_break(&mut self, directive: &Directive) {
        self.note(directive, RemarkKind::NeedsNothing, "conditions behind it exclude its requests", "");
    }

    /// Notes that an `if` has no translation. Variables that it sets are unknown then; where it refuses requests, none
    /// may pass.
    fn untested(
        &mut self,
        block: &'s Directive,
        why: &str,
        scope: &BlockScope<'s>,
        phase: &mut RewritePhase<'s>,
    ) {
        let instead = "write a [[route]] with the condition: docs/conditions.md";
        let asks_for_files = why == ASKS_FOR_FILES;
        for inner in block.inner() {
            match inner.name.as_str() {
                "set" => {
                    let name = inner.word(0).trim_start_matches('$').to_owned();
                    Rc::make_mut(&mut phase.sets).insert(name, Err(format!("an `if` sets it, and {why}")));
                }
                "return" if refuses(inner) && !asks_for_files => phase.closed = Some(block),
                _ => {}
            }
        }
        let inner_scope = scope.within_if(block.inner());
        if inner_scope.own().iter().any(|inner| inner.name == "deny") {
            phase.closed = Some(block);
        }
        match phase.closed {
            Some(_) => {
                let why = format!("{why}; it refuses requests, so all that reach it get 501");
                self.note(block, RemarkKind::Refused, &why, instead);
            }
            None => self.note(block, RemarkKind::Refused, why, instead),
        }
    }

    /// Reads a `set`, in an `if` with its condition.
    fn assign(
        &mut self,
        set: &'s Directive,
        within: Option<(&'s Directive, &TestedCondition)>,
        phase: &mut RewritePhase<'s>,
    ) {
        let Some(name) = set.word(0).strip_prefix('$') else { return };
        let value = self.declarations.text(set.word(1), &phase.sets).map(|mut value| {
            value.used.insert(set.number);
            value.is_of_block = true;
            value
        });
        self.assign_value(name, value, within, phase);
    }

    /// Gives a variable a value, in an `if` with its condition.
    fn assign_value(
        &mut self,
        name: &str,
        value: Result<ResolvedVariable, String>,
        within: Option<(&'s Directive, &TestedCondition)>,
        phase: &mut RewritePhase<'s>,
    ) {
        let (block, condition) = match within {
            Some((block, tested)) => (Some(block), tested.clone()),
            None => (None, phase.alive.clone()),
        };
        let before =
            phase.sets.get(name).cloned().unwrap_or_else(|| Ok(Rc::new(ResolvedVariable::constant(""))));
        let made = match (condition.condition.clone(), value, before) {
            (NginxCondition::Known(true), value, _) => value,
            (_, Ok(value), Ok(before)) => {
                let mut used = value.used;
                used.extend(&before.used);
                used.extend(condition.used);
                used.extend(block.map(|block| block.number));
                let test = ValueTest::When(condition.condition);
                let value = VariableValue::Choice {
                    tests: vec![(test, value.value)],
                    otherwise: Box::new(before.value.clone()),
                };
                match value.leaves().len() {
                    ..=RESULTS_MAX => Ok(ResolvedVariable { value, used, is_of_block: true }),
                    _ => Err(format!("it has more than {RESULTS_MAX} results")),
                }
            }
            (_, Err(why), _) | (_, _, Err(why)) => Err(why),
        };
        Rc::make_mut(&mut phase.sets).insert(name.to_owned(), made.map(Rc::new));
    }

    /// Adds an answer, once for each target that a choice gives.
    fn add_answer(
        &mut self,
        block: &'s Directive,
        answer: &'s Directive,
        tested: &TestedCondition,
        phase: &mut RewritePhase<'s>,
    ) {
        let Some(targets) = self.targets(block, answer, &phase.sets) else {
            let branch = phase.branch(block, Some(answer), tested);
            return phase.answers.push(branch);
        };
        for (target, url) in targets.all {
            let given = if targets.are_tested { &phase.alive } else { tested };
            let mut branch = phase.branch(block, Some(answer), &given.and(target));
            branch.url = Some(url);
            phase.answers.push(branch);
        }
    }

    /// The URLs that the first variable of a `return` gives, if they begin with it: Vanward needs to know their scheme.
    fn targets(&self, block: &Directive, answer: &Directive, sets: &SetVariables) -> Option<BranchTargets> {
        let is_redirect = match answer.words.as_slice() {
            [_] => true,
            [status, _] => matches!(status.as_str(), "301" | "302" | "303" | "307" | "308"),
            _ => false,
        };
        let url = answer.words.last().filter(|_| is_redirect && answer.name == "return")?;
        let (name, rest) = split_name(url.strip_prefix('$')?);
        let resolved = self.declarations.text(&format!("${{{name}}}"), sets).ok()?;
        let VariableValue::Choice { tests, otherwise } = &resolved.value else { return None };
        // The condition of the block leaves these out.
        let is_tested = block.words.len() == 1 && block.word(0) == format!("(${name})");
        let is_left_out = |value: &VariableValue| is_tested && matches!(value.as_constant(), Some("" | "0"));
        let begins = |text: &str| text.starts_with('/') && rules::is_path(text);
        let leaves = resolved.value.leaves();
        let mut wanted = leaves.iter().filter(|leaf| !is_left_out(leaf));
        if wanted.all(|leaf| leaf.as_constant().is_some_and(begins)) {
            // Slashes at the start are merged.
            let all = vec![(TestedCondition::always(), format!("/${{{name}}}{rest}"))];
            return Some(BranchTargets { all, are_tested: false });
        }
        let used: Vec<usize> = resolved.used.iter().copied().collect();
        let mut all = Vec::new();
        let mut left_out: Vec<&ValueTest> = Vec::new();
        let mut add = |test: NginxCondition, value: &VariableValue, left_out: &[&ValueTest]| -> Option<()> {
            let before = ValueTest::any(left_out.iter().copied()).negated();
            let condition = NginxCondition::all(vec![before, test]);
            let tested = TestedCondition { condition, used: used.clone(), is_decoded: false };
            all.push((tested, text_of(value)? + rest));
            Some(())
        };
        for (test, value) in tests {
            match is_left_out(value) {
                true => left_out.push(test),
                false => add(test.condition(), value, &left_out)?,
            }
        }
        if !is_left_out(otherwise) {
            add(NginxCondition::Known(true), otherwise, &left_out)?;
        }
        (all.len() <= TARGETS_MAX).then_some(BranchTargets { all, are_tested: is_tested })
    }
}

/// The URLs of a `return`, each for the requests that no earlier one is for.
struct BranchTargets {
    all: Vec<(TestedCondition, String)>,
    /// Whether the conditions imply that of the block.
    are_tested: bool,
}

impl<'s> RewritePhase<'s> {
    fn branch(
        &self,
        block: &'s Directive,
        answer: Option<&'s Directive>,
        tested: &TestedCondition,
    ) -> RewriteBranch<'s> {
        let when = tested.when().map(|(when, mut from_used)| {
            if block.name == "if" {
                from_used.splice(0..0, from(block));
            }
            (when, from_used)
        });
        RewriteBranch { block, when, sets: Rc::clone(&self.sets), answer, url: None, pattern: None }
    }

    /// Ends the groups of an expression.
    fn forget_groups(&mut self) {
        let is_group = |name: &String| name.bytes().all(|byte| byte.is_ascii_digit());
        if self.sets.keys().any(is_group) {
            Rc::make_mut(&mut self.sets).retain(|name, _| !is_group(name));
        }
    }
}

impl TestedCondition {
    pub(super) fn always() -> Self {
        Self { condition: NginxCondition::Known(true), used: Vec::new(), is_decoded: false }
    }

    /// The condition of a route, and its origins; None if it always holds.
    pub(super) fn when(&self) -> Option<(String, Vec<StatementOrigin>)> {
        let from = || origins(self.used.iter().copied());
        (self.condition != NginxCondition::Known(true)).then(|| (self.condition.written(), from()))
    }

    fn and(&self, other: Self) -> Self {
        Self {
            condition: NginxCondition::all(vec![self.condition.clone(), other.condition]),
            used: [self.used.clone(), other.used].concat(),
            is_decoded: other.is_decoded,
        }
    }
}

/// A text as nginx writes it.
fn text_of(value: &VariableValue) -> Option<String> {
    let VariableValue::Text(parts) = value else { return None };
    let part = |part: &TextPart| match part {
        TextPart::Constant(text) if text.contains('$') => None,
        TextPart::Constant(text) => Some(text.clone()),
        TextPart::NginxFact(name) => Some(format!("${{{name}}}")),
    };
    parts.iter().map(part).collect()
}

/// An expression whose first group is the whole path, without the first slash in that group, if the target begins with it.
pub(super) fn from_root(pattern: &str, target: &str) -> Option<String> {
    let rest = ["^(.+)", "^(.*)"].iter().find_map(|begin| pattern.strip_prefix(begin))?;
    target.starts_with("$1").then(|| format!("^/(.*){rest}"))
}

/// Whether a location has more than a `rewrite`.
fn is_beside_content(scope: &BlockScope<'_>) -> bool {
    ["try_files", "proxy_pass", "fastcgi_pass", "root", "alias", "return"]
        .iter()
        .any(|name| scope.own().iter().any(|directive| directive.name == *name))
}

/// Whether a `rewrite` answers, rather than to change the path.
pub(super) fn is_redirect(rewrite: &Directive) -> bool {
    matches!(rewrite.word(2), "permanent" | "redirect")
        || ["http://", "https://", "$scheme"].iter().any(|begin| rewrite.word(1).starts_with(begin))
}

/// The groups of the expression of an `if`, as far as its block uses them.
#[derive(Debug, Default)]
struct BlockGroups {
    /// Pieces of the text.
    pieces: Vec<GroupPiece>,
    /// The expression, if groups in the target of its `return` are of the path.
    of_path: Option<String>,
}

impl BlockGroups {
    /// # Errors
    /// Why a group that the block uses has no translation.
    fn new(block: &Directive) -> Result<Self, String> {
        if !is_pattern(block) {
            return Ok(Self::default());
        }
        let of_if = groups::of_if(block);
        let pieces =
            of_if.map(|(variable, pattern, _)| groups::pieces(variable, pattern)).unwrap_or_default();
        let has = |number: usize| pieces.iter().any(|piece| piece.number == number);
        let used: Vec<(&Directive, usize)> = block.inner().iter().flat_map(used_groups).collect();
        if used.iter().all(|(_, number)| has(*number)) {
            return Ok(Self { pieces, of_path: None });
        }
        // A redirect can have the expression itself, if that is of the path.
        let is_of_path = |(variable, ..): &(&str, &str, bool)| matches!(*variable, "uri" | "document_uri");
        let Some((_, pattern, ignores_case)) = of_if.filter(is_of_path) else {
            return Err(
                "its block uses groups of the expression, which are no whole pieces of a path or a host"
                    .to_owned(),
            );
        };
        let is_target = |(directive, _): &(&Directive, usize)| {
            directive.name == "return" && matches!(directive.word(0), "301" | "302" | "303" | "307" | "308")
        };
        if !used.iter().all(is_target) {
            return Err("its block uses groups of the expression elsewhere than in the target of a redirect"
                .to_owned());
        }
        let expression = values::expression(pattern, ignores_case)?;
        let group_count = groups::count(&expression);
        if let Some((_, number)) = used.iter().find(|(_, number)| *number > group_count) {
            return Err(format!("${number} is no group of its expression"));
        }
        Ok(Self { pieces: Vec::new(), of_path: Some(expression) })
    }
}

/// The numbers of the groups that a directive uses, each with it. A `rewrite` has groups of its own.
fn used_groups(directive: &Directive) -> Vec<(&Directive, usize)> {
    let words = directive.words.iter().filter(|_| directive.name != "rewrite");
    let numbers = words.flat_map(|word| word.split('$').skip(1)).filter_map(|behind| {
        let name = behind.strip_prefix('{').unwrap_or(behind);
        name.chars().next()?.to_digit(10).map(|digit| digit as usize)
    });
    numbers.map(|number| (directive, number)).collect()
}

fn is_pattern(block: &Directive) -> bool {
    block.words.iter().any(|word| matches!(word.as_str(), "~" | "~*" | "!~" | "!~*"))
}

/// Whether a `return` refuses a request.
pub(super) fn refuses(answer: &Directive) -> bool {
    answer.word(0).parse::<u16>().is_ok_and(|status| (400..500).contains(&status))
}
