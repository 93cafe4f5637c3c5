//! A way to measure several contestants side by side.
