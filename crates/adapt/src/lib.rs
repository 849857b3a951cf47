//! Translates the configuration of another proxy to `vanward.toml`. Comments name the origin of each option.
//! Remarks list directives that are unsupported or work differently.
//!
//! Pure: texts in, text and remarks out. The caller reads files, including includes.

#![forbid(unsafe_code)]

/// Places and texts of statements.
mod source;
/// Remarks on statements.
mod remark;
/// Builds tables of Vanward's configuration.
mod draft;
/// Environment variables, whose values are unknown.
mod environment;
/// Collects the whole result.
mod sheet;
/// Maps and values of the result.
mod definitions;
/// Verdicts on statements by name.
mod known;
/// Durations, sizes, networks, expressions.
mod values;
/// Converts ordered rules to routes.
mod rules;
/// nginx.
mod nginx;
/// HAProxy.
mod haproxy;
/// Caddy.
mod caddy;
/// Varnish.
mod varnish;
/// Squid.
mod squid;
/// Pound and zproxy.
mod pound;
/// Traefik.
mod traefik;
/// Statements with their places, for tools beside the translation.
pub mod statements;

/// Shared checks of all peers' tests.
#[cfg(test)]
mod told;

pub use caddy::adapt as caddy;
pub use haproxy::adapt as haproxy;
pub use nginx::adapt as nginx;
pub use pound::{pound, zproxy};
pub use remark::{Adapted, Remark, RemarkKind};
pub use squid::adapt as squid;
pub use traefik::adapt as traefik;
pub use varnish::adapt as varnish;

/// Reads the files of an include: names and texts of all that match a path or pattern, or why that failed.
pub type Include<'a> = &'a mut dyn FnMut(&str) -> Result<Vec<(String, String)>, String>;
