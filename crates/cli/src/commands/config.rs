//! `tidepool config`: checks a file, or shows what the program would run with.

use crate::{
    config::{self, Layer},
    output,
};
use clap::Subcommand;
use serde_json::json;
use std::{error::Error, path::PathBuf};

/// What to do with a configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check a configuration file: print "ok", or every error with its line
    Check {
        /// The file
        file: PathBuf,
        /// Print one JSON object: whether it is ok, and the errors
        #[arg(long)]
        json: bool,
    },
    /// Print the configuration with every default filled in, as a file that could be given to --config
    Show {
        /// The configuration file; only defaults without it
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Print one JSON object instead of a file
        #[arg(long)]
        json: bool,
    },
}

/// Runs the command.
pub(super) fn run(command: &ConfigCommand) -> Result<(), Box<dyn Error>> {
    match command {
        ConfigCommand::Check { file, json } => {
            let checked = config::read(file);
            if *json {
                let errors = checked.as_ref().err().map_or_else(String::new, ToString::to_string);
                let errors: Vec<&str> = errors.lines().collect();
                output::line(&json!({ "ok": checked.is_ok(), "errors": errors }))?;
            }
            checked?;
            if !json {
                output::text("ok\n")?;
            }
        }
        ConfigCommand::Show { config: file, json } => {
            let config = config::load(file.as_deref(), Layer::default())?;
            if *json {
                output::line(&serde_json::to_value(config)?)?;
            } else {
                output::text(&toml::to_string(&config)?)?;
            }
        }
    }
    Ok(())
}
