//! ab: a closed loop over HTTP/1.0 with keep-alive, with one thread. It reports latencies by percent of the requests.

use std::path::Path;

use report::latency::LatencyHistogram;
use report::results::{ClientVersion, MeasurementOutcome};

use super::{Generator, GeneratorRequest, LoadEnd, number_after};

pub(super) const GENERATOR: Generator = Generator {
    name: "ab",
    program: Some("ab"),
    remedy: "apt-get install apache2-utils",
    refuses,
    script: None,
    threads_most: 1,
    command,
    read,
};

const PERCENTILES: &str = "ab.csv";
/// Maximum requests per second of the run: ab allocates 40 bytes for each request that it may send.
const REQUESTS_PER_SECOND_MOST: u64 = 100_000;

fn refuses(request: &GeneratorRequest) -> Option<&'static str> {
    super::closed_loop_of_one_url(request)
        .or((request.version != ClientVersion::Http1).then_some("ab has only HTTP/1.1"))
}

fn command(program: &Path, request: &GeneratorRequest, folder: &Path) -> Vec<String> {
    let mut command = vec![program.to_string_lossy().into_owned(), "-q".to_owned(), "-k".to_owned()];
    // Without this flag, a length that differs from the first response's counts as a failure.
    command.extend(["-l".to_owned(), format!("-c{}", request.connections)]);
    command.push(format!("-s{}", request.timeout.as_secs().max(1)));
    match request.end {
        LoadEnd::After(_) => {
            let seconds = super::whole_seconds(request);
            // -t sets -n implicitly, so -n must follow it.
            command.extend([format!("-t{seconds}"), format!("-n{}", seconds * REQUESTS_PER_SECOND_MOST)]);
        }
        LoadEnd::Requests(requests) => command.push(format!("-n{requests}")),
    }
    command.extend(["-e".to_owned(), folder.join(PERCENTILES).to_string_lossy().into_owned()]);
    command.push(request.url.clone());
    command
}

fn read(_request: &GeneratorRequest, output: &str, folder: &Path) -> Result<MeasurementOutcome, String> {
    let number = |label: &str| number_after(output, label);
    let seconds = number("Time taken for tests:").ok_or("ab printed no figures")?;
    let complete = number("Complete requests:").unwrap_or(0.0) as u64;
    let count = |label: &str| number(label).unwrap_or(0.0) as u64;
    let (failed, status) = (count("Failed requests:"), count("Non-2xx responses:"));
    let requests = complete.saturating_sub(failed + status);
    let path = folder.join(PERCENTILES);
    // Without a success there may be no file.
    let latency = match requests {
        0 => LatencyHistogram::default(),
        _ => std::fs::read_to_string(&path)
            .map(|text| latencies(&text, requests))
            .map_err(|error| format!("ab wrote no {}: {error}", path.display()))?,
    };
    let mut measured = super::measured(seconds, requests, count("Total transferred:"), latency);
    measured.errors = super::errors([("failed", failed), ("status", status)]);
    Ok(super::counted(measured, "request", ""))
}

/// Parses lines `percent,milliseconds`: each percent stands for a hundredth of the requests.
fn latencies(text: &str, requests: u64) -> LatencyHistogram {
    let us: Vec<u64> = text
        .lines()
        .filter_map(|line| line.split_once(',')?.1.trim().parse::<f64>().ok())
        .map(|milliseconds| (milliseconds * 1000.0).round() as u64)
        .collect();
    let share = requests / us.len().max(1) as u64;
    let rest = requests - share * us.len() as u64;
    let counts = us.iter().enumerate().map(|(index, &us)| (us, share + u64::from((index as u64) < rest)));
    LatencyHistogram::from_counts(counts.filter(|(_, count)| *count > 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::tests::request;

    #[test]
    fn the_summary_and_the_percentiles_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let lines: String = (0..100).map(|percent| format!("{percent},{}.500\n", 1 + percent / 50)).collect();
        std::fs::write(folder.path().join(PERCENTILES), format!("Percentage served,Time in ms\n{lines}"))
            .expect("a file");
        let output = "Time taken for tests:   1.500 seconds\nComplete requests:      1010\nFailed requests:        10\n\
                      Total transferred:      310000 bytes\n";
        let read = read(&request(), output, folder.path()).expect("figures");
        let measured = read.figures().expect("figures");
        assert_eq!((measured.requests, measured.error_count(), measured.received_bytes), (1000, 10, 310_000));
        assert_eq!(measured.latency.count(), 1000);
        let at = |quantile| measured.latency.at_quantile_us(quantile).expect("recorded");
        assert!(at(0.4) < 1_600 && at(0.99) > 2_400, "{} and {}", at(0.4), at(0.99));
    }
}
