//! Builds the plan from the flags.

use std::io::Read;
use std::path::Path;

use load::requests::{ListFormat, RequestSource};
use load::{Arrival, Check, Listed, LoadPlan, Responses};

use super::values::Stages;
use super::{LoadArgs, RequestsFormat, ResponsesOf};

/// Maximum size of a body or URL list, which is read into memory.
const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Duration of a run without -d and -n.
pub(super) const DURATION_DEFAULT_SECONDS: f64 = 10.0;

/// Converts a count for the plan, which rejects too large ones.
pub(super) fn whole(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// Builds the plan of a run, with the first number of connections.
pub(super) fn plan(arguments: &LoadArgs) -> Result<LoadPlan, String> {
    super::expect::check(&arguments.expectations, arguments.pid.is_some(), false)?;
    let (urls, listed) = requested(arguments)?;
    let body = match arguments.body.as_deref().map(|text| (text, text.strip_prefix('@'))) {
        None => Vec::new(),
        Some((_, Some("-"))) => standard_input()?,
        Some((_, Some(file))) => read(Path::new(file), "--body")?,
        Some((text, None)) => text.as_bytes().to_vec(),
    };
    let method_default = if arguments.body.is_some() { "POST" } else { "GET" };
    let needs_duration = arguments.requests.is_none() && arguments.stages.is_none();
    let duration_default = needs_duration.then_some(DURATION_DEFAULT_SECONDS);
    Ok(LoadPlan {
        urls,
        listed,
        stream: None,
        values_seed: arguments.seed,
        shuffle_seed: arguments.shuffle,
        method: arguments.method.clone().unwrap_or_else(|| method_default.to_owned()),
        headers: arguments.headers.clone(),
        body,
        user: arguments.user.as_deref().map(credentials).transpose()?,
        cookies: arguments.cookies.clone(),
        redirects_max: arguments.follow.then_some(arguments.max_redirs),
        check: check(&arguments.checks)?,
        responses: match arguments.responses {
            ResponsesOf::Same => Responses::Same,
            ResponsesOf::Any => Responses::Any,
        },
        directions: arguments.connecting.directions(),
        keepalive: !arguments.no_keepalive,
        tls: arguments.connecting.tls(),
        http2: arguments.h2,
        http3: arguments.h3,
        streams: whole(arguments.streams),
        connections: arguments.connections.first().map_or(usize::MAX, |count| whole(*count)),
        threads: whole(arguments.threads),
        server_process: arguments.pid,
        arrival: arrival(
            arguments.rate,
            arguments.stages.as_ref(),
            arguments.poisson.then_some(arguments.seed),
        ),
        think_time: arguments.think_time,
        slot: None,
        seconds: !arguments.quiet || arguments.out.is_some() || arguments.remote_write.is_some(),
        breakdowns: arguments.by.iter().map(|by| by.breakdown()).collect(),
        duration_seconds: arguments.duration.or(duration_default),
        requests: arguments.requests,
        warm_up_seconds: arguments.warm_up,
        timeout_seconds: arguments.timeout,
    })
}

/// Parses the checks of responses.
fn check(checks: &[String]) -> Result<Check, String> {
    let mut all = Check::default();
    checks.iter().try_for_each(|text| load::requests::check(text, &mut all))?;
    Ok(all)
}

/// Returns the schedule; `seed` is for random arrivals.
pub(super) fn arrival(rate: Option<f64>, stages: Option<&Stages>, seed: Option<u64>) -> Arrival {
    match (rate, stages, seed) {
        (None, None, _) => Arrival::Closed,
        (None, Some(Stages(stages)), seed) => Arrival::Stages { stages: stages.clone(), seed },
        (Some(requests_per_second), _, Some(seed)) => Arrival::Poisson { requests_per_second, seed },
        (Some(requests_per_second), _, None) => Arrival::Constant { requests_per_second },
    }
}

/// Returns the credentials of `--user`: as written, or from a file.
pub(super) fn credentials(user: &str) -> Result<String, String> {
    let Some(file) = user.strip_prefix('@') else { return Ok(user.to_owned()) };
    let text = String::from_utf8(read(Path::new(file), "--user")?);
    let text = text.map_err(|_| format!("--user {file}: the file is not UTF-8 text"))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

fn standard_input() -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    let read = std::io::stdin().lock().take(FILE_BYTES_MAX + 1).read_to_end(&mut body);
    read.map_err(|error| format!("--body @-: cannot read standard input: {error}"))?;
    if body.len() as u64 > FILE_BYTES_MAX {
        return Err("--body @-: standard input is larger than 256 MiB".to_owned());
    }
    Ok(body)
}

/// Returns URLs, or the requests of a list.
fn requested(arguments: &LoadArgs) -> Result<(Vec<String>, Vec<Listed>), String> {
    if let Some(path) = &arguments.requests_from {
        const FLAG: &str = "--requests-from";
        let file = path.display().to_string();
        let format = match arguments.requests_format {
            Some(RequestsFormat::Toml) => ListFormat::Toml,
            Some(RequestsFormat::Http) => ListFormat::Http,
            Some(RequestsFormat::Har) => ListFormat::Har,
            Some(RequestsFormat::Handed) => ListFormat::Handed,
            None => ListFormat::from_file(&file).ok_or_else(|| {
                format!("{FLAG} {file}: its name does not end in .toml, .http or .har; set --requests-format")
            })?,
        };
        let text = text(path, FLAG)?;
        return Ok((Vec::new(), request_list(path, FLAG, format, &text, arguments)?));
    }
    let Some(file) = &arguments.urls else {
        return Ok((arguments.url.iter().cloned().collect(), Vec::new()));
    };
    let text = text(file, "--urls")?;
    if !load::requests::has_methods(&text) {
        return Ok((url_list(file, &text, arguments.url.as_deref())?, Vec::new()));
    }
    if arguments.method.is_some() || arguments.body.is_some() {
        let file = file.display();
        return Err(format!(
            "--urls {file} has methods, so that -X and --body have no meaning; leave them out"
        ));
    }
    Ok((Vec::new(), request_list(file, "--urls", ListFormat::Lines, &text, arguments)?))
}

fn text(file: &Path, flag: &str) -> Result<String, String> {
    String::from_utf8(read(file, flag)?)
        .map_err(|_| format!("{flag} {}: the file is not UTF-8 text", file.display()))
}

fn request_list(
    path: &Path,
    flag: &str,
    format: ListFormat,
    text: &str,
    arguments: &LoadArgs,
) -> Result<Vec<Listed>, String> {
    let file = path.display().to_string();
    let folder = path.parent().unwrap_or(Path::new(""));
    let fields = arguments.headers.iter().filter_map(|field| field.split(':').next());
    let user = arguments.user.as_ref().map(|_| "authorization");
    let cookies = arguments.cookies.as_ref().map(|_| "cookie");
    let given: Vec<String> = fields.chain(user).chain(cookies).map(str::to_owned).collect();
    let source = RequestSource {
        hosts: &arguments.hosts,
        given: &given,
        text,
        file: &file,
        base: arguments.url.as_deref(),
        read: &|name| bounded(&folder.join(name)),
    };
    if !arguments.hosts.is_empty() && format != ListFormat::Har {
        return Err("--hosts chooses from a recording (HAR); leave it out".to_owned());
    }
    load::requests::parse(format, &source).map_err(|mistakes| {
        let shown = mistakes.iter().map(|mistake| format!("{mistake}\n{}", mistake.shown()));
        let shown: String = shown.collect();
        format!("{flag} {file} cannot be used:\n{}", shown.trim_end())
    })
}

fn url_list(file: &Path, text: &str, base: Option<&str>) -> Result<Vec<String>, String> {
    let (mut urls, base) = (Vec::new(), base.map(authority));
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match (line.strip_prefix('/'), base) {
            (None, _) => urls.push(line.to_owned()),
            (Some(path), Some(base)) => urls.push(format!("{base}/{path}")),
            (Some(_), None) => {
                let file = file.display();
                return Err(format!(
                    "--urls {file}, line {number}: a path needs a host; give one as URL: vanward load --urls {file} \
                     http://HOST[:PORT]/"
                ));
            }
        }
    }
    if urls.is_empty() {
        return Err(format!("--urls {}: the file has no URL; write one a line", file.display()));
    }
    Ok(urls)
}

pub(super) fn authority(url: &str) -> &str {
    let host_at = url.find("://").map_or(0, |at| at + 3);
    url[host_at..].find(['/', '?', '#']).map_or(url, |length| &url[..host_at + length])
}

pub(super) fn read(file: &Path, flag: &str) -> Result<Vec<u8>, String> {
    bounded(file).map_err(|reason| format!("{flag}: cannot read {}: {reason}", file.display()))
}

/// Reads a file up to the limit, or returns why that failed.
fn bounded(file: &Path) -> Result<Vec<u8>, String> {
    // A device has no size, and no end.
    let mut content = Vec::new();
    let file = std::fs::File::open(file).map_err(|error| error.to_string())?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut content).map_err(|error| error.to_string())?;
    if content.len() as u64 > FILE_BYTES_MAX {
        return Err("it is larger than 256 MiB".to_owned());
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_appended_to_the_authority_of_a_url() {
        let cases = [
            ("http://a:1/b?c", "http://a:1"),
            ("http://a", "http://a"),
            ("http://a?b", "http://a"),
            ("a/b", "a"),
            ("http://[::1]:8/", "http://[::1]:8"),
        ];
        for (url, expected) in cases {
            assert_eq!(authority(url), expected);
        }
    }
}
