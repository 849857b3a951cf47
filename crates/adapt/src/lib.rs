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
/// Apache httpd.
mod apache;
/// Statements with their places, for tools beside the translation.
pub mod statements;

/// Shared checks of all peers' tests.
#[cfg(test)]
mod told;

pub use apache::adapt as apache;
pub use caddy::adapt as caddy;
pub use haproxy::adapt as haproxy;
pub use nginx::adapt as nginx;
pub use pound::{pound, zproxy};
pub use remark::{Adapted, Remark, RemarkKind, RepeatedRemark, repeated};
pub use squid::adapt as squid;
pub use traefik::adapt as traefik;
pub use values::without_assertions;
pub use varnish::adapt as varnish;

/// Reads the files of an include: names and texts of all that match a path or pattern, or why that failed.
pub type Include<'a> = &'a mut dyn FnMut(&str) -> Result<Vec<(String, String)>, String>;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::source::SourceFiles;

    #[test]
    fn each_configuration_of_the_corpus_becomes_a_valid_one_and_nothing_is_lost() {
        let mut count = 0;
        for kind in ["nginx", "haproxy", "caddy", "varnish"] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(kind);
            let entries = std::fs::read_dir(&folder).expect("the corpus");
            for path in entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()) {
                let text = std::fs::read_to_string(&path).expect("a text");
                let include = &mut |name: &str| {
                    let path = folder.join(name);
                    let read = std::fs::read_to_string(&path).map_err(|error| error.to_string());
                    read.map(|text| vec![(path.display().to_string(), text)])
                };
                let (source, adapted) = read(kind, &text, &path.display().to_string(), include);
                told::whole(&source, &adapted);
                count += 1;
            }
        }
        assert_eq!(count, 200);
    }

    fn read(kind: &str, text: &str, name: &str, include: Include<'_>) -> (SourceFiles, Adapted) {
        let read = match kind {
            "nginx" => crate::nginx::read(text, name, include).map(|(_, source)| source),
            "haproxy" => crate::haproxy::read(text, name).map(|(_, source)| source),
            "caddy" => crate::caddy::read(text, name, include).map(|(_, source)| source),
            _ => crate::varnish::read(text, name, include).map(|(_, source)| source),
        };
        let adapted = match kind {
            "nginx" => nginx(text, name, include),
            "haproxy" => haproxy(text, name, include),
            "caddy" => caddy(text, name, include),
            _ => varnish(text, name, include),
        };
        match (read, adapted) {
            (Ok(source), Ok(adapted)) => (source, adapted),
            (Err(mistake), _) | (_, Err(mistake)) => panic!("{name}: {mistake}"),
        }
    }
}
