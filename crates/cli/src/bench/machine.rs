//! The machine and the build that a result depends on.

use serde::Serialize;
use std::{fs, process::Command};

/// The machine and the build of a result.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// The kernel's release.
    pub kernel: String,
    /// The kernel's setting of huge pages for ordinary memory, as the kernel writes it.
    pub huge_pages: String,
    /// The version of this program.
    pub version: &'static str,
    /// The commit of the build or, where that is unknown, of the working directory.
    pub commit: Option<String>,
}

impl Machine {
    /// This machine and this build.
    pub fn here() -> Self {
        let unknown = || "unknown".to_owned();
        let uname = rustix::system::uname();
        Self {
            cpu: cpu_model().unwrap_or_else(unknown),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            kernel: uname.release().to_string_lossy().into_owned(),
            huge_pages: fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
                .map_or_else(|_| unknown(), |text| text.trim().to_owned()),
            version: env!("CARGO_PKG_VERSION"),
            commit: built_commit().or_else(checked_out_commit),
        }
    }
}

fn cpu_model() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The commit that the Makefile compiled in.
fn built_commit() -> Option<String> {
    option_env!("TIDEPOOL_COMMIT").filter(|commit| !commit.is_empty()).map(str::to_owned)
}

fn checked_out_commit() -> Option<String> {
    let output = Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12"]).output().ok()?;
    let commit = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !commit.is_empty()).then_some(commit)
}
