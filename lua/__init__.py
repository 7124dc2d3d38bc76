"""The Lua scripts of ampsq, as data: one atomic operation a file; `ampsq.protocol.scripts` composes them."""
