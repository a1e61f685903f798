//! What travels between Tidepool's parts.
//!
//! [`frame`] and [`message`] are the data plane: a small binary protocol over Unix and TCP sockets, written down byte by
//! byte in `docs/protocol.md`. [`catalog`] is the control plane: the code generated from `proto/tidepool/v1`.
//! [`checksum`] guards a block's bytes wherever they cross a machine or a disk. Nothing here opens a socket.
#![forbid(unsafe_code)]

pub mod catalog;
pub mod checksum;
mod codec;
pub mod frame;
pub mod message;
