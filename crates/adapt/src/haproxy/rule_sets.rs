//! The rules of a frontend and of the backends that it reaches, in the order in which HAProxy applies them.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::HaproxyAdapter;
use super::acl::{AclCondition, Exempted, condition};
use super::actions::protects;
use super::expressions::{Sample, SampleReader};
use super::format::{self, Piece};
use super::maps::PatternFiles;
use super::syntax::{HaproxyLine, HaproxySection};
use super::variables::HaproxyVariables;
use crate::draft::StatementOrigin;

pub(super) struct FrontendRule<'s> {
    pub(super) line: &'s HaproxyLine,
    pub(super) condition: Option<AclCondition>,
    /// The number of words before the condition.
    pub(super) end: usize,
    /// Samples in `%[…]` that are no variables of Vanward.
    pub(super) samples: BTreeMap<String, Result<Sample, String>>,
    /// The name of the backend, if it is a log format.
    pub(super) backend: Option<Result<Sample, String>>,
}

impl FrontendRule<'_> {
    pub(super) fn words(&self) -> &[String] {
        &self.line.words[..self.end]
    }

    /// Returns the word after another one, before the condition.
    pub(super) fn behind(&self, name: &str) -> Option<&str> {
        let place = self.words().iter().position(|word| word == name)?;
        self.words().get(place + 1).map(String::as_str)
    }

    pub(super) fn from(&self) -> Vec<StatementOrigin> {
        vec![StatementOrigin::Directive(self.line.number)]
    }
}

pub(super) struct RuleSet<'s> {
    pub(super) place: usize,
    pub(super) requests: Vec<FrontendRule<'s>>,
    pub(super) backends: Vec<FrontendRule<'s>>,
    pub(super) responses: Vec<FrontendRule<'s>>,
}

impl<'s> HaproxyAdapter<'s> {
    pub(super) fn reader<'r, 'i>(
        &'r mut self,
        line: &HaproxyLine,
        files: &'r mut PatternFiles<'i>,
        variables: &'r HaproxyVariables,
    ) -> SampleReader<'r, 'i> {
        SampleReader { files, definitions: &mut self.sheet.definitions, variables, number: line.number }
    }

    /// Reads the rules of a section. `variables` are those that rules before them have set.
    pub(super) fn rules(
        &mut self,
        place: usize,
        files: &mut PatternFiles<'_>,
        variables: &mut Rc<HaproxyVariables>,
    ) -> RuleSet<'s> {
        let (mut requests, mut redirects) = (Vec::new(), Vec::new());
        let (mut backends, mut responses) = (Vec::new(), Vec::new());
        let mut levels: Vec<_> = self.levels(place).collect();
        levels.reverse();
        for line in levels.iter().flat_map(|level| &level.lines) {
            match line.word(0) {
                "http-request" => requests.push(line),
                // HAProxy applies these after all others.
                "redirect" => redirects.push(line),
                "tcp-request"
                    if matches!(line.word(2), "reject" | "silent-drop")
                        && line.word(1) != "inspect-delay" =>
                {
                    requests.push(line);
                }
                "use_backend" => backends.push(line),
                "http-response" | "http-after-response" => responses.push(line),
                _ => {}
            }
        }
        requests.extend(redirects);
        let mut each = |lines: Vec<&'s HaproxyLine>| {
            lines.into_iter().map(|line| self.rule(place, line, files, variables)).collect()
        };
        let (requests, backends) = (each(requests), each(backends));
        let mut variables = Rc::new(variables.of_responses(&self.set_by_backends(place)));
        let responses = responses.into_iter().map(|line| self.rule(place, line, files, &mut variables));
        RuleSet { place, requests, backends, responses: responses.collect() }
    }

    /// The variables that backends set, for the responses of a frontend.
    fn set_by_backends(&self, place: usize) -> BTreeSet<&'s str> {
        let is_front = self.sections[place].kind() != "backend";
        let backends = self.sections.iter().filter(|section| is_front && section.kind() == "backend");
        let lines = backends.flat_map(|section| &section.lines).filter(|line| line.word(0) == "http-request");
        let name = |line: &'s HaproxyLine| {
            let (action, name) = line.word(1).split_once('(')?;
            action.starts_with("set-var").then(|| name.trim_end_matches(')'))
        };
        lines.filter_map(name).collect()
    }

    fn rule(
        &mut self,
        place: usize,
        line: &'s HaproxyLine,
        files: &mut PatternFiles<'_>,
        variables: &mut Rc<HaproxyVariables>,
    ) -> FrontendRule<'s> {
        let acls = std::mem::take(&mut self.acls[place]);
        let mut reader = self.reader(line, files, variables);
        let (mut condition, end) = condition(line, &acls, &mut reader);
        let mut samples = BTreeMap::new();
        for word in &line.words[..end] {
            for piece in format::pieces(word).unwrap_or_default() {
                let Piece::Sample(text) = piece else { continue };
                if format::variable(&text).is_none() && !samples.contains_key(&text) {
                    let sample = reader.sample(&text);
                    samples.insert(text, sample);
                }
            }
        }
        let is_backend = line.word(0) == "use_backend" && line.word(1).contains('%');
        let backend = is_backend.then(|| reader.format(line.word(1)));
        self.acls[place] = acls;
        let exempted = self.exempted(line);
        condition.iter_mut().for_each(|condition| condition.exempted = exempted);
        let rule = FrontendRule { line, condition, end, samples, backend };
        if line.word(0) == "http-request" {
            self.changed(&rule, files, variables);
        }
        rule
    }

    /// The requests that a rule lets past what protects others.
    fn exempted(&self, line: &HaproxyLine) -> Exempted {
        let protects = |line: &HaproxyLine| {
            let is_rule = matches!(line.word(0), "http-request" | "tcp-request");
            is_rule && (protects(line) || line.word(1) == "auth")
        };
        let is_other = |section: &&HaproxySection| {
            matches!(section.kind(), "backend" | "listen") && section.name() != line.word(1)
        };
        match line.word(0) {
            "use_backend" => {
                match self.sections.iter().filter(is_other).any(|s| s.lines.iter().any(protects)) {
                    true => Exempted::Meeting,
                    false => Exempted::None,
                }
            }
            "http-request" if line.word(1) == "allow" => Exempted::Meeting,
            _ if protects(line) => Exempted::Missing,
            _ => Exempted::None,
        }
    }

    /// Remembers the variables that a rule sets, and what it changes besides.
    fn changed(
        &mut self,
        rule: &FrontendRule<'s>,
        files: &mut PatternFiles<'_>,
        variables: &mut Rc<HaproxyVariables>,
    ) {
        let line = rule.line;
        let (action, name) = line.word(1).split_once('(').unwrap_or((line.word(1), line.word(2)));
        let name = name.trim_end_matches(')');
        let known = Rc::clone(variables);
        match action {
            "set-var" | "set-var-fmt" => {
                let sample = match &rule.words()[2.min(rule.end)..] {
                    _ if !name.starts_with("txn.") && !name.starts_with("req.") => {
                        Err("only variables of requests are values".to_owned())
                    }
                    _ if name.contains(',') => Err("it is set under a condition of its own".to_owned()),
                    [text] if action == "set-var" => self.reader(line, files, &known).sample(text),
                    [text] => self.reader(line, files, &known).format(text),
                    _ => Err("its expression has several words".to_owned()),
                };
                let condition = rule
                    .condition
                    .as_ref()
                    .map_or(Ok(None), |condition| condition.written(&self.sheet.definitions.schema()));
                let name = name.split(',').next().unwrap_or_default();
                let definitions = &mut self.sheet.definitions;
                Rc::make_mut(variables).set(line, name, sample, condition, definitions);
            }
            "unset-var" => Rc::make_mut(variables).unset(name, rule.condition.is_none()),
            _ => Rc::make_mut(variables).change(action, name),
        }
    }
}
