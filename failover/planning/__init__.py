"""From what was asked for, and what was seen, to a plan per link and site, or why there is none."""
