//! `crates/xtask/cost.toml`: the cost of each case at the last commit that changed it, and why it became dearer.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::cases::CostCase;

/// The file, below the top directory.
pub(super) const FILE: &str = "crates/xtask/cost.toml";
const HEAD: &str = "\
# Instructions of a request by Callgrind, and misses in the caches of its model: of instructions, of data, and in the last
# one. `cargo xtask cost` compares with them, and `--update` writes them. `why` says why a case became dearer.
";

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RequestCost {
    pub(super) instructions: f64,
    /// Misses in the first cache of instructions, in that of data, and in the last one.
    pub(super) misses: [f64; 3],
}

#[derive(Debug, Clone, PartialEq)]
struct CostFigure {
    cost: RequestCost,
    why: Option<String>,
}

/// The figures of all cases.
#[derive(Debug, Default)]
pub(super) struct CostFigures {
    /// The compiler, as it names itself.
    compiler: String,
    cases: BTreeMap<String, CostFigure>,
}

impl CostFigures {
    /// Reads the file; without one there are no figures.
    pub(super) fn read(file: &Path) -> Result<Self, String> {
        match fs::read_to_string(file) {
            Ok(text) => Self::parse(&text).map_err(|why| format!("{FILE}: {why}")),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(format!("{FILE}: {error}")),
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let document: toml::Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
        let mut figures = Self::default();
        for (name, value) in &document {
            let Some(table) = value.as_table() else {
                figures.compiler = value.as_str().ok_or_else(|| format!("{name} is no text"))?.to_owned();
                continue;
            };
            let number =
                |value: &toml::Value| value.as_float().or(value.as_integer().map(|number| number as f64));
            let instructions = table.get("instructions").and_then(number);
            let misses = table.get("misses").and_then(toml::Value::as_array);
            let misses: Vec<f64> = misses.into_iter().flatten().filter_map(number).collect();
            let why = table.get("why").and_then(toml::Value::as_str).map(str::to_owned);
            let (Some(instructions), Ok(misses)) = (instructions, misses.try_into()) else {
                return Err(format!("{name} needs `instructions` and three `misses`"));
            };
            let cost = RequestCost { instructions, misses };
            figures.cases.insert(name.clone(), CostFigure { cost, why });
        }
        Ok(figures)
    }

    fn ratio(&self, name: &str, cost: &RequestCost) -> Option<f64> {
        Some(cost.instructions / self.cases.get(name)?.cost.instructions)
    }

    /// The compiler of the figures, if it is not the one of now.
    pub(super) fn other_compiler(&self) -> Result<Option<&str>, String> {
        let now = compiler()?;
        Ok(Some(self.compiler.as_str()).filter(|known| now != *known))
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.cases.contains_key(name)
    }

    /// Whether a case is dearer than tolerated.
    pub(super) fn is_dearer(&self, case: &CostCase, cost: &RequestCost) -> bool {
        self.ratio(case.name, cost).is_some_and(|ratio| ratio > 1.0 + case.tolerated_percent / 100.0)
    }

    /// A row of the table.
    pub(super) fn row(&self, name: &str, cost: &RequestCost) -> String {
        let before =
            self.cases.get(name).map_or("–".to_owned(), |known| format!("{:.0}", known.cost.instructions));
        let ratio = self.ratio(name, cost).map_or("–".to_owned(), |ratio| format!("{ratio:.3}"));
        let [first, data, last] = cost.misses;
        format!(
            "| {name} | {:.0} | {before} | {ratio} | {first:.0}, {data:.0}, {last:.1} |",
            cost.instructions
        )
    }

    /// Takes measured costs over, and writes the file. Dearer cases need a reason.
    pub(super) fn update(
        &mut self,
        measured: &[(&'static CostCase, RequestCost)],
        why: Option<&str>,
        file: &Path,
    ) -> Result<(), String> {
        for (case, cost) in measured {
            let (name, is_dearer) = (case.name, self.is_dearer(case, cost));
            if is_dearer && why.is_none() {
                return Err(format!("{name} is dearer than before: say why with --why"));
            }
            let known = self.cases.get(name).and_then(|known| known.why.clone());
            let why = if is_dearer { why.map(str::to_owned) } else { known };
            self.cases.insert(name.to_owned(), CostFigure { cost: *cost, why });
        }
        self.compiler = compiler()?;
        fs::write(file, self.print()).map_err(|error| format!("{FILE}: {error}"))
    }

    fn print(&self) -> String {
        let mut text = format!("{HEAD}compiler = {:?}\n", self.compiler);
        for (name, CostFigure { cost, why }) in &self.cases {
            let [first, data, last] = cost.misses;
            let _ = writeln!(text, "\n[{name}]\ninstructions = {:.0}", cost.instructions);
            let _ = writeln!(text, "misses = [{first:.0}, {data:.0}, {last:.1}]");
            if let Some(why) = why {
                let _ = writeln!(text, "why = {why:?}");
            }
        }
        text
    }
}

/// The name and the version of the compiler.
fn compiler() -> Result<String, String> {
    let output = Command::new("rustc").arg("--version").output();
    let output = output.map_err(|error| format!("rustc --version: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::cases::CASES;

    fn cost(instructions: f64) -> RequestCost {
        RequestCost { instructions, misses: [1.0, 20.0, 0.5] }
    }

    #[test]
    fn figures_are_read_as_they_were_written() {
        let mut figures = CostFigures { compiler: "rustc 1".to_owned(), ..CostFigures::default() };
        let figure = CostFigure { cost: cost(100.0), why: Some("a \"rule\"".to_owned()) };
        figures.cases.insert("log".to_owned(), figure.clone());
        let read = CostFigures::parse(&figures.print()).expect("it is right");
        assert_eq!((read.compiler.as_str(), read.cases.get("log")), ("rustc 1", Some(&figure)));
        assert!(CostFigures::parse("[log]\ninstructions = 1").is_err());
    }

    #[test]
    fn a_percent_is_tolerated_and_more_needs_a_reason() {
        let folder = crate::scratch::Scratch::new("cost-figures").expect("a folder");
        let file = folder.path().join("cost.toml");
        let mut figures = CostFigures::default();
        let log = CASES.iter().find(|case| case.name == "log").expect("it is one");
        assert!(!figures.has("log") && !figures.is_dearer(log, &cost(1000.0)));
        figures.update(&[(log, cost(1000.0))], None, &file).expect("it is new");
        assert!(!figures.is_dearer(log, &cost(1009.0)) && figures.is_dearer(log, &cost(1011.0)));
        let refused = figures.update(&[(log, cost(1011.0))], None, &file);
        assert!(refused.is_err_and(|why| why.contains("--why")));
        figures.update(&[(log, cost(1011.0))], Some("more"), &file).expect("there is a reason");
        let read = CostFigures::read(&file).expect("it was written");
        assert_eq!(read.cases["log"].why.as_deref(), Some("more"));
    }
}
