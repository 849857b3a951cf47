//! The flags of `vanward check --route`.

use std::net::{IpAddr, Ipv4Addr};

use api::route::RouteOrder;

/// Flags that describe a request to explain.
#[derive(clap::Args)]
pub(crate) struct RouteQuery {
    /// Explain which route a request takes, without sending it.
    ///
    /// URL is `http://HOST/PATH?QUERY`, `https://…`, or `/PATH` for a request without a host. All routes are listed
    /// in order of precedence, each with its result. The exit code is 1 if no route matches.
    #[arg(long, num_args = 2, value_names = ["METHOD", "URL"])]
    route: Option<Vec<String>>,

    /// A header field of the request. Can be repeated.
    #[arg(long, value_name = "NAME: VALUE", requires = "route", value_parser = header)]
    header: Vec<(String, String)>,

    /// Address of the client.
    #[arg(long, value_name = "ADDRESS", requires = "route", default_value_t = Ipv4Addr::LOCALHOST.into())]
    client: IpAddr,

    /// Listener of the request, by name or address. Default: the first that fits the URL.
    #[arg(long, value_name = "NAME", requires = "route")]
    listener: Option<String>,
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write it as NAME: VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

impl RouteQuery {
    /// Returns the request that the flags describe, if they do.
    pub(crate) fn order(&self) -> Option<RouteOrder> {
        let [method, url] = self.route.as_deref()? else { return None };
        Some(RouteOrder {
            method: method.clone(),
            url: url.clone(),
            headers: self.header.clone(),
            client: self.client,
            listener: self.listener.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_has_a_name_and_a_value() {
        assert!(header("X-Tenant").is_err());
        assert_eq!(header("X-Tenant:  a: b "), Ok(("X-Tenant".to_owned(), "a: b".to_owned())));
    }
}
