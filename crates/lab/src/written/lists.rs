//! Lists of requests of cases: in the plan, or in a file beside it, in the formats of `vanward load --requests-from`.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use load::requests::{ListFormat, RequestSource};
use mistake::Mistake;
use serde::Deserialize;
use toml::Spanned;

use crate::plan::RequestList;

/// Maximum size of a list with its bodies: it is copied to every client machine.
const BYTES_MOST: usize = 64 << 20;
/// Placeholder host of paths until the measured service is known.
const ANY: &str = "http://measured.invalid";

/// A list in a case.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected the name of a file, \"orders.toml\", or a list of requests, [{ path = \"/\" }, …]"
)]
pub(super) enum RawRequestsFrom {
    File(String),
    Tables(
        #[expect(dead_code, reason = "they are read from the text, which has places")]
        Vec<serde::de::IgnoredAny>,
    ),
}

pub(super) struct Lists<'p> {
    text: &'p str,
    file: &'p str,
    /// Mistakes in lists, with their own files.
    pub(super) mistakes: Vec<Mistake>,
}

impl<'p> Lists<'p> {
    pub(super) fn new(text: &'p str, file: &'p str) -> Self {
        Self { text, file, mistakes: Vec::new() }
    }

    /// The list of a case; `None` if there are mistakes.
    pub(super) fn read(
        &mut self,
        written: &Spanned<RawRequestsFrom>,
        hosts: &[String],
        refuse: &mut dyn FnMut(Range<usize>, String),
    ) -> Option<RequestList> {
        let beside = Path::new(self.file).parent().unwrap_or(Path::new(""));
        let (source, mut requests) = match written.get_ref() {
            RawRequestsFrom::Tables(_) => {
                let files = |name: &str| read(&beside.join(name));
                let source = source(self.text, self.file, Some(ANY), hosts, &files);
                ("the plan".to_owned(), load::requests::parse_tables(&source, &written.span()))
            }
            RawRequestsFrom::File(name) => {
                let Some(format) = ListFormat::from_file(name) else {
                    let message = format!(
                        "{name:?} is not a list of requests; expected a file that ends in .toml, .http or .har"
                    );
                    refuse(written.span(), message);
                    return None;
                };
                let path = beside.join(name);
                let text = read(&path).and_then(|bytes| {
                    String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())
                });
                let text = match text {
                    Ok(text) => text,
                    Err(reason) => {
                        refuse(written.span(), format!("cannot read {name:?}: {reason}"));
                        return None;
                    }
                };
                let (shown, folder) = (path.to_string_lossy(), path.parent().unwrap_or(Path::new("")));
                // A recording contains its hosts.
                let base = Some(ANY).filter(|_| format != ListFormat::Har);
                let files = |name: &str| read(&folder.join(name));
                (name.clone(), load::requests::parse(format, &source(&text, &shown, base, hosts, &files)))
            }
        };
        let requests = match &mut requests {
            Ok(requests) => std::mem::take(requests),
            Err(mistakes) => {
                mistakes.iter_mut().for_each(in_words_of_plans);
                self.mistakes.append(mistakes);
                return None;
            }
        };
        checked(source, requests).map_err(|message| refuse(written.span(), message)).ok()
    }
}

/// Checks the requests, and removes their host.
fn checked(source: String, mut requests: Vec<load::Listed>) -> Result<RequestList, String> {
    let mut hosts = load::requests::hosts(&requests);
    hosts.retain(|host| *host != ANY);
    if hosts.len() > 1 {
        return Err(format!(
            "the requests in {source} go to several hosts, {}; expected the hosts of one service, or paths",
            hosts.join(", ")
        ));
    }
    if requests.iter().map(|request| request.body.len()).sum::<usize>() > BYTES_MOST {
        return Err(format!("the bodies in {source} are larger than 64 MiB together"));
    }
    requests.iter_mut().for_each(load::requests::here);
    Ok(RequestList { source, requests: Arc::new(requests) })
}

fn source<'s>(
    text: &'s str,
    file: &'s str,
    base: Option<&'s str>,
    hosts: &'s [String],
    read: &'s dyn Fn(&str) -> Result<Vec<u8>, String>,
) -> RequestSource<'s> {
    RequestSource { text, file, base, hosts, given: &[], read }
}

/// Replaces flags of `vanward load` in a mistake by keys of a plan.
fn in_words_of_plans(mistake: &mut Mistake) {
    mistake.message =
        mistake.message.replace("with --hosts HOST,HOST", "with hosts = [\"HOST\"] in the case");
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let found = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !found.is_file() {
        return Err("it is not a file".to_owned());
    }
    if found.len() > BYTES_MOST as u64 {
        return Err("it is larger than 64 MiB".to_owned());
    }
    std::fs::read(path).map_err(|error| error.to_string())
}
