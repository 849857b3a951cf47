//! The text of a configuration: its files, what they include, the variables and secrets in them, and the places of
//! mistakes. Nothing here knows an option.

/// The environment of a configuration: other files and variables.
pub(crate) mod surroundings;
/// The files of a configuration.
pub(crate) mod sources;
/// Splits a long text into its routes and the rest.
pub(crate) mod pieces;
/// Environment variables and secrets in texts.
pub(crate) mod substitution;
/// Joins the tables of several files.
pub(crate) mod merge;
/// Names that the configuration adds to expressions.
pub(crate) mod expression_names;
/// State of reading a file: its syntax, and the mistakes so far.
pub(crate) mod reader;
/// Mistakes in a value, and their wording.
pub(crate) mod value_error;
/// Names of options in other proxies, for hints.
pub(crate) mod foreign;
/// Recognises configuration files of other programs.
pub(crate) mod foreign_file;
/// The text that was read, for printing.
pub(crate) mod text;
/// Joins the texts of several files.
pub(crate) mod joined;
/// Hides secrets.
pub(crate) mod masks;
