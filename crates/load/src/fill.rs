//! Requests with templates: rendered each time they are sent.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use bytes::Bytes;

use crate::form::RequestForm;
use crate::listed::Listed;
use crate::template::{LoadTemplate, Values};
use crate::url::Url;

#[derive(Debug)]
pub(crate) struct Fill {
    url: LoadTemplate,
    /// HTTP/1.1: the head, up to the fields that depend on the body.
    head: LoadTemplate,
    body: LoadTemplate,
    seed: u64,
    planned: usize,
    sent: AtomicU64,
}

impl Fill {
    /// Parses the templates of a request; `None` if it has none.
    pub(crate) fn new(
        listed: &Listed,
        form: &RequestForm,
        url: &Url<'_>,
        planned: usize,
        seed: u64,
    ) -> Result<Option<Self>, String> {
        if !listed.is_template {
            return Ok(None);
        }
        let parse = |text: &[u8]| LoadTemplate::parse(text).map_err(|(_, message)| message);
        let body =
            if listed.is_literal_body { LoadTemplate::from_text(form.body()) } else { parse(form.body())? };
        let fill = Self {
            url: parse(listed.url.as_bytes())?,
            head: parse(&form.head(url))?,
            body,
            seed,
            planned,
            sent: AtomicU64::new(0),
        };
        let is_constant = fill.head.is_constant() && fill.body.is_constant();
        Ok((!is_constant).then_some(fill))
    }

    fn values(&self) -> Values {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let counter = self.sent.fetch_add(1, Ordering::Relaxed) + 1;
        Values::new(self.seed, self.planned, counter, now.as_nanos() as u64)
    }

    pub(crate) fn render(&self, form: &RequestForm) -> Vec<u8> {
        let (mut values, mut bytes, mut body) = (self.values(), Vec::with_capacity(512), Vec::new());
        self.head.render(&mut values, &mut bytes);
        self.body.render(&mut values, &mut body);
        form.end_head(body.len(), &mut bytes);
        bytes.extend_from_slice(&body);
        bytes
    }

    /// The URL, and the form with its values.
    pub(crate) fn filled(&self, form: &RequestForm) -> (String, RequestForm) {
        let (mut values, mut url, mut body) = (self.values(), Vec::new(), Vec::new());
        self.url.render(&mut values, &mut url);
        let fields = |text: &str, values: &mut Values| {
            let mut out = Vec::with_capacity(text.len());
            // The fields were parsed as templates when the run was prepared.
            if let Ok(template) = LoadTemplate::parse(text.as_bytes()) {
                template.render(values, &mut out);
            }
            String::from_utf8_lossy(&out).into_owned()
        };
        let mut form = form.filled(|text| fields(text, &mut values));
        self.body.render(&mut values, &mut body);
        form.set_body(body);
        (String::from_utf8_lossy(&url).into_owned(), form)
    }

    /// The head of the HTTP/2 request, and its body.
    pub(crate) fn message(&self, form: &RequestForm) -> Result<(::http::Request<()>, Bytes), &'static str> {
        let (url, form) = self.filled(form);
        let head = form.message(&Url::parse(&url)?)?;
        Ok((head, Bytes::from(form.into_body())))
    }
}
