"""Fields on disk: sharded Zarr with everything that belongs to them. A file has its name only once it is complete.

`write` simulates fields; `stream` writes those of any Source, block by block, and resumes.
"""

from snapfm.data.archive import load
from snapfm.data.layout import Source
from snapfm.data.recipe import Recipe, paper_count, write
from snapfm.data.stream import Written, stream

__all__ = ["Recipe", "Source", "Written", "load", "paper_count", "stream", "write"]
