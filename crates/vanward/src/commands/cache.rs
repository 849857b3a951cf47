//! `vanward cache`: what the running proxy has stored.

use std::io::Write;
use std::process::ExitCode;

use ::proxy::stored::{PurgeOrder, Purged};

use super::cache_explain::{Explain, explain};
use super::reach::Reach;

/// Purges what the running proxy has stored, and explains it.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  vanward cache purge https://www.example.com/news
  vanward cache purge --tag news
  vanward cache explain https://www.example.com/news";

#[derive(clap::Subcommand)]
enum Command {
    Purge(Purge),
    Explain(Explain),
}

/// Has stored responses answer no more, as of when this command returns.
///
/// What is being fetched meanwhile is not stored either.
#[derive(clap::Args)]
#[command(after_help = PURGE_EXAMPLES)]
#[group(id = "what", required = true, multiple = true, args = ["urls", "prefixes", "hosts", "tags", "all"])]
struct Purge {
    /// URLs, with all their variants; without http:// or https:// both
    #[arg(value_name = "URL")]
    urls: Vec<String>,

    /// All whose URL begins so; may be repeated
    #[arg(long = "prefix", value_name = "URL")]
    prefixes: Vec<String>,

    /// All of this host, whatever the port; may be repeated
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,

    /// All that came with this tag in `Surrogate-Key` or `Cache-Tag`; may be repeated
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,

    /// Everything
    #[arg(long)]
    all: bool,

    /// Makes it stale only: it is validated before it answers again, and may stand in for a server that is down
    #[arg(long)]
    soft: bool,

    /// Prints what was purged as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: Reach,
}

const PURGE_EXAMPLES: &str = "\
Examples:
  vanward cache purge https://www.example.com/news
  vanward cache purge www.example.com/news www.example.com/   http and https
  vanward cache purge --tag news --tag sport --soft
  vanward cache purge --prefix https://www.example.com/img/
  vanward cache purge --host www.example.com
  vanward cache purge --all --socket /run/vanward.sock";

pub(crate) fn run(arguments: &Args) -> ExitCode {
    let done = match &arguments.command {
        Command::Purge(arguments) => purge(arguments),
        Command::Explain(arguments) => explain(arguments),
    };
    done.map_or_else(|code| code, |()| ExitCode::SUCCESS)
}

fn purge(arguments: &Purge) -> Result<(), ExitCode> {
    let Purge { urls, prefixes, hosts, tags, all, soft, json, reach } = arguments;
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
        return Ok(());
    }
    super::say(sentence(&order, &purged));
    Ok(())
}

/// `purged 2 URLs, with 3 stored responses, and 1 tag`.
fn sentence(order: &PurgeOrder, purged: &Purged) -> String {
    let counted = |count: usize, noun: &str, plural: &str| match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}{plural}"),
    };
    let responses = counted(purged.responses, "stored response", "s");
    let urls = format!("{}, with {responses}", counted(order.urls.len(), "URL", "s"));
    let parts = [
        (order.urls.len(), urls),
        (order.prefixes.len(), counted(order.prefixes.len(), "prefix", "es")),
        (order.hosts.len(), counted(order.hosts.len(), "host", "s")),
        (order.tags.len(), counted(order.tags.len(), "tag", "s")),
        (usize::from(order.all), "everything".to_owned()),
    ];
    let parts: Vec<String> =
        parts.into_iter().filter(|(count, _)| *count > 0).map(|(_, part)| part).collect();
    let what = parts.join("; ");
    if order.soft { format!("stale as of now: {what}") } else { format!("purged: {what}") }
}

pub(super) fn print(text: &[u8]) {
    // Who reads no further has seen enough.
    let _ = std::io::stdout().lock().write_all(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_purge_is_told_in_a_line() {
        let order = |urls: usize, tags: usize, soft| PurgeOrder {
            urls: vec![String::new(); urls],
            tags: vec![String::new(); tags],
            soft,
            ..PurgeOrder::default()
        };
        let purged = |responses| Purged { named: 1, responses };
        for (order, responses, expected) in [
            (order(1, 0, false), 1, "purged: 1 URL, with 1 stored response"),
            (order(2, 1, false), 0, "purged: 2 URLs, with 0 stored responses; 1 tag"),
            (order(0, 2, true), 0, "stale as of now: 2 tags"),
            (PurgeOrder { all: true, ..PurgeOrder::default() }, 0, "purged: everything"),
        ] {
            assert_eq!(sentence(&order, &purged(responses)), expected);
        }
    }
}
