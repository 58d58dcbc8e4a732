"""Host functions as native code: control flow, frames, launches and work sharing."""
