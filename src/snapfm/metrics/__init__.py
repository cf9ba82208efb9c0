"""How good fields are, judged from the fields, the laws and ground truth alone; no method marks its own work.

Names are imported from the modules: the flow model uses `moments`, and must not load the laws with it.
"""
