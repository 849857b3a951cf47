//! Fields and values of a request and its response, for the log.

use telemetry::Headers;

use crate::context::exchange_slot::CurrentRequest;
use crate::context::seen::RequestFields;
use crate::record::ExchangeRecord;

/// The header fields of a request and its response, for the log.
#[derive(Debug)]
pub(super) struct LoggedFields<'a> {
    pub(super) request: RequestFields<'a>,
    /// The head of the response as sent; empty if it is not logged.
    pub(super) response: &'a [u8],
    pub(super) values: LoggedValues<'a>,
}

/// Computes the values of a finished request.
pub(super) struct LoggedValues<'a> {
    pub(super) record: &'a ExchangeRecord<'a>,
    pub(super) request: &'a CurrentRequest,
}

impl std::fmt::Debug for LoggedValues<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("LoggedValues")
    }
}

impl LoggedValues<'_> {
    /// Passes a value of the request's route to `see`. A request without a route has the values of the top level, one
    /// that could not be read has none.
    fn pass(&self, name: &str, see: &mut dyn FnMut(&[u8])) {
        let Self { record, request } = *self;
        let config = &record.ctx.snapshot.plan.config;
        let values = record.route.map_or(&config.values, |route| &config.routes[route].values);
        if let Some(value) = values.find(name)
            && let Some(values) = record.values(request)
        {
            values.write(value, see);
        }
    }
}

impl Headers for LoggedFields<'_> {
    fn request(&self, name: &[u8], see: &mut dyn FnMut(&[u8])) {
        route::FieldLookup::values(&self.request, name).for_each(see);
    }

    fn response(&self, name: &[u8], see: &mut dyn FnMut(&[u8])) {
        for line in self.response.split(|&byte| byte == b'\n').skip(1) {
            if let Some(colon) = line.iter().position(|&byte| byte == b':')
                && line[..colon].eq_ignore_ascii_case(name)
            {
                see(line[colon + 1..].trim_ascii());
            }
        }
    }

    fn value(&self, name: &str, see: &mut dyn FnMut(&[u8])) {
        self.values.pass(name, see);
    }
}
