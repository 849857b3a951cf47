//! Trace contexts from lines of names and values. Accepted ones have nonzero IDs, and their output is read as the
//! same trace.

#![no_main]

use libfuzzer_sys::fuzz_target;
use telemetry::{B3Form, Caller, Trace};

fuzz_target!(|bytes: &[u8]| {
    let lines = bytes.split(|&byte| byte == b'\n').filter_map(|line| {
        let colon = line.iter().position(|&byte| byte == b':')?;
        Some((&line[..colon], line[colon + 1..].trim_ascii()))
    });
    for b3 in [B3Form::Off, B3Form::Single, B3Form::Multi] {
        let caller = Caller::read(lines.clone(), b3);
        let trace = Trace::new(caller, 7, 9, bytes.len().is_multiple_of(2));
        assert!(trace.trace_id != 0 && trace.span_id != 0);
        if let Some(caller) = caller {
            assert!(
                caller.trace_id == trace.trace_id && caller.span_id == trace.parent_id && caller.span_id != 0
            );
        }
        let written = [&trace.parent_line()[..], trace.b3_lines(b3).bytes()].concat();
        let written: Vec<_> = std::str::from_utf8(&written)
            .expect("it is ASCII")
            .split_terminator("\r\n")
            .map(|line| line.split_once(": ").expect("a line is a name and a value"))
            .collect();
        let fields = written.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        for read in [Caller::read(fields.clone(), b3), Caller::read(fields.skip(1), b3)] {
            // B3 follows `traceparent`, if it is written.
            let Some(read) = read else {
                assert_eq!(b3, B3Form::Off);
                continue;
            };
            assert_eq!((read.trace_id, read.span_id), (trace.trace_id, trace.attempt_id(0)));
            assert_eq!(read.is_sampled, Some(trace.is_sampled));
        }
    }
});
