"""Are the copies equal? A Spark job reads both sites and says so, or names the records that differ.

Order of reading: `model.py` (the values), `ranges.py` (what may be compared), `freeze.py` (asks both sites once),
`digest.py` (the sums that are compared), `drill.py` (which records differ), `job.py` (one run from end to end).
"""
