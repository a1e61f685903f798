//! A GPU's copies, as `bench/gpu` measures them.
#![expect(unsafe_code, reason = "what is copied are addresses")]

use super::invalid;
use crate::errors::raise;
use crate::lists::List;
use pyo3::prelude::*;
use std::time::Instant;
use tidepool_client::door::{DevicePiece, Door as _, DoorError, Pinned, Span, Way};
use tidepool_cuda::Method;
use tidepool_locks::Mutex;

/// A GPU as the pool uses it: pins memory of this process and moves scattered pieces between it and the GPU's own.
///
/// For measurements. Addresses are believed: pieces of pinned memory and of live tensors only.
#[pyclass(module = "tidepool._native", frozen)]
pub(crate) struct GpuCopies {
    gpu: tidepool_cuda::Gpu,
    // Dropped with the object; the caller of `pin` keeps the memory until then.
    pins: Mutex<Vec<Box<dyn Pinned>>>,
}

#[pymethods]
impl GpuCopies {
    #[new]
    fn new(py: Python<'_>, device: u32) -> PyResult<Self> {
        let gpu = py.detach(|| tidepool_cuda::open(device)).map_err(failed)?;
        Ok(Self { gpu, pins: Mutex::default() })
    }

    /// Pins ``length`` bytes at ``address``, which must stay mapped for as long as this object.
    fn pin(&self, py: Python<'_>, address: usize, length: usize) -> PyResult<()> {
        // SAFETY: the caller's promise, as documented.
        let pin = py.detach(|| unsafe { self.gpu.pin(address as *mut u8, length, true) }).map_err(failed)?;
        self.pins.lock().push(pin);
        Ok(())
    }

    /// Copies pieces, each a (host address, GPU address, length), to the GPU or from it, by the kernel, by the copy
    /// engines or by the faster of the two at start. Returns the seconds taken.
    #[pyo3(signature = (pieces, to_gpu, by_kernel=None))]
    fn copy(
        &self,
        py: Python<'_>,
        pieces: List<(usize, u64, usize)>,
        to_gpu: bool,
        by_kernel: Option<bool>,
    ) -> PyResult<f64> {
        let spans: Vec<Span> =
            pieces.into_iter().map(|(host, device, len)| Span { host: host as *mut u8, device, len }).collect();
        let has = |span: &Span| self.gpu.has(DevicePiece { address: span.device, len: span.len });
        if let Some(span) = [spans.first(), spans.last()].into_iter().flatten().find(|span| !has(span)) {
            return Err(invalid(format!("{:#x} is no memory of this GPU", span.device)));
        }
        let way = if to_gpu { Way::In } else { Way::Out };
        let method = |way, len| match by_kernel {
            Some(true) => Method::Kernel,
            Some(false) => Method::Engine,
            None => self.gpu.choice().method(way, len),
        };
        py.detach(|| {
            let began = Instant::now();
            // SAFETY: the caller's promise, as documented.
            unsafe { self.gpu.begin_by(method, way, &spans) }.and_then(|flight| flight.land())?;
            Ok(began.elapsed().as_secs_f64())
        })
        .map_err(failed)
    }

    /// The measurements made when the GPU was opened: (to the GPU, bytes of a piece, seconds by the kernel, seconds by
    /// the engines).
    fn measured(&self) -> Vec<(bool, usize, f64, f64)> {
        let all = self.gpu.choice().times().iter();
        all.map(|times| (times.way == Way::In, times.len, times.kernel.as_secs_f64(), times.engine.as_secs_f64()))
            .collect()
    }

    /// Whether the kernel copies pieces of this length, to the GPU and from it; the copy engines copy all others.
    fn takes_kernel(&self, length: usize) -> (bool, bool) {
        let is_kernel = |way| self.gpu.choice().method(way, length) == Method::Kernel;
        (is_kernel(Way::In), is_kernel(Way::Out))
    }
}

fn failed(error: DoorError) -> PyErr {
    raise("TidepoolError", format!("GPU: {error}"), None)
}
