//! The admin API of certificates. It never shows keys.

use std::sync::Weak;

use api::certificates::{CertificateSource, CertificateStatus, RenewalOrder, RenewalState, Suggested};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use telemetry::message;
use tls::{CertificateInUse, InventorySource};

use super::{AdminOrder, ending, json, refused};
use crate::acme;
use crate::change::Control;

const DAY: i64 = 24 * 3600;

/// The certificates of all listeners, in the order of the configuration.
pub(crate) fn statuses(control: &Control, now: i64) -> Vec<CertificateStatus> {
    let plan = control.plan();
    let listeners = plan.config.listeners.iter().zip(&plan.listeners);
    let of_listener = |(configured, listener): (&config::Listener, &std::sync::Arc<_>)| {
        let listener: &proxy::context::plan::PlanListener = listener;
        let certificates = listener.tls.iter().flat_map(|tls| tls.certificates());
        let name = configured.name.clone();
        certificates.map(move |certificate| (name.clone(), certificate)).collect::<Vec<_>>()
    };
    let all = listeners.flat_map(of_listener);
    all.map(|(listener, certificate)| status(listener, certificate, control, now)).collect()
}

fn status(listener: String, certificate: CertificateInUse, control: &Control, now: i64) -> CertificateStatus {
    let CertificateInUse { names, issuer, serial, from, until, source, problems } = certificate;
    let (kind, file, name) = match source {
        InventorySource::File(path) => (CertificateSource::File, Some(path), None),
        InventorySource::Automatic(name, path) => (CertificateSource::Auto, Some(path), Some(name)),
        InventorySource::StandIn(name) => (CertificateSource::StandIn, None, Some(name)),
        InventorySource::SelfSigned => (CertificateSource::SelfSigned, None, None),
    };
    CertificateStatus {
        listener,
        names,
        issuer,
        serial,
        valid_from_seconds: from,
        valid_until_seconds: until,
        valid_until: tls::written_time(until),
        days_left: (until - now).div_euclid(DAY),
        source: kind,
        file: file.map(|file| file.display().to_string()),
        renewal: name.and_then(|name| renewal(name, control)),
        problems: problems.iter().map(|problem| problem.fault.to_string()).collect(),
    }
}

fn renewal(name: String, control: &Control) -> Option<RenewalState> {
    let acme::NameState { next_at, suggested, is_elsewhere, failures, last_failure, .. } =
        control.acme.state(&name)?;
    let (last_failure_seconds, last_failure) = last_failure.unzip();
    Some(RenewalState {
        name,
        next_seconds: next_at,
        next: tls::written_time(next_at),
        suggested: suggested.map(told),
        elsewhere: is_elsewhere,
        failures,
        last_failure_seconds,
        last_failure,
    })
}

fn told(acme::Suggested { window, why }: acme::Suggested) -> Suggested {
    let (from_seconds, until_seconds) = (window.start, window.end);
    let window = format!("{} to {}", tls::written_time(from_seconds), tls::written_time(until_seconds));
    Suggested { from_seconds, until_seconds, window, why }
}

pub(super) async fn list(State(control): State<Weak<Control>>) -> Response {
    match control.upgrade() {
        Some(control) => json(StatusCode::OK, &statuses(&control, acme::now())),
        None => ending(),
    }
}

pub(super) async fn renew(
    State(control): State<Weak<Control>>,
    AdminOrder(RenewalOrder { name, revoke }): AdminOrder<RenewalOrder>,
) -> Response {
    let Some(control) = control.upgrade() else { return ending() };
    if !control.acme.renew(&name, revoke) {
        let error = format!("{name} is not the name of an automatic certificate");
        return refused(StatusCode::NOT_FOUND, &error);
    }
    message::info(&format!("certificate of {name}: to be renewed now, by the admin API"));
    json(StatusCode::OK, &RenewalOrder { name, revoke })
}
