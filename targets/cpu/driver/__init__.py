"""Host functions as native code: control flow, frames, launches and how work is shared."""
