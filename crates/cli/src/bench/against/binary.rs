//! A build's program, checked before anything is measured.

use super::process::{self, Ended, Trouble};
use super::{AgainstError, Build};
use rustix::fs::{Access, access};
use sha2::{Digest as _, Sha256};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Time to say a version or to read a command line.
const ANSWER: Duration = Duration::from_secs(20);

/// An executable and its SHA-256.
#[derive(Debug, Clone)]
pub struct Binary {
    pub(super) build: Build,
    pub(super) path: PathBuf,
    pub(super) sha256: String,
}

impl Binary {
    /// Reads the file and its hash.
    pub fn find(build: Build, path: &Path) -> Result<Self, AgainstError> {
        let unusable = |why: String| AgainstError::Unusable { build, path: path.to_owned(), why };
        let found = path.canonicalize().map_err(|error| unusable(error.to_string()))?;
        if !found.is_file() || access(&found, Access::EXEC_OK).is_err() {
            return Err(unusable("not an executable file".to_owned()));
        }
        let sha256 = sha256(&found).map_err(|error| unusable(error.to_string()))?;
        Ok(Self { build, path: found, sha256 })
    }

    /// Checks that it is a Tidepool with a benchmark that knows `field` and takes `arguments`.
    pub(super) fn check(&self, field: &str, arguments: &[String], stop: &AtomicBool) -> Result<(), AgainstError> {
        let (build, path) = (self.build, self.path.clone());
        let version = self.ask(&["--version"], stop)?;
        let said = String::from_utf8_lossy(&version.output[..version.output.len().min(80)]).trim().to_owned();
        if !version.status.success() || !said.starts_with("tidepool ") {
            let why = format!("not a tidepool program: `--version` printed {said:?}");
            return Err(AgainstError::Unusable { build, path, why });
        }
        // With --help it reads the command line and measures nothing.
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(["--help"]).collect();
        let help = self.ask(&arguments, stop)?;
        if help.status.success() {
            return Ok(());
        }
        let said = help.errors.lines().next().unwrap_or("nothing").to_owned();
        Err(AgainstError::UnknownField { build, path, field: field.to_owned(), said })
    }

    fn ask(&self, arguments: &[&str], stop: &AtomicBool) -> Result<Ended, AgainstError> {
        process::run(self.command().args(arguments), ANSWER, stop).map_err(|trouble| match trouble {
            Trouble::Interrupted => AgainstError::Interrupted,
            trouble => {
                let why = format!("not a tidepool program: {trouble}");
                AgainstError::Unusable { build: self.build, path: self.path.clone(), why }
            }
        })
    }

    /// A command that runs it outside of any checkout: a build without a commit of its own reports its working
    /// directory's.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir("/");
        command
    }

    /// Checks that the file has not changed since [`Binary::find`].
    pub(super) fn is_unchanged(&self) -> Result<(), AgainstError> {
        let unusable = |why: String| AgainstError::Unusable { build: self.build, path: self.path.clone(), why };
        match sha256(&self.path) {
            Ok(sha256) if sha256 == self.sha256 => Ok(()),
            Ok(_) => Err(unusable("it was replaced while it was measured".to_owned())),
            Err(error) => Err(unusable(error.to_string())),
        }
    }
}

fn sha256(path: &Path) -> io::Result<String> {
    let (mut file, mut hash, mut chunk) = (std::fs::File::open(path)?, Sha256::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()),
            read => hash.update(&chunk[..read]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_that_of_sha256sum() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "abc").unwrap();
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(file.path()).unwrap(), known);
    }
}
