//! A request as it is written: its mistakes, and its conversion to a request of the list.

use mistake::nearest;

use super::{ListReading, Placed};
use crate::form;
use crate::listed::{Check, Listed, WEIGHT_MAX};
use crate::template::LoadTemplate;
use crate::url::Url;

/// Suggestions for a misspelt method. Unknown methods are sent unchanged.
const METHODS: [&str; 19] = [
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "DELETE",
    "PATCH",
    "OPTIONS",
    "TRACE",
    "QUERY",
    "PURGE",
    "PROPFIND",
    "PROPPATCH",
    "MKCOL",
    "COPY",
    "MOVE",
    "LOCK",
    "UNLOCK",
    "REPORT",
    "SEARCH",
];

#[derive(Debug, Clone)]
pub(super) struct RequestDraft {
    /// The part of the text that stands for the whole request.
    pub(super) at: std::ops::Range<usize>,
    pub(super) name: Option<String>,
    pub(super) method: Option<Placed<String>>,
    /// An absolute URL or a path.
    pub(super) url: Option<Placed<String>>,
    pub(super) headers: Vec<Placed<(String, String)>>,
    pub(super) body: Option<Vec<u8>>,
    /// Whether `{{ }}` are values.
    pub(super) is_template: bool,
    /// Whether the body is sent unchanged, even if it contains `{{`.
    pub(super) is_literal_body: bool,
    pub(super) weight: Option<Placed<i64>>,
    pub(super) check: Check,
}

impl RequestDraft {
    pub(super) fn new(at: std::ops::Range<usize>) -> Self {
        Self {
            at,
            name: None,
            method: None,
            url: None,
            headers: Vec::new(),
            body: None,
            is_template: true,
            is_literal_body: false,
            weight: None,
            check: Check::default(),
        }
    }

    /// Adds the request to the list, or its mistakes.
    pub(super) fn end(mut self, reading: &mut ListReading<'_>) {
        let known = reading.mistakes.len();
        if self.is_template {
            self.check_templates(reading);
        }
        if reading.mistakes.len() > known {
            return;
        }
        let method_default = if self.body.is_some() { "POST" } else { "GET" };
        let method = match &self.method {
            None => method_default.to_owned(),
            Some(method) => {
                check_method(method, reading);
                method.value.clone()
            }
        };
        let url = self.url(reading);
        let headers = self.headers.iter().map(|field| {
            let (name, value) = &field.value;
            if let Err(reason) = form::check_field(name, value) {
                reading.wrong(&field.at, format!("header {name:?}: {reason}"));
            }
            format!("{name}: {value}")
        });
        let headers: Vec<String> = headers.collect();
        let weight = self.weight(reading);
        if reading.mistakes.len() > known {
            return;
        }
        let listed = Listed {
            name: self.name,
            method,
            url: url.unwrap_or_default(),
            headers,
            body: self.body.unwrap_or_default(),
            weight,
            check: self.check,
            is_template: self.is_template,
            is_literal_body: self.is_literal_body,
            place: reading.place(self.at.start),
        };
        reading.add(listed, &self.at);
    }

    /// Reports mistakes in values, and removes the spaces from values in the URL.
    fn check_templates(&mut self, reading: &mut ListReading<'_>) {
        if let Some(url) = &mut self.url {
            match LoadTemplate::parse(url.value.as_bytes()) {
                Ok(template) => url.value = template.canonical(),
                Err((_, message)) => reading.wrong(&url.at, message),
            }
            if !url.value.starts_with('/') && authority(&url.value).contains("{{") {
                reading.wrong(&url.at, "the host of a URL cannot contain values; write them after the host");
            }
        }
        for field in &self.headers {
            if let Err((_, message)) = LoadTemplate::parse(field.value.1.as_bytes()) {
                reading.wrong(&field.at, message);
            }
        }
        let body = self.body.as_ref().filter(|_| !self.is_literal_body);
        if let Some(Err((_, message))) = body.map(|body| LoadTemplate::parse(body)) {
            let remedy = "; if {{ is meant literally, set template = false in this request";
            let remedy = if reading.source.file.ends_with(".toml") { remedy } else { "" };
            reading.wrong(&self.at, format!("the body: {message}{remedy}"));
        }
    }

    fn url(&self, reading: &mut ListReading<'_>) -> Option<String> {
        let Some(url) = &self.url else {
            reading
                .wrong(&self.at, "the request has no URL; expected path = \"/…\" or url = \"http://HOST/…\"");
            return None;
        };
        let absolute = match (url.value.starts_with('/'), reading.source.base) {
            (false, _) => url.value.clone(),
            (true, Some(base)) => format!("{}{}", authority(base), url.value),
            (true, None) => {
                let message = "a path needs a host; name one on the command line, http://HOST[:PORT]/";
                reading.wrong(&url.at, message);
                return None;
            }
        };
        match Url::parse(&absolute) {
            Ok(_) => Some(absolute),
            Err(reason) => {
                reading.wrong(&url.at, format!("URL {:?}: {reason}", crate::url::shortened(&url.value)));
                None
            }
        }
    }

    fn weight(&self, reading: &mut ListReading<'_>) -> u32 {
        let Some(weight) = &self.weight else { return 1 };
        match u32::try_from(weight.value) {
            Ok(value) if value <= WEIGHT_MAX => value,
            _ => {
                reading
                    .wrong(&weight.at, format!("the weight must be a whole number from 0 to {WEIGHT_MAX}"));
                1
            }
        }
    }
}

fn check_method(method: &Placed<String>, reading: &mut ListReading<'_>) {
    let written = method.value.as_str();
    let message = match form::check_method(written) {
        Err(reason) => format!("method {written:?}: {reason}"),
        Ok(()) if METHODS.contains(&written) => return,
        Ok(()) => match nearest(written, METHODS) {
            Some(_) => format!("unknown method {written:?}"),
            None => return,
        },
    };
    let mistake = reading.places.mistake(&method.at, message);
    reading.report(mistake.meaning(nearest(written, METHODS).map(str::to_owned)));
}

pub(super) fn authority(url: &str) -> &str {
    let host_at = url.find("://").map_or(0, |at| at + 3);
    url[host_at..].find(['/', '?', '#']).map_or(url, |length| &url[..host_at + length])
}
