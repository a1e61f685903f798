//! With NVIDIA's own driver, where this host has a GPU, and through the same calls with a pretended one, where it has none.
#![expect(unsafe_code, reason = "what is copied are addresses")]

use crate::choice::Method;
use crate::driver::Driver;
use crate::gpu::Gpu;
use crate::nvidia::Nvidia;
use crate::range::Range;
use std::process::Command;
use std::sync::Arc;
use tidepool_transfer::door::{DevicePiece, Door as _, Span, Way};

const BYTES: usize = 8 << 20;

#[test]
fn pieces_of_every_length_come_back_by_both_methods() {
    let driver: Arc<dyn Driver> = match Nvidia::open(0) {
        Ok(driver) => Arc::new(driver),
        Err(error) => return eprintln!("SKIPPED: nothing is proved about a real GPU, for want of one: {error}"),
    };
    let gpu = Gpu::new(Arc::clone(&driver));
    assert_eq!(gpu.choice().times().len(), 16, "the GPU was not measured");
    let host = Range::new(BYTES, BYTES).expect("memory");
    // SAFETY: the range is this test's, and nothing copies while it is looked at.
    let bytes = || unsafe { std::slice::from_raw_parts_mut(host.start(), BYTES) };
    // SAFETY: the range outlives the pin.
    let pin = unsafe { gpu.pin(host.start(), BYTES, true) }.expect("pinned");
    let device = driver.allocate(BYTES).expect("memory of the GPU");
    assert!(gpu.has(DevicePiece { address: device, len: BYTES }));
    for method in [Method::Kernel, Method::Engine] {
        for len in [16, 24, 4096, 12_304, 64 << 10, 2 << 20] {
            let count = BYTES / len;
            // To other places on the GPU than they have on the host.
            let span = |at: usize| Span {
                host: host.start().wrapping_add(at * len),
                device: device + ((at * 7 + 3) % count * len) as u64,
                len,
            };
            let spans: Vec<Span> = (0..count).map(span).collect();
            let pattern =
                |at: usize| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(len as u32 % 64) as u8;
            let is_one_to_one = !count.is_multiple_of(7);
            assert!(is_one_to_one, "two of {count} pieces would share a place");
            bytes().iter_mut().enumerate().for_each(|(at, byte)| *byte = pattern(at));
            // SAFETY: both memories are this test's, and the flight lands.
            let fly = |way| unsafe { gpu.begin_by(|_, _| method, way, &spans) }.and_then(|flight| flight.land());
            fly(Way::In).expect("copied in");
            bytes()[..count * len].fill(0);
            fly(Way::Out).expect("copied out");
            let is_right = bytes().iter().enumerate().all(|(at, byte)| *byte == pattern(at));
            assert!(is_right, "{method:?}, pieces of {len} bytes");
        }
    }
    assert_eq!(current_context(), 0, "this thread has a context that it did not have");
    driver.free(device);
    assert!(!gpu.has(DevicePiece { address: device, len: BYTES }), "memory that was freed counts as the GPU's");
    drop((pin, gpu, driver));
    assert_eq!(left().unwrap_or(0), 0, "the driver has not got everything back");
}

/// The context that this thread has; it was given none.
fn current_context() -> usize {
    let mut context = 0;
    // SAFETY: the name is a string; the driver's library was opened for everybody.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"cuCtxGetCurrent".as_ptr()) };
    assert!(!found.is_null(), "the driver lacks a function");
    // SAFETY: that is what the function of this name is, and its answer has its place.
    unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn(*mut usize) -> i32>(found)(&raw mut context) };
    context
}

/// What a pretended driver has given out and not got back.
fn left() -> Option<i64> {
    // SAFETY: the name is a string; the driver's library was opened for everybody.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"pretended_left".as_ptr()) };
    // SAFETY: that is what the function of this name is; see `examples/pretended_driver.rs`.
    (!found.is_null()).then(|| unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> i64>(found)() })
}

#[test]
fn drivers_with_and_without_batches_are_called_as_they_want_to_be() {
    let this = std::env::current_exe().expect("this program");
    let built = this.ancestors().nth(2).expect("target").join("examples/libpretended_driver.so");
    assert!(built.exists(), "cargo build -p tidepool-cuda --example pretended_driver has not been run");
    let dir = tempfile::tempdir().expect("a directory");
    std::os::unix::fs::symlink(built, dir.path().join("libcuda.so.1")).expect("a link");
    for old in [None, Some(("PRETEND_AN_OLD_DRIVER", "1"))] {
        let ran = Command::new(&this)
            .args(["--exact", "on_a_gpu::pieces_of_every_length_come_back_by_both_methods", "--nocapture"])
            .env("LD_LIBRARY_PATH", dir.path())
            .envs(old)
            .output()
            .expect("a process");
        let said = String::from_utf8_lossy(&ran.stdout) + String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success() && said.contains("1 passed") && !said.contains("SKIPPED"), "{old:?}: {said}");
    }
}
