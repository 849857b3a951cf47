//! Reports by programs that follow a source of servers for the proxy, such as `vanward docker`.

use std::sync::Weak;

use api::status::SourceReport;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::{AdminOrder, ending, json, refused};
use crate::change::Control;

const NAME_MAX: usize = 40;

pub(super) async fn report(
    State(control): State<Weak<Control>>,
    AdminOrder(report): AdminOrder<SourceReport>,
) -> Response {
    let Some(control) = control.upgrade() else { return ending() };
    let SourceReport { source, failure } = &report;
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if source.is_empty() || source.len() > NAME_MAX || !source.bytes().all(is_part) {
        let error = format!(
            "{source:?} is not the name of a source: write letters, digits and hyphens, such as docker"
        );
        return refused(StatusCode::BAD_REQUEST, &error);
    }
    if !control.metrics.sources.note(source, failure.clone()) {
        return refused(StatusCode::BAD_REQUEST, "too many sources were reported already");
    }
    json(StatusCode::OK, &report)
}
