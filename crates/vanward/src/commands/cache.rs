//! `vanward cache`: purges and explains the cache of the running proxy.

use std::io::Write;
use std::process::ExitCode;

use api::cache::{PurgeOrder, Purged, PurgedElsewhere};

use super::cache_explain::{Explain, explain};
use super::reach::ProxySelection;

/// Purges and explains the cache of the running proxy.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CacheArgs {
    #[command(subcommand)]
    command: CacheCommand,
}

const EXAMPLES: &str = "\
Examples:
  vanward cache purge https://www.example.com/news
  vanward cache purge --tag news
  vanward cache explain https://www.example.com/news";

#[derive(clap::Subcommand)]
enum CacheCommand {
    Purge(Purge),
    Explain(Explain),
}

/// Deletes cached responses before it returns.
///
/// Responses that are being fetched are not stored either.
#[derive(clap::Args)]
#[command(after_help = PURGE_EXAMPLES)]
#[group(id = "what", required = true, multiple = true, args = ["urls", "prefixes", "hosts", "tags", "all"])]
struct Purge {
    /// URLs, with all their variants. Without http:// or https://, both; `*` matches any text
    #[arg(value_name = "URL")]
    urls: Vec<String>,

    /// All URLs with this prefix. Can be repeated
    #[arg(long = "prefix", value_name = "URL")]
    prefixes: Vec<String>,

    /// All URLs of this host, with any port; `*` matches any text. Can be repeated
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,

    /// All responses with this tag in `Surrogate-Key` or `Cache-Tag`. Can be repeated
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,

    /// Everything
    #[arg(long)]
    all: bool,

    /// Only make responses stale: they are revalidated before use, and may be served while a server is down
    #[arg(long)]
    soft: bool,

    /// Exit with 0 even if nothing matched, instead of 1
    #[arg(long)]
    allow_none: bool,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: ProxySelection,
}

const PURGE_EXAMPLES: &str = "\
Examples:
  vanward cache purge https://www.example.com/news
  vanward cache purge www.example.com/news www.example.com/   http and https
  vanward cache purge --tag news --tag sport --soft
  vanward cache purge --prefix https://www.example.com/img/
  vanward cache purge --host www.example.com
  vanward cache purge 'www.example.com/*.css' --host '*.example.org'
  vanward cache purge --all --socket /run/vanward.sock";

pub(crate) fn run(arguments: &CacheArgs) -> ExitCode {
    let done = match &arguments.command {
        CacheCommand::Purge(arguments) => purge(arguments),
        CacheCommand::Explain(arguments) => explain(arguments),
    };
    done.map_or_else(|code| code, |()| ExitCode::SUCCESS)
}

fn purge(arguments: &Purge) -> Result<(), ExitCode> {
    let Purge { urls, prefixes, hosts, tags, all, soft, allow_none, json, reach } = arguments;
    let order = PurgeOrder {
        urls: urls.clone(),
        prefixes: prefixes.clone(),
        hosts: hosts.clone(),
        tags: tags.clone(),
        all: *all,
        soft: *soft,
    };
    let answer = reach.post("/cache/purge", &order)?;
    let purged: Purged = answer.told()?;
    if *json {
        print(&answer.body);
    } else {
        super::say(page(*soft, &purged));
    }
    // Matches that are only on disk are not counted.
    let is_nothing = purged.responses == 0 && !purged.is_more_on_disk && !all && purged.elsewhere.is_none();
    let is_whole = purged.elsewhere.as_ref().is_none_or(PurgedElsewhere::is_whole);
    if (is_nothing && !allow_none) || !is_whole { Err(ExitCode::FAILURE) } else { Ok(()) }
}

/// Formats `purged: 3 stored responses`, and a line for each name if there are several, or if a name matched nothing.
fn page(is_soft: bool, purged: &Purged) -> String {
    let counted = |count: usize| match count {
        0 => "nothing".to_owned(),
        1 => "1 stored response".to_owned(),
        _ => format!("{count} stored responses"),
    };
    let done = if is_soft { "made stale" } else { "purged" };
    let mut page = format!("{done}: {}", counted(purged.responses));
    if purged.is_more_on_disk {
        page.push_str(", and matches that are only on disk, which are not counted");
    }
    for met in &purged.met {
        if purged.met.len() > 1 || met.responses == 0 {
            let star = met.what.starts_with("tag ") && met.what.contains('*');
            let hint = if star && met.responses == 0 { " (`*` is not a pattern in a tag)" } else { "" };
            page.push_str(&format!("\n  {}: {}{hint}", met.what, counted(met.responses)));
        }
    }
    match &purged.elsewhere {
        Some(PurgedElsewhere { problem: Some(problem), .. }) => {
            page.push_str(&format!("\nunknown for other instances: {problem}"));
        }
        Some(PurgedElsewhere { instances, missing, .. }) if missing.is_empty() => {
            page.push_str(&format!("\nby all {instances} instances"));
        }
        Some(PurgedElsewhere { instances, missing, .. }) => {
            page.push_str(&format!(
                "\nby {} of {instances} instances; not yet by {}",
                instances - missing.len(),
                missing.join(", ")
            ));
        }
        None => {}
    }
    page
}

pub(super) fn print(text: &[u8]) {
    // A closed pipe means that the reader has seen enough.
    let _ = std::io::stdout().lock().write_all(text);
}

#[cfg(test)]
mod tests {
    use api::cache::PurgeMatch;

    use super::*;

    #[test]
    fn a_purge_reports_matches_and_names_without_a_match() {
        let purged = |responses, met: &[(&str, usize)], is_more_on_disk| Purged {
            named: met.len(),
            responses,
            met: met
                .iter()
                .map(|(what, responses)| PurgeMatch { what: (*what).to_owned(), responses: *responses })
                .collect(),
            is_more_on_disk,
            elsewhere: None,
        };
        let elsewhere = |missing: &[&str], problem: Option<&str>| {
            let missing = missing.iter().map(|name| (*name).to_owned()).collect();
            let elsewhere = PurgedElsewhere { instances: 3, missing, problem: problem.map(str::to_owned) };
            Purged { elsewhere: Some(elsewhere), ..purged(1, &[("URL a/", 1)], false) }
        };
        for (is_soft, purged, expected) in [
            (false, purged(1, &[("URL a/", 1)], false), "purged: 1 stored response"),
            (false, elsewhere(&[], None), "purged: 1 stored response\nby all 3 instances"),
            (
                false,
                elsewhere(&["edge-1", "edge-3"], None),
                "purged: 1 stored response\nby 1 of 3 instances; not yet by edge-1, edge-3",
            ),
            (
                false,
                elsewhere(&[], Some("Redis cannot be reached")),
                "purged: 1 stored response\nunknown for other instances: Redis cannot be reached",
            ),
            (true, purged(2, &[("tag a", 2)], false), "made stale: 2 stored responses"),
            (false, purged(0, &[("pattern a/b*", 0)], false), "purged: nothing\n  pattern a/b*: nothing"),
            (
                false,
                purged(3, &[("tag a", 3), ("tag b*", 0)], true),
                "purged: 3 stored responses, and matches that are only on disk, which are not counted\n  \
                 tag a: 3 stored responses\n  tag b*: nothing (`*` is not a pattern in a tag)",
            ),
        ] {
            assert_eq!(page(is_soft, &purged), expected);
        }
    }
}
