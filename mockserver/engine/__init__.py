"""When tokens appear: vLLM V1's scheduler, block pool and step times as arithmetic on queues.

No event loop, no clock, no I/O, no randomness. Time is an argument.
"""
