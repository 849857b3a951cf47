//! Requests for the ping page of php-fpm (`ping.path`), for health checks. php-fpm answers it by SCRIPT_NAME, and runs no
//! script.

use crate::params::{ParamWriter, ParamsError, ParamsLimits, VariableName};
use crate::record::begin_request;
use crate::stdin::STDIN_END;

/// The most bytes of the parameters of a ping.
const PARAMS_MAX: usize = 16 * 1024;

/// Appends a whole GET request for a page: `page` is its SCRIPT_NAME, such as `/ping`. The application closes the
/// connection after its response. After an error `out` is unchanged.
///
/// # Errors
/// The page is too long.
pub fn write_ping(page: &[u8], software: &[u8], out: &mut Vec<u8>) -> Result<(), ParamsError> {
    let start = out.len();
    out.extend_from_slice(&begin_request(false));
    let written = write_params(page, software, out);
    if written.is_err() {
        out.truncate(start);
    } else {
        out.extend_from_slice(&STDIN_END);
    }
    written
}

fn write_params(page: &[u8], software: &[u8], out: &mut Vec<u8>) -> Result<(), ParamsError> {
    let mut writer = ParamWriter::new(out, ParamsLimits { bytes: PARAMS_MAX });
    for (name, value) in [
        (&b"GATEWAY_INTERFACE"[..], &b"CGI/1.1"[..]),
        (b"SERVER_SOFTWARE", software),
        (b"SERVER_PROTOCOL", b"HTTP/1.1"),
        (b"SERVER_NAME", b"localhost"),
        (b"SERVER_PORT", b"80"),
        (b"REMOTE_ADDR", b"127.0.0.1"),
        (b"REQUEST_METHOD", b"GET"),
        (b"REQUEST_URI", page),
        (b"QUERY_STRING", b""),
        (b"SCRIPT_NAME", page),
        // php-fpm looks at SCRIPT_NAME only if there is a SCRIPT_FILENAME, which need not exist.
        (b"SCRIPT_FILENAME", page),
        (b"REDIRECT_STATUS", b"200"),
    ] {
        writer.push(VariableName::Plain(name), [value].into_iter())?;
    }
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
        write_ping(b"/ping", b"vanward", &mut out).unwrap();
        let rest = out.strip_prefix(b"kept").unwrap().strip_prefix(&begin_request(false)).unwrap();
        let rest = rest.strip_suffix(b"\x01\x04\0\x01\0\0\0\0\x01\x05\0\x01\0\0\0\0").unwrap();
        let pairs: Vec<_> = ParamPairs::new(&rest[8..]).collect::<Result<_, _>>().unwrap();
        assert!(pairs.contains(&(b"SCRIPT_NAME", b"/ping")) && pairs.contains(&(b"REQUEST_METHOD", b"GET")));

        let before = out.clone();
        let error = write_ping(&[b'/'; 20_000], b"vanward", &mut out);
        assert_eq!((error, out), (Err(ParamsError::TooLarge(PARAMS_MAX)), before));
    }
}
