//! Kubernetes objects from an API server: the result is a valid configuration even if objects are refused, and each
//! status is written once.

#![no_main]

/// Stands in for the machine of a cluster.
#[path = "../../crates/gateway/tests/http/no_machine.rs"]
mod no_machine;

use std::net::IpAddr;

use gateway::{Cluster, Complaint, MachineFacts, ObjectKind, OperatorOptions, Reference, settle};
use libfuzzer_sys::fuzz_target;
use no_machine::NoMachine;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let Ok(objects) = serde_json::from_slice::<Value>(bytes) else { return };
    let mut cluster = Cluster::default();
    for object in objects.as_array().into_iter().flatten() {
        // Secrets are of two kinds.
        for kind in ObjectKind::ALL.into_iter().filter(|kind| object["kind"] == kind.name()) {
            cluster.put(kind, object.clone());
        }
    }
    let options = OperatorOptions {
        controller: CONTROLLER.to_owned(),
        addresses: vec!["192.0.2.1".to_owned()],
        base: None,
        ready: ([127, 0, 0, 1], 9000).into(),
        ingress_ports: [80, 443],
        cookie_secret: None,
    };
    let translation = settle(&cluster, &options, &Nothing, |translation| {
        let mistakes =
            config::examine_in(&translation.written.text, "kubernetes", &NoMachine(&translation.files))
                .mistakes;
        let complaint =
            |mistake: mistake::Mistake| Complaint { line: Some(mistake.line), why: mistake.sentence() };
        mistakes.into_iter().map(complaint).collect()
    });
    let translation = translation.expect("each mistake comes from an object");
    for status in &translation.statuses {
        let (before, metadata) = cluster.status(&status.object).expect("it is about an object that is there");
        assert_eq!(metadata.generation, status.generation);
        if let Some(after) = status.changed(before, CONTROLLER, "2026-01-01T00:00:00Z") {
            assert_eq!(status.changed(&after, CONTROLLER, "2026-01-02T00:00:00Z"), None, "{after}");
        }
    }
    let all: Vec<Reference> = ObjectKind::ALL.into_iter().flat_map(|kind| cluster.all(kind)).collect();
    for reference in all {
        cluster.remove(&reference);
        assert!(cluster.status(&reference).is_none());
    }
});

const CONTROLLER: &str = "vanward.dev/gateway";

/// A machine on which every certificate is valid and some ports are free, without files and variables. The text of
/// a certificate is its names.
struct Nothing;

impl MachineFacts for Nothing {
    fn certificate(&self, certificate: &[u8], _: &[u8]) -> Result<Vec<String>, String> {
        let text = String::from_utf8_lossy(certificate);
        if text.is_empty() {
            Err("it is empty".to_owned())
        } else {
            Ok(text.split(' ').map(str::to_owned).collect())
        }
    }

    fn authorities(&self, pem: Option<&[u8]>) -> Result<(), String> {
        if pem.is_some_and(<[u8]>::is_empty) { Err("it is empty".to_owned()) } else { Ok(()) }
    }

    fn users(&self, lines: &[u8]) -> Result<(), String> {
        config::check_users(lines)
    }

    fn port(&self, _: Option<IpAddr>, port: u16) -> Result<(), String> {
        if port % 16 == 1 { Err("it is in use".to_owned()) } else { Ok(()) }
    }
}
