//! Generates the control plane's code from the published schema, without an installed `protoc`.

use std::error::Error;
use std::path::Path;

const SCHEMA: &str = "tidepool/v1/catalog.proto";

fn main() -> Result<(), Box<dyn Error>> {
    // Asked for when this runs, not when it was built: build directories move with their checkouts.
    let root = Path::new(&std::env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    println!("cargo:rerun-if-changed={}", root.join(SCHEMA).display());
    let descriptors = protox::compile([SCHEMA], [root])?;
    // `bytes` fields become reference-counted buffers: packed ids are not copied out of the message they came in.
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}
