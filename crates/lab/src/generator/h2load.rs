//! h2load: a closed loop over HTTP/1.1 or HTTP/2. It writes a line for each request, so its latencies are complete; the
//! duration of the run limits their number.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use report::latency::LatencyHistogram;
use report::results::{ClientVersion, MeasurementOutcome};

use super::{Generator, GeneratorRequest, LoadEnd, number_after};

pub(super) const GENERATOR: Generator = Generator {
    name: "h2load",
    program: Some("h2load"),
    remedy: "apt-get install nghttp2-client",
    refuses: |request| super::closed_loop_of_one_url(request).or(super::no_http3(request)),
    script: None,
    threads_most: usize::MAX,
    command,
    read,
};

const LINES: &str = "h2load.tsv";

fn command(program: &Path, request: &GeneratorRequest, folder: &Path) -> Vec<String> {
    let mut command = vec![program.to_string_lossy().into_owned()];
    command.extend([
        format!("-t{}", request.threads.min(request.connections)),
        format!("-c{}", request.connections),
    ]);
    match request.end {
        LoadEnd::After(_) => command.push(format!("-D{}", super::whole_seconds(request))),
        LoadEnd::Requests(requests) => command.push(format!("-n{requests}")),
    }
    if request.version == ClientVersion::Http1 {
        command.push("--h1".to_owned());
    }
    command.extend(["-m1".to_owned(), format!("-T{}", request.timeout.as_secs().max(1))]);
    command.push(format!("--log-file={}", folder.join(LINES).to_string_lossy()));
    command.extend(super::keep_alive(request).into_iter().flatten());
    command.push(request.url.clone());
    command
}

fn read(_request: &GeneratorRequest, output: &str, folder: &Path) -> Result<MeasurementOutcome, String> {
    // `finished in 1.00s, 123.00 req/s, …`
    let seconds = number_after(output, "finished in ").ok_or("h2load printed no figures")?;
    let field = |name: &str| field(output, name);
    let bytes = output
        .lines()
        .find_map(|line| line.strip_prefix("traffic:"))
        .and_then(|line| line.split_once('(')?.1.split_once(')')?.0.parse::<u64>().ok());
    let requests = field("succeeded").unwrap_or(0);
    // Without a success there may be no lines.
    let latency = if requests == 0 { LatencyHistogram::default() } else { latencies(&folder.join(LINES))? };
    let mut measured = super::measured(seconds, requests, bytes.unwrap_or(0), latency);
    measured.errors = super::errors(["failed", "timeout"].map(|kind| (kind, field(kind).unwrap_or(0))));
    Ok(super::counted(measured, "request", ""))
}

/// The number before a word in the line `requests: …`.
fn field(output: &str, name: &str) -> Option<u64> {
    let line = output.lines().find_map(|line| line.strip_prefix("requests:"))?;
    let part = line.split(',').map(str::trim).find(|part| part.ends_with(name))?;
    part.split_whitespace().next()?.parse().ok()
}

/// Parses latencies: microseconds in the third column of each line with a good status in the second.
fn latencies(path: &Path) -> Result<LatencyHistogram, String> {
    let file = File::open(path).map_err(|error| format!("h2load wrote no {}: {error}", path.display()))?;
    let steps = BufReader::new(file).lines().map_while(Result::ok).filter_map(|line| {
        let mut columns = line.split('\t').skip(1);
        let status: u16 = columns.next()?.parse().ok()?;
        let us: u64 = columns.next()?.parse().ok()?;
        (200..400).contains(&status).then_some((us, 1))
    });
    Ok(LatencyHistogram::from_counts(steps))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::tests::request;

    #[test]
    fn the_summary_and_the_lines_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join(LINES), "1000\t200\t90\n1001\t200\t110\n1002\t503\t9\n")
            .expect("a file");
        let output = "finished in 2.00s, 1.00 req/s, 310B/s\n\
                      requests: 3 total, 3 started, 3 done, 2 succeeded, 1 failed, 0 errored, 0 timeout\n\
                      status codes: 2 2xx, 0 3xx, 0 4xx, 1 5xx\ntraffic: 620B (620) total, 300B (300) headers\n";
        let read = read(&request(), output, folder.path()).expect("figures");
        let measured = read.figures().expect("figures");
        assert_eq!((measured.requests, measured.error_count(), measured.received_bytes), (2, 1, 620));
        assert_eq!(measured.latency.count(), 2);
        assert!(super::read(&request(), "no address", folder.path()).is_err());
    }
}
