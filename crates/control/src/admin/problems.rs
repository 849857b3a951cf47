//! Problems that operators should see at once: exhausted limits, expiring certificates, losses of the log and of
//! the disk cache, failing sources. Servers have their own states.

use std::sync::Weak;
use std::time::Duration;

use api::certificates::{CertificateSource, CertificateStatus};
use telemetry::message;

use super::certificates;
use super::traffic::TrafficTotals;
use crate::acme;
use crate::change::Control;
use crate::tick::tick;

/// A certificate from a file is a problem this number of days before it expires.
const DAYS: i64 = 14;

const LOOK: Duration = Duration::from_secs(60);

/// Returns the problems, one sentence each.
pub(super) fn read(control: &Control, traffic: &TrafficTotals) -> Vec<String> {
    let plan = control.plan();
    let mut problems = Vec::new();
    if control.pressure.is_crowded() {
        let limit = plan.config.limits.connections;
        let refused = traffic.refused();
        problems.push(format!(
            "clients are refused: limits.connections allows {limit} connections; {refused} refused in the last minute"
        ));
    }
    if control.pressure.is_on() {
        problems.push("memory is short: most requests are rejected".to_owned());
    }
    problems.extend(control.shared.problem());
    problems.extend(of_certificates(control));
    problems.extend(control.metrics.sources.problems(&plan));
    if let Some(lines @ 1..) = control.metrics.log_lines_dropped() {
        problems.push(of_log(lines, &control.metrics.log_troubles()));
    }
    let disk = plan.cache.as_ref().and_then(|cache| cache.report().disk);
    if let Some(disk) = disk.filter(|disk| !disk.is_on) {
        problems.push(format!("the cache does not use its disk: {}", disk.state));
    }
    problems
}

/// Describes lines that the access log has lost since the start, and what blocks it now.
fn of_log(lines: u64, troubles: &[String]) -> String {
    let lost = match lines {
        1 => "1 line of the access log is lost".to_owned(),
        lines => format!("{lines} lines of the access log are lost"),
    };
    if troubles.is_empty() {
        lost + "; lines are written again"
    } else {
        format!("{lost}: {}", troubles.join("; "))
    }
}

fn of_certificates(control: &Control) -> Vec<String> {
    certificates::statuses(control, acme::now()).iter().filter_map(of_certificate).collect()
}

/// Warns about expiring certificates once a day, until the proxy ends. Failed renewals have their own messages.
pub(crate) async fn watch(control: Weak<Control>) {
    let mut told = Vec::new();
    loop {
        let Some(upgraded) = control.upgrade() else { return };
        let near = of_certificates(&upgraded);
        drop(upgraded);
        near.iter().filter(|problem| !told.contains(*problem)).for_each(|problem| message::warn(problem));
        told = near;
        tick(LOOK).await;
    }
}

fn of_certificate(status: &CertificateStatus) -> Option<String> {
    let CertificateStatus { names, days_left, source, renewal, .. } = status;
    let name = names.first().map_or("no name", String::as_str);
    let failure = renewal.as_ref().and_then(|renewal| renewal.last_failure.as_deref());
    let ends = match days_left {
        ..0 => "has ended".to_owned(),
        0 => "ends within a day".to_owned(),
        1 => "ends in 1 day".to_owned(),
        days => format!("ends in {days} days"),
    };
    match (source, failure) {
        (CertificateSource::File, _) if *days_left < DAYS => {
            Some(format!("the certificate of {name} {ends}"))
        }
        (CertificateSource::Auto, Some(failure)) => {
            Some(format!("the certificate of {name} {ends} and was not renewed: {failure}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use api::certificates::RenewalState;

    use super::*;

    #[test]
    fn lost_lines_are_reported_with_the_current_failures_of_the_log() {
        let full = "/var/log/access.log: No space left on device (os error 28)".to_owned();
        let of = |lines, troubles: &[String]| of_log(lines, troubles);
        assert_eq!(
            of(111, std::slice::from_ref(&full)),
            "111 lines of the access log are lost: /var/log/access.log: No space left on device (os error 28)"
        );
        assert_eq!(of(1, &[]), "1 line of the access log is lost; lines are written again");
    }

    #[test]
    fn certificates_of_files_near_their_end_and_failed_renewals_are_problems() {
        let status = |source, days_left, last_failure: Option<&str>| CertificateStatus {
            listener: "web".to_owned(),
            names: vec!["a.example".to_owned(), "b.example".to_owned()],
            issuer: String::new(),
            serial: String::new(),
            valid_from_seconds: 0,
            valid_until_seconds: 0,
            valid_until: String::new(),
            days_left,
            source,
            file: None,
            renewal: last_failure.map(|failure| RenewalState {
                name: "a.example".to_owned(),
                next_seconds: 0,
                next: String::new(),
                suggested: None,
                elsewhere: false,
                failures: 1,
                last_failure_seconds: None,
                last_failure: Some(failure.to_owned()),
            }),
            problems: Vec::new(),
        };
        for (source, days_left, failure, expected) in [
            (CertificateSource::File, 14, None, None),
            (CertificateSource::File, 13, None, Some("the certificate of a.example ends in 13 days")),
            (CertificateSource::File, 1, None, Some("the certificate of a.example ends in 1 day")),
            (CertificateSource::File, 0, None, Some("the certificate of a.example ends within a day")),
            (CertificateSource::File, -1, None, Some("the certificate of a.example has ended")),
            // A short-lived certificate always expires soon.
            (CertificateSource::Auto, 3, None, None),
            (
                CertificateSource::Auto,
                30,
                Some("refused"),
                Some("the certificate of a.example ends in 30 days and was not renewed: refused"),
            ),
            (CertificateSource::SelfSigned, 0, None, None),
        ] {
            assert_eq!(of_certificate(&status(source, days_left, failure)).as_deref(), expected);
        }
    }
}
