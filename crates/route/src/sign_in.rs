//! Where clients that have not signed in are sent, with the URL that they wanted.

use crate::answer::has_empty_host;
use crate::exchange::Exchange;
use crate::fill::write_parameter;
use crate::request::{Fields, parameters};
use crate::rewrite::NotAHost;
use crate::template::{Place, Stage, Template, TemplateError, TemplateFault};

/// The parameter with the URL that the client wanted, as sign-in pages of nginx's users know it.
const RETURN: &[u8] = b"rd";

/// The URL of a sign-in page, such as `https://$host/oauth2/start`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignIn {
    page: Template,
    /// Whether the template has the parameter `rd` itself.
    returns: bool,
}

impl SignIn {
    /// Parses the URL. Without a parameter `rd` of its own it gets one, with the URL that the client wanted.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(page: &str) -> Result<Self, TemplateError> {
        if let Some(offset) = page.find('#') {
            // What follows would be a part of the fragment.
            return Err(TemplateError { offset, fault: TemplateFault::Character('#') });
        }
        let query = page.split_once('?').map_or("", |(_, query)| query);
        let returns = parameters(query.as_bytes()).any(|(name, _)| name == RETURN);
        Ok(Self { page: Template::new(page, Place::Location, Stage::Route, None)?, returns })
    }

    /// The URL, as it was written.
    pub fn as_str(&self) -> &str {
        self.page.as_str()
    }

    /// Appends the value of Location for a client that wanted `url`.
    ///
    /// # Errors
    /// As [`crate::Redirect::location`]. Discard what was appended.
    pub fn location<F: Fields + ?Sized>(
        &self,
        exchange: &Exchange<'_, F>,
        url: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), NotAHost> {
        let start = out.len();
        self.page.fill(exchange, out);
        if !self.returns {
            let written = &out[start..];
            let before: &[u8] = match written.last() {
                Some(b'?' | b'&') => b"",
                _ if self.page.has_query() => b"&",
                _ => b"?",
            };
            out.extend_from_slice(before);
            out.extend_from_slice(RETURN);
            out.push(b'=');
            write_parameter(url, out);
        }
        if has_empty_host(&out[start..]) { Err(NotAHost) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{NoFields, Request};

    #[test]
    fn clients_come_back_to_what_they_wanted() {
        let request = Request {
            listener: 0,
            host: b"shop.example",
            path: b"/a b",
            query: Some(b"x=1&y=%26"),
            method: b"GET",
            client: [192, 0, 2, 1].into(),
            fields: &NoFields,
        };
        let exchange = Exchange::of(request, "https");
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
            let location = SignIn::new(page).unwrap().location(
                &exchange,
                b"https://shop.example:8443/a?x=1&y=%26",
                &mut out,
            );
            assert_eq!(location, Ok(()));
            assert_eq!(String::from_utf8(out).unwrap(), format!("Location: {expected}"), "{page}");
        }
        let nowhere = Exchange { host: b"", ..exchange };
        assert_eq!(
            SignIn::new("https://$host/").unwrap().location(&nowhere, b"", &mut Vec::new()),
            Err(NotAHost)
        );
    }

    #[test]
    fn what_leads_nowhere_is_refused() {
        for (page, offset) in
            [("login", 0), ("//login.example", 0), ("/app#/login", 4), ("https://x$arg.y/", 15)]
        {
            assert_eq!(SignIn::new(page).map_err(|error| error.offset), Err(offset), "{page}");
        }
    }
}
