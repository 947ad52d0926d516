"""The canary: small records written at the source each second, and watched for at the target.

`verdict.py` decides (pure: time is passed in), `record.py` is the record's form, `probe.py` moves the records.
"""
