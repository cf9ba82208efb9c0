"""How good fields are, judged from the fields, the laws and true fields alone; no method judges its own results.

Import names from the modules: the flow model uses `moments`, which must not load the laws.
"""
