"""Waiting for changes in asyncio. A thread waits for each feed that is being read."""

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._esker import Change, Changes

# A thread that waits ends after this many seconds, so that a cancelled task does not keep it.
_STEP = 0.2


async def next_change(changes: "Changes") -> "Change":
    """The next change of a feed; the end of the iteration when its timeout has passed."""
    loop = asyncio.get_running_loop()
    end = None if changes.timeout is None else loop.time() + changes.timeout
    while True:
        step = _STEP if end is None else max(0.0, min(_STEP, end - loop.time()))
        waiting = loop.run_in_executor(None, changes.wait, step)
        try:
            change = await asyncio.shield(waiting)
        except asyncio.CancelledError:
            await asyncio.wait([waiting])
            read = waiting.result()
            if read is not None:
                changes._put_back(read)
            raise
        if change is not None:
            return change
        if end is not None and loop.time() >= end:
            raise StopAsyncIteration
