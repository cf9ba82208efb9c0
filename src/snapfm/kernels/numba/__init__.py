"""Machinery of compiled code apart from mathematics: compiling, the cache on disk, packs of lanes, memory sections."""
