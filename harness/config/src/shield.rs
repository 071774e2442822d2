use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use std::sync::Once;

thread_local! {
    static SHIELDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs a reader that trusts what it reads in places, and turns its panic into an error that is kept off the terminal.
///
/// Readers that start threads of their own name these after themselves: panics of threads called `polars` are kept off the terminal, too.
///
/// # Errors
/// What the reader said when it panicked, in one line.
pub fn shielded<T>(read: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let reader_thread = std::thread::current().name().is_some_and(|name| name.starts_with("polars"));
            if !reader_thread && !SHIELDED.get() {
                previous(info);
            }
        }));
    });
    let outer = SHIELDED.replace(true);
    let result = std::panic::catch_unwind(AssertUnwindSafe(read));
    SHIELDED.set(outer);
    result.map_err(|cause| {
        let text = cause.downcast_ref::<String>().map(String::as_str).or_else(|| cause.downcast_ref::<&str>().copied());
        text.and_then(|text| text.lines().next()).unwrap_or("the reader gave up").to_owned()
    })
}
