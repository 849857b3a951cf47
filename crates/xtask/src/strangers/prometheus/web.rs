//! Requests over plain HTTP, and queries to Prometheus' API.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::strangers::http;

const DATA_LIMIT: Duration = Duration::from_secs(60);
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

pub(super) fn get(address: SocketAddr, target: &str) -> Result<(u16, String), String> {
    let answer = http::get(address, "vanward.test", target)?;
    let (head, body) =
        answer.split_once("\r\n\r\n").ok_or_else(|| format!("http://{address}{target}: no answer"))?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.ok_or_else(|| format!("http://{address}{target}: {head}"))?, body.to_owned()))
}

#[derive(Clone, Copy)]
pub(super) struct Api(pub(super) SocketAddr);

impl Api {
    /// Returns the member `data` of a response.
    pub(super) fn ask(self, target: &str) -> Result<Value, String> {
        let (status, body) = get(self.0, target)?;
        let answer: Value =
            serde_json::from_str(&body).map_err(|error| format!("{target}: {error}: {body}"))?;
        if status == 200 && answer["status"] == "success" {
            return Ok(answer["data"].clone());
        }
        Err(format!("{target}: {status}: {body}"))
    }

    pub(super) fn query(self, expression: &str) -> Result<Vec<(Value, f64)>, String> {
        let data = self.ask(&format!("/api/v1/query?query={}", encoded(expression)))?;
        let series = data["result"].as_array().cloned().unwrap_or_default();
        let value =
            |one: &Value| one["value"][1].as_str()?.parse::<f64>().ok().filter(|value| !value.is_nan());
        Ok(series.iter().filter_map(|one| Some((one["metric"].clone(), value(one)?))).collect())
    }

    pub(super) fn has(self, expression: &str) -> Result<(), String> {
        until(&format!("a value of {expression}"), || Ok(!self.query(expression)?.is_empty()))
    }

    pub(super) fn firing(self) -> Result<Vec<Value>, String> {
        let alerts = self.ask("/api/v1/alerts")?["alerts"].as_array().cloned().unwrap_or_default();
        Ok(alerts.into_iter().filter(|alert| alert["state"] == "firing").collect())
    }
}

pub(super) fn until(what: &str, is_so: impl Fn() -> Result<bool, String>) -> Result<(), String> {
    let began = Instant::now();
    loop {
        match is_so() {
            Ok(true) => return Ok(()),
            Ok(false) if began.elapsed() > DATA_LIMIT => return Err(format!("there was not {what}")),
            Err(error) if began.elapsed() > DATA_LIMIT => {
                return Err(format!("there was not {what}: {error}"));
            }
            _ => std::thread::sleep(BETWEEN_LOOKS),
        }
    }
}

/// RFC 3986 §2.1: all characters except unreserved ones are encoded.
pub(super) fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_encoded() {
        assert_eq!(encoded("a{b=\"ü\"} > 1"), "a%7Bb%3D%22%C3%BC%22%7D%20%3E%201");
    }
}
