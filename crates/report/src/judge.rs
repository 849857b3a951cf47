//! Judge: whether the figures of a case may be ranked, and if not, why and what to do.
//!
//! A rule is a row of `RULES`. It checks evidence from our own results (`summary`) or from published tables
//! (`published`). `summary` decides who wins.

/// Evidence from our own results.
mod evidence;

use std::collections::BTreeMap;

use crate::figure;
use crate::statistics::Estimate;

pub(crate) use evidence::ranking;

/// Maximum CPU utilisation of the generator: above it, requests may be sent late.
const GENERATOR_BUSY_MOST: f64 = 0.9;
/// Lateness of the generator that is always allowed …
const LATENESS_US: f64 = 1_000.0;
/// … and also this share of the reported latency.
const LATENESS_SHARE: f64 = 0.1;
/// Share of a line's rate at which the line is full: the rest is for framing and acknowledgements.
const LINE_SHARE_MOST: f64 = 0.87;
/// Maximum share of failed requests.
const FAILED_SHARE_MOST: f64 = 0.001;
/// Maximum spread of an interval: a wider one cannot rank close figures.
const SPREAD_MOST: f64 = 0.15;
/// Maximum share of the machine that other processes use. On an idle machine the kernel takes about a twentieth, for
/// sleeping and waking. In a short measurement, the lab's sampling takes as much again.
const OTHERS_SHARE_MOST: f64 = 0.15;
/// Allowed difference of response sizes, in bytes …
const HEAD_BYTES: f64 = 400.0;
/// … and as a share of the size.
const BODY_SHARE: f64 = 0.02;
/// If a proxy answers at least this share of the offered rate, it could have answered more.
const OFFER_ANSWERED: f64 = 0.97;
/// A proxy that uses less of its workers' cores than this in a closed loop waited for something else.
const SATURATED: f64 = 0.9;
/// Minimum number of repeats for a spread.
const REPEATS_LEAST: usize = 3;

pub(crate) const OTHERS: &str = "others-on-the-machine";

/// Entries that are ranked together.
#[derive(Debug, Clone, Default)]
pub struct Ranking {
    pub case: String,
    /// Whether requests per second are ranked: not if all entries get the same rate.
    pub ranks_rates: bool,
    pub entries: Vec<Evidence>,
}

/// Evidence about one entry. Unknown facts are `None` or empty, and no rule uses them.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    pub name: String,
    /// The ranked figure, for each repeat.
    pub repeats: Vec<f64>,
    pub per_second: Option<f64>,
    pub offered_per_second: Option<f64>,
    pub failed_share: Option<f64>,
    /// Number of measurements without figures, and of all measurements; `None` if all have figures.
    pub failed_repeats: Option<(usize, usize)>,
    /// Bytes of each response, with its head.
    pub response_bytes: Option<f64>,
    /// CPU utilisation of the generator, as a share of its cores.
    pub generator_share: Option<f64>,
    /// Lateness of the generator and latency, both at the 99th percentile, in microseconds.
    pub lateness_us: Option<(f64, f64)>,
    /// Used share of the line's rate.
    pub line_share: Option<f64>,
    /// Used share of the workers' cores in a closed loop.
    pub busy_share: Option<f64>,
    /// Share of the machine that other processes used: neither the lab nor the programs that it measures.
    pub others_share: Option<f64>,
    pub setup: BTreeMap<Trait, String>,
    /// Resource that the system ran out of: `Too many open files`.
    pub exhausted: Option<String>,
}

/// Setting that must be alike for figures to be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trait {
    Logging,
    /// Number of threads or processes.
    Workers,
    /// Whether connections are reused, on both sides.
    KeepAlive,
    /// TLS version and cipher suite.
    Ciphers,
    Compression,
}

/// Figures that a broken rule makes unfit for ranking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spoils {
    Everything,
    /// Only requests per second; the cost per request is still valid.
    Rates,
    /// No figures: only a note for readers.
    Nothing,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub rule: &'static str,
    pub entries: Vec<String>,
    pub spoils: Spoils,
    pub seen: String,
    /// Advice, as the end of a sentence.
    pub next: &'static str,
    /// Why the rule matters, and what to do.
    pub remedy: &'static str,
}

#[derive(Debug)]
pub struct JudgeRule {
    /// Short, unique name: `generator-late`.
    pub name: &'static str,
    /// Figures that cannot be ranked if the rule is broken.
    pub spoils: Spoils,
    /// Advice, as the end of a sentence: `close them`.
    pub next: &'static str,
    pub remedy: &'static str,
    /// Finds the entries that break the rule, with the observed facts.
    find: fn(&Ranking) -> Option<Broken>,
}

/// Entries that break a rule, and the observed facts.
type Broken = (Vec<String>, String);

/// In the order of a reader's questions.
pub const RULES: [JudgeRule; 16] = [
    JudgeRule {
        name: "generator-bottleneck",
        spoils: Spoils::Rates,
        next: "give the generator more threads or cores",
        remedy: "The generator was the limit, not the proxy: give it more threads or cores, or load from several machines.",
        find: |ranking| above(ranking, "the generator used", GENERATOR_BUSY_MOST, |one| one.generator_share),
    },
    JudgeRule {
        name: "generator-late",
        spoils: Spoils::Everything,
        next: "give the generator a core of its own, or lower the rate",
        remedy: "The generator's own delay is in the latencies: give it a core of its own, or lower the rate.",
        find: late,
    },
    JudgeRule {
        name: "line-full",
        spoils: Spoils::Rates,
        next: "use a faster line or a smaller payload",
        remedy: "The network was the limit, so every proxy that is fast enough shows the same figure: use a faster \
                 line or a smaller payload.",
        find: |ranking| above(ranking, "the line was filled to", LINE_SHARE_MOST, |one| one.line_share),
    },
    JudgeRule {
        name: "proxy-idle",
        spoils: Spoils::Rates,
        next: "give the generator and the origins more cores",
        remedy: "Requests per second are not its capacity, because something else was the limit; CPU time per request \
                 is valid. Give the generator and the origins more cores.",
        find: idle,
    },
    JudgeRule {
        name: "different-logging",
        spoils: Spoils::Everything,
        next: "use the same log for all, or none",
        remedy: "Writing a log is a large part of the cost of a request: use the same log for all, or none.",
        find: |ranking| unlike(ranking, Trait::Logging),
    },
    JudgeRule {
        name: "different-workers",
        spoils: Spoils::Everything,
        next: "give all the same number of workers",
        remedy: "A proxy with more workers gets more of the machine: give all the same number, on the same cores.",
        find: |ranking| unlike(ranking, Trait::Workers),
    },
    JudgeRule {
        name: "different-keep-alive",
        spoils: Spoils::Everything,
        next: "keep connections alive for all, or for none",
        remedy: "A new connection costs more than a request: keep connections alive for all, or for none.",
        find: |ranking| unlike(ranking, Trait::KeepAlive),
    },
    JudgeRule {
        name: "different-ciphers",
        spoils: Spoils::Everything,
        next: "pin one TLS version and cipher suite for all",
        remedy: "Cipher suites differ in cost: pin one version and suite for all.",
        find: |ranking| unlike(ranking, Trait::Ciphers),
    },
    JudgeRule {
        name: "different-compression",
        spoils: Spoils::Everything,
        next: "switch compression on or off for all",
        remedy: "A proxy that compresses does more work and sends less: switch compression on or off for all.",
        find: |ranking| unlike(ranking, Trait::Compression),
    },
    JudgeRule {
        name: "different-bytes",
        spoils: Spoils::Everything,
        next: "compare the bodies of the responses",
        remedy: "The proxies did not send the same responses: compare the bodies, and look for compression, errors \
                 sent as pages, or another payload.",
        find: bytes,
    },
    JudgeRule {
        name: "errors",
        spoils: Spoils::Everything,
        next: "find the cause of the errors, or lower the load",
        remedy: "Requests that fail are often cheap or never finish, so the rest says little: find their cause, or lower the load.",
        find: |ranking| above(ranking, "of the requests failed:", FAILED_SHARE_MOST, |one| one.failed_share),
    },
    JudgeRule {
        name: "failed-repeats",
        spoils: Spoils::Everything,
        next: "find out why the others failed, and measure again",
        remedy: "Its figures are from the completed repeats only: find out why the others failed (the reasons are \
                 listed), and measure again.",
        find: failed,
    },
    JudgeRule {
        name: "noise",
        spoils: Spoils::Nothing,
        next: "measure longer",
        remedy: "Close figures cannot be distinguished: measure longer, repeat more often, or on a quieter machine.",
        find: noise,
    },
    JudgeRule {
        name: OTHERS,
        spoils: Spoils::Everything,
        next: "close them",
        remedy: "Other programs used CPU time: stop them, and measure again.",
        find: |ranking| above(ranking, "other programs used", OTHERS_SHARE_MOST, |one| one.others_share),
    },
    JudgeRule {
        name: "ports-or-descriptors",
        spoils: Spoils::Everything,
        next: "raise `ulimit -n`, or keep connections alive",
        remedy: "The system reached one of its limits: raise `ulimit -n`, widen net.ipv4.ip_local_port_range, or keep \
                 connections alive.",
        find: exhausted,
    },
    JudgeRule {
        name: "offer-taken-for-capacity",
        spoils: Spoils::Rates,
        next: "search for the highest rate of each",
        remedy: "It kept up with the offered rate and might handle a higher one: offer the same rate to all and \
                 compare latency, or search for each one's highest rate.",
        find: offer,
    },
];

pub fn judge(ranking: &Ranking) -> Vec<Finding> {
    RULES
        .iter()
        .filter_map(|rule| {
            let (entries, seen) = (rule.find)(ranking)?;
            let JudgeRule { name, spoils, next, remedy, .. } = *rule;
            Some(Finding { rule: name, entries, spoils, seen, next, remedy })
        })
        .collect()
}

impl Finding {
    /// Whether the finding excludes a figure of this entry from ranking: requests per second (`of_rates`), or another.
    pub fn spoils(&self, entry: &str, of_rates: bool) -> bool {
        let hits = match self.spoils {
            Spoils::Everything => true,
            Spoils::Rates => of_rates,
            Spoils::Nothing => false,
        };
        hits && self.entries.iter().any(|name| name == entry)
    }

    /// The observed facts, the consequence, the reason and the remedy.
    pub fn sentence(&self) -> String {
        let mut seen = self.seen.clone();
        if let Some(first) = seen.get(..1).map(str::to_uppercase) {
            seen.replace_range(..1, &first);
        }
        format!("{seen}. {} {}", self.consequence(), self.remedy)
    }

    /// Consequence for the ranking, as a sentence.
    pub fn consequence(&self) -> String {
        let names = self.entries.join(", ");
        match self.spoils {
            Spoils::Everything => format!("Not ranked: {names}."),
            Spoils::Rates => format!("Requests per second not ranked: {names}."),
            Spoils::Nothing => format!("Doubtful: {names}."),
        }
    }
}

impl Trait {
    pub fn phrase(self) -> &'static str {
        match self {
            Self::Logging => "logging",
            Self::Workers => "workers",
            Self::KeepAlive => "keep-alive",
            Self::Ciphers => "cipher",
            Self::Compression => "compression",
        }
    }
}

/// Finds entries whose share exceeds a bound.
fn above(ranking: &Ranking, phrase: &str, most: f64, share: fn(&Evidence) -> Option<f64>) -> Option<Broken> {
    let hit: Vec<(&Evidence, f64)> = ranking
        .entries
        .iter()
        .filter_map(|entry| Some((entry, share(entry)?)))
        .filter(|(_, share)| *share > most)
        .collect();
    let of = if phrase.ends_with("used") { " of its capacity" } else { "" };
    let of = if phrase == "other programs used" { " of the CPU" } else { of };
    let said: Vec<String> =
        hit.iter().map(|(entry, share)| format!("{} ({})", figure::percent(*share), entry.name)).collect();
    broken(hit.into_iter().map(|(entry, _)| entry), format!("{phrase} {}{of}", said.join(", ")))
}

fn late(ranking: &Ranking) -> Option<Broken> {
    let hit = |entry: &&Evidence| {
        entry.lateness_us.is_some_and(|(late, latency)| late > LATENESS_US.max(LATENESS_SHARE * latency))
    };
    let hit: Vec<&Evidence> = ranking.entries.iter().filter(hit).collect();
    let said: Vec<String> = hit
        .iter()
        .filter_map(|entry| Some((entry, entry.lateness_us?)))
        .map(|(entry, (late, latency))| {
            format!("{} of {} ({})", figure::duration_us(late), figure::duration_us(latency), entry.name)
        })
        .collect();
    broken(hit, format!("the generator was late at the 99th percentile by {}", said.join(", ")))
}

fn idle(ranking: &Ranking) -> Option<Broken> {
    if !ranking.ranks_rates {
        return None;
    }
    let hit: Vec<(&Evidence, f64)> = ranking
        .entries
        .iter()
        .filter_map(|entry| Some((entry, entry.busy_share?)))
        .filter(|(_, share)| *share < SATURATED)
        .collect();
    let said: Vec<String> =
        hit.iter().map(|(entry, share)| format!("{} {}", entry.name, figure::percent(*share))).collect();
    broken(
        hit.into_iter().map(|(entry, _)| entry),
        format!("CPU use of its workers' cores: {}", said.join(", ")),
    )
}

/// Finds entries whose setting differs from the majority; all entries if no setting has a majority.
fn unlike(ranking: &Ranking, which: Trait) -> Option<Broken> {
    let known: Vec<(&Evidence, &str)> =
        ranking.entries.iter().filter_map(|entry| Some((entry, entry.setup.get(&which)?.as_str()))).collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, value) in &known {
        *counts.entry(value).or_default() += 1;
    }
    if counts.len() < 2 {
        return None;
    }
    let common = counts.iter().find(|(_, count)| **count * 2 > known.len()).map(|(value, _)| *value);
    let odd: Vec<(&Evidence, &str)> = known.into_iter().filter(|(_, value)| Some(*value) != common).collect();
    let said: Vec<String> = odd.iter().map(|(entry, value)| format!("{}: {value}", entry.name)).collect();
    let rest = common.map(|value| format!("; the others: {value}")).unwrap_or_default();
    broken(
        odd.into_iter().map(|(entry, _)| entry),
        format!("{} differs: {}{rest}", which.phrase(), said.join("; ")),
    )
}

fn bytes(ranking: &Ranking) -> Option<Broken> {
    let mut all: Vec<f64> = ranking.entries.iter().filter_map(|entry| entry.response_bytes).collect();
    all.sort_by(f64::total_cmp);
    let middle = *all.get(all.len() / 2)?;
    let hit: Vec<(&Evidence, f64)> = ranking
        .entries
        .iter()
        .filter_map(|entry| Some((entry, entry.response_bytes?)))
        .filter(|(_, bytes)| (bytes - middle).abs() > HEAD_BYTES.max(BODY_SHARE * middle))
        .collect();
    let said: Vec<String> =
        hit.iter().map(|(entry, bytes)| format!("{} ({})", figure::bytes(*bytes), entry.name)).collect();
    let seen =
        format!("a response had {}, but {} from the other proxies", said.join(", "), figure::bytes(middle));
    broken(hit.into_iter().map(|(entry, _)| entry), seen)
}

fn noise(ranking: &Ranking) -> Option<Broken> {
    let (few, many): (Vec<&Evidence>, Vec<&Evidence>) = ranking
        .entries
        .iter()
        .filter(|entry| !entry.repeats.is_empty())
        .partition(|entry| entry.repeats.len() < REPEATS_LEAST);
    let noisy: Vec<(&Evidence, f64)> = many
        .into_iter()
        .filter_map(|entry| Some((entry, Estimate::from_values(entry.repeats.iter().copied())?.spread())))
        .filter(|(_, spread)| *spread > SPREAD_MOST)
        .collect();
    let mut said: Vec<String> = noisy
        .iter()
        .map(|(entry, spread)| format!("±{} ({})", figure::percent(*spread), entry.name))
        .collect();
    if !few.is_empty() {
        let times = few.iter().map(|entry| entry.repeats.len()).max().unwrap_or(0);
        let names: Vec<&str> = few.iter().map(|entry| entry.name.as_str()).collect();
        let times = if times == 1 { "once".to_owned() } else { format!("{times} times") };
        said.push(format!("measured {times}, so the spread is unknown ({})", names.join(", ")));
    }
    broken(
        noisy.into_iter().map(|(entry, _)| entry).chain(few),
        format!("the figure spreads: {}", said.join(", ")),
    )
}

fn failed(ranking: &Ranking) -> Option<Broken> {
    let hit = ranking.entries.iter().filter_map(|entry| Some((entry, entry.failed_repeats?)));
    let hit: Vec<(&Evidence, (usize, usize))> = hit.collect();
    let said: Vec<String> =
        hit.iter().map(|(entry, (failed, of))| format!("{failed} of {of} ({})", entry.name)).collect();
    broken(hit.into_iter().map(|(entry, _)| entry), format!("failed repeats: {}", said.join(", ")))
}

fn exhausted(ranking: &Ranking) -> Option<Broken> {
    let hit: Vec<&Evidence> = ranking.entries.iter().filter(|entry| entry.exhausted.is_some()).collect();
    let said: Vec<String> = hit
        .iter()
        .filter_map(|entry| Some(format!("{} ({})", entry.exhausted.as_ref()?, entry.name)))
        .collect();
    broken(hit, said.join("; "))
}

fn offer(ranking: &Ranking) -> Option<Broken> {
    if !ranking.ranks_rates {
        return None;
    }
    let hit: Vec<(&Evidence, f64, f64)> = ranking
        .entries
        .iter()
        .filter_map(|entry| Some((entry, entry.per_second?, entry.offered_per_second?)))
        .filter(|(_, answered, offered)| *answered >= OFFER_ANSWERED * offered)
        .collect();
    let said: Vec<String> = hit
        .iter()
        .map(|(entry, answered, offered)| {
            format!(
                "{} answered {} of {} a second",
                entry.name,
                figure::rate(*answered),
                figure::rate(*offered)
            )
        })
        .collect();
    broken(hit.into_iter().map(|(entry, ..)| entry), said.join("; "))
}

fn broken<'e>(entries: impl IntoIterator<Item = &'e Evidence>, seen: String) -> Option<Broken> {
    let names: Vec<String> = entries.into_iter().map(|entry| entry.name.clone()).collect();
    (!names.is_empty()).then_some((names, seen))
}

#[cfg(test)]
mod tests;
