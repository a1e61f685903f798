//! The driver's functions, looked up in `libcuda.so.1`.
#![expect(unsafe_code, reason = "the driver is a C library")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use tidepool_transfer::door::DoorError;

/// The status that every function returns; zero is success.
pub(crate) type Status = c_int;

/// The library; never unloaded, since the process has other users of it.
struct Library(*mut c_void);

impl Library {
    fn open() -> Result<Self, DoorError> {
        // SAFETY: loading the driver's library runs its initialisers, which are made for that.
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if library.is_null() { Err(missing("libcuda.so.1", last_error())) } else { Ok(Self(library)) }
    }

    /// The function's address.
    fn find(&self, name: &'static CStr) -> Result<*mut c_void, DoorError> {
        // SAFETY: the library is open and the name a string.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        let shown = name.to_str().unwrap_or("a function of the driver");
        if address.is_null() { Err(missing(shown, "this driver is too old for it".to_owned())) } else { Ok(address) }
    }
}

fn missing(what: &'static str, reason: String) -> DoorError {
    DoorError { call: what, reason }
}

fn last_error() -> String {
    // SAFETY: the message is the C library's and valid until the next call of this kind on this thread.
    let message = unsafe { libc::dlerror() };
    if message.is_null() {
        return "not found".to_owned();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()
}

macro_rules! symbols {
    (
        if there { $($extra:ident = $extra_name:literal ($($extra_argument:ty),*);)* }
        $($field:ident = $name:literal ($($argument:ty),*);)*
    ) => {
        /// The functions in use. Their signatures are those of cuda.h for the names with their versions.
        pub(crate) struct Symbols {
            $(pub(crate) $field: unsafe extern "C" fn($($argument),*) -> Status,)*
            $(pub(crate) $extra: Option<unsafe extern "C" fn($($extra_argument),*) -> Status>,)*
        }

        impl Symbols {
            /// Loads the library and looks the functions up. All must be there, except those that drivers before 12.0
            /// lack.
            pub(crate) fn load() -> Result<Self, DoorError> {
                let library = Library::open()?;
                // SAFETY: each name is a function of the driver with exactly this signature.
                Ok(unsafe { Self {
                    $($field: std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> Status>(library.find($name)?),)*
                    $($extra: library.find($extra_name).ok().map(|found| std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($extra_argument),*) -> Status>(found)),)*
                } })
            }
        }
    };
}

symbols! {
    if there {
        find_versioned = c"cuGetProcAddress_v2" (*const c_char, *mut *mut c_void, c_int, u64, *mut c_int);
    }
    init = c"cuInit" (c_uint);
    error_name = c"cuGetErrorName" (Status, *mut *const c_char);
    device = c"cuDeviceGet" (*mut c_int, c_int);
    retain_context = c"cuDevicePrimaryCtxRetain" (*mut *mut c_void, c_int);
    release_context = c"cuDevicePrimaryCtxRelease_v2" (c_int);
    push_context = c"cuCtxPushCurrent_v2" (*mut c_void);
    pop_context = c"cuCtxPopCurrent_v2" (*mut *mut c_void);
    register = c"cuMemHostRegister_v2" (*mut c_void, usize, c_uint);
    unregister = c"cuMemHostUnregister" (*mut c_void);
    allocate = c"cuMemAlloc_v2" (*mut u64, usize);
    free = c"cuMemFree_v2" (u64);
    pointer_attribute = c"cuPointerGetAttribute" (*mut c_void, c_int, u64);
    create_stream = c"cuStreamCreate" (*mut *mut c_void, c_uint);
    destroy_stream = c"cuStreamDestroy_v2" (*mut c_void);
    drain_stream = c"cuStreamSynchronize" (*mut c_void);
    create_event = c"cuEventCreate" (*mut *mut c_void, c_uint);
    destroy_event = c"cuEventDestroy_v2" (*mut c_void);
    record_event = c"cuEventRecord" (*mut c_void, *mut c_void);
    query_event = c"cuEventQuery" (*mut c_void);
    copy_in = c"cuMemcpyHtoDAsync_v2" (u64, *const c_void, usize, *mut c_void);
    copy_out = c"cuMemcpyDtoHAsync_v2" (*mut c_void, u64, usize, *mut c_void);
    load_module = c"cuModuleLoadData" (*mut *mut c_void, *const c_void);
    find_function = c"cuModuleGetFunction" (*mut *mut c_void, *mut c_void, *const c_char);
    launch = c"cuLaunchKernel" (*mut c_void, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, *mut c_void, *mut *mut c_void, *mut *mut c_void);
    unload_module = c"cuModuleUnload" (*mut c_void);
}
