//! The `tidepool` command, from Python.

use pyo3::prelude::*;
use std::ffi::OsString;

/// Runs the command line in `sys.argv` and returns its exit status.
#[pyfunction]
pub(crate) fn main(py: Python<'_>) -> PyResult<u8> {
    let sys = py.import("sys")?;
    let mut arguments: Vec<OsString> = sys.getattr("argv")?.extract()?;
    // Also where a file of another name runs it as a module.
    arguments.splice(..1.min(arguments.len()), ["tidepool".into()]);
    let python: OsString = sys.getattr("executable")?.extract()?;
    tidepool::bench::side::set_program(vec![python, "-m".into(), "tidepool".into()]);
    Ok(py.detach(|| tidepool::run(arguments)).0)
}
