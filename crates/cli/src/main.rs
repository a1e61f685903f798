//! The `tidepool` program; everything it does is in the library beside it.
#![forbid(unsafe_code)]

fn main() -> tidepool::Status {
    tidepool::run(std::env::args_os())
}
