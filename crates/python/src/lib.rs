//! The Python extension module `tidepool._native`.
//!
//! Thin: it turns Python values into the client's and back, and lets other Python threads run meanwhile. What the calls do
//! is said in `tidepool_client`; what Python sees is said in the docstrings here and in the stubs beside the package.
//!
//! Where things are: `pool` is the class that users hold, `lists`, `keys` and `buffers` take arguments apart, `answers` are what calls
//! return, `errors` turns failures into exceptions, `fork` keeps a forked child from using its parent's threads, `signals` lets Ctrl-C end long waits, `exit` closes what has files when the interpreter ends, `embed` runs
//! nodes and catalogs inside the interpreter, `command` is the `tidepool` command, `mooncake` is what the drop-in for
//! `mooncake.store` builds on, and `engine` is what engine connectors build on.

mod answers;
mod arguments;
mod buffers;
mod command;
mod embed;
mod engine;
mod errors;
mod exit;
mod fork;
mod keys;
mod lists;
mod mooncake;
mod pool;
mod signals;
mod view;

/// Everything that the package takes from here.
#[pyo3::pymodule(name = "_native")]
mod native {
    #[pymodule_export]
    use super::answers::{Copy, Match, NodeInfo, Removed, Stored};
    #[pymodule_export]
    use super::command::main;
    #[pymodule_export]
    use super::embed::{Catalog, Node};
    #[pymodule_export]
    use super::engine::{BlockLookup, BlockTransfers, GpuCopies};
    #[pymodule_export]
    use super::lists::listed;
    #[pymodule_export]
    use super::mooncake::{BufferHandle, LeasedBuffer, MooncakeStore};
    #[pymodule_export]
    use super::pool::Pool;
    #[pymodule_export]
    use super::view::View;

    #[pymodule_init]
    fn init(module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        super::exit::register(module.py())
    }
}
