//! The Python extension module `tidepool._native`.
//!
//! A thin layer: it converts between Python's values and the client's, and lets other Python threads run meanwhile.
//! `tidepool_client` documents the calls; the docstrings here and the stubs beside the package document what Python
//! sees.
//!
//! | module | what it does |
//! |---|---|
//! | `pool`, `view`, `answers` | the class that users hold, views of blocks, what calls return |
//! | `arguments`, `lists`, `keys`, `buffers`, `pairs` | take arguments apart |
//! | `preferred` | looks for the nodes that puts name |
//! | `errors` | turns failures into exceptions |
//! | `fork` | keeps a forked child from using its parent's threads |
//! | `signals` | lets Ctrl-C end long waits |
//! | `exit` | closes what has files when the interpreter ends |
//! | `embed` | runs nodes and catalogs inside the interpreter |
//! | `command` | the `tidepool` command |
//! | `mooncake`, `engine` | what the drop-in for `mooncake.store` and engine connectors build on |

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
mod pairs;
mod pool;
mod preferred;
mod signals;
mod view;

/// The items that the package imports.
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
