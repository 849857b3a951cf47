//! Prints a configuration: the text that was written, with the changes that are in force.
//!
//! A change replaces the options that it concerns in a tree of the text, which keeps comments and order. A configuration
//! without a text has none to print.

use std::collections::HashMap;

use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table as Tree, TableLike, Value};

use crate::config::Config;
use crate::document::joined::{last_position, shift};
use crate::option::form::OFF;
use crate::option::kind::{Kind, located};
use crate::option::server::Server;
use crate::option::table::{Declared, Table, Takes};
use crate::read::Reading;
use crate::tables::fault::FaultRule;
use crate::tables::fault::read::written_rule;
use crate::tables::file::{FILE, File, WakeupCoalescing};
use crate::tables::limits::LIMITS;
use crate::tables::listen::{LISTEN, Listen, Listener};
use crate::tables::messages::MESSAGES;
use crate::tables::route::Route;
use crate::tables::route::options::{ROUTE, RouteWritten};
use crate::tables::settings::Settings;
use crate::tables::timeouts::TIMEOUTS;
use crate::tables::upstream::Upstream;
use crate::tables::upstream::options::{ServerKind as SERVER, UPSTREAM, UpstreamWritten};

/// The comment behind an option that is not as it was written.
const CHANGED: &str = " # changed since it was read";

impl Reading {
    /// The configuration as one text, without secrets; `None` if there are mistakes.
    pub fn printed(&self) -> Option<String> {
        let config = self.config.as_ref()?;
        Some(config.printed(config))
    }

    /// Whether a secret is written in the files themselves, rather than referred to.
    pub fn has_written_secrets(&self) -> bool {
        self.config.as_ref().is_some_and(|config| config.document().has_written_secret())
    }
}

impl Config {
    /// Settings that were made from this configuration, as one text without secrets.
    pub fn printed(&self, settings: &Settings) -> String {
        self.document().masked(&self.text(settings))
    }

    /// Settings that were made from this configuration, as one text: all files, with comments.
    pub fn text(&self, settings: &Settings) -> String {
        let text = self.document().text();
        let read = self.as_read();
        if std::ptr::eq(read, settings) || read == settings {
            return text;
        }
        match text.parse::<DocumentMut>() {
            Ok(mut document) => {
                change(document.as_table_mut(), read, settings);
                document.to_string()
            }
            Err(_) => text,
        }
    }
}

/// Writes the settings `now` into a tree, which means `read`.
fn change(root: &mut Tree, read: &Settings, now: &Settings) {
    set_changed(&FILE, &of_top(read), &of_top(now), false, root);
    set_section(&TIMEOUTS, "timeouts", &read.timeouts, &now.timeouts, root);
    set_section(&LIMITS, "limits", &read.limits, &now.limits, root);
    set_section(&MESSAGES, "messages", &read.messages, &now.messages, root);
    let listeners = read.listeners.iter().zip(&now.listeners).filter(|(read, _)| !read.is_for_peers);
    for (place, (read, now)) in listeners.enumerate().filter(|(_, (read, now))| read != now) {
        if let Some((table, has_comments)) = nth(root, "listen", place) {
            let mut before = of_listener(read);
            // What the profile says is a part of the values.
            if table.contains_key("profile") && (&read.bandwidths, &read.link) != (&now.bandwidths, &now.link)
            {
                for name in ["profile", "rate", "upload_rate", "connect_delay", "latency", "loss"] {
                    table.remove(name);
                }
                before = Listen::default();
            }
            set_changed(&LISTEN, &before, &of_listener(now), has_comments, table);
        }
    }
    let defaults: Vec<String> = match root.get("route_defaults").and_then(Item::as_table_like) {
        Some(table) => table.iter().map(|(name, _)| name.to_owned()).collect(),
        None => Vec::new(),
    };
    for (place, (read, now)) in read.routes.iter().zip(&now.routes).enumerate() {
        if !read.is_one_with(now)
            && let Some((table, has_comments)) = nth(root, "route", place)
        {
            set_changed(&ROUTE, &of_route(read), &of_route(now), has_comments, table);
            let is_off =
                |name: &str| has(&ROUTE, name, &of_route(read)) && !has(&ROUTE, name, &of_route(now));
            for name in defaults.iter().filter(|name| is_off(name)) {
                table.insert(name, Item::Value(none_of(&ROUTE, name)));
            }
        }
    }
    for (read, now) in read.upstreams.iter().zip(&now.upstreams) {
        if !read.is_one_with(now)
            && let Some(all) = root.get_mut("upstream").and_then(Item::as_table_like_mut)
            && let Some(item) = all.get_mut(&now.name)
        {
            let has_comments = item.is_table();
            let Some(table) = item.as_table_like_mut() else { continue };
            let mut before = of_upstream(read);
            if set_servers(&read.servers, &now.servers, has_comments, table).is_some() {
                before.servers = of_upstream(now).servers;
            }
            set_changed(&UPSTREAM, &before, &of_upstream(now), has_comments, table);
        }
    }
    if read.faults.rules != now.faults.rules {
        set_faults(root, &read.faults.rules, now);
    }
}

/// The table of `[[name]]` at a place, and whether it may have comments.
fn nth<'t>(root: &'t mut Tree, name: &str, place: usize) -> Option<(&'t mut dyn TableLike, bool)> {
    match root.get_mut(name)? {
        Item::ArrayOfTables(all) => Some((all.get_mut(place)?, true)),
        Item::Value(Value::Array(all)) => Some((all.get_mut(place)?.as_inline_table_mut()?, false)),
        _ => None,
    }
}

fn set_section<T>(options: &'static Table<T>, name: &str, read: &T, now: &T, root: &mut Tree) {
    let is_same = |option: &Declared<T>| (option.print)(read) == (option.print)(now);
    if options.options.iter().all(is_same) {
        return;
    }
    let section = root.entry(name).or_insert_with(|| Item::Table(Tree::new()));
    let has_comments = section.is_table();
    if let Some(table) = section.as_table_like_mut() {
        set_changed(options, read, now, has_comments, table);
    }
}

/// Writes the options that differ.
fn set_changed<T>(
    options: &'static Table<T>,
    read: &T,
    now: &T,
    has_comments: bool,
    table: &mut dyn TableLike,
) {
    for Declared { row, print, .. } in options.options {
        let value = print(now);
        if print(read) == value {
            continue;
        }
        if let Some(former) = row.former_name {
            table.remove(former);
        }
        let value = value.and_then(|value| value.parse::<Value>().ok());
        match (value, table.get_mut(row.name)) {
            (Some(mut value), there) => {
                if has_comments {
                    value.decor_mut().set_suffix(CHANGED);
                }
                match there {
                    Some(there) => *there = Item::Value(value),
                    None => {
                        table.insert(row.name, Item::Value(value));
                    }
                }
            }
            (None, Some(_)) => {
                table.remove(row.name);
            }
            (None, None) => {}
        }
    }
}

/// Whether an option has a value that is written.
fn has<T>(options: &'static Table<T>, name: &str, table: &T) -> bool {
    options.option(name).is_some_and(|(_, option)| (option.print)(table).is_some())
}

/// The value that means nothing, for a route instead of a default.
fn none_of<T>(options: &'static Table<T>, name: &str) -> Value {
    match options.option(name).map(|(_, option)| option.row.takes) {
        Some(Takes::Value(kind)) if kind.form().can_be_off() => OFF.into(),
        _ => Array::new().into(),
    }
}

/// The options of the top level that flags and programs change.
fn of_top(settings: &Settings) -> File {
    File {
        workers: settings.workers.map(std::num::NonZero::get),
        wakeup_coalescing: WakeupCoalescing(settings.wakeup_coalescing),
        admin: settings.admin.clone().map(located),
        metrics: settings.metrics.map(located),
        ..File::default()
    }
}

/// The options of a listener that change while it is open.
fn of_listener(listener: &Listener) -> Listen {
    Listen { bandwidths: listener.bandwidths.clone(), link: listener.link.clone(), ..Listen::default() }
}

fn of_route(route: &Route) -> RouteWritten {
    RouteWritten {
        bandwidths: route.shaping.bandwidths.clone(),
        delay: route.shaping.delay.clone(),
        response_delay: route.shaping.response_delay.clone().map(located),
        options: (*route.policies.options).clone(),
        ..RouteWritten::default()
    }
}

fn of_upstream(upstream: &Upstream) -> UpstreamWritten {
    UpstreamWritten {
        servers: upstream.servers.iter().cloned().map(located).collect(),
        bandwidths: upstream.bandwidths.clone(),
        link: upstream.link.clone(),
        ..UpstreamWritten::default()
    }
}

/// Writes the servers that differ into their list, which keeps the others and its comments; `None` without such a list.
fn set_servers(read: &[Server], now: &[Server], has_comments: bool, table: &mut dyn TableLike) -> Option<()> {
    let written = table.get_mut("servers")?.as_array_mut().filter(|_| read != now)?;
    let before: Vec<Value> = written.iter().cloned().collect();
    let of = |is: &dyn Fn(&Server) -> bool| read.iter().position(is).and_then(|place| before.get(place));
    let mut values = Vec::with_capacity(now.len());
    for server in now {
        if let Some(value) = of(&|read| read == server) {
            values.push(value.clone());
            continue;
        }
        let mut value: Value = SERVER.print(server)?.parse().ok()?;
        let url = server.to_string();
        if let Some(before) = of(&|read| read.to_string() == url) {
            *value.decor_mut() = before.decor().clone();
        }
        values.push(value);
    }
    written.clear();
    values.into_iter().for_each(|value| written.push_formatted(value));
    if has_comments {
        written.decor_mut().set_suffix(CHANGED);
    }
    Some(())
}

/// Writes the faults in force. Those that were read stay as they were written.
fn set_faults(root: &mut Tree, read: &[FaultRule], now: &Settings) {
    let written = match root.remove("fault").map(Item::into_array_of_tables) {
        Some(Ok(tables)) => tables,
        _ => ArrayOfTables::new(),
    };
    let known: HashMap<&str, (&FaultRule, &Tree)> =
        read.iter().zip(written.iter()).map(|(rule, table)| (rule.name.as_str(), (rule, table))).collect();
    let mut faults = ArrayOfTables::new();
    for rule in &now.faults.rules {
        match known.get(rule.name.as_str()).filter(|(read, _)| *read == rule) {
            Some((_, table)) => faults.push((*table).clone()),
            None => {
                let text = written_rule(rule, now).parse::<DocumentMut>();
                let table = text.ok().and_then(|mut text| text.remove("fault"));
                let tables = table.and_then(|table| table.into_array_of_tables().ok());
                faults.extend(tables.into_iter().flatten());
            }
        }
    }
    let mut last = last_position(root);
    for table in faults.iter_mut() {
        // In the order in which they apply, behind all others.
        last += 1;
        let own = table.position().unwrap_or_default();
        shift(table, last - own);
        table.set_position(Some(last));
        last = last.max(last_position(table));
    }
    if !faults.is_empty() {
        root.insert("fault", Item::ArrayOfTables(faults));
    }
}
