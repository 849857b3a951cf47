//! The report of a proof as JSON.

use serde_json::{Value, json};

use adapt::Remark;

use crate::OldProxy;
use crate::old::StatementPlace;
use crate::report::{DifferenceCause, ProofReport, ProofSetting, Verdict};
use crate::shown::{ShownLine, ShownOutcome};

/// Returns the report as an object.
pub fn json(proof: &ProofReport, setting: &ProofSetting) -> Value {
    let list = |items: Vec<Value>| Value::Array(items);
    let unreached = proof.unreached.iter().map(|(place, why)| with(of_place(place), "why", why));
    json!({
        "file": setting.file,
        "candidate": setting.candidate,
        "proxy": proof.peer.name(),
        "program": setting.program,
        "vanward": setting.version,
        "date": setting.date,
        "seed": setting.seed,
        "verdict": match proof.verdict() {
            Verdict::Same => "same",
            Verdict::Differs => "differs",
            Verdict::Undecided => "undecided",
        },
        "requests": proof.requests,
        "differing": proof.differing,
        "causes": list(proof.causes.iter().map(of_cause).collect()),
        "closed": proof.closed,
        "capture_lacks": proof.lacks,
        "reached": list(
            proof.reached.iter().map(|(place, count)| with(of_place(place), "requests", count)).collect(),
        ),
        "unreached": list(unreached.collect()),
        "tolerated": list(
            proof.tolerated.iter().map(|(rule, count)| json!({ "rule": rule, "requests": count })).collect(),
        ),
        "replaced": list(
            proof.replaced.iter().map(|replaced| json!({ "old": replaced.old, "new": replaced.new })).collect(),
        ),
        "remarks": list(proof.remarks.iter().map(of_remark).collect()),
    })
}

/// Returns the object of a proof that could not be made.
pub fn json_without_proof(peer: OldProxy, file: &str, why: &str) -> Value {
    json!({ "file": file, "proxy": peer.name(), "verdict": "undecided", "why": why })
}

fn of_remark(remark: &Remark) -> Value {
    json!({
        "file": remark.file, "line": remark.line, "directive": remark.directive,
        "kind": remark.kind.word(), "why": remark.why, "instead": remark.instead,
    })
}

fn of_cause(cause: &DifferenceCause) -> Value {
    json!({
        "differs": cause.aspect.text(),
        "open": cause.is_open,
        "requests": cause.requests,
        "curl": cause.curl,
        "theirs": cause.theirs,
        "ours": cause.ours,
        "their_answer": of_outcome(&cause.outcomes[0]),
        "our_answer": of_outcome(&cause.outcomes[1]),
        "decided_by": cause.deciding.iter().map(of_place).collect::<Vec<_>>(),
    })
}

fn of_outcome(outcome: &ShownOutcome) -> Value {
    let text =
        |lines: &[ShownLine]| lines.iter().map(|line| line.text.as_str()).collect::<Vec<_>>().join("\n");
    let servers = outcome.servers.iter();
    json!({
        "response": text(&outcome.response),
        "servers": servers
            .map(|server| json!({ "address": server.address, "request": text(&server.request) }))
            .collect::<Vec<_>>(),
    })
}

fn of_place(place: &StatementPlace) -> Value {
    json!({ "file": place.file, "line": place.line, "statement": place.text })
}

fn with(mut object: Value, key: &str, value: impl serde::Serialize) -> Value {
    object[key] = json!(value);
    object
}
