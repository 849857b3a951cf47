//! `[route_defaults]`: options that every route has unless it has its own.
//!
//! They are read once, from the declarations of routes, and copied to the routes that do not have them. A mistake that
//! follows from such a copy names both places.

use crate::document::reader::{Inherited, Span};
use crate::option::table::{Declared, Element};
use crate::tables::files::FilesWritten;
use crate::tables::route::options::{ROUTE, RouteWritten};
use crate::tables::route::resolve::{FOR_CLIENTS, FOR_FILES, for_servers};

#[derive(Debug, Clone, Default)]
pub(crate) struct DefaultsWritten {
    pub(crate) value: RouteWritten,
    /// The options that it has, and where they are: from the key to the end of the value.
    pub(crate) given: Vec<(&'static str, Span)>,
}

/// Gives routes the options of `[route_defaults]`. Returns for each route what it has got.
pub(crate) fn apply(
    DefaultsWritten { value, given }: &DefaultsWritten,
    routes: &mut [Element<RouteWritten>],
) -> Vec<Vec<Inherited>> {
    let options: Vec<_> = given.iter().filter_map(|(name, at)| Some((ROUTE.option(name)?, at))).collect();
    let mut inherited = Vec::with_capacity(routes.len());
    for Element { value: route, given, .. } in routes {
        let mut of_route = Vec::new();
        for ((index, Declared { row, inherit, .. }), at) in &options {
            if !given.has(*index) && can_use(route, row.name) {
                inherit(value, route);
                of_route.push(Inherited { option: row.name, at: Span::clone(at) });
            }
        }
        inherited.push(of_route);
    }
    inherited
}

/// Whether an option means anything for what a route answers with.
fn can_use(route: &RouteWritten, option: &str) -> bool {
    let files = route.files.as_ref().map(|files| &files.value);
    let has_server =
        route.upstream.is_some() || route.split.is_some() || files.is_some_and(FilesWritten::has_upstream);
    let is_for_servers = || for_servers(route).iter().any(|(name, _)| *name == option);
    if files.is_some() && !has_server {
        // Nothing is stored of files, and no server is late.
        return !matches!(
            option,
            "cache" | "response_delay" | "grpc_web" | "alt_svc" | "on_status" | "accel"
        ) && (FOR_FILES.contains(&option) || !is_for_servers());
    }
    // A redirect has no body.
    (has_server
        || FOR_CLIENTS.contains(&option)
        || !(is_for_servers() || matches!(option, "grpc_web" | "alt_svc" | "on_status" | "accel")))
        && (route.redirect.is_none() || option != "compress")
}
