//! Applications behind FastCGI: `php_fastcgi`, with files before it if there is a `file_server`.

use super::directives::CaddyDraft;
use super::servers::url;
use super::{CaddyAdapter, from, milliseconds};
use crate::draft::{DraftTable, StatementOrigin};
use crate::rules;
use crate::sheet::name_of;
use crate::source::Directive;
use crate::values::duration;

const DAY: u64 = 24 * 3_600_000;

/// The application of a site, which answers requests for all paths but existing files.
pub(super) struct CaddyApplication {
    pub(super) upstream: String,
    pub(super) from: Vec<StatementOrigin>,
}

impl<'s> CaddyAdapter<'s> {
    /// Translates `php_fastcgi`. What comes behind it answers only for existing files that are no scripts.
    pub(super) fn php(&mut self, directive: &'s Directive, words: &[String], made: &mut CaddyDraft<'s>) {
        let own = directive.inner().iter().find(|inner| inner.name == "root");
        let root = own.map(|root| (root, root.word(0)));
        let root = root.or(made.root.map(|root| (root, root.words.last().map_or("", String::as_str))));
        let root = root.filter(|(_, path)| path.starts_with('/') && !path.contains(['{', '$']));
        let servers: Option<Vec<String>> = words.iter().map(|word| gateway(word)).collect();
        let (Some((rooted, root)), Some(servers)) = (root, servers.filter(|servers| !servers.is_empty()))
        else {
            let why = "its root is no absolute path, or its address has no port";
            let instead = "write an upstream with `fcgi://` servers and `fastcgi`: docs/fastcgi.md";
            self.sheet.refuse(directive.number, why, instead);
            let answer = rules::answer(501, Some(("not taken over from caddy\n", "text/plain")));
            return self.done(directive, answer, made);
        };
        let base = servers.first().and_then(|url| url.split_once(':')).map_or("php", |(_, host)| host);
        let base = name_of(base.trim_start_matches('/'));
        let mut table = DraftTable::new("", Vec::new());
        table.set("servers", servers, from(directive));
        table.extend("fastcgi", ("root", root.into()), from(rooted));
        for inner in directive.inner() {
            self.php_option(inner, &mut table, made);
        }
        let why = "a directory without its slash is redirected with 301, and by Caddy with 308; a request without \
                   Content-Type has none; clients do not get the field Status";
        self.sheet.differs(directive.number, why, "");
        let upstream = self.sheet.upstream(&base, table);
        made.application = Some(CaddyApplication { upstream, from: from(directive) });
    }

    fn php_option(&mut self, inner: &'s Directive, table: &mut DraftTable, made: &mut CaddyDraft<'s>) {
        let time = milliseconds(inner.word(0)).filter(|time| *time > 0);
        let time = time.map(|time| duration(time.min(DAY)));
        match (inner.name.as_str(), inner.words.as_slice(), time) {
            ("root", ..) => {}
            ("split", [split], _) => table.extend("fastcgi", ("split", split.as_str().into()), from(inner)),
            ("index", [index], _) if index != "off" => {
                table.extend("fastcgi", ("index", index.as_str().into()), from(inner));
            }
            ("env", [name, value], _) if !value.contains('{') => {
                table.field("fastcgi", "params", name, value, from(inner));
            }
            ("resolve_root_symlink" | "capture_stderr", ..) => {
                self.sheet.needless(inner.number, "it is always so");
            }
            ("dial_timeout", _, Some(time)) => {
                table.extend("pool", ("connect_timeout", time.into()), from(inner));
            }
            ("read_timeout", _, Some(time)) => {
                for wait in ["upstream_first_byte", "upstream_body"] {
                    made.outcome.options.extend("timeouts", (wait, time.as_str().into()), from(inner));
                }
            }
            ("write_timeout", _, Some(time)) => {
                made.outcome.options.extend("timeouts", ("upstream_send", time.into()), from(inner));
            }
            (
                "split" | "index" | "env" | "try_files" | "dial_timeout" | "read_timeout" | "write_timeout",
                ..,
            ) => {
                let instead = "see `fastcgi` of [upstream.NAME] in docs/fastcgi.md";
                self.sheet.refuse(inner.number, "an application has no such option", instead);
            }
            _ => self.server_option(inner, table, made),
        }
    }
}

/// Lets the application answer, without files before it.
pub(super) fn answer(application: CaddyApplication, made: &mut CaddyDraft<'_>) {
    made.outcome.options.set("upstream", application.upstream, application.from);
    made.asks();
}

/// The URL of an application.
fn gateway(word: &str) -> Option<String> {
    let (url, _) = url(word, false)?;
    let rest = url.strip_prefix("http").filter(|_| !word.contains("://"))?;
    // Caddy would take port 80.
    let has_place =
        rest.starts_with("+unix:") || rest.rsplit(':').next().is_some_and(|port| port.parse::<u16>().is_ok());
    has_place.then(|| format!("fcgi{rest}"))
}
