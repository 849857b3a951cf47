//! The report of a proof as text.

use std::fmt::Write as _;

use crate::report::{DifferenceCause, ProofReport, ProofSetting, Verdict};

/// Lists are cut here.
const LISTED_MAX: usize = 40;

/// Writes the report.
pub fn text(proof: &ProofReport, setting: &ProofSetting) -> String {
    let mut text = String::new();
    let peer = proof.peer.name();
    for (index, cause) in proof.causes.iter().enumerate() {
        write_cause(cause, index + 1, peer, &mut text);
    }
    for door in &proof.closed {
        let _ = writeln!(text, "Vanward does not listen on {door}\n");
    }
    if !proof.unreached.is_empty() {
        text += "Not proved:\n";
        listed(proof.unreached.iter().map(|(place, why)| format!("{place}: {why}")), &mut text);
    }
    if !proof.tolerated.is_empty() {
        text += "Differences without a meaning:\n";
        listed(
            proof.tolerated.iter().map(|(rule, count)| format!("{rule} ({})", requests(*count))),
            &mut text,
        );
    }
    if !proof.replaced.is_empty() {
        text += "Replaced for the proof:\n";
        listed(
            proof.replaced.iter().map(|replaced| format!("{} -> {}", replaced.old, replaced.new)),
            &mut text,
        );
    }
    if !proof.lacks.is_empty() {
        text += "Missing from the captured requests:\n";
        listed(proof.lacks.iter().cloned(), &mut text);
    }
    if !proof.remarks.is_empty() {
        text += "Remarks of `vanward adapt`:\n";
        listed(adapt::repeated(&proof.remarks).iter().map(ToString::to_string), &mut text);
    }
    let reached = proof.reached.iter().filter(|(_, count)| *count > 0).count();
    let _ = writeln!(text, "{setting}");
    let _ = writeln!(
        text,
        "{}, {} of {} blocks reached, {} answered differently",
        requests(proof.requests),
        reached,
        proof.reached.len(),
        requests(proof.differing),
    );
    text += match proof.verdict() {
        Verdict::Same => "proved: nothing differs, and everything was reached\n",
        Verdict::Differs => "not proved: see the differences above\n",
        Verdict::Undecided => "undecided: nothing differs, but not everything was proved\n",
    };
    text
}

fn write_cause(cause: &DifferenceCause, number: usize, peer: &str, text: &mut String) {
    let open = if cause.is_open { "OPEN: " } else { "" };
    let count = requests(cause.requests.len());
    let _ = writeln!(text, "{number}. {open}{} differs ({count})", cause.aspect.text());
    let _ = writeln!(text, "   {}", cause.curl);
    let width = peer.len().max("vanward".len()) + 1;
    let _ = writeln!(text, "   {:width$} {}", format!("{peer}:"), cause.theirs);
    let _ = writeln!(text, "   {:width$} {}", "vanward:", cause.ours);
    for (index, place) in cause.deciding.iter().enumerate() {
        let word = if index == 0 { "decided by" } else { "          " };
        let _ = writeln!(text, "   {word} {place}");
    }
    text.push('\n');
}

fn listed(lines: impl Iterator<Item = String>, text: &mut String) {
    for (index, line) in lines.enumerate() {
        match index {
            0..LISTED_MAX => {
                let _ = writeln!(text, "   {line}");
            }
            LISTED_MAX => *text += "   … (all with --json)\n",
            _ => {}
        }
    }
    text.push('\n');
}

fn requests(count: usize) -> String {
    if count == 1 { "1 request".to_owned() } else { format!("{count} requests") }
}
