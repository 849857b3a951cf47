//! The report of a proof as an HTML page.

use prove::{DifferenceCause, ProofReport, ProofSetting, ShownLine, ShownOutcome, StatementPlace, Verdict};
use report::page::PageError;
use report::proof_page::{self, Proof, ProofCause, ProofCauses, ProofLine, ProofSide};
use report::table::TextTable;

/// Renders the page.
pub(super) fn html(proof: &ProofReport, setting: &ProofSetting) -> Result<String, PageError> {
    let peer = proof.peer.name();
    let (sign, verdict) = match proof.verdict() {
        Verdict::Same => ("=", "Proved: nothing differs, and everything was reached."),
        Verdict::Differs => ("≠", "Not proved: Vanward answers differently."),
        Verdict::Undecided => ("?", "Undecided: nothing differs, but not everything was proved."),
    };
    let reached = proof.reached.iter().filter(|(_, count)| *count > 0).count();
    let count = |causes: &[(usize, &DifferenceCause)]| causes.len().to_string();
    let numbered = proof.causes.iter().enumerate().map(|(index, cause)| (index + 1, cause));
    let (open, others): (Vec<_>, Vec<_>) = numbered.partition(|(_, cause)| cause.is_open);
    let figures = [
        ("Requests", proof.requests.to_string()),
        ("Answered differently", proof.differing.to_string()),
        ("Causes that open something", count(&open)),
        ("Other causes", count(&others)),
        ("Blocks reached", format!("{reached} of {}", proof.reached.len())),
    ];
    let causes = |heading: &str, lede: String, causes: Vec<(usize, &DifferenceCause)>| ProofCauses {
        heading: heading.to_owned(),
        lede,
        causes: causes.into_iter().map(|(number, cause)| cause_of(number, cause, peer)).collect(),
    };
    let mut unproved: Vec<Vec<String>> =
        proof.unreached.iter().map(|(place, why)| vec![place.to_string(), why.clone()]).collect();
    let closed = |door: &String| vec![door.clone(), "Vanward does not listen there".to_owned()];
    unproved.extend(proof.closed.iter().map(closed));
    let blocks = proof.reached.iter().map(|(place, count)| vec![place.to_string(), reached_by(*count)]);
    let tolerated = proof.tolerated.iter().map(|(rule, count)| vec![rule.clone(), requests(*count)]);
    let replaced = proof.replaced.iter().map(|replaced| vec![replaced.old.clone(), replaced.new.clone()]);
    let remarks = proof.remarks.iter().map(|remark| {
        let place = format!("{}:{} {}", remark.file, remark.line, remark.directive);
        let kind = remark.kind.word();
        let instead = if remark.instead.is_empty() { String::new() } else { format!("; {}", remark.instead) };
        vec![place, format!("{kind}: {}{instead}", remark.why)]
    });
    let lacks = proof.lacks.iter().map(|lack| vec![lack.clone(), "not sent".to_owned()]);
    proof_page::render(&Proof {
        title: format!("{}: {peer} and Vanward", setting.file),
        lede: format!("The same requests to both: {setting}."),
        sign,
        verdict: verdict.to_owned(),
        figures: figures.map(|(label, number)| (label.to_owned(), number)).into(),
        open: causes(
            "Open",
            format!("{peer} refuses these requests, and Vanward does not. Correct them first."),
            open,
        ),
        others: causes(
            "Differences",
            "Each cause is shown by its shortest request. Fields that may differ are left out.".to_owned(),
            others,
        ),
        unproved: table("Not proved", ["statement", "why"], unproved),
        blocks: table("Blocks of the old configuration", ["block", "reached by"], blocks.collect()),
        notes: [
            table("Remarks of vanward adapt", ["directive", "remark"], remarks.collect()),
            table("Differences without a meaning", ["rule", "requests"], tolerated.collect()),
            table("Missing from the captured requests", ["what", "effect"], lacks.collect()),
            table("Replaced for the proof", ["old", "stand-in"], replaced.collect()),
        ]
        .into_iter()
        .flatten()
        .collect(),
    })
}

fn cause_of(number: usize, cause: &DifferenceCause, peer: &str) -> ProofCause {
    let [theirs, ours] = &cause.outcomes;
    ProofCause {
        number,
        heading: format!("{} differs", cause.aspect.text()),
        count: requests(cause.requests.len()),
        curl: cause.curl.clone(),
        sides: vec![side(peer, &cause.theirs, theirs), side("Vanward", &cause.ours, ours)],
        deciding: cause.deciding.iter().map(place_and_text).collect(),
        others: cause.others.clone(),
    }
}

fn side(proxy: &str, summary: &str, outcome: &ShownOutcome) -> ProofSide {
    let lines = |lines: &[ShownLine]| {
        let line = |line: &ShownLine| ProofLine { text: line.text.clone(), differs: line.differs };
        lines.iter().map(line).collect::<Vec<_>>()
    };
    ProofSide {
        proxy: proxy.to_owned(),
        summary: summary.to_owned(),
        response: lines(&outcome.response),
        servers: outcome
            .servers
            .iter()
            .map(|server| (server.address.clone(), lines(&server.request)))
            .collect(),
    }
}

fn place_and_text(place: &StatementPlace) -> (String, String) {
    (format!("{}:{}", place.file, place.line), place.text.clone())
}

fn table(caption: &str, headings: [&str; 2], rows: Vec<Vec<String>>) -> Option<TextTable> {
    let headings = headings.map(str::to_owned).into();
    (!rows.is_empty()).then(|| TextTable { caption: caption.to_owned(), headings, rows })
}

fn reached_by(count: usize) -> String {
    if count == 0 { "✗ no request".to_owned() } else { requests(count) }
}

fn requests(count: usize) -> String {
    report::figure::things(count, "request")
}
