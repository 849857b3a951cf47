//! Locations that only servers lead to (`internal`), whose files servers name in X-Accel-Redirect.

use super::content::answers_without_files;
use super::locations::{Location, LocationMatch};
use super::scope::BlockScope;
use super::servers::RouteEntry;
use super::{NginxAdapter, from};
use crate::RemarkKind;
use crate::draft::{DraftValue, StatementOrigin};
use crate::rules::is_path;

/// A folder whose files servers may name.
pub(super) struct InternalFolder {
    /// The beginning of paths in X-Accel-Redirect, with a slash at its end.
    path: String,
    root: String,
    origins: Vec<StatementOrigin>,
}

impl<'s> NginxAdapter<'s> {
    /// Finds the folders of a server's `internal` locations.
    pub(super) fn internal_folders(&mut self, locations: &[Location<'s>]) -> Vec<InternalFolder> {
        let mut folders = Vec::new();
        for location in locations {
            let Some(internal) = location.scope.here("internal") else { continue };
            if let Some(folder) = folder(location) {
                let why = "hidden files and symbolic links get 404";
                self.note(internal, RemarkKind::Differs, why, "");
                folders.push(folder);
            }
        }
        folders
    }
}

/// Returns the folder of an `internal` location that is a prefix and has only files.
fn folder(location: &Location<'_>) -> Option<InternalFolder> {
    let Location { block, scope, matching, .. } = location;
    let (LocationMatch::Prefix(path) | LocationMatch::FirstPrefix(path)) = matching else { return None };
    let has_more = |name: &str| answers_without_files(name) && name != "alias";
    let is_plain = is_path(path) && !scope.own().iter().any(|own| has_more(&own.name));
    // nginx leads there itself, too, for the pages of its errors.
    let has_pages = scope
        .all("error_page")
        .iter()
        .filter_map(|page| page.words.last())
        .any(|page| page.starts_with(path));
    if !is_plain || has_pages {
        return None;
    }
    let directory = scope.here("alias").or_else(|| scope.one("root"))?;
    let named = directory.word(0);
    if !named.starts_with('/') || named.contains('$') {
        return None;
    }
    let (bare, below) = (named.trim_end_matches('/'), path.trim_end_matches('/'));
    let root = if directory.name == "alias" { bare.to_owned() } else { format!("{bare}{below}") };
    let root = if root.is_empty() { "/".to_owned() } else { root };
    let mut origins = from(block);
    origins.extend(from(directory));
    Some(InternalFolder { path: format!("{below}/"), root, origins })
}

/// Adds the folders to a route with servers, unless it ignores their X-Accel-Redirect.
pub(super) fn let_servers_name(folders: &[InternalFolder], scope: &BlockScope<'_>, entry: &mut RouteEntry) {
    let has_servers =
        entry.options.get("upstream").is_some() || entry.options.inner("files", "else").is_some();
    let ignores = ["proxy_ignore_headers", "fastcgi_ignore_headers"].iter().any(|name| {
        let ignored = scope.one(name);
        ignored.is_some_and(|it| it.words.iter().any(|field| field.eq_ignore_ascii_case("X-Accel-Redirect")))
    });
    if !has_servers || ignores {
        return;
    }
    for InternalFolder { path, root, origins } in folders {
        let root = DraftValue::from(root.as_str());
        entry.options.extend("accel", (path, root), origins.clone());
    }
}
