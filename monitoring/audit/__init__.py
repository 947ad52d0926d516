"""Are the copies equal? A Spark job reads both sites and says so, or names the records that differ.

Order of reading: `model.py` with `reasons.py` and `outcome.py` (the values), `ranges.py` (what may be compared),
`sample.py` (a share of it), `proof.py` (what need not be read again), `freeze.py` with `frozen.py` and `history.py`
(asks both sites once), `groups.py` with `group_looks.py` and `next_records.py` (what groups read next at both sites),
`run.py` (the parent), `spark_child.py` (its child as it sees it), `plans.py` and `manifest.py` with `parts.py` (a run
whose sites are digested apart), `protocol.py` (what parent and child say to each other). Only the child loads Spark:
`child.py`, `session.py`, `reader.py`, `lookup.py` (an offset's place in the map), `digest.py` (the sums that are
compared), `diff.py` (which records differ), `phases.py` (these in their order), `job.py` (one comparison from end to
end), `apart.py` with `kept.py` (its parts alone), `rounds.py` with `look.py` (again, where records expired meanwhile),
`results.py`, `tables.py`, `report.py` and `plot.py`. `store.py` has what others read of a run, and `gate.py` what a
switchover asks of it. `watch.py` makes audit after audit, and `watching.py` says what is new in each. `repair.py` says
what of a run can be mended and at which price, and `repairing.py` has the mirror do it.
"""
