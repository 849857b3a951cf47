//! Composes the text that is signed: a line per covered component, and one with the parameters (RFC 9421 §2.5).

use crate::structured::{
    Bare, Item, Parameters, SignatureMember, dictionary, write_bare, write_item, write_list,
};

/// A request as its client sent it.
#[derive(Debug, Clone)]
pub struct SignedMessage<'m> {
    pub method: &'m [u8],
    /// `http` or `https`.
    pub scheme: &'m str,
    /// The host, and the port if the client sent it.
    pub authority: &'m [u8],
    /// Not empty.
    pub path: &'m [u8],
    /// Without `?`; `None` if the target has no `?`.
    pub query: Option<&'m [u8]>,
    /// The field lines in their order: names and values.
    pub fields: Vec<(&'m [u8], &'m [u8])>,
}

impl SignedMessage<'_> {
    /// RFC 9421 §2.1: joins the values of all lines of a field; `None` if there is no line.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        let lines = self.fields.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name.as_bytes()));
        let mut values = lines.map(|(_, value)| std::str::from_utf8(value.trim_ascii())).peekable();
        values.peek()?;
        let values: Result<Vec<&str>, _> = values.collect();
        Some(values.ok()?.join(", "))
    }

    /// RFC 9421 §2.2.3: in lower case, without the default port of the scheme.
    fn authority(&self) -> Option<String> {
        let authority = std::str::from_utf8(self.authority).ok()?.to_ascii_lowercase();
        let port = if self.scheme == "https" { ":443" } else { ":80" };
        Some(authority.strip_suffix(port).map(str::to_owned).unwrap_or(authority))
    }

    /// `None` if the message lacks the component, or its kind is not supported.
    fn component(&self, name: &str, parameters: &Parameters) -> Option<String> {
        let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(str::to_owned);
        if !name.starts_with('@') {
            return self.field_component(name, parameters);
        }
        if !parameters.is_empty() {
            return None;
        }
        let query = || self.query.map_or(Some(String::new()), |query| Some(format!("?{}", text(query)?)));
        match name {
            "@method" => text(self.method),
            "@scheme" => Some(self.scheme.to_owned()),
            "@authority" => self.authority(),
            "@path" => text(self.path),
            // RFC 9421 §2.2.7: an absent query has the value `?`.
            "@query" => Some(query()?).map(|query| if query.is_empty() { "?".to_owned() } else { query }),
            "@request-target" => Some(text(self.path)? + &query()?),
            "@target-uri" => {
                Some(format!("{}://{}{}{}", self.scheme, self.authority()?, text(self.path)?, query()?))
            }
            _ => None,
        }
    }

    fn field_component(&self, name: &str, parameters: &Parameters) -> Option<String> {
        // RFC 9421 §2.1: names are in lower case.
        if name.is_empty() || name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return None;
        }
        let value = self.field(name)?;
        match parameters.as_slice() {
            [] => Some(value),
            // RFC 9421 §2.1.2: a member of a dictionary.
            [(known, Bare::Text(key))] if known == "key" => {
                let members = dictionary(&value)?;
                let (_, member) = members.iter().find(|(known, _)| known == key)?;
                let mut out = String::new();
                match member {
                    SignatureMember::Item(item) => write_item(item, &mut out),
                    SignatureMember::List(items, parameters) => write_list(items, parameters, &mut out),
                }
                Some(out)
            }
            _ => None,
        }
    }

    /// The text that a signature with these components and parameters signs; `None` if a component is missing, not
    /// supported, or covered twice.
    pub(crate) fn base(&self, components: &[Item], parameters: &Parameters) -> Option<String> {
        let mut base = String::new();
        for (place, item) in components.iter().enumerate() {
            let Bare::Text(name) = &item.bare else { return None };
            if components[..place].contains(item) {
                return None;
            }
            let value = self.component(name, &item.parameters)?;
            // A value with a line break could forge the line of another component.
            if value.contains(['\n', '\r']) {
                return None;
            }
            write_item(item, &mut base);
            base.push_str(": ");
            base.push_str(&value);
            base.push('\n');
        }
        write_bare(&Bare::Text("@signature-params".to_owned()), &mut base);
        base.push_str(": ");
        write_list(components, parameters, &mut base);
        Some(base)
    }
}
