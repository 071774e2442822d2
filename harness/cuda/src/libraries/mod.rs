//! NVIDIA's libraries, opened at run time by their versioned names.
