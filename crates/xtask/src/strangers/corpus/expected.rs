//! `expected.toml` of the corpus: what differs or cannot be tested in a file, with the reason. Files that it does not
//! name are equal.
//!
//! A difference is accepted if a remark of `vanward adapt` names it, or if it is known. It is never accepted if it opens
//! something.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

/// The expectations, by names such as `nginx/wordpress`.
pub(super) struct CorpusExpectations(BTreeMap<String, CorpusExpectation>);

/// The expectation of one file.
#[derive(Default)]
pub(super) struct CorpusExpectation {
    /// Each difference, as the report says it, with the start of the directive whose remark names it.
    differs: BTreeMap<String, String>,
    /// Starts of statements that the requests do not test.
    untested: Vec<String>,
    /// Why a difference without such a remark is known: it is to be fixed.
    known: Option<String>,
}

impl CorpusExpectations {
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let failed = |why: String| format!("{}: {why}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        Self::parse(&text).map_err(failed)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let document: toml::Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
        let mut all = BTreeMap::new();
        for (kind, files) in &document {
            for (name, options) in files.as_table().into_iter().flatten() {
                let name = format!("{kind}/{name}");
                let read = CorpusExpectation::parse(options).map_err(|why| format!("{name}: {why}"))?;
                all.insert(name, read);
            }
        }
        Ok(Self(all))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }

    pub(super) fn of(&self, name: &str) -> Option<&CorpusExpectation> {
        self.0.get(name)
    }
}

impl CorpusExpectation {
    fn parse(options: &toml::Value) -> Result<Self, String> {
        let mut read = Self::default();
        let options = options.as_table().ok_or("expected a table")?;
        for (option, value) in options {
            let text = |value: &toml::Value| value.as_str().map(str::to_owned);
            match option.as_str() {
                "differs" => {
                    let table = value.as_table().ok_or("`differs` is a table")?;
                    for (what, directive) in table {
                        let directive = text(directive).ok_or("`differs` has texts")?;
                        read.differs.insert(what.clone(), directive);
                    }
                }
                "untested" => {
                    let list = value.as_array().ok_or("`untested` is a list")?;
                    read.untested = list.iter().filter_map(text).collect();
                }
                "known" => read.known = text(value),
                "why" => {}
                other => return Err(format!("there is no option {other}")),
            }
        }
        match options.contains_key("why") || options.contains_key("known") {
            true => Ok(read),
            false => Err("say `why`".to_owned()),
        }
    }

    pub(super) fn needs_remarks(&self) -> bool {
        !self.differs.is_empty()
    }
}

/// The result of a proof, from the best to the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum CorpusVerdict {
    Equal,
    /// Nothing differs, and a part cannot be tested.
    Untested,
    /// A remark names what differs.
    Named,
    Differs,
    /// Vanward admits requests that the original refuses.
    Open,
}

/// A file with its verdict.
pub(in super::super) struct Judged {
    pub(in super::super) verdict: CorpusVerdict,
    /// Deviations from the expectation.
    pub(in super::super) unmet: Vec<String>,
    /// Differences, each in a line.
    shown: Vec<String>,
}

impl Judged {
    /// Judges a report of `vanward adapt --prove`; the translation has the remarks.
    pub(super) fn new(report: &Value, translation: &Value, expected: Option<&CorpusExpectation>) -> Self {
        let none = CorpusExpectation::default();
        let expected = expected.unwrap_or(&none);
        let mut judged = Self { verdict: CorpusVerdict::Equal, unmet: Vec::new(), shown: Vec::new() };
        judged.differences(report, translation, expected);
        judged.untested(report, expected);
        judged
    }

    /// There is no report: the original does not run, or the proof took too long.
    pub(super) fn without_report(why: String, expected: Option<&CorpusExpectation>) -> Self {
        let is_expected =
            expected.is_some_and(|expected| expected.untested.iter().any(|part| why.contains(part.as_str())));
        let line = format!("no proof: {why}");
        let unmet = if is_expected { Vec::new() } else { vec![line.clone()] };
        Self { verdict: CorpusVerdict::Untested, unmet, shown: vec![line] }
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = &String> {
        self.shown.iter().chain(&self.unmet)
    }

    fn differences(&mut self, report: &Value, translation: &Value, expected: &CorpusExpectation) {
        let causes = list(&report["causes"]);
        for cause in causes {
            let (what, is_open) = (text(&cause["differs"]), cause["open"] == Value::Bool(true));
            let remark = expected.differs.get(what).filter(|directive| is_remarked(translation, directive));
            let verdict = match (is_open, remark) {
                (true, _) => CorpusVerdict::Open,
                (false, Some(_)) => CorpusVerdict::Named,
                (false, None) => CorpusVerdict::Differs,
            };
            self.verdict = self.verdict.max(verdict);
            let word = if is_open { "OPEN: " } else { "" };
            self.shown.push(format!(
                "{word}{what}: {} | {} instead of {}",
                text(&cause["curl"]),
                text(&cause["ours"]),
                text(&cause["theirs"])
            ));
            if is_open {
                self.unmet.push("something is open".to_owned());
            } else if remark.is_none() && expected.known.is_none() {
                self.unmet.push(format!("no expected remark names that {what} differs"));
            }
        }
        let closed: Vec<String> =
            list(&report["closed"]).iter().map(|door| format!("the listener {}", text(door))).collect();
        for door in &closed {
            let remark = expected.differs.get(door).filter(|directive| is_remarked(translation, directive));
            let verdict = if remark.is_some() { CorpusVerdict::Named } else { CorpusVerdict::Differs };
            self.verdict = self.verdict.max(verdict);
            if remark.is_none() {
                self.unmet.push(format!("Vanward does not listen: {door}"));
            }
        }
        let has = |what: &str| {
            causes.iter().any(|cause| text(&cause["differs"]) == what)
                || closed.iter().any(|door| door == what)
        };
        let gone = expected.differs.keys().filter(|what| !has(what));
        self.unmet.extend(gone.map(|what| format!("{what} does not differ any more: remove it")));
        if expected.known.is_some() && self.verdict <= CorpusVerdict::Named {
            self.unmet.push("nothing else differs any more: remove `known`".to_owned());
        }
    }

    fn untested(&mut self, report: &Value, expected: &CorpusExpectation) {
        let parts = list(&report["unreached"]);
        let is_of = |part: &Value, start: &str| text(&part["statement"]).starts_with(start);
        for part in parts {
            self.verdict = self.verdict.max(CorpusVerdict::Untested);
            if !expected.untested.iter().any(|start| is_of(part, start)) {
                let (line, statement) = (&part["line"], text(&part["statement"]));
                self.unmet.push(format!("not tested: line {line}: {statement}: {}", text(&part["why"])));
            }
        }
        let gone = expected.untested.iter().filter(|start| !parts.iter().any(|part| is_of(part, start)));
        self.unmet.extend(gone.map(|start| format!("{start} is tested now: remove it")));
    }
}

/// Whether a remark says that the directive is not taken over, or differs.
fn is_remarked(translation: &Value, directive: &str) -> bool {
    list(&translation["remarks"]).iter().any(|remark| {
        text(&remark["directive"]).starts_with(directive) && text(&remark["kind"]) != "needs nothing"
    })
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn judged(causes: &[(&str, bool)], unreached: &[&str], expected: &str) -> (CorpusVerdict, Vec<String>) {
        let causes: Vec<Value> = causes
            .iter()
            .map(|(what, is_open)| json!({ "differs": what, "open": is_open, "curl": "curl", "ours": "1", "theirs": "2" }))
            .collect();
        let unreached: Vec<Value> =
            unreached.iter().map(|part| json!({ "statement": part, "line": 3, "why": "so" })).collect();
        let report = json!({ "causes": causes, "unreached": unreached, "closed": [] });
        let remark = |directive: &str, kind: &str| json!({ "directive": directive, "kind": kind });
        let remarks = [remark("sub_filter a b", "not taken over"), remark("gzip on", "needs nothing")];
        let expectations = CorpusExpectations::parse(expected).expect("expectations");
        let judged = Judged::new(&report, &json!({ "remarks": remarks }), expectations.of("nginx/a"));
        (judged.verdict, judged.unmet)
    }

    #[test]
    fn a_report_is_judged_by_what_is_expected() {
        let body = "the body of the response";
        let named = format!("[nginx.a]\ndiffers = {{ \"{body}\" = \"sub_filter\" }}\nwhy = \"so\"");
        let needless = named.replace("sub_filter", "gzip");
        let untested = "[nginx.a]\nuntested = [\"fastcgi_pass\"]\nwhy = \"so\"";
        let known = "[nginx.a]\nknown = \"so\"";
        type Case<'c> = (&'c [(&'c str, bool)], &'c [&'c str], &'c str, CorpusVerdict, usize);
        let cases: [Case<'_>; 13] = [
            (&[], &[], "", CorpusVerdict::Equal, 0),
            (&[(body, false)], &[], "", CorpusVerdict::Differs, 1),
            (&[(body, false)], &[], &named, CorpusVerdict::Named, 0),
            (&[(body, false)], &[], &needless, CorpusVerdict::Differs, 1),
            (&[("the status", false)], &[], &named, CorpusVerdict::Differs, 2),
            (&[], &[], &named, CorpusVerdict::Equal, 1),
            (&[(body, true)], &[], &named, CorpusVerdict::Open, 1),
            (&[(body, true)], &[], known, CorpusVerdict::Open, 1),
            (&[(body, false)], &[], known, CorpusVerdict::Differs, 0),
            (&[], &[], known, CorpusVerdict::Equal, 1),
            (&[], &["fastcgi_pass php"], untested, CorpusVerdict::Untested, 0),
            (&[], &["location /x"], untested, CorpusVerdict::Untested, 2),
            (&[], &[], untested, CorpusVerdict::Equal, 1),
        ];
        for (causes, unreached, expected, verdict, unmet) in cases {
            let found = judged(causes, unreached, expected);
            assert_eq!((found.0, found.1.len()), (verdict, unmet), "{causes:?} {expected}: {:?}", found.1);
        }
    }

    #[test]
    fn expectations_have_reasons() {
        for (text, why) in [
            ("[nginx.a]\nuntested = [\"x\"]", "nginx/a: say `why`"),
            ("[nginx.a]\nequal = true", "nginx/a: there is no option equal"),
        ] {
            assert_eq!(CorpusExpectations::parse(text).err().as_deref(), Some(why));
        }
    }
}
