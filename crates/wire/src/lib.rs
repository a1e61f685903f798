//! The data plane between Tidepool's parts.
//!
//! [`frame`] and [`message`] are a small binary protocol over Unix and TCP sockets, written down byte by byte in
//! `docs/protocol.md`. [`checksum`] guards a block's bytes wherever they cross a machine or a disk. Nothing here opens a
//! socket, and nothing here is gRPC: that is `tidepool-schema`.
#![forbid(unsafe_code)]

pub mod checksum;
mod codec;
pub mod frame;
pub mod message;
pub mod tags;
mod tail;
