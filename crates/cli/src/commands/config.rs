//! `tidepool config`: checks a file, or shows what the program would run with.

use crate::config::{self, Layer};
use clap::Subcommand;
use std::{error::Error, io::Write as _, path::PathBuf};

/// What to do with a configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check a configuration file: print "ok", or the first error with its line
    Check {
        /// The file
        file: PathBuf,
    },
    /// Print the configuration with every default filled in, as a file that could be given to --config
    Show {
        /// The configuration file; only defaults without it
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
}

/// Runs the command.
pub(super) fn run(command: &ConfigCommand) -> Result<(), Box<dyn Error>> {
    match command {
        ConfigCommand::Check { file } => {
            config::read(file)?;
            println!("ok");
        }
        ConfigCommand::Show { config: file } => {
            let text = toml::to_string(&config::load(file.as_deref(), Layer::default())?)?;
            std::io::stdout().write_all(text.as_bytes())?;
        }
    }
    Ok(())
}
