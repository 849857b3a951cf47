//! Requests for the ping page of php-fpm (`ping.path`), for health checks. php-fpm answers it by SCRIPT_NAME, and runs no
//! script.

use crate::params::{ParamWriter, ParamsError, ParamsLimits, VariableName};
use crate::record::begin_request;
use crate::stdin::STDIN_END;

/// The most bytes of the parameters of a ping.
const PARAMS_MAX: usize = 16 * 1024;

/// A GET request for a page.
#[derive(Debug, Clone, Copy)]
pub struct Ping<'a> {
    /// SCRIPT_NAME, such as `/ping`, perhaps with a query behind it.
    pub page: &'a [u8],
    /// The directory of scripts: a page that php-fpm does not answer itself is a script there.
    pub root: &'a [u8],
    /// SERVER_NAME and Host.
    pub host: &'a [u8],
    /// SERVER_SOFTWARE.
    pub software: &'a [u8],
}

impl Ping<'_> {
    /// Appends the whole request. The application closes the connection after its response. After an error `out` is
    /// unchanged.
    ///
    /// # Errors
    /// The page is too long.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), ParamsError> {
        let start = out.len();
        out.extend_from_slice(&begin_request(false));
        let written = write_params(self, out);
        if written.is_err() {
            out.truncate(start);
        } else {
            out.extend_from_slice(&STDIN_END);
        }
        written
    }
}

fn write_params(ping: &Ping<'_>, out: &mut Vec<u8>) -> Result<(), ParamsError> {
    let Ping { page, root, host, software } = *ping;
    let mut writer = ParamWriter::new(out, ParamsLimits { bytes: PARAMS_MAX });
    let end = page.iter().position(|&byte| byte == b'?').unwrap_or(page.len());
    let (script, query) = (&page[..end], page.get(end + 1..).unwrap_or_default());
    let root = root.strip_suffix(b"/").unwrap_or(root);
    for (name, value) in [
        (&b"GATEWAY_INTERFACE"[..], &b"CGI/1.1"[..]),
        (b"SERVER_SOFTWARE", software),
        (b"SERVER_PROTOCOL", b"HTTP/1.1"),
        (b"SERVER_NAME", http1::host_without_port(host)),
        (b"HTTP_HOST", host),
        (b"SERVER_PORT", b"80"),
        (b"REMOTE_ADDR", b"127.0.0.1"),
        (b"REQUEST_METHOD", b"GET"),
        (b"REQUEST_URI", page),
        (b"QUERY_STRING", query),
        (b"SCRIPT_NAME", script),
        (b"DOCUMENT_ROOT", root),
        (b"REDIRECT_STATUS", b"200"),
    ] {
        writer.push(VariableName::Plain(name), [value].into_iter())?;
    }
    // php-fpm looks at SCRIPT_NAME only if there is a SCRIPT_FILENAME, which need not exist.
    writer.push(VariableName::Plain(b"SCRIPT_FILENAME"), [root, script].into_iter())?;
    writer.end();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pair::ParamPairs;

    #[test]
    fn a_ping_is_a_whole_request() {
        let mut out = b"kept".to_vec();
        let ping = Ping { page: b"/ping?full", root: b"/srv/", host: b"a:80", software: b"vanward" };
        ping.write(&mut out).unwrap();
        let rest = out.strip_prefix(b"kept").unwrap().strip_prefix(&begin_request(false)).unwrap();
        let rest = rest.strip_suffix(b"\x01\x04\0\x01\0\0\0\0\x01\x05\0\x01\0\0\0\0").unwrap();
        let pairs: Vec<_> = ParamPairs::new(&rest[8..]).collect::<Result<_, _>>().unwrap();
        for pair in [
            (&b"SCRIPT_NAME"[..], &b"/ping"[..]),
            (b"SCRIPT_FILENAME", b"/srv/ping"),
            (b"QUERY_STRING", b"full"),
            (b"REQUEST_URI", b"/ping?full"),
            (b"SERVER_NAME", b"a"),
            (b"HTTP_HOST", b"a:80"),
            (b"REQUEST_METHOD", b"GET"),
        ] {
            assert!(pairs.contains(&pair), "{pair:?} in {pairs:?}");
        }

        let before = out.clone();
        let error = Ping { page: &[b'/'; 20_000], ..ping }.write(&mut out);
        assert_eq!((error, out), (Err(ParamsError::TooLarge(PARAMS_MAX)), before));
    }
}
