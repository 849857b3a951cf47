//! `vanward cache explain`: shows what is cached for a URL, why its last request was no hit, and what to change.

use std::fmt::Write as _;
use std::process::ExitCode;

use api::cache::{CacheVerdict, ExplainOrder, Explained, LastMiss, StoredResponse};

use super::reach::ProxySelection;

/// Explains what is cached for a URL, how fresh it is, why its last request was no hit, and what to change at the
/// server.
///
/// Sends nothing to the server, and changes nothing.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Explain {
    /// `http://HOST/PATH`, `https://HOST/PATH`, or without a scheme: then https if a listener has TLS
    url: String,

    /// A header field of the request. Can be repeated
    #[arg(long, short = 'H', value_name = "NAME: VALUE", value_parser = field)]
    header: Vec<(String, String)>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: ProxySelection,
}

const EXAMPLES: &str = "\
Examples:
  vanward cache explain https://www.example.com/news
  vanward cache explain www.example.com/app.js -H 'Accept-Encoding: br'
  vanward cache explain www.example.com/ --json | jq -r '.remedies[]'";

fn field(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write it as NAME: VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

pub(crate) fn explain(arguments: &Explain) -> Result<(), ExitCode> {
    let order = ExplainOrder { url: arguments.url.clone(), headers: arguments.header.clone() };
    let answer = arguments.reach.post("/cache/explain", &order)?;
    let explained: Explained = answer.told()?;
    if arguments.json {
        super::cache::print(&answer.body);
    } else {
        super::cache::print(page(&explained).as_bytes());
    }
    Ok(())
}

fn page(explained: &Explained) -> String {
    let mut page = String::new();
    let mut line = |name: &str, text: &str| {
        // Writing to a String does not fail.
        let _ = writeln!(page, "{name:12}{text}");
    };
    line("route", &explained.route);
    for (index, part) in explained.key.iter().flat_map(|key| key.lines()).enumerate() {
        line(if index == 0 { "found by" } else { "" }, part);
    }
    line("a GET now", &now(&explained.now));
    if let Some(owner) = &explained.owner {
        let who = if owner.is_own { "this instance" } else { "which is asked before a server is" };
        line("owner", &format!("{}, {who}", owner.address));
    }
    if explained.key.is_some() && explained.stored.is_empty() {
        let is_on_disk = matches!(explained.now, CacheVerdict::OnDisk);
        line("stored", if is_on_disk { "only on disk" } else { "nothing" });
    }
    for (index, stored) in explained.stored.iter().enumerate() {
        line(if index == 0 { "stored" } else { "" }, &variant(stored));
    }
    let untold = explained.variants.saturating_sub(explained.stored.len());
    if untold > 0 {
        line("", &format!("and {untold} more variants"));
    }
    if explained.variants_displaced > 0 {
        line("", &format!("{} variants were evicted for others of this URL", explained.variants_displaced));
    }
    if let Some(last) = &explained.last_miss {
        for (index, text) in last_miss(last).iter().enumerate() {
            line(if index == 0 { "last miss" } else { "" }, text);
        }
    }
    for (index, remedy) in explained.remedies.iter().enumerate() {
        line(if index == 0 { "to change" } else { "" }, remedy);
    }
    page
}

fn now(now: &CacheVerdict) -> String {
    match now {
        CacheVerdict::Off => "goes to a server: the route has no cache".to_owned(),
        CacheVerdict::Hit => "is a hit".to_owned(),
        CacheVerdict::StaleHit => "is a stale hit".to_owned(),
        CacheVerdict::OnDisk => "is read from disk, and is a hit if it is fresh".to_owned(),
        CacheVerdict::Validated(why) => format!("revalidates the stored response: {why}"),
        CacheVerdict::Miss(why) => format!("goes to a server: {why}"),
        CacheVerdict::Refused => "gets 504: it accepts only a cached response (only-if-cached)".to_owned(),
    }
}

/// Formats a variant: `200, 5 bytes, age 3 s, fresh for 57 s; varies by accept-encoding; ETag "a"`.
fn variant(stored: &StoredResponse) -> String {
    let StoredResponse { status, body_bytes, age_seconds, ttl_seconds, .. } = stored;
    let mut text = format!("{status}, {body_bytes} bytes, age {age_seconds} s, ");
    let _ = match ttl_seconds {
        _ if stored.is_purged_softly => write!(text, "stale because of a soft purge"),
        1.. if stored.is_guess => write!(text, "fresh for {ttl_seconds} s(heuristic)"),
        1.. => write!(text, "fresh for {ttl_seconds} s"),
        _ => write!(text, "stale for {} s", ttl_seconds.unsigned_abs()),
    };
    if !stored.vary.is_empty() {
        let _ = write!(text, "; varies by {}", stored.vary.replace(',', ", "));
    }
    if !stored.is_asked_for {
        text.push_str(", which does not match this request");
    }
    let validators = [("ETag", &stored.etag), ("Last-Modified", &stored.last_modified)];
    for (name, value) in validators {
        if let Some(value) = value {
            let _ = write!(text, "; {name} {value}");
        }
    }
    if !stored.tags.is_empty() {
        let _ = write!(text, "; tags {}", stored.tags.join(", "));
    }
    if stored.tags_untold > 0 {
        let _ = write!(text, "; {} more tags", stored.tags_untold);
    }
    text
}

fn last_miss(last: &LastMiss) -> Vec<String> {
    let mut lines = vec![format!("{} s ago: {}", last.seconds_ago, last.why)];
    lines.push(match (last.status, &last.not_stored) {
        (None, _) => "the server gave no response".to_owned(),
        (Some(status), Some(refusal)) => {
            format!("the server's {status} was not stored ({}): {}", refusal.reason, refusal.what)
        }
        (Some(304), None) if last.is_stored => "the server confirmed the stored response".to_owned(),
        (Some(status), None) if last.is_stored => format!("the server's {status} was stored"),
        (Some(status), None) => format!("the server's {status} was only for this request"),
    });
    lines
}

#[cfg(test)]
mod tests {
    use api::cache::StoreRefusal;

    use super::*;

    fn explained() -> Explained {
        let stored = StoredResponse {
            status: 200,
            is_asked_for: true,
            vary: "accept-encoding,x-kind".to_owned(),
            age_seconds: 3,
            ttl_seconds: 57,
            is_purged_softly: false,
            is_guess: false,
            body_bytes: 5,
            memory_bytes: 600,
            etag: Some("\"a\"".to_owned()),
            last_modified: None,
            tags: vec!["news".to_owned(), "front page".to_owned()],
            tags_untold: 2,
        };
        let other = StoredResponse {
            is_asked_for: false,
            ttl_seconds: -2,
            etag: None,
            tags: Vec::new(),
            tags_untold: 0,
            ..stored.clone()
        };
        Explained {
            route: "/".to_owned(),
            key: Some("http://test/a\nx-kind=b".to_owned()),
            now: CacheVerdict::Hit,
            stored: vec![stored, other],
            variants: 3,
            variants_displaced: 4,
            last_miss: Some(LastMiss {
                seconds_ago: 4,
                forward: "uri-miss".to_owned(),
                why: "nothing was stored".to_owned(),
                status: Some(200),
                is_stored: false,
                not_stored: Some(StoreRefusal {
                    reason: "private".to_owned(),
                    what: "it was private".to_owned(),
                }),
            }),
            owner: None,
            remedies: vec!["leave private out".to_owned()],
        }
    }

    #[test]
    fn the_page_has_each_thing_in_a_line() {
        let expected = "\
route       /
found by    http://test/a
            x-kind=b
a GET now   is a hit
stored      200, 5 bytes, age 3 s, fresh for 57 s; varies by accept-encoding, x-kind; ETag \"a\"; tags news, front page; 2 more tags
            200, 5 bytes, age 3 s, stale for 2 s; varies by accept-encoding, x-kind, which does not match this request
            and 1 more variants
            4 variants were evicted for others of this URL
last miss   4 s ago: nothing was stored
            the server's 200 was not stored (private): it was private
to change   leave private out
";
        assert_eq!(page(&explained()), expected);
        let nothing = Explained { stored: Vec::new(), last_miss: None, remedies: Vec::new(), ..explained() };
        assert!(page(&nothing).contains("\nstored      nothing\n"));
    }
}
