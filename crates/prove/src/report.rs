//! Groups differences by cause: what differs, and the block of the old configuration that decides.

use std::collections::{BTreeMap, BTreeSet};

use adapt::{Remark, RemarkKind};

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
    /// The requests that the old program and Vanward have logged; none if not both have a log.
    pub logged: Option<[BTreeSet<usize>; 2]>,
    /// Facts that captured requests lack.
    pub lacks: Vec<String>,
    /// Remarks of the translation that say what works differently, or is not taken over.
    pub remarks: &'e [Remark],
    /// Statements that too few requests were asked for, with the reason.
    pub left_out: &'e [(StatementPlace, String)],
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

impl DifferenceCause {
    /// Whether another cause shows the same difference in another block.
    fn is_same(&self, other: &Self) -> bool {
        let difference =
            |cause: &Self| (cause.aspect.clone(), cause.is_open, cause.theirs.clone(), cause.ours.clone());
        difference(self) == difference(other)
    }

    fn merge(&mut self, other: Self) {
        self.requests.extend(other.requests);
        self.deciding.extend(other.deciding);
        self.deciding.sort();
        self.deciding.dedup();
        self.deciding.truncate(DECIDING_MAX);
        self.others.push(other.curl);
        self.others.extend(other.others);
        self.others.truncate(OTHERS_MAX);
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing differs, and everything was reached.
    Same,
    Differs,
    /// Nothing differs, but not everything was reached.
    Undecided,
}

/// The conditions of a proof.
#[derive(Debug, Clone)]
pub struct ProofSetting {
    /// The file of the old configuration, as named by the user.
    pub file: String,
    /// The file with the configuration of Vanward; none for the translation.
    pub candidate: Option<String>,
    /// The old program with its version, such as `nginx/1.22.1`.
    pub program: String,
    /// The version of Vanward.
    pub version: String,
    pub seed: u64,
    /// Such as `2026-12-01 10:55 UTC`.
    pub date: String,
}

/// `nginx.conf in nginx/1.22.1, its translation in vanward/0.2.0, seed 1, 2026-12-01 10:55 UTC`
impl std::fmt::Display for ProofSetting {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { file, candidate, program, version, seed, date } = self;
        let candidate = candidate.as_deref().unwrap_or("its translation");
        write!(formatter, "{file} in {program}, {candidate} in vanward/{version}, seed {seed}, {date}")
    }
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
    /// Remarks of the translation that say what works differently, or is not taken over.
    pub remarks: Vec<Remark>,
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
            let found = comparer.compare(request, their, our);
            if found.is_empty() && is_logged_alike(old.peer, request, their, our) {
                differences.extend(logged(&evidence, request.number));
            }
            differences.extend(found);
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
    unreached.extend(old.untested.iter().chain(evidence.left_out).cloned());
    let causes = causes(&evidence, differences);
    unreached.extend(refused(&evidence, &counts, &causes, &unreached));
    let shown = |door: &usize| old.doors.get(*door).map(|door| format!("{}:{}", door.host, door.port));
    ProofReport {
        peer: old.peer,
        requests: requests.len(),
        differing: differing.len(),
        causes,
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
        remarks: evidence.remarks.to_vec(),
    }
}

/// Statements that the translation lacks, of which no request shows whether that matters.
fn refused(
    evidence: &ProofEvidence<'_>,
    counts: &[usize],
    causes: &[DifferenceCause],
    unreached: &[(StatementPlace, String)],
) -> Vec<(StatementPlace, String)> {
    let mut known: BTreeSet<(&str, usize)> = BTreeSet::new();
    let reached =
        evidence.marks.iter().zip(counts).filter(|(_, count)| **count > 0).map(|(mark, _)| &mark.place);
    let decided = causes.iter().flat_map(|cause| &cause.deciding);
    let listed = unreached.iter().map(|(place, _)| place);
    known.extend(reached.chain(decided).chain(listed).map(|place| (place.file.as_str(), place.line)));
    let refused = evidence.remarks.iter().filter(|remark| remark.kind == RemarkKind::Refused);
    let unknown = refused.filter(|remark| known.insert((remark.file.as_str(), remark.line)));
    let listed = unknown.map(|remark| {
        let Remark { file, line, directive, why, .. } = remark;
        let place = StatementPlace { file: file.clone(), line: *line, text: directive.clone() };
        (place, format!("`vanward adapt` does not take it over, and no request shows the effect: {why}"))
    });
    listed.collect()
}

/// Whether both proxies should log a request if one does: the answers are equal, not only excused.
fn is_logged_alike(peer: OldProxy, request: &ProofRequest, their: &ProofOutcome, our: &ProofOutcome) -> bool {
    let status = our.answer.status;
    let is_read_alike = match peer {
        // Paths are compared as they were sent, and logs chosen by hosts as they were sent.
        OldProxy::Haproxy => !["//", "%"].iter().any(|text| request.path().contains(text)),
        OldProxy::Caddy => request.host == request.host.to_ascii_lowercase(),
        _ => true,
    };
    is_read_alike
        && !matches!(status, 0 | 400)
        && their.answer.status == status
        && their.seen.len() == our.seen.len()
}

/// Compares whether a request was logged.
fn logged(evidence: &ProofEvidence<'_>, request: usize) -> Option<ProofDifference> {
    let [theirs, ours] = evidence.logged.as_ref()?.each_ref().map(|logged| logged.contains(&request));
    let shown = |is_logged: bool| if is_logged { "it is logged" } else { "it is not logged" }.to_owned();
    (theirs != ours).then(|| ProofDifference {
        request,
        aspect: Aspect::Logged,
        theirs: shown(theirs),
        ours: shown(ours),
        is_open: false,
    })
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
    let mut causes: Vec<DifferenceCause> = Vec::new();
    for cause in groups.into_values().filter_map(|group| cause(evidence, &group)) {
        match causes.iter_mut().find(|known| known.is_same(&cause)) {
            Some(known) => known.merge(cause),
            None => causes.push(cause),
        }
    }
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
    let is_remarked = |place: &StatementPlace| {
        let is_it = |remark: &&Remark| remark.line == place.line && remark.file == place.file;
        evidence.remarks.iter().any(|remark| remark.kind == RemarkKind::Refused && is_it(&remark))
    };
    for mark in blocks.iter().rev() {
        let fits = |place: &&StatementPlace| {
            if is_remarked(place) {
                return true;
            }
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
