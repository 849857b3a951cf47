//! Options: each has a name, a kind of value, a default and a description, declared once.

/// Declared tables: read, printed and documented from one declaration.
pub(crate) mod table;
/// Options whose value needs no conversion, one declaration each.
pub(crate) mod declared;
/// Tables below tables.
pub(crate) mod section;
/// Descriptions of kinds of values.
pub(crate) mod form;
/// The schema of expressions.
pub(crate) mod expression_form;
/// Kinds of values.
pub(crate) mod kind;
/// Kinds of values with a range.
pub(crate) mod range;
/// Kinds of values with several parts: names with values, one or a list.
pub(crate) mod pairs;
/// Parses durations, sizes and rates.
pub(crate) mod quantity;
/// Parses delays with jitter.
pub(crate) mod delay;
/// Parses bandwidth limits.
pub(crate) mod bandwidth;
/// Parses rates of datagrams.
pub(crate) mod bottleneck;
/// Parses hosts, ports, listening addresses and networks.
pub(crate) mod host;
/// Parses server URLs.
pub(crate) mod server;
/// Parses path prefixes of routes.
pub(crate) mod prefix;
/// Parses conditions on requests: hosts, paths, methods, values.
pub(crate) mod matching;
/// Parses conditions in the expression language.
pub(crate) mod condition;
/// Conditions that are evaluated after authentication, or with the response.
pub(crate) mod later_condition;
/// Parses the keys of sessions, hashes and rate limits.
pub(crate) mod keys;
/// Values as parts of keys.
pub(crate) mod value_key;
/// Parses status codes and ranges of them.
pub(crate) mod statuses;
/// Texts with variables of requests.
pub(crate) mod templates;
/// Paths of files.
pub(crate) mod path;
/// Files that are read with the configuration.
pub(crate) mod named_file;
/// Values that are kept once.
pub(crate) mod shared;
