//! What the proxy tells: counters and the access log.
