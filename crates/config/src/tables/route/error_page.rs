//! A page of `error_pages`: a file, or a text in the configuration.

use std::path::PathBuf;
use std::sync::Arc;

use ::route::{ErrorPages, PageFor};
use toml::de::DeValue;

use crate::document::reader::{Reader, refuse};
use crate::document::value_error::{ValueError, ValueFault};
use crate::option::form::Form;
use crate::option::kind::{At, Described, Kind, Located, Maybe, Name, quoted};
use crate::option::named_file::{PAGE, Page, Pages};
use crate::option::pairs::{Pair, Pairs, pair};
use crate::option::table::{Inline, Table, Written, key, required};

/// The placeholder in a text for the status.
const STATUS: &str = "{status}";
const MEDIA_TYPE: &str = "a media type such as text/plain";
const EXPECTED: &str =
    "the path of a page such as /etc/vanward/404.html, or a table such as { body = \"error {status}\" }";

#[derive(Debug, Clone, Default, PartialEq)]
struct PageText {
    body: Option<String>,
    content_type: Option<Located<String>>,
}

const TEXT: Inline<PageText> = Inline {
    title: "error_pages",
    example: "{ body = \"error {status}\" }",
    table: &Table {
        options: &[
            required!(
                "body",
                Maybe(Name { expected: "a text" }),
                PageText.body,
                "The text of the page. `{status}` is the status.",
            ),
            key!(
                "content_type",
                Maybe(At(Name { expected: MEDIA_TYPE })),
                PageText.content_type,
                "Content-Type of the text. Default: text/plain.",
            ),
        ],
    },
};

/// The kind of value for error pages by status, of a route and of all routes.
pub(crate) const ERROR_PAGES: Pairs<PageFor, PageKind> = Pairs {
    expected: "files by status such as { 404 = \"404.html\", 5xx = \"error.html\" }",
    name: |text| {
        let fault = || ValueFault::Unknown {
            written: text.to_owned(),
            why: "is no status of an error",
            nearest: None,
        };
        PageFor::parse(text)
            .ok_or_else(|| ValueError { fault: fault(), expected: "404, 4xx, 5xx, or * for all errors" })
    },
    print_name: ToString::to_string,
    kind: PageKind,
};

/// The path of a page, or a table with its text.
pub(crate) struct PageKind;

impl Described for PageKind {
    fn form(&self) -> Form {
        Form::WordsOrTable { expected: EXPECTED, brief: "path or table", table: TEXT.table }
    }
}

impl Kind<Page> for PageKind {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<Page> {
        if !matches!(written.value.get_ref(), DeValue::Table(_)) {
            return PAGE.read(written, reader);
        }
        let PageText { body, content_type } = TEXT.read(written, reader)?.value;
        let content_type = match content_type {
            // RFC 9110 §5.5: the bytes of a field's value.
            Some(Located { value, at })
                if !value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) =>
            {
                refuse(&at, &format!("content_type: {value:?} is no media type"), MEDIA_TYPE, reader);
                return None;
            }
            Some(Located { value, .. }) => value.into(),
            None => "text/plain; charset=utf-8".into(),
        };
        Some(Page { file: PathBuf::new(), content_type, body: Arc::from(body?.into_bytes()) })
    }

    fn print(&self, page: &Page) -> Option<String> {
        if !page.file.as_os_str().is_empty() {
            return PAGE.print(page);
        }
        let body = toml_text::quoted(&String::from_utf8_lossy(&page.body));
        Some(format!("{{ body = {body}, content_type = {} }}", quoted(&page.content_type)))
    }
}

/// Converts parsed error pages. A text with the status becomes one for each status, so that no response has to make it.
pub(crate) fn pages(written: Vec<Pair<PageFor, Page>>) -> Pages {
    let chosen = ErrorPages::new(written.iter().enumerate().map(|(place, page)| (page.name, place)));
    let mut made = Vec::with_capacity(written.len());
    for (place, Pair { name, value, .. }) in written.iter().enumerate() {
        let text = str::from_utf8(&value.body).ok().filter(|text| text.contains(STATUS));
        let Some(text) = text.filter(|_| value.file.as_os_str().is_empty()) else {
            made.push((*name, value.clone()));
            continue;
        };
        for status in name.statuses().filter(|status| chosen.page(*status) == Some(&place)) {
            let body = text.replace(STATUS, &status.to_string()).into_bytes().into();
            made.push((PageFor::Status(status), Page { body, ..value.clone() }));
        }
    }
    ErrorPages::new(made)
}

/// Converts error pages back to parsed options, for printing.
pub(crate) fn written_pages(pages: &Pages) -> Vec<Pair<PageFor, Page>> {
    pages.pages().map(|(scope, page)| pair(scope, page.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_with_the_status_yields_to_pages_for_fewer_statuses() {
        let page = |body: &str| Page {
            file: PathBuf::new(),
            content_type: "text/plain".into(),
            body: body.as_bytes().into(),
        };
        let written = [
            (PageFor::Errors, page("all {status}")),
            (PageFor::ClientErrors, page("client")),
            (PageFor::Status(503), page("{status}, {status}")),
        ];
        let pages = pages(written.into_iter().map(|(scope, page)| pair(scope, page)).collect());
        let text = |status| pages.page(status).map(|page| String::from_utf8_lossy(&page.body).into_owned());
        for (status, expected) in [(404, "client"), (500, "all 500"), (503, "503, 503"), (599, "all 599")] {
            assert_eq!(text(status).as_deref(), Some(expected));
        }
        assert_eq!(text(200), None);
    }
}
