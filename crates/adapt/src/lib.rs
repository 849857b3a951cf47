//! Adapt: turns the configuration of another proxy into `vanward.toml`, with a comment at each option that names the line it
//! came from, and a remark about each directive that is not there or works differently.
//!
//! Pure: texts in, text and remarks out. The caller reads files, also those that are included.

#![forbid(unsafe_code)]

/// Where statements were, and how they were written.
mod source;
/// What is said of statements.
mod remark;
/// A table of Vanward's configuration in the making, and its text.
mod draft;
/// The whole result in the making.
mod sheet;
/// Durations, sizes, networks, expressions.
mod values;
/// Ordered rules to routes.
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

/// What tests of all peers look at.
#[cfg(test)]
mod told;

pub use caddy::adapt as caddy;
pub use haproxy::adapt as haproxy;
pub use nginx::adapt as nginx;
pub use pound::{pound, zproxy};
pub use remark::{Adapted, Kind, Remark};
pub use squid::adapt as squid;
pub use traefik::adapt as traefik;
pub use varnish::adapt as varnish;

/// Reads the files of an `include`: for a path or a pattern the names and texts of all that match, or why it cannot.
pub type Include<'a> = &'a mut dyn FnMut(&str) -> Result<Vec<(String, String)>, String>;
