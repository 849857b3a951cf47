//! Parses faults for a running proxy: the `[[fault]]` tables of its file, with the same mistakes.

use crate::fault_options::{FAULT, FaultWritten};
use crate::fault_resolve::{self, KnownRoute, rules};
use crate::reader::Reader;
use crate::route_resolve::Names;
use crate::settings::{FaultRule, Settings};
use crate::sources::Sources;
use crate::surroundings::Nowhere;
use crate::table::{Element, Sections, Table};
use mistake::Mistake;

/// A text that contains only faults.
#[derive(Debug, Clone, Default)]
struct Written {
    faults: Vec<Element<FaultWritten>>,
}

static TEXT: Table<Written> = Table {
    options: &[&Sections {
        name: "fault",
        table: &FAULT,
        place: |written: &mut Written| &mut written.faults,
        required: true,
        doc: "",
    }],
};

/// Parses `[[fault]]` tables for a proxy with this configuration. `name` is the file name in mistakes.
///
/// # Errors
/// All mistakes, in order.
pub fn faults(text: &str, name: &str, config: &Settings) -> Result<Vec<FaultRule>, Vec<Mistake>> {
    let sources = Sources::of(text, name, &Nowhere);
    let (mut reader, root) = Reader::new(&sources, &Nowhere);
    let written = TEXT.read((name, ""), root.get_ref(), &(0..0), &mut reader);
    let named = config.listeners.iter().enumerate();
    let listeners = named.flat_map(|(index, listener)| {
        [(listener.name.clone(), index), (listener.address.to_string(), index)]
    });
    let names = Names {
        listeners: listeners.collect(),
        is_tcp: config.listeners.iter().map(|listener| listener.tcp.is_some()).collect(),
        is_unix: config.listeners.iter().map(|listener| listener.address.tcp().is_none()).collect(),
        has_tls: config.listeners.iter().map(|listener| listener.tls.is_some()).collect(),
        has_http3: config.listeners.iter().map(|listener| listener.http3).collect(),
        upstreams: Default::default(),
        upstream_names: Vec::new(),
        has_bytes_only: Vec::new(),
        protocols: Vec::new(),
        has_cache: config.cache.is_some(),
        header_sets: Default::default(),
    };
    let routes: Vec<KnownRoute<'_>> = config.routes.iter().map(KnownRoute::of).collect();
    let rules = rules(&written.faults, &names, Some(&routes), &mut reader);
    let mistakes = reader.finish().mistakes;
    rules.filter(|_| mistakes.is_empty()).ok_or(mistakes)
}

/// Prints the `[[fault]]` table of a rule, for a proxy with this configuration.
pub fn written_rule(rule: &FaultRule, config: &Settings) -> String {
    let faults = fault_resolve::written(std::slice::from_ref(rule), &config.listeners);
    TEXT.print(&Written { faults }, "")
}
