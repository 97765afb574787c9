"""
The soak: minutes of everything at once, from seeds, with the figures that must not grow.

``python -m tests.soak --seconds 600``. Time is cut into epochs. In each, every loop (one of asyncio, one of uvloop,
each in a thread of its own) opens and closes DMAs in the middle of their work; tasks copy maps, slices, lists, batches
and plain objects, cancel, time out and drop them; faults are injected, contexts restart, engines are lost; processes at
the other end of an export are killed. Between two epochs nothing is open, and what is still there then is measured.
"""
