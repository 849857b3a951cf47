//! `vanward certificates`: lists and renews the certificates of the running proxy.

use std::io::Write as _;
use std::process::ExitCode;

use api::certificates::{CertificateSource, CertificateStatus, RenewalOrder, RenewalState, Suggested};

use super::reach::ProxySelection;

/// Lists the certificates of the running proxy: names, issuer, expiry, source, next renewal, and problems.
///
/// Exits with 1 if one has a problem: expired, self-signed in place of an automatic one, or not renewed.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct CertificatesArgs {
    #[command(subcommand)]
    what: Option<CertificatesCommand>,

    #[command(flatten)]
    list: ListedCertificates,
}

#[derive(clap::Subcommand)]
enum CertificatesCommand {
    /// Renews an automatic certificate now
    Renew {
        /// Name, as configured
        name: String,
        /// Revoke the old certificate when the new one is in force, because its key has leaked
        #[arg(long)]
        revoke: bool,
        #[command(flatten)]
        reach: ProxySelection,
    },
}

#[derive(clap::Args)]
struct ListedCertificates {
    /// Print the certificates as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: ProxySelection,
}

const EXAMPLES: &str = "\
Examples:
  vanward certificates
  vanward certificates --json | jq '.[] | select(.days_left < 14)'
  vanward certificates renew www.example.com";

pub(crate) fn run(arguments: &CertificatesArgs) -> ExitCode {
    let done = match &arguments.what {
        None => list(&arguments.list),
        Some(CertificatesCommand::Renew { name, revoke, reach }) => renew(name, *revoke, reach),
    };
    done.unwrap_or_else(|code| code)
}

fn list(ListedCertificates { json, reach }: &ListedCertificates) -> Result<ExitCode, ExitCode> {
    let answer = reach.get("/certificates")?;
    let certificates: Vec<CertificateStatus> = answer.told()?;
    let text = match json {
        true => String::from_utf8_lossy(&answer.body).into_owned(),
        false if certificates.is_empty() => "no listener has a certificate\n".to_owned(),
        false => certificates.iter().map(shown).collect(),
    };
    // A closed pipe means that the reader has seen enough.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    let is_wrong = certificates.iter().any(|certificate| !wrong(certificate).is_empty());
    Ok(if is_wrong { ExitCode::from(super::FAILED) } else { ExitCode::SUCCESS })
}

fn renew(name: &str, revoke: bool, reach: &ProxySelection) -> Result<ExitCode, ExitCode> {
    let order = RenewalOrder { name: name.to_owned(), revoke };
    let RenewalOrder { name, .. } = reach.post("/certificates/renew", &order)?.told()?;
    super::say(format_args!("{name} is being renewed; `vanward certificates` shows the result"));
    Ok(ExitCode::SUCCESS)
}

fn shown(certificate: &CertificateStatus) -> String {
    let CertificateStatus { listener, names, issuer, valid_until, days_left, source, file, renewal, .. } =
        certificate;
    let names = if names.is_empty() { "(no name)".to_owned() } else { names.join(", ") };
    let source = match (source, file) {
        (CertificateSource::File, Some(file)) => format!("file {file}"),
        (CertificateSource::Auto, Some(file)) => format!("auto, {file}"),
        (CertificateSource::StandIn, _) => "self-signed, until an authority issues one".to_owned(),
        (CertificateSource::SelfSigned, _) => "self-signed".to_owned(),
        (CertificateSource::File | CertificateSource::Auto, None) => "file".to_owned(),
    };
    let mut text = format!("{names}\n  listener  {listener}\n  issuer    {issuer}\n");
    text += &format!("  until     {valid_until}, {}\n  source    {source}\n", left(*days_left));
    if let Some(RenewalState { next, suggested, elsewhere, .. }) = renewal {
        text += &match elsewhere {
            true => "  renewal   another process that shares the folder asks for it\n".to_owned(),
            false => format!("  renewal   {next}\n"),
        };
        if let Some(Suggested { window, why, .. }) = suggested {
            let why = why.as_ref().map(|why| format!("; see {why}")).unwrap_or_default();
            text += &format!("  window    {window}, suggested by the authority{why}\n");
        }
    }
    for wrong in wrong(certificate) {
        text += &format!("  wrong     {wrong}\n");
    }
    text
}

fn left(days: i64) -> String {
    match days {
        1 => "1 day left".to_owned(),
        days if days < 0 => "expired".to_owned(),
        days => format!("{days} days left"),
    }
}

fn wrong(certificate: &CertificateStatus) -> Vec<String> {
    let mut wrong = certificate.problems.clone();
    if let Some(RenewalState { failures: failures @ 1.., last_failure: Some(why), .. }) = &certificate.renewal
    {
        let times = if *failures == 1 { "once".to_owned() } else { format!("{failures} times") };
        wrong.push(format!("not issued, tried {times}: {why}"));
    } else if certificate.source == CertificateSource::StandIn {
        wrong.push("not issued yet".to_owned());
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_shown_with_its_problems() {
        let status = CertificateStatus {
            listener: "web".to_owned(),
            names: vec!["www.example.com".to_owned()],
            issuer: "C=US, O=Let's Encrypt, CN=E5".to_owned(),
            serial: "04".to_owned(),
            valid_from_seconds: 0,
            valid_until_seconds: 86_400,
            valid_until: "1970-01-02 00:00:00 UTC".to_owned(),
            days_left: 1,
            source: CertificateSource::Auto,
            file: Some("/acme/www.example.com/fullchain.pem".to_owned()),
            renewal: Some(RenewalState {
                name: "www.example.com".to_owned(),
                next_seconds: 60,
                next: "1970-01-01 00:01:00 UTC".to_owned(),
                suggested: Some(Suggested {
                    from_seconds: 30,
                    until_seconds: 90,
                    window: "1970-01-01 00:00:30 UTC to 1970-01-01 00:01:30 UTC".to_owned(),
                    why: Some("https://ca.example/why".to_owned()),
                }),
                elsewhere: false,
                failures: 2,
                last_failure_seconds: Some(1),
                last_failure: Some("no".to_owned()),
            }),
            problems: Vec::new(),
        };
        let expected = "\
www.example.com
  listener  web
  issuer    C=US, O=Let's Encrypt, CN=E5
  until     1970-01-02 00:00:00 UTC, 1 day left
  source    auto, /acme/www.example.com/fullchain.pem
  renewal   1970-01-01 00:01:00 UTC
  window    1970-01-01 00:00:30 UTC to 1970-01-01 00:01:30 UTC, suggested by the authority; see https://ca.example/why
  wrong     not issued, tried 2 times: no
";
        assert_eq!(shown(&status), expected);
        let stand_in = CertificateStatus {
            source: CertificateSource::StandIn,
            file: None,
            renewal: None,
            ..status.clone()
        };
        assert_eq!(wrong(&stand_in), ["not issued yet"]);
        let mut elsewhere = status.clone();
        if let Some(renewal) = &mut elsewhere.renewal {
            renewal.elsewhere = true;
        }
        assert!(shown(&elsewhere).contains("  renewal   another process that shares the folder"));
        let expired = CertificateStatus { days_left: -1, renewal: None, ..status };
        assert!(shown(&expired).contains("UTC, expired\n"));
    }
}
