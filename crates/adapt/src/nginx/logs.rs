//! The access log: its target, and its format.

use logline::{LineFormat, Needs};

use super::scope::BlockScope;
use super::syntax::Directive;
use super::templates::{TemplatePart, written};
use super::values::{field_name, split_name};
use super::variables::SetVariables;
use super::{NginxAdapter, from};
use crate::RemarkKind;

/// Variables of nginx, and the fields of logs with the same meaning.
const FIELDS: [(&str, &str); 38] = [
    ("remote_addr", "client"),
    ("realip_remote_addr", "peer"),
    ("remote_user", "user"),
    ("time_local", "time.common"),
    ("time_iso8601", "time"),
    ("msec", "time.unix"),
    ("request", "request"),
    ("status", "status"),
    ("body_bytes_sent", "body_bytes_sent"),
    ("bytes_sent", "bytes_sent"),
    ("request_length", "bytes_received"),
    ("request_time", "duration_s"),
    ("http_referer", "referer"),
    ("http_user_agent", "user_agent"),
    ("host", "host"),
    ("http_host", "host"),
    ("server_name", "host"),
    ("request_method", "method"),
    ("request_uri", "target"),
    ("uri", "path"),
    ("document_uri", "path"),
    ("args", "query"),
    ("query_string", "query"),
    ("scheme", "scheme"),
    ("server_protocol", "protocol"),
    ("request_id", "request_id"),
    ("connection_requests", "connection_request"),
    ("ssl_protocol", "tls_version"),
    ("ssl_cipher", "tls_cipher"),
    ("ssl_server_name", "tls_sni"),
    ("ssl_client_s_dn", "tls_subject"),
    ("ssl_client_i_dn", "tls_issuer"),
    ("ssl_client_serial", "tls_serial"),
    ("upstream_addr", "server"),
    ("upstream_response_time", "upstream_total_s"),
    ("upstream_connect_time", "upstream_connect_s"),
    ("upstream_header_time", "upstream_first_byte_s"),
    ("upstream_cache_status", "cache"),
];

impl<'s> NginxAdapter<'s> {
    pub(super) fn log(&mut self, scope: &BlockScope<'s>) {
        let logs = scope.all("access_log");
        let Some(log) = logs.first() else { return };
        for more in &logs[1..] {
            let instead = "write a second table: [[log]]";
            self.note(more, RemarkKind::Refused, "only the first log was taken over", instead);
        }
        self.log_to(log, scope);
    }

    /// Translates an access log with a target.
    pub(super) fn log_to(&mut self, log: &Directive, scope: &BlockScope<'s>) {
        let target = match log.word(0) {
            "off" => return self.note(log, RemarkKind::NeedsNothing, "there is no log without [log]", ""),
            "/dev/stdout" => "stdout",
            target => target,
        };
        if target.starts_with("syslog:") || target.contains('$') {
            let instead = "see docs/logging.md for `target` of [log]";
            return self.note(log, RemarkKind::Refused, "this target is written in another way", instead);
        }
        let target = if target == "stdout" || target.contains('/') {
            target.to_owned()
        } else {
            format!("./{target}")
        };
        if !matches!(target.as_str(), "stdout") && !target.starts_with('/') {
            let why = "the path is relative to the working directory here, not to nginx's prefix";
            self.note(log, RemarkKind::Differs, why, "write the absolute path");
        }
        self.once("[log]", "target", target, log);
        let name = log.word(1);
        let (format, origins) =
            match scope.outer("log_format").into_iter().find(|format| format.word(0) == name) {
                _ if matches!(name, "" | "combined") || name.contains('=') => {
                    ("combined".to_owned(), from(log))
                }
                Some(format) => match self.log_format(format) {
                    Ok(text) => (text, [from(log), from(format)].concat()),
                    Err(why) => {
                        let why = format!("the log has the Combined Log Format, because {why}");
                        let instead = "`format` of [log] takes other forms: docs/logging.md";
                        self.note(format, RemarkKind::Differs, &why, instead);
                        ("combined".to_owned(), from(log))
                    }
                },
                None => {
                    let why = "the log has the Combined Log Format, because its own is not in the file";
                    self.note(
                        log,
                        RemarkKind::Differs,
                        why,
                        "`format` of [log] takes other forms: docs/logging.md",
                    );
                    ("combined".to_owned(), from(log))
                }
            };
        let table = self.sheet.table("[log]");
        if table.get("format").is_none() {
            table.set("format", format, origins);
        }
    }

    /// Translates `log_format`.
    ///
    /// # Errors
    /// Why that is not possible.
    fn log_format(&mut self, format: &Directive) -> Result<String, String> {
        let words = format.words.iter().skip(1).filter(|word| !word.starts_with("escape="));
        let text: String = words.map(String::as_str).collect();
        let mut parts = Vec::new();
        self.log_parts(&text, &mut parts)?;
        let made = written(&parts);
        let is_known = |name: &str| {
            parts.iter().any(|part| matches!(part, TemplatePart::Variable(known) if known == name))
        };
        let value = |name: &str| is_known(name).then_some(Needs::NONE);
        match LineFormat::with_values(&made, &[], &value) {
            Ok(_) => Ok(made),
            Err(error) => Err(error.to_string()),
        }
    }

    fn log_parts(&mut self, text: &str, parts: &mut Vec<TemplatePart>) -> Result<(), String> {
        let mut rest = text;
        while let Some(dollar) = rest.find('$') {
            parts.push(TemplatePart::Text(rest[..dollar].to_owned()));
            let (name, behind) = split_name(&rest[dollar + 1..]);
            rest = behind;
            let part = match field(name) {
                Some(field) if self.declarations.find(name).is_none() => TemplatePart::Variable(field),
                _ => self.log_value(name)?,
            };
            parts.push(part);
        }
        parts.push(TemplatePart::Text(rest.to_owned()));
        Ok(())
    }

    /// A variable that the configuration declares.
    fn log_value(&mut self, name: &str) -> Result<TemplatePart, String> {
        let resolved = self.declarations.text(&format!("${{{name}}}"), &SetVariables::new())?;
        if let Some(text) = resolved.value.as_constant() {
            return Ok(TemplatePart::Text(text.to_owned()));
        }
        match resolved.value.as_fact().and_then(field) {
            Some(field) => Ok(TemplatePart::Variable(field)),
            None => Ok(TemplatePart::Variable(self.known_value(name, &resolved, None)?)),
        }
    }
}

/// The field of logs for a variable of nginx.
fn field(name: &str) -> Option<String> {
    if let Some((_, field)) = FIELDS.iter().find(|(known, _)| *known == name) {
        return Some((*field).to_owned());
    }
    let of = |prefix: &str| name.strip_prefix(prefix).filter(|rest| !rest.is_empty());
    let header = of("http_").map(|rest| format!("header.{}", field_name(rest)));
    let response = || of("sent_http_").map(|rest| format!("response_header.{}", field_name(rest)));
    let cookie = || of("cookie_").map(|cookie| format!("cookie.{cookie}"));
    header.or_else(response).or_else(cookie).or_else(|| of("arg_").map(|argument| format!("arg.{argument}")))
}
