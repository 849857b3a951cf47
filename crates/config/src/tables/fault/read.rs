//! Parses faults for a running proxy: the `[[fault]]` tables of its file, with the same mistakes.

use std::sync::Arc;

use mistake::Mistake;

use crate::document::expression_names::ExpressionName;
use crate::document::reader::Reader;
use crate::document::sources::Sources;
use crate::document::surroundings::Nowhere;
use crate::option::section::sections;
use crate::option::table::{Element, Table};
use crate::tables::fault::FaultRule;
use crate::tables::fault::options::{FAULT, FaultWritten};
use crate::tables::fault::resolve::{self, KnownRoute, rules};
use crate::tables::map::add_names;
use crate::tables::names::Names;
use crate::tables::reference::FORMAT;
use crate::tables::settings::Settings;

/// A text that contains only faults.
#[derive(Debug, Clone, Default)]
struct Written {
    faults: Vec<Element<FaultWritten>>,
}

static TEXT: Table<Written> = Table { options: &[sections!("fault", FAULT, Written.faults, "").required()] };

/// Parses `[[fault]]` tables for a proxy with this configuration. `name` is the file name in mistakes.
///
/// # Errors
/// All mistakes, in order.
pub fn faults(text: &str, name: &str, config: &Settings) -> Result<Vec<FaultRule>, Vec<Mistake>> {
    let sources = Sources::from_text(text, name, &Nowhere);
    let (mut reader, root) = Reader::new(&sources, &Nowhere, FORMAT);
    for (number, map) in config.maps.iter().enumerate() {
        // The names were accepted when the configuration was read.
        let _ = add_names(map, number, &mut reader.expression_names);
    }
    for (name, meaning) in config.values.meanings() {
        let meaning = ExpressionName::Definition(Arc::clone(meaning));
        reader.expression_names.add(format!("values.{name}"), meaning);
    }
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
        has_https: Vec::new(),
        protocols: Vec::new(),
        keyed_by: Vec::new(),
        has_cache: config.cache.is_some(),
        header_sets: Default::default(),
        values: Arc::clone(&config.values),
        maps: &config.maps,
    };
    let routes: Vec<KnownRoute<'_>> =
        config.routes.iter().map(|route| KnownRoute::from_route(route)).collect();
    let rules = rules(&written.faults, &names, Some(&routes), &mut reader);
    let mistakes = reader.finish().mistakes;
    rules.filter(|_| mistakes.is_empty()).ok_or(mistakes)
}

/// Prints the `[[fault]]` table of a rule, for a proxy with this configuration.
pub fn written_rule(rule: &FaultRule, config: &Settings) -> String {
    format!("\n[[fault]]\n{}", FAULT.print(&resolve::written(rule, &config.listeners)))
}
