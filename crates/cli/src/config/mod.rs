//! The configuration: one typed section per component, parsed once.
//!
//! Three layers, each over the next: flags, the file named by `--config`, defaults. The environment is not read. Every
//! error names the field by its dotted path, the given value and what is allowed. All errors of a layer are reported at
//! once.

mod catalog;
mod client;
mod file;
mod locate;
mod log;
mod node;
mod peers;
mod section;
mod values;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;

pub use catalog::{CatalogConfig, CatalogOptions};
pub use client::{ClientConfig, ClientOptions};
pub use file::{ConfigError, Problem, Problems, parse, read};
pub use log::{LogConfig, LogOptions};
pub use node::{NodeConfig, NodeOptions};
pub use peers::{Advertise, Catalogs, HostPort};
pub use section::{Field, FieldError, FieldErrors, Value};
pub use values::{Dir, Format, Level, Listen, Name, Verify};

use serde::Serialize;
use std::path::Path;
use toml::de::ValueDeserializer;

/// The settings of one layer: a file, or the flags of one command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layer {
    /// `[catalog]`
    pub catalog: CatalogOptions,
    /// `[node]`
    pub node: NodeOptions,
    /// `[client]`
    pub client: ClientOptions,
    /// `[log]`
    pub log: LogOptions,
}

/// The settings that the program runs with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Config {
    /// `[catalog]`
    pub catalog: CatalogConfig,
    /// `[node]`
    pub node: NodeConfig,
    /// `[client]`
    pub client: ClientConfig,
    /// `[log]`
    pub log: LogConfig,
}

impl Layer {
    /// Every section with its fields.
    pub fn sections() -> [(&'static str, Vec<Field>); 4] {
        [
            ("catalog", CatalogOptions::fields()),
            ("node", NodeOptions::fields()),
            ("client", ClientOptions::fields()),
            ("log", LogOptions::fields()),
        ]
    }

    /// The settings of this layer, and those of `under` where this layer has none.
    pub fn over(self, under: Self) -> Self {
        Self {
            catalog: self.catalog.over(under.catalog),
            node: self.node.over(under.node),
            client: self.client.over(under.client),
            log: self.log.over(under.log),
        }
    }

    /// Sets a field. Returns false if it does not exist or cannot have that value.
    fn set(&mut self, section: &str, key: &str, value: ValueDeserializer<'_>) -> bool {
        match section {
            "catalog" => self.catalog.set(key, value),
            "node" => self.node.set(key, value),
            "client" => self.client.set(key, value),
            "log" => self.log.set(key, value),
            _ => false,
        }
    }

    /// The settings of this layer over the defaults, all checked.
    pub fn resolve(self) -> Result<Config, FieldErrors> {
        let mut faults = FieldErrors::default();
        let catalog = faults.gather(self.catalog.resolve());
        let node = faults.gather(self.node.resolve());
        let client = faults.gather(self.client.resolve());
        let log = faults.gather(self.log.resolve());
        match (catalog, node, client, log) {
            (Some(catalog), Some(node), Some(client), Some(log)) => Ok(Config { catalog, node, client, log }),
            _ => Err(faults),
        }
    }
}

/// Flags over the file, if there is one.
pub fn merge(file: Option<&Path>, flags: Layer) -> Result<Layer, ConfigError> {
    Ok(flags.over(file.map(read).transpose()?.unwrap_or_default()))
}

/// Flags over the file, if there is one, over defaults.
pub fn load(file: Option<&Path>, flags: Layer) -> Result<Config, ConfigError> {
    Ok(merge(file, flags)?.resolve()?)
}
