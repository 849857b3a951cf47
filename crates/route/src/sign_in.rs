//! Redirects clients without a session to a sign-in page, with the URL that they requested.

use crate::answer::has_empty_host;
use crate::fill::write_parameter;
use crate::named_values::NamedValues;
use crate::request::{FieldLookup, parameters};
use crate::rewrite::NotAHost;
use crate::template::{RouteTemplate, TemplateError, TemplateFault, TemplateStage, TemplateUse};
use crate::variable_values::VariableValues;

/// The usual parameter with the requested URL, a convention of nginx users' sign-in pages.
pub const RETURN_PARAMETER: &str = "rd";

/// The URL of a sign-in page, such as `https://$host/oauth2/start`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignIn {
    page: RouteTemplate,
    /// The parameter to add; `None` if the template contains it, or none is wanted.
    added: Option<Box<str>>,
}

impl SignIn {
    /// Parses the URL. If it lacks the named parameter, one with the requested URL is added.
    ///
    /// # Errors
    /// The problem with the URL.
    pub fn new(page: &str, parameter: Option<&str>, values: &NamedValues) -> Result<Self, TemplateError> {
        if let Some(offset) = page.find('#') {
            // Added parameters would become a part of the fragment.
            return Err(TemplateError { offset, fault: TemplateFault::Character('#') });
        }
        let query = page.split_once('?').map_or("", |(_, query)| query);
        let has = |wanted: &str| parameters(query.as_bytes()).any(|(name, _)| name == wanted.as_bytes());
        Ok(Self {
            page: RouteTemplate::new(page, TemplateUse::Location, TemplateStage::Route, values)?,
            added: parameter.filter(|wanted| !has(wanted)).map(Box::from),
        })
    }

    /// The URL as configured.
    pub fn as_str(&self) -> &str {
        self.page.as_str()
    }

    /// Appends the value of Location for a client that requested `url`.
    ///
    /// # Errors
    /// As [`crate::Redirect::location`]. Discard the appended bytes.
    pub fn location<F: FieldLookup + ?Sized>(
        &self,
        values: &VariableValues<'_, F>,
        url: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), NotAHost> {
        let start = out.len();
        self.page.fill(values, out);
        if let Some(parameter) = &self.added {
            let written = &out[start..];
            let before: &[u8] = match written.last() {
                Some(b'?' | b'&') => b"",
                _ if self.page.has_query() => b"&",
                _ => b"?",
            };
            out.extend_from_slice(before);
            out.extend_from_slice(parameter.as_bytes());
            out.push(b'=');
            write_parameter(url, out);
        }
        if has_empty_host(&out[start..]) { Err(NotAHost) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{NoFields, RequestParts};

    #[test]
    fn clients_return_to_the_requested_url() {
        let request = RequestParts {
            listener: 0,
            host: b"shop.example",
            path: b"/a b",
            query: Some(b"x=1&y=%26"),
            method: b"GET",
            client: [192, 0, 2, 1].into(),
            fields: &NoFields,
            conditions: &crate::NoConditions,
        };
        let values = VariableValues::from_request(request, "https");
        let back = "https%3A%2F%2Fshop.example%3A8443%2Fa%3Fx%3D1%26y%3D%2526";
        for (page, expected) in [
            ("https://login.example/start", format!("https://login.example/start?rd={back}")),
            ("https://$host/start", format!("https://shop.example/start?rd={back}")),
            ("/start?", format!("/start?rd={back}")),
            ("/start?a=b", format!("/start?a=b&rd={back}")),
            ("/start?a=b&", format!("/start?a=b&rd={back}")),
            ("/start?crd=b", format!("/start?crd=b&rd={back}")),
            ("/start?rd=$path_and_query", "/start?rd=/a%20b%3Fx%3D1%26y%3D%2526".to_owned()),
            ("/start?rd=$scheme://$host$path", "/start?rd=https://shop.example/a%20b".to_owned()),
        ] {
            let mut out = b"Location: ".to_vec();
            let location = SignIn::new(page, Some(RETURN_PARAMETER), NamedValues::NONE).unwrap().location(
                &values,
                b"https://shop.example:8443/a?x=1&y=%26",
                &mut out,
            );
            assert_eq!(location, Ok(()));
            assert_eq!(String::from_utf8(out).unwrap(), format!("Location: {expected}"), "{page}");
        }
        for (page, parameter, expected) in [
            ("/start?a=$path", Some("next"), format!("/start?a=/a%20b&next={back}")),
            ("/start?next=$path", Some("next"), "/start?next=/a%20b".to_owned()),
            ("/start?rd=1", Some("next"), format!("/start?rd=1&next={back}")),
            ("https://$host/start?url=$path_and_query", None, {
                "https://shop.example/start?url=/a%20b%3Fx%3D1%26y%3D%2526".to_owned()
            }),
            ("/start", None, "/start".to_owned()),
        ] {
            let mut out = Vec::new();
            let page = SignIn::new(page, parameter, NamedValues::NONE).unwrap();
            assert_eq!(page.location(&values, b"https://shop.example:8443/a?x=1&y=%26", &mut out), Ok(()));
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
        let nowhere = VariableValues { host: b"", ..values };
        assert_eq!(
            SignIn::new("https://$host/", None, NamedValues::NONE).unwrap().location(
                &nowhere,
                b"",
                &mut Vec::new()
            ),
            Err(NotAHost)
        );
    }

    #[test]
    fn invalid_sign_in_pages_are_refused() {
        for (page, offset) in
            [("login", 0), ("//login.example", 0), ("/app#/login", 4), ("https://x$arg.y/", 15)]
        {
            assert_eq!(
                SignIn::new(page, None, NamedValues::NONE).map_err(|error| error.offset),
                Err(offset),
                "{page}"
            );
        }
    }
}
