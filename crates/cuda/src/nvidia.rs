//! NVIDIA's driver, behind the [`Driver`] trait.
#![expect(unsafe_code, reason = "the driver is a C library")]

use crate::driver::{Driver, Event, LAUNCH, Stream};
use crate::symbols::{Status, Symbols};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::ptr;
use tidepool_transfer::door::{DoorError, Span, Way};

/// The kernel, for the driver to compile for its GPU.
const KERNEL: &str = concat!(include_str!("../kernel/gather.ptx"), "\0");
/// Multiprocessors that the kernel takes: four saturate the bus (`bench/gpu/run a`), of more than a hundred.
const KERNEL_BLOCKS: u32 = 4;
const KERNEL_THREADS: u32 = 1024;
/// The version of the interface that `cuMemcpyBatchAsync` is asked for in; later ones have another signature.
const BATCH_SINCE: c_int = 12_080;
/// Pieces in one call; larger batches are slower.
const BATCH: usize = 512;

const NOT_READY: Status = 600;
const REGISTER_PORTABLE: u32 = 1;
const REGISTER_MAPPED: u32 = 2;
const REGISTER_READ_ONLY: u32 = 8;
const NON_BLOCKING: u32 = 1;
const NO_TIMING: u32 = 2;
const MEMORY_TYPE: c_int = 2;
const DEVICE_ORDINAL: c_int = 9;
const DEVICE_MEMORY: u32 = 2;

/// `CUmemcpyAttributes`: sources are read in the order of the stream, and nothing is said of locations.
#[repr(C)]
struct CopyAttributes {
    source_order: u32,
    locations: [c_int; 4],
    flags: u32,
}

type CopyBatch = unsafe extern "C" fn(
    *const u64,
    *const u64,
    *const usize,
    usize,
    *const CopyAttributes,
    *const usize,
    usize,
    *mut usize,
    *mut c_void,
) -> Status;

/// NVIDIA's driver, and one GPU's context, shared with the process's other users of that GPU.
pub(crate) struct Nvidia {
    symbols: Symbols,
    ordinal: c_int,
    device: c_int,
    context: *mut c_void,
    /// Copies many pieces in one call; drivers before 12.8 lack it.
    batch: Option<CopyBatch>,
    kernel: Option<Kernel>,
}

#[derive(Clone, Copy)]
struct Kernel {
    module: *mut c_void,
    function: *mut c_void,
}

/// Keeps the context current on this thread; dropping it restores the context from before.
struct Inside<'a>(&'a Symbols);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let mut context = ptr::null_mut();
        // SAFETY: the answer, which is discarded, has its place; this thread has entered.
        let _ = unsafe { (self.0.pop_context)(&raw mut context) };
    }
}

// SAFETY: a context and a function of it may be used from any thread; every call makes the context current on its own.
unsafe impl Send for Nvidia {}
// SAFETY: as above.
unsafe impl Sync for Nvidia {}

impl fmt::Debug for Nvidia {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nvidia")
            .field("gpu", &self.ordinal)
            .field("batch", &self.batch.is_some())
            .finish_non_exhaustive()
    }
}

impl Nvidia {
    /// Loads the driver and retains a GPU's primary context.
    pub(crate) fn open(ordinal: u32) -> Result<Self, DoorError> {
        let symbols = Symbols::load()?;
        let ordinal = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
        let (mut device, mut context) = (0, ptr::null_mut());
        // SAFETY: these are the first calls that the driver wants, with places for their answers.
        unsafe {
            check(&symbols, "cuInit", (symbols.init)(0))?;
            check(&symbols, "cuDeviceGet", (symbols.device)(&raw mut device, ordinal))?;
            check(&symbols, "cuDevicePrimaryCtxRetain", (symbols.retain_context)(&raw mut context, device))?;
        }
        let mut driver = Self { symbols, ordinal, device, context, batch: None, kernel: None };
        driver.batch = driver.find_batch();
        driver.kernel =
            driver.load_kernel().inspect_err(|error| tracing::warn!(%error, "small pieces will be slow")).ok();
        if driver.batch.is_none() {
            tracing::warn!("cuMemcpyBatchAsync: this driver is older than 12.8, so copies take a call for each piece");
        }
        Ok(driver)
    }

    fn find_batch(&self) -> Option<CopyBatch> {
        let (mut address, mut found) = (ptr::null_mut(), 0);
        let name = c"cuMemcpyBatchAsync".as_ptr();
        // SAFETY: the answer has its place; a driver without the function says so.
        let status = unsafe { (self.symbols.find_versioned?)(name, &raw mut address, BATCH_SINCE, 0, &raw mut found) };
        // SAFETY: of this version the function has this signature.
        (status == 0 && !address.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, CopyBatch>(address) })
    }

    fn load_kernel(&self) -> Result<Kernel, DoorError> {
        let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
        let _inside = self.enter()?;
        // SAFETY: the text ends with a zero, and the answers have their places.
        unsafe {
            let loaded = (self.symbols.load_module)(&raw mut module, KERNEL.as_ptr().cast());
            self.check("cuModuleLoadData", loaded)?;
            let found = (self.symbols.find_function)(&raw mut function, module, c"tidepool_gather".as_ptr());
            self.check("cuModuleGetFunction", found).inspect_err(|_| self.unload(module))?;
        }
        Ok(Kernel { module, function })
    }

    /// Unloads a module, which the shared context would keep otherwise.
    fn unload(&self, module: *mut c_void) {
        // SAFETY: loaded before, and nothing of it runs any more.
        let _ = self.ask("cuModuleUnload", |symbols| unsafe { (symbols.unload_module)(module) });
    }

    /// Makes the context current on this thread while the guard lives: the thread may be the engine's, with another
    /// GPU's context.
    fn enter(&self) -> Result<Inside<'_>, DoorError> {
        // SAFETY: the context is retained until drop.
        let entered = unsafe { (self.symbols.push_context)(self.context) };
        self.check("cuCtxPushCurrent", entered).map(|()| Inside(&self.symbols))
    }

    fn check(&self, call: &'static str, status: Status) -> Result<(), DoorError> {
        check(&self.symbols, call, status)
    }

    /// Makes one call of the driver in the context.
    fn ask(&self, call: &'static str, ask: impl FnOnce(&Symbols) -> Status) -> Result<(), DoorError> {
        let _inside = self.enter()?;
        self.check(call, ask(&self.symbols))
    }

    fn copy_batch(&self, batch: CopyBatch, way: Way, spans: &[Span], stream: Stream) -> Result<(), DoorError> {
        let host: Vec<u64> = spans.iter().map(|span| span.host as u64).collect();
        let device: Vec<u64> = spans.iter().map(|span| span.device).collect();
        let lens: Vec<usize> = spans.iter().map(|span| span.len).collect();
        let (to, from) = if way == Way::In { (device, host) } else { (host, device) };
        let attributes = CopyAttributes { source_order: 1, locations: [0; 4], flags: 0 };
        for start in (0..spans.len()).step_by(BATCH) {
            let count = BATCH.min(spans.len() - start);
            let (to, from, lens) = (&to[start..], &from[start..], &lens[start..]);
            let mut failed = 0;
            // SAFETY: the arrays have `count` entries; their memory is the caller's promise.
            let status = unsafe {
                let (to, from, lens) = (to.as_ptr(), from.as_ptr(), lens.as_ptr());
                batch(to, from, lens, count, &raw const attributes, &0, 1, &raw mut failed, stream as *mut c_void)
            };
            self.check("cuMemcpyBatchAsync", status)?;
        }
        Ok(())
    }
}

impl Drop for Nvidia {
    fn drop(&mut self) {
        if let Some(kernel) = self.kernel {
            self.unload(kernel.module);
        }
        // SAFETY: retained in `open`; no call uses it after this one.
        let _ = unsafe { (self.symbols.release_context)(self.device) };
    }
}

fn check(symbols: &Symbols, call: &'static str, status: Status) -> Result<(), DoorError> {
    if status == 0 {
        return Ok(());
    }
    let mut name: *const c_char = ptr::null();
    // SAFETY: the answer has its place, and is a string of the driver's own, for good.
    let known = unsafe { (symbols.error_name)(status, &raw mut name) } == 0 && !name.is_null();
    // SAFETY: as above.
    let name = if known { unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned() } else { String::new() };
    Err(DoorError { call, reason: format!("{name} ({status})") })
}

impl Driver for Nvidia {
    fn register(&self, start: usize, len: usize, writable: bool) -> Result<(), DoorError> {
        let read_only = if writable { 0 } else { REGISTER_READ_ONLY };
        let flags = REGISTER_PORTABLE | REGISTER_MAPPED | read_only;
        // SAFETY: the caller keeps the memory mapped until it is unregistered.
        self.ask("cuMemHostRegister", |symbols| unsafe { (symbols.register)(start as *mut c_void, len, flags) })
    }

    fn unregister(&self, start: usize) {
        // SAFETY: registered before.
        let done = self.ask("cuMemHostUnregister", |symbols| unsafe { (symbols.unregister)(start as *mut c_void) });
        let _ = done.inspect_err(|error| tracing::debug!(%error, "pinned memory"));
    }

    fn allocate(&self, len: usize) -> Result<u64, DoorError> {
        let mut address = 0;
        // SAFETY: the answer has its place.
        self.ask("cuMemAlloc", |symbols| unsafe { (symbols.allocate)(&raw mut address, len) })?;
        Ok(address)
    }

    fn free(&self, address: u64) {
        // SAFETY: allocated before.
        let _ = self.ask("cuMemFree", |symbols| unsafe { (symbols.free)(address) });
    }

    fn owns(&self, address: u64) -> bool {
        let (mut kind, mut ordinal) = (0u32, -1);
        let asked = self.ask("cuPointerGetAttribute", |symbols| {
            // SAFETY: both answers have their places; an address that the driver does not know is an error.
            unsafe {
                match (symbols.pointer_attribute)((&raw mut kind).cast(), MEMORY_TYPE, address) {
                    0 => (symbols.pointer_attribute)((&raw mut ordinal).cast(), DEVICE_ORDINAL, address),
                    status => status,
                }
            }
        });
        asked.is_ok() && kind == DEVICE_MEMORY && ordinal == self.ordinal
    }

    fn stream(&self) -> Result<Stream, DoorError> {
        let mut stream = ptr::null_mut();
        // SAFETY: the answer has its place.
        self.ask("cuStreamCreate", |symbols| unsafe { (symbols.create_stream)(&raw mut stream, NON_BLOCKING) })?;
        Ok(stream as u64)
    }

    fn end_stream(&self, stream: Stream) {
        // SAFETY: created before.
        let _ = self.ask("cuStreamDestroy", |symbols| unsafe { (symbols.destroy_stream)(stream as *mut c_void) });
    }

    fn drain(&self, stream: Stream) -> Result<(), DoorError> {
        // SAFETY: created before.
        self.ask("cuStreamSynchronize", |symbols| unsafe { (symbols.drain_stream)(stream as *mut c_void) })
    }

    fn event(&self) -> Result<Event, DoorError> {
        let mut event = ptr::null_mut();
        // SAFETY: the answer has its place.
        self.ask("cuEventCreate", |symbols| unsafe { (symbols.create_event)(&raw mut event, NO_TIMING) })?;
        Ok(event as u64)
    }

    fn end_event(&self, event: Event) {
        // SAFETY: created before.
        let _ = self.ask("cuEventDestroy", |symbols| unsafe { (symbols.destroy_event)(event as *mut c_void) });
    }

    fn record(&self, event: Event, stream: Stream) -> Result<(), DoorError> {
        let (event, stream) = (event as *mut c_void, stream as *mut c_void);
        // SAFETY: the event is ours; the stream is ours or named by a user of the GPU in this process.
        self.ask("cuEventRecord", |symbols| unsafe { (symbols.record_event)(event, stream) })
    }

    fn is_done(&self, event: Event) -> Result<bool, DoorError> {
        let _inside = self.enter()?;
        // SAFETY: the event is ours.
        match unsafe { (self.symbols.query_event)(event as *mut c_void) } {
            NOT_READY => Ok(false),
            status => self.check("cuEventQuery", status).map(|()| true),
        }
    }

    fn copy(&self, way: Way, spans: &[Span], stream: Stream) -> Result<(), DoorError> {
        let _inside = self.enter()?;
        if let Some(batch) = self.batch {
            return self.copy_batch(batch, way, spans, stream);
        }
        let stream = stream as *mut c_void;
        spans.iter().try_for_each(|span| {
            // SAFETY: the span's memory is the caller's promise.
            let status = unsafe {
                match way {
                    Way::In => (self.symbols.copy_in)(span.device, span.host.cast(), span.len, stream),
                    Way::Out => (self.symbols.copy_out)(span.host.cast(), span.device, span.len, stream),
                }
            };
            self.check("cuMemcpyAsync", status)
        })
    }

    fn has_kernel(&self) -> bool {
        self.kernel.is_some()
    }

    fn gather(&self, table: u64, count: usize, len: usize, stream: Stream) -> Result<(), DoorError> {
        let kernel = self.kernel.ok_or_else(|| DoorError { call: LAUNCH, reason: "no kernel".to_owned() })?;
        let (mut table, mut count, mut len) = (table, count as u64, len as u64);
        let mut arguments: [*mut c_void; 3] = [(&raw mut table).cast(), (&raw mut count).cast(), (&raw mut len).cast()];
        // SAFETY: the kernel takes these three; the memory that the table names is the caller's promise.
        self.ask(LAUNCH, |symbols| unsafe {
            let (stream, extra) = (stream as *mut c_void, ptr::null_mut());
            let (blocks, threads) = (KERNEL_BLOCKS, KERNEL_THREADS);
            (symbols.launch)(kernel.function, blocks, 1, 1, threads, 1, 1, 0, stream, arguments.as_mut_ptr(), extra)
        })
    }
}
