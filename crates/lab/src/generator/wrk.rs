//! wrk: a closed loop over HTTP/1.1. A script makes it print its histogram, which wrk corrects for stalls.

use std::path::Path;

use report::latency::LatencyHistogram;
use report::results::{ClientVersion, MeasurementOutcome};

use super::{Generator, GeneratorRequest, LoadEnd, number_after};

pub(super) const GENERATOR: Generator = Generator {
    name: "wrk",
    program: Some("wrk"),
    remedy: "apt-get install wrk",
    refuses,
    script: Some(("wrk.lua", SCRIPT)),
    threads_most: usize::MAX,
    command,
    read,
};

/// Script that prints more than the usual summary, one fact per `lab …` line.
const SCRIPT: &str = "\
function done(summary, latency, requests)
  local errors = summary.errors
  print(string.format('lab duration_us %d', summary.duration))
  print(string.format('lab requests %d', summary.requests))
  print(string.format('lab bytes %d', summary.bytes))
  for _, name in ipairs({'connect', 'read', 'write', 'timeout', 'status'}) do
    print(string.format('lab error_%s %d', name, errors[name]))
  end
  for index = 1, #latency do
    local value, count = latency(index)
    print(string.format('lab latency %d %d', value, count))
  end
end
";

fn refuses(request: &GeneratorRequest) -> Option<&'static str> {
    let http2 = (request.version != ClientVersion::Http1).then_some("wrk has only HTTP/1.1");
    let counted = matches!(request.end, LoadEnd::Requests(_))
        .then_some("wrk supports only a duration, not a number of requests");
    super::closed_loop_of_one_url(request).or(http2).or(counted)
}

fn command(program: &Path, request: &GeneratorRequest, folder: &Path) -> Vec<String> {
    let threads = format!("-t{}", request.threads.min(request.connections));
    let timeout = format!("{}s", request.timeout.as_secs().max(1));
    let mut command = vec![
        program.to_string_lossy().into_owned(),
        threads,
        format!("-c{}", request.connections),
        format!("-d{}s", super::whole_seconds(request)),
        "--timeout".to_owned(),
        timeout,
        "-s".to_owned(),
        folder.join("wrk.lua").to_string_lossy().into_owned(),
    ];
    command.extend(super::keep_alive(request).into_iter().flatten());
    command.push(request.url.clone());
    command
}

fn read(_request: &GeneratorRequest, output: &str, _folder: &Path) -> Result<MeasurementOutcome, String> {
    let fact = |name: &str| number_after(output, &format!("lab {name} "));
    let seconds = fact("duration_us").ok_or("wrk printed no `lab` lines")? / 1e6;
    let requests = fact("requests").unwrap_or(0.0) as u64;
    let failed = ["connect", "read", "write", "timeout", "status"]
        .map(|name| (name, fact(&format!("error_{name}")).unwrap_or(0.0) as u64));
    let steps = output.lines().filter_map(|line| {
        let (value, count) = line.strip_prefix("lab latency ")?.split_once(' ')?;
        Some((value.parse().ok()?, count.parse().ok()?))
    });
    let bytes = fact("bytes").unwrap_or(0.0) as u64;
    // wrk counts responses with a bad status as requests, too.
    let whole = requests.saturating_sub(failed[4].1);
    let mut measured = super::measured(seconds, whole, bytes, LatencyHistogram::from_counts(steps));
    measured.errors = super::errors(failed);
    Ok(super::counted(measured, "request", ""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::tests::request;

    #[test]
    fn what_the_script_prints_is_read() {
        let output = "Running 1s test\nlab duration_us 1002000\nlab requests 1000\nlab bytes 310000\n\
                      lab error_connect 0\nlab error_read 2\nlab error_write 0\nlab error_timeout 0\nlab error_status 1\n\
                      lab latency 90 600\nlab latency 400 400\n";
        let read = read(&request(), output, Path::new("/")).expect("figures");
        let measured = read.figures().expect("figures");
        assert_eq!((measured.requests, measured.error_count(), measured.received_bytes), (999, 3, 310_000));
        assert!((measured.seconds - 1.002).abs() < 1e-9);
        assert!(measured.latency.at_quantile_us(0.5).is_some_and(|us| us < 100));
        assert!(super::read(&request(), "unable to connect", Path::new("/")).is_err());
    }
}
