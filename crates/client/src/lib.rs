//! The library inside an engine.

pub mod catalogs;
