"""Fields on disk: sharded Zarr with everything that belongs to them. A file has its name only once it is complete.

`generate` draws lawful fields into a file, `project_file` projects those of another; `stream` writes the fields of any Source,
block by block, and resumes. `snapfm.files.engines` says which processes compute the blocks.
"""

from snapfm.files.archive import load
from snapfm.files.certified import OwnRecipe
from snapfm.files.layout import Source
from snapfm.files.projected import Projecting
from snapfm.files.requests import Named, named
from snapfm.files.run import Generated, ProjectedFile, generate, project_file
from snapfm.files.stream import Written, stream

__all__ = [
    "Generated", "Named", "OwnRecipe", "ProjectedFile", "Projecting", "Source", "Written", "generate", "load", "named",
    "project_file", "stream",
]  # fmt: skip
