//! Groups differences by cause: what differs, and the block of the old configuration that decides.

use std::collections::{BTreeMap, BTreeSet};

use crate::OldProxy;
use crate::answer::ProofOutcome;
use crate::compare::{Aspect, Comparer, ProofDifference};
use crate::old::{OldConfiguration, StatementPlace};
use crate::request::{ProofRequest, RequestRow};
use crate::shown::{self, ShownOutcome};
use crate::stand_in::{BlockMark, Replaced, StandIns};

/// Command lines of further requests of one cause.
const OTHERS_MAX: usize = 20;
/// Lines that decide one cause.
const DECIDING_MAX: usize = 6;

/// Everything that was seen in a proof.
#[derive(Debug)]
pub struct ProofEvidence<'e> {
    pub old: &'e OldConfiguration,
    pub requests: &'e [ProofRequest],
    pub theirs: (&'e StandIns, &'e [ProofOutcome]),
    pub ours: (&'e StandIns, &'e [ProofOutcome]),
    pub marks: &'e [BlockMark],
    /// The marks that each request met, by its number.
    pub reached: &'e BTreeMap<usize, Vec<usize>>,
    pub replaced: Vec<Replaced>,
    /// Doors on which the candidate does not listen.
    pub closed: &'e [usize],
    /// Facts that captured requests lack.
    pub lacks: Vec<String>,
}

/// Differences with the same cause.
#[derive(Debug, Clone)]
pub struct DifferenceCause {
    pub aspect: Aspect,
    /// The old proxy refuses these requests, and Vanward does not.
    pub is_open: bool,
    /// Statements of the old configuration that decide, in its order.
    pub deciding: Vec<StatementPlace>,
    /// Numbers of the requests.
    pub requests: Vec<usize>,
    /// The shortest of them as a command line.
    pub curl: String,
    pub theirs: String,
    pub ours: String,
    /// Outcomes of the shortest request: from the old proxy, and from Vanward.
    pub outcomes: [ShownOutcome; 2],
    /// Other requests as command lines, up to 20.
    pub others: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing differs, and everything was reached.
    Same,
    Differs,
    /// Nothing differs, but not everything was reached.
    Undecided,
}

/// The result of a proof.
#[derive(Debug)]
pub struct ProofReport {
    pub peer: OldProxy,
    pub requests: usize,
    /// Requests with a difference.
    pub differing: usize,
    /// Causes that open something come first, then those with the most requests.
    pub causes: Vec<DifferenceCause>,
    /// Blocks, with the number of requests that reached them.
    pub reached: Vec<(StatementPlace, usize)>,
    /// Statements that the requests did not reach, with the reason.
    pub unreached: Vec<(StatementPlace, String)>,
    /// Rules by which differences have no meaning, with the number of requests.
    pub tolerated: Vec<(String, usize)>,
    pub replaced: Vec<Replaced>,
    /// Doors on which Vanward does not listen, as addresses.
    pub closed: Vec<String>,
    /// Facts that captured requests lack for a faithful replay.
    pub lacks: Vec<String>,
}

impl ProofReport {
    pub fn verdict(&self) -> Verdict {
        match () {
            () if !self.causes.is_empty() || !self.closed.is_empty() => Verdict::Differs,
            () if !self.unreached.is_empty() => Verdict::Undecided,
            () => Verdict::Same,
        }
    }
}

/// Compares the outcomes of all requests.
pub fn report(evidence: ProofEvidence<'_>) -> ProofReport {
    let ProofEvidence { old, requests, theirs, ours, marks, reached, .. } = evidence;
    let mut comparer = Comparer { old, theirs: theirs.0, ours: ours.0, tolerated: BTreeMap::new() };
    let mut differences = Vec::new();
    for ((request, their), our) in requests.iter().zip(theirs.1).zip(ours.1) {
        // The old program has no server there, so its failure says nothing.
        let is_foreign = old.peer == OldProxy::Nginx && our.answer.status >= 400 && {
            let foreign = |mark: &&BlockMark| mark.statements.iter().any(crate::nginx::is_foreign_place);
            blocks(&evidence, request.number).iter().any(foreign)
        };
        if request.row == RequestRow::Alone && !evidence.closed.contains(&request.door) && !is_foreign {
            differences.extend(comparer.compare(request, their, our));
        }
    }
    differences.extend(limits(&evidence));
    let differing: BTreeSet<usize> = differences.iter().map(|difference| difference.request).collect();
    let mut counts = vec![0; marks.len()];
    for mark in reached.values().flatten() {
        if let Some(count) = counts.get_mut(*mark) {
            *count += 1;
        }
    }
    let mut unreached: Vec<(StatementPlace, String)> = marks
        .iter()
        .zip(&counts)
        .filter(|(_, count)| **count == 0)
        .map(|(mark, _)| (mark.place.clone(), "no request reached it".to_owned()))
        .collect();
    unreached.extend(old.untested.iter().cloned());
    let shown = |door: &usize| old.doors.get(*door).map(|door| format!("{}:{}", door.host, door.port));
    ProofReport {
        peer: old.peer,
        requests: requests.len(),
        differing: differing.len(),
        causes: causes(&evidence, differences),
        reached: marks.iter().zip(counts).map(|(mark, count)| (mark.place.clone(), count)).collect(),
        unreached,
        tolerated: comparer
            .tolerated
            .iter()
            .map(|(rule, requests)| ((*rule).to_owned(), requests.len()))
            .collect(),
        closed: evidence.closed.iter().filter_map(shown).collect(),
        replaced: evidence.replaced,
        lacks: evidence.lacks,
    }
}

/// Compares how many of many requests were refused. In a row, one more or less is a matter of time.
fn limits(evidence: &ProofEvidence<'_>) -> Vec<ProofDifference> {
    let mut bursts: BTreeMap<(RequestRow, std::net::Ipv4Addr, usize), Vec<usize>> = BTreeMap::new();
    let rows = evidence.requests.iter().enumerate().filter(|(_, request)| request.row != RequestRow::Alone);
    for (index, request) in rows {
        bursts.entry((request.row, request.client, request.door)).or_default().push(index);
    }
    let refused = |outcomes: &[ProofOutcome], burst: &[usize]| {
        let statuses =
            burst.iter().filter_map(|index| outcomes.get(*index)).map(|outcome| outcome.answer.status);
        statuses.filter(|status| matches!(status, 0 | 429 | 503)).count()
    };
    let mut found = Vec::new();
    for ((row, ..), burst) in &bursts {
        let (theirs, ours) = (refused(evidence.theirs.1, burst), refused(evidence.ours.1, burst));
        let (tolerated, how) = match row {
            RequestRow::AtOnce => (0, "concurrent requests"),
            _ => (1.max(burst.len() / 10), "requests in a row"),
        };
        if theirs.abs_diff(ours) > tolerated {
            let shown = |refused: usize| format!("{refused} of {} {how} were refused", burst.len());
            let request = burst.first().and_then(|index| evidence.requests.get(*index));
            found.push(ProofDifference {
                request: request.map_or(0, |request| request.number),
                aspect: Aspect::Limit,
                theirs: shown(theirs),
                ours: shown(ours),
                is_open: ours < theirs,
            });
        }
    }
    found
}

fn causes(evidence: &ProofEvidence<'_>, differences: Vec<ProofDifference>) -> Vec<DifferenceCause> {
    let mut groups: BTreeMap<(Aspect, Option<StatementPlace>, String), Vec<ProofDifference>> =
        BTreeMap::new();
    for difference in differences {
        let last = blocks(evidence, difference.request).last().map(|mark| mark.place.clone());
        let aim = || evidence.requests.get(difference.request).and_then(|request| request.aim.clone());
        let place = last.or_else(aim);
        let status = |text: &str| text.split([' ', ';']).next().unwrap_or_default().to_owned();
        let statuses = match difference.aspect {
            // A server may answer anything.
            Aspect::Status if difference.ours.contains(" got ") => {
                format!("{} server", status(&difference.theirs))
            }
            Aspect::Status => format!("{} {}", status(&difference.theirs), status(&difference.ours)),
            _ => String::new(),
        };
        groups.entry((difference.aspect.clone(), place, statuses)).or_default().push(difference);
    }
    let mut causes: Vec<DifferenceCause> =
        groups.into_values().filter_map(|group| cause(evidence, &group)).collect();
    causes.sort_by_key(|cause| (!cause.is_open, std::cmp::Reverse(cause.requests.len())));
    causes
}

fn cause(evidence: &ProofEvidence<'_>, group: &[ProofDifference]) -> Option<DifferenceCause> {
    let curl = |difference: &&ProofDifference| {
        let request = evidence.requests.get(difference.request)?;
        Some(request.curl(evidence.old.doors.get(request.door)?))
    };
    let shortest =
        group.iter().min_by_key(|difference| curl(difference).map_or(usize::MAX, |curl| curl.len()))?;
    let mut requests: Vec<usize> = group.iter().map(|difference| difference.request).collect();
    requests.dedup();
    let shown = |(stand_ins, outcomes): (&StandIns, &[ProofOutcome])| {
        let outcome = outcomes.get(shortest.request);
        let shown = |outcome| shown::outcome(evidence.old, stand_ins, outcome, &shortest.aspect);
        outcome.map(shown).unwrap_or_default()
    };
    let others = group.iter().filter(|other| other.request != shortest.request);
    Some(DifferenceCause {
        outcomes: [shown(evidence.theirs), shown(evidence.ours)],
        others: others.filter_map(|other| curl(&other)).take(OTHERS_MAX).collect(),
        aspect: shortest.aspect.clone(),
        is_open: group.iter().any(|difference| difference.is_open),
        deciding: deciding(evidence, shortest),
        requests,
        curl: curl(&shortest).unwrap_or_default(),
        theirs: shortest.theirs.clone(),
        ours: shortest.ours.clone(),
    })
}

/// The blocks that a request reached.
fn blocks<'e>(evidence: &ProofEvidence<'e>, request: usize) -> Vec<&'e BlockMark> {
    let reached = evidence.reached.get(&request).map(Vec::as_slice).unwrap_or_default();
    reached.iter().filter_map(|number| evidence.marks.get(*number)).collect()
}

/// The statements that decide a matter: the reached blocks, and statements of theirs with a fitting name.
fn deciding(evidence: &ProofEvidence<'_>, difference: &ProofDifference) -> Vec<StatementPlace> {
    let blocks = blocks(evidence, difference.request);
    let mut places = Vec::new();
    let field = match &difference.aspect {
        Aspect::Field(name) | Aspect::ServerField(name) => Some(name.as_str()),
        _ => None,
    };
    for mark in blocks.iter().rev() {
        let fits = |place: &&StatementPlace| {
            let text = place.text.to_ascii_lowercase();
            let name = text.split(' ').next().unwrap_or_default();
            field.is_some_and(|field| text.contains(field))
                || difference.aspect.words().iter().any(|word| name.contains(word))
        };
        places.push(mark.place.clone());
        places.extend(mark.statements.iter().filter(fits).cloned());
        if places.len() >= DECIDING_MAX {
            break;
        }
    }
    if places.is_empty() {
        places.extend(evidence.requests.get(difference.request).and_then(|request| request.aim.clone()));
    }
    places.truncate(DECIDING_MAX);
    places.sort();
    places.dedup();
    places
}
