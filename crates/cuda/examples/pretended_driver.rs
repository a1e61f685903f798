//! A `libcuda.so.1` for hosts without a GPU, so that tests can run what talks to NVIDIA's driver: its functions by their names
//! and signatures, on top of the pretended driver. It is as strict as the real one is: a call without a context, a kernel that
//! was not loaded and an address that is nobody's are errors.
//!
//! `pretended_left` says what has been given out and not been given back.
#![expect(unsafe_code, reason = "a C library")]
#![expect(unsafe_op_in_unsafe_fn, reason = "pointers are what cuda.h says they are")]

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};
use tidepool_cuda::Driver as _;
use tidepool_cuda::fake::{Books, Fake};
use tidepool_transfer::door::{DoorError, Span, Way};

const INVALID_VALUE: c_int = 1;
const INVALID_DEVICE: c_int = 101;
const INVALID_CONTEXT: c_int = 201;
const NOT_FOUND: c_int = 500;
const NOT_READY: c_int = 600;
const LAUNCH_FAILED: c_int = 719;

/// The only context, and the only module and function.
const ONLY: usize = 0x7100;

static DRIVER: LazyLock<Fake> = LazyLock::new(|| {
    let driver = Fake::default();
    // Nothing is done when it is first asked after.
    driver.delay(2);
    driver
});
static CONTEXTS: AtomicI64 = AtomicI64::new(0);
static MODULES: AtomicI64 = AtomicI64::new(0);

thread_local! {
    static CONTEXTS_OF_THREAD: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// What the driver says, in a context.
fn within(answer: impl FnOnce(&Fake) -> Result<(), DoorError>) -> c_int {
    match has_context() && CONTEXTS.load(Ordering::Relaxed) > 0 {
        true => answer(&DRIVER).map_or(LAUNCH_FAILED, |()| 0),
        false => INVALID_CONTEXT,
    }
}

/// The same for what cannot fail.
fn done(act: impl FnOnce(&Fake)) -> c_int {
    within(|driver| {
        act(driver);
        Ok(())
    })
}

/// Puts an answer where the caller wants it.
unsafe fn give<T>(place: *mut T, answer: Result<T, DoorError>) -> Result<(), DoorError> {
    answer.map(|answer| *place = answer)
}

/// Everything that was given out and not given back, and all that went wrong.
#[unsafe(no_mangle)]
extern "C" fn pretended_left() -> i64 {
    let Books { pinned, memory, streams, events, torn, stale } = DRIVER.books();
    let of_the_driver = (pinned + memory + streams + events + torn + stale) as i64;
    of_the_driver + CONTEXTS.load(Ordering::Relaxed) + MODULES.load(Ordering::Relaxed)
}

#[unsafe(no_mangle)]
extern "C" fn cuInit(_flags: c_uint) -> c_int {
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(_status: c_int, name: *mut *const c_char) -> c_int {
    *name = c"CUDA_ERROR_PRETENDED".as_ptr();
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_int {
    *device = 0;
    if ordinal == 0 { 0 } else { INVALID_DEVICE }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut usize, _device: c_int) -> c_int {
    CONTEXTS.fetch_add(1, Ordering::Relaxed);
    *context = ONLY;
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(_device: c_int) -> c_int {
    CONTEXTS.fetch_sub(1, Ordering::Relaxed);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: usize) -> c_int {
    CONTEXTS_OF_THREAD.with_borrow_mut(|contexts| {
        contexts.pop();
        contexts.push(context);
    });
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxPushCurrent_v2(context: usize) -> c_int {
    CONTEXTS_OF_THREAD.with_borrow_mut(|contexts| contexts.push(context));
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxPopCurrent_v2(context: *mut usize) -> c_int {
    let popped = CONTEXTS_OF_THREAD.with_borrow_mut(Vec::pop);
    *context = popped.unwrap_or_default();
    if popped.is_some() { 0 } else { INVALID_CONTEXT }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetCurrent(context: *mut usize) -> c_int {
    *context = CONTEXTS_OF_THREAD.with_borrow(|contexts| contexts.last().copied()).unwrap_or_default();
    0
}

fn has_context() -> bool {
    CONTEXTS_OF_THREAD.with_borrow(|contexts| contexts.last() == Some(&ONLY))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostRegister_v2(start: usize, len: usize, flags: c_uint) -> c_int {
    const PORTABLE_AND_MAPPED: c_uint = 3;
    const READ_ONLY: c_uint = 8;
    if flags & !READ_ONLY != PORTABLE_AND_MAPPED {
        return INVALID_VALUE;
    }
    within(|driver| driver.register(start, len, flags & READ_ONLY == 0))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostUnregister(start: usize) -> c_int {
    done(|driver| driver.unregister(start))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, len: usize) -> c_int {
    within(|driver| give(address, driver.allocate(len)))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(address: u64) -> c_int {
    done(|driver| driver.free(address))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuPointerGetAttribute(answer: *mut c_int, attribute: c_int, address: u64) -> c_int {
    const MEMORY_TYPE: c_int = 2;
    const DEVICE_ORDINAL: c_int = 9;
    const DEVICE_MEMORY: c_int = 2;
    if !DRIVER.owns(address) {
        return INVALID_VALUE;
    }
    *answer = match attribute {
        MEMORY_TYPE => DEVICE_MEMORY,
        DEVICE_ORDINAL => 0,
        _ => return INVALID_VALUE,
    };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreate(stream: *mut u64, flags: c_uint) -> c_int {
    const NON_BLOCKING: c_uint = 1;
    if flags != NON_BLOCKING {
        return INVALID_VALUE;
    }
    within(|driver| give(stream, driver.stream()))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(stream: u64) -> c_int {
    done(|driver| driver.end_stream(stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(stream: u64) -> c_int {
    within(|driver| driver.drain(stream))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventCreate(event: *mut u64, _flags: c_uint) -> c_int {
    within(|driver| give(event, driver.event()))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(event: u64) -> c_int {
    done(|driver| driver.end_event(event))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: u64, stream: u64) -> c_int {
    within(|driver| driver.record(event, stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventQuery(event: u64) -> c_int {
    let mut is_done = false;
    let status = within(|driver| driver.is_done(event).map(|answer| is_done = answer));
    if status == 0 && !is_done { NOT_READY } else { status }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyHtoDAsync_v2(device: u64, host: *mut u8, len: usize, stream: u64) -> c_int {
    within(|driver| driver.copy(Way::In, &[Span { host, device, len }], stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoHAsync_v2(host: *mut u8, device: u64, len: usize, stream: u64) -> c_int {
    within(|driver| driver.copy(Way::Out, &[Span { host, device, len }], stream))
}

/// Copies as version 12.8 has it; which way, the addresses say.
unsafe extern "C" fn copy_batch(
    to: *const u64,
    from: *const u64,
    lens: *const usize,
    count: usize,
    _attributes: *const c_void,
    _first_of_each: *const usize,
    attributes: usize,
    _failed: *mut usize,
    stream: u64,
) -> c_int {
    if count == 0 || attributes != 1 {
        return INVALID_VALUE;
    }
    within(|driver| {
        (0..count).try_for_each(|index| {
            let (to, from, len) = (*to.add(index), *from.add(index), *lens.add(index));
            match driver.owns(to) {
                true => driver.copy(Way::In, &[Span { host: from as *mut u8, device: to, len }], stream),
                false => driver.copy(Way::Out, &[Span { host: to as *mut u8, device: from, len }], stream),
            }
        })
    })
}

/// Whether the pretence is told to be like this.
fn is_told(what: &str) -> bool {
    std::env::var_os(what).is_some()
}

/// Has no batch where `PRETEND_AN_OLD_DRIVER` is set.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetProcAddress_v2(
    name: *const c_char,
    address: *mut *mut c_void,
    version: c_int,
    _flags: u64,
    _status: *mut c_int,
) -> c_int {
    let is_known = CStr::from_ptr(name) == c"cuMemcpyBatchAsync" && version == 12_080;
    if !is_known || is_told("PRETEND_AN_OLD_DRIVER") {
        return NOT_FOUND;
    }
    *address = copy_batch as *mut c_void;
    0
}

/// Takes no kernel where `PRETEND_TO_HAVE_NO_KERNEL` is set: then nothing has to be measured, either.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoadData(module: *mut usize, image: *const c_char) -> c_int {
    let is_the_kernel = CStr::from_ptr(image).to_string_lossy().contains(".entry tidepool_gather");
    if !has_context() || !is_the_kernel || is_told("PRETEND_TO_HAVE_NO_KERNEL") {
        return INVALID_VALUE;
    }
    MODULES.fetch_add(1, Ordering::Relaxed);
    *module = ONLY;
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleUnload(_module: usize) -> c_int {
    done(|_| {
        MODULES.fetch_sub(1, Ordering::Relaxed);
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleGetFunction(function: *mut usize, _module: usize, name: *const c_char) -> c_int {
    *function = ONLY;
    if CStr::from_ptr(name) == c"tidepool_gather" { 0 } else { NOT_FOUND }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchKernel(
    function: usize,
    blocks: c_uint,
    _blocks_y: c_uint,
    _blocks_z: c_uint,
    threads: c_uint,
    _threads_y: c_uint,
    _threads_z: c_uint,
    _shared: c_uint,
    stream: u64,
    arguments: *mut *mut u64,
    _extra: *mut *mut c_void,
) -> c_int {
    const MOST_THREADS: c_uint = 1024;
    let is_loaded = function == ONLY && MODULES.load(Ordering::Relaxed) > 0;
    if !is_loaded || blocks == 0 || !(1..=MOST_THREADS).contains(&threads) {
        return INVALID_VALUE;
    }
    let [table, count, len] = [0, 1, 2].map(|index| **arguments.add(index));
    within(|driver| driver.gather(table, count as usize, len as usize, stream))
}
