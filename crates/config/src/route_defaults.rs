//! `[route_defaults]`: options that every route has unless it has its own.
//!
//! They are read once, from the declarations of routes, and copied to the routes that do not have them. A mistake that
//! follows from such a copy names both places.

use serde_json::Value;
use toml::de::DeValue;

use crate::kind::article;
use crate::options::File;
use crate::reader::{Reader, Span};
use crate::route_options::{ROUTE, ROUTE_DEFAULTS, RouteWritten};
use crate::route_resolve::{FOR_CLIENTS, FOR_FILES, for_servers};
use crate::table::{Declared, Element, Page, Table, Written};

/// The parsed table `[route_defaults]`.
#[derive(Debug, Clone, Default)]
pub(crate) struct DefaultsWritten {
    pub(crate) value: RouteWritten,
    /// The options that it has, and where they are: from the key to the end of the value.
    pub(crate) given: Vec<(&'static str, Span)>,
}

const NAME: &str = "route_defaults";

pub(crate) struct RouteDefaults {
    pub(crate) doc: &'static str,
}

impl Declared<File> for RouteDefaults {
    fn name(&self) -> &'static str {
        NAME
    }

    fn is_required(&self) -> bool {
        false
    }

    fn expected(&self) -> String {
        format!("a table [{NAME}]")
    }

    fn read(&self, written: &Written<'_>, file: &mut File, reader: &mut Reader<'_>) {
        let at = written.value.span();
        let DeValue::Table(entries) = written.value.get_ref() else {
            let mistake = reader.mistake(&at, format!("{NAME} is {}", article(written.value.get_ref())));
            return reader.add(mistake.expecting(self.expected()));
        };
        let title = format!("[{NAME}]");
        let value = ROUTE_DEFAULTS.read((&title, NAME), entries, &at, reader);
        let place = |(key, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| {
            let key: &toml::Spanned<std::borrow::Cow<'_, str>> = key;
            let option = ROUTE_DEFAULTS.option(key.get_ref())?;
            Some((option.name(), key.span().start..value.span().end))
        };
        file.route_defaults = DefaultsWritten { value, given: entries.iter().filter_map(place).collect() };
    }

    fn line(&self, _: &File) -> Option<String> {
        None
    }

    /// Every route is printed with what it has from here.
    fn sections(&self, _: &File, _: &str) -> String {
        String::new()
    }

    fn schema(&self) -> Value {
        ROUTE_DEFAULTS.schema()
    }

    fn document(&self, _: &str, page: &mut Page) {
        page.section(&format!("[{NAME}]"), NAME, self.doc, &Table::<RouteWritten> { options: &[] });
    }
}

/// Where routes have options from that they do not have themselves.
#[derive(Debug, Clone)]
pub(crate) struct Inherited {
    pub(crate) option: &'static str,
    pub(crate) at: Span,
}

/// Gives the routes of a file the options of `[route_defaults]`. Returns for each route what it has got.
pub(crate) fn apply(file: &mut File) -> Vec<Vec<Inherited>> {
    let File { route_defaults, routes, .. } = file;
    let DefaultsWritten { value, given } = route_defaults;
    let options: Vec<_> =
        given.iter().filter_map(|(name, at)| Some((ROUTE.index(name)?, ROUTE.option(name)?, at))).collect();
    let mut inherited = Vec::with_capacity(routes.len());
    for Element { value: route, given, .. } in routes {
        let mut of_route = Vec::new();
        for (index, option, at) in &options {
            if !given.has(*index) && can_use(route, option.name()) {
                option.inherit(value, route);
                of_route.push(Inherited { option: option.name(), at: Span::clone(at) });
            }
        }
        inherited.push(of_route);
    }
    inherited
}

/// Whether an option means anything for what a route answers with.
fn can_use(route: &RouteWritten, option: &str) -> bool {
    let has_server = route.upstream.is_some() || route.split.is_some();
    let is_for_servers = || for_servers(route).iter().any(|(name, _)| *name == option);
    if route.files.is_some() {
        // Nothing is stored of files, and no server is late.
        return !matches!(option, "cache" | "response_delay")
            && (FOR_FILES.contains(&option) || !is_for_servers());
    }
    // A redirect has no body.
    (has_server || FOR_CLIENTS.contains(&option) || !(is_for_servers() || option == "grpc_web"))
        && (route.redirect.is_none() || option != "compress")
}
