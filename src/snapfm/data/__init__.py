"""Fields on disk: sharded Zarr with all that belongs to them, whole or under another name.

`write` simulates them; `stream` writes those of any Source, block by block, and resumes.
"""

from snapfm.data.recipe import Recipe, paper_count
from snapfm.data.source import Source
from snapfm.data.stream import Written, stream
from snapfm.data.write import load, write

__all__ = ["Recipe", "Source", "Written", "load", "paper_count", "stream", "write"]
